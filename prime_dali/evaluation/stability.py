"""How stable answers are along sequences of perturbed images (docs/EVALUATION.md, "Perturbation sequences").

Consecutive frames of most perturbations differ a little, so a frame is compared with the one before. Frames of noise
are independent of each other, so a frame is compared with the first one, which is clean (Hendrycks and Dietterich,
2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from . import predicting
from .scores import Stability
from .sequences import Perturbed


def is_noise(perturbation: str) -> bool:
    """Whether frames are compared with the first one, rather than with the one before."""
    return "noise" in perturbation


def flip_rates(predictions: torch.Tensor, noise: bool) -> torch.Tensor:
    """The fraction of frames, from the second on, whose predicted class is another than that of the compared frame.

    Args:
        predictions: ``[N, frames]``, the predicted classes of N sequences of two frames or more.
        noise: As :func:`is_noise`.

    Returns:
        ``[N]``, float64 in [0, 1].

    >>> flip_rates(torch.tensor([[3, 5, 5, 3, 3]]), noise=False)  # 3 to 5, and 5 to 3, of four
    tensor([0.5000], dtype=torch.float64)
    """
    return (predictions[:, 1:] != _compared(predictions, noise)).double().mean(1)


def top5_distances(logits: torch.Tensor, noise: bool) -> torch.Tensor:
    """How far the five best classes of the compared frame move in the ranking, mean over frames from the second on.

    Let the class that is i-th best in the compared frame, i = 1 to 5, be ``s(i)``-th best in this one. The distance is
    ``sum over i of |min(i - 1, 5) - min(s(i) - 1, 5)|``: a move below the sixth place counts as one to it. Classes with
    equal logits rank in the order of their numbers.

    Args:
        logits: ``[N, frames, classes]``.
        noise: As :func:`is_noise`.

    Returns:
        ``[N]``, float64; 0 if the five best never change their order.

    >>> top5_distances(torch.tensor([[[9.0, 8, 7, 6, 5, 4], [8, 9, 7, 6, 4, 5]]]), noise=False)  # 1 + 1 + 0 + 0 + 1
    tensor([3.], dtype=torch.float64)
    """
    order = logits.sort(dim=2, descending=True, stable=True).indices
    places = order.argsort(2)  # of each class, 0 is best
    best = _compared(order, noise)[..., :5]
    start = torch.arange(best.shape[2], device=logits.device)
    return (places[:, 1:].gather(2, best).clamp(max=5) - start).abs().sum(2).double().mean(1)


def _compared(frames: torch.Tensor, noise: bool) -> torch.Tensor:
    """The frames that those from the second on are compared with."""
    return frames[:, :1].expand_as(frames[:, 1:]) if noise else frames[:, :-1]


def measure(
    network: nn.Module,
    what: Perturbed,
    perturbation: str,
    statistics: predicting.Statistics,
    device: torch.device,
    batch: int,
) -> Stability:
    """Measure a network on the sequences of a perturbation, in the precision of the device.

    Args:
        network, statistics, device: As for :func:`.evaluate.count`.
        what: The benchmark.
        perturbation: One of its parts.
        batch: Images per forward pass, rounded down to whole sequences, at least one.

    Raises:
        ValueError: Logits that are not finite, or sequences that are not readable, which are named.
    """
    sequences, noise = what.read(perturbation), is_noise(perturbation)
    normalized = predicting.normalization(statistics, device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    flips, distances = [], []
    with predicting.evaluating(network, device):
        for frames in sequences.batches(batch, device):
            logits = predicting.logits(network, normalized(frames.flatten(0, 1))).unflatten(0, frames.shape[:2])
            finite &= logits.isfinite().all()
            flips.append(flip_rates(logits.argmax(2), noise))
            distances.append(top5_distances(logits, noise))
    predicting.check_finite(finite, perturbation)
    return Stability(*sequences.shape, torch.cat(flips).mean().item(), torch.cat(distances).mean().item())


def mean_flip_rate(
    rates: Mapping[str, float], perturbations: Sequence[str], reference: Mapping[str, float] | None = None
) -> float:
    """``mFR = 100 * mean over p of FR[p] / FR_reference[p]``, in percent.

    Args:
        rates: Flip rates, in [0, 1], at least those of ``perturbations``.
        perturbations: Those that the mean includes.
        reference: Flip rates of the reference, such as :data:`.sequences.ALEXNET_FLIP_RATES`; None: 1, as for CIFAR-P.

    Raises:
        ValueError: There are no perturbations, or one is missing.

    >>> mean_flip_rate({"tilt": 0.1, "scale": 0.1}, ["tilt", "scale"], {"tilt": 0.1, "scale": 0.2})
    75.0
    """
    return _mean_ratio("rates", rates, perturbations, reference)


def mean_top5_distance(
    distances: Mapping[str, float], perturbations: Sequence[str], reference: Mapping[str, float]
) -> float:
    """``mT5D = 100 * mean over p of uT5D[p] / uT5D_reference[p]``, in percent.

    uT5D of Hendrycks and Dietterich (2019) is what :func:`top5_distances` returns, mean over sequences, and what
    ``ImageNet-P/test.py`` of github.com/hendrycks/robustness prints; that its mean over perturbations is normalized by
    AlexNet's is in the paper.

    Args:
        distances: uT5D, at least those of ``perturbations``.
        perturbations: Those that the mean includes.
        reference: uT5D of the reference, such as :data:`.sequences.ALEXNET_TOP5_DISTANCES`. CIFAR-P has none.

    Raises:
        ValueError: There are no perturbations, or one is missing.

    >>> mean_top5_distance({"tilt": 1.0, "scale": 1.0}, ["tilt", "scale"], {"tilt": 1.0, "scale": 4.0})
    62.5
    """
    return _mean_ratio("distances", distances, perturbations, reference)


def _mean_ratio(
    argument: str, values: Mapping[str, float], perturbations: Sequence[str], reference: Mapping[str, float] | None
) -> float:
    """Mean over ``perturbations`` of the values over those of the reference, in percent."""
    missing = [name for name in perturbations if name not in values]
    if missing or not perturbations:
        raise ValueError(f"{argument}: expected those of some perturbations, missing: {', '.join(missing) or 'all'}")
    ratios = [values[name] / (1.0 if reference is None else reference[name]) for name in perturbations]
    return 100 * sum(ratios) / len(ratios)
