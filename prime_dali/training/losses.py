"""The consistency loss of training with several views of each image."""

from __future__ import annotations

from .. import _extras

with _extras.importing(__name__, "torch"):
    import torch
    from torch.nn.functional import cross_entropy, log_softmax, nll_loss

from .. import _arguments
from .._wording import plural

LEAST = 1e-7  # mean probabilities are clamped to this minimum before the logarithm


def jsd_loss(
    logits: torch.Tensor, labels: torch.Tensor, weight: float = 12.0, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Cross entropy on the clean images plus the Jensen-Shannon divergence of the views: three, or two.

    ``CE(clean) + weight * mean over k of KL(p_k || M)``, ``p_k`` the softmax of view ``k``, ``M`` the mean of all these
    softmaxes, clamped to [1e-7, 1] before the logarithm (docs/METHOD.md, "Views and JSD"; Hendrycks et al., "AugMix",
    ICLR 2020, section 3). Both terms are means over the images.

    A class with ``M < 1e-7`` adds ``M log(1e-7 / M) <= 1e-7 / e`` less to the divergence than without the clamp, so the
    loss is too small by at most ``4.4e-7 * C`` at weight 12, and can be less than the cross entropy by as much.

    Args:
        logits: ``[3N, C]``, floating: all clean images, then all first augmented views, then all second ones, as
            ``PRIME(views=3)`` returns them; or ``[2N, C]`` without the second ones. float16 and
            bfloat16 are computed in float32.
        labels: int64 ``[N]``, 0 to C - 1; or soft labels of mixed images, floating ``[N, C]``, rows that sum to 1. The
            views of an image are mixed with the same partner and weights, so they share a label.
        weight: Weight of the divergence, finite and >= 0.
        label_smoothing: Part of each label that is spread over all classes in the cross entropy, 0 to 1.

    Returns:
        The loss, ``[]``, float32, or float64 for float64 logits.

    Raises:
        TypeError, ValueError: Wrong type, dtype, shape or range; the message names the argument.
    """
    for argument, tensor in (("logits", logits), ("labels", labels)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{argument}: expected a torch.Tensor, got {type(tensor).__name__}")
    if not logits.dtype.is_floating_point:
        raise TypeError(f"logits: expected a floating dtype, got {logits.dtype}")
    _check_labels(logits, labels)
    count = labels.shape[0]
    if logits.dim() != 2 or logits.shape[0] not in (2 * count, 3 * count):
        raise ValueError(
            f"logits: expected [{3 * count}, C] or [{2 * count}, C], three or two views of {plural(count, 'image')}, "
            f"got {list(logits.shape)}"
        )
    weight = _arguments.amplitude("weight", weight)
    label_smoothing = _arguments.amplitude("label_smoothing", label_smoothing, 1.0)

    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    log_p = log_softmax(logits.to(dtype), 1).unflatten(0, (-1, count))
    p = log_p.exp()
    log_mean = p.mean(0).clamp(LEAST, 1).log()
    # p log p through log_softmax, because the derivative of log p is 0 / 0 if p has underflowed to 0. A class that is
    # ruled out has -inf, and 0 times that would be NaN; p is 0 in either precision from -1000 down.
    divergence = (p * (log_p.clamp(min=-1000) - log_mean)).sum(2).mean()
    if labels.dim() == 1 and not label_smoothing:
        return nll_loss(log_p[0], labels) + weight * divergence
    soft = labels.to(dtype) if labels.dim() == 2 else labels
    return cross_entropy(log_p[0], soft, label_smoothing=label_smoothing) + weight * divergence


def _check_labels(logits: torch.Tensor, labels: torch.Tensor) -> None:
    """TypeError or ValueError unless labels are class indices of one image or more, or soft labels for these logits."""
    wanted = "int64 [N], or soft labels, floating [N, C]"
    soft = labels.dtype.is_floating_point
    if not soft and labels.dtype != torch.int64:
        raise TypeError(f"labels: expected {wanted}, got {labels.dtype} {list(labels.shape)}")
    if labels.dim() != 1 + soft:
        raise ValueError(f"labels: expected {wanted}, got {labels.dtype} {list(labels.shape)}")
    if labels.shape[0] == 0:
        raise ValueError(f"labels: expected those of at least one image, got {list(labels.shape)}")
    if soft and logits.dim() == 2 and labels.shape[1] != logits.shape[1]:
        raise ValueError(f"labels: expected one number for each of {logits.shape[1]} logits, got {list(labels.shape)}")
