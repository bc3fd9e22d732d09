"""The Jensen-Shannon loss against its definition, computed by hand and in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from prime_dali.training.losses import LEAST, jsd_loss


def random_batch(
    images: int = 4, classes: int = 5, scale: float = 2.0, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(3 * images, classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(classes, (images,), generator=generator)


def definition(logits: torch.Tensor, labels: torch.Tensor, weight: float = 12.0, least: float = LEAST) -> float:
    """docs/METHOD.md, "Views and JSD", in float64; 0 log 0 is 0."""
    x = logits.double().numpy().reshape(3, len(labels), -1)
    p: NDArray[np.float64] = np.exp(x - x.max(2, keepdims=True))
    p /= p.sum(2, keepdims=True)
    log_mean = np.log(np.clip(p.mean(0), least, 1))
    log_p = np.log(np.where(p > 0, p, 1))
    divergence = (p * (log_p - np.where(p > 0, log_mean, 0))).sum(2).mean()
    return float(-log_p[0, np.arange(len(labels)), labels.numpy()].mean() + weight * divergence)


def test_by_hand() -> None:
    """Softmaxes (1/2, 1/2), (3/4, 1/4), (1/4, 3/4): their mean is (1/2, 1/2), the cross entropy log 2."""
    logits = torch.tensor([[0, 0], [math.log(3), 0], [0, math.log(3)]], dtype=torch.float64)
    one = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)  # KL of each of the last two
    for weight in (12.0, 1, 0):
        loss = jsd_loss(logits, torch.tensor([1]), weight)
        assert loss.item() == pytest.approx(math.log(2) + weight * 2 * one / 3, rel=1e-14)
    assert jsd_loss(logits, torch.tensor([1])).item() == pytest.approx(1.7396435, abs=1e-7)


def test_two_views_by_hand() -> None:
    """Softmaxes (3/4, 1/4) and (1/4, 3/4), of two images in turn: the cross entropies are log 4/3 and log 4."""
    logits = torch.tensor([[1.0, 0], [0, 1], [0, 1], [1, 0]], dtype=torch.float64) * math.log(3)
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    loss = jsd_loss(logits, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2 + 12 * divergence, rel=1e-14)


def test_clamp_by_hand() -> None:
    """Three equal views have no divergence; the clamp takes ``p log(1e-7 / p)`` of the rare class off."""
    rare = 2e-8
    logits = torch.tensor([[math.log(1 - rare), math.log(rare)]] * 3, dtype=torch.float64)
    expected = -math.log(1 - rare) - 12 * rare * math.log(LEAST / rare)
    assert jsd_loss(logits, torch.tensor([0])).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [0.1, 2.0, 15.0, 100.0])
def test_equals_the_definition(scale: float) -> None:
    logits, labels = random_batch(6, 10, scale)
    assert jsd_loss(logits, labels).item() == pytest.approx(definition(logits, labels), rel=1e-12)
    single = jsd_loss(logits.float(), labels)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(definition(logits.float(), labels), rel=2e-6)


def test_bound_on_the_clamp() -> None:
    """As the docstring says, for the worst mean probability, 1e-7 / e, of all classes but one."""
    classes = 1000
    worst = math.log(LEAST / math.e)
    logits = torch.full((3, classes), worst, dtype=torch.float64)
    logits[:, 0] = math.log1p(-(classes - 1) * math.exp(worst))
    labels = torch.tensor([0])
    lost = definition(logits, labels, least=1e-300) - jsd_loss(logits, labels).item()
    assert lost == pytest.approx(4.4e-7 * classes, rel=0.01)


@pytest.mark.parametrize("scale", [1.0, 30.0])  # 30: some means are below the clamp
def test_gradient_is_the_finite_difference(scale: float) -> None:
    logits, labels = random_batch(3, 4, scale)
    if scale > 1:
        assert (logits.softmax(1).unflatten(0, (3, -1)).mean(0) < LEAST).any()
    assert torch.autograd.gradcheck(lambda x: jsd_loss(x, labels), logits.requires_grad_(), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [200.0, 6e4, torch.inf])
def test_extreme_logits(size: float, dtype: torch.dtype) -> None:
    """Softmaxes that underflow, disagreeing views, and a class that is ruled out by -inf."""
    logits = torch.zeros(6, 4, dtype=dtype)
    logits[0, 0] = logits[2, 1] = logits[4, 2] = 200.0  # the first image: three views, each sure of another class
    logits[:, 3] = -size
    logits.requires_grad_()
    loss = jsd_loss(logits, torch.tensor([0, 1]))
    loss.backward()
    # First image: no cross entropy, every KL log 3. Second: uniform over three classes, no KL.
    assert loss.item() == pytest.approx((12 + 1) * math.log(3) / 2, rel=1e-6)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[1, :3].tolist() == pytest.approx([1 / 6, -1 / 3, 1 / 6], rel=4e-3)


def test_half_precision_is_computed_in_float32() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        logits, labels = random_batch(dtype=dtype)
        loss = jsd_loss(logits, labels)
        assert loss.dtype == torch.float32
        assert loss.item() == jsd_loss(logits.float(), labels).item()


def test_equals_timm() -> None:
    timm = pytest.importorskip("timm.loss", reason="timm is not installed")
    logits, labels = random_batch(8, 10, 4.0)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss, expected = jsd_loss(ours, labels), timm.JsdCrossEntropy(smoothing=0, alpha=12)(theirs, labels)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_soft_labels_and_smoothing() -> None:
    """Both are linear in the label: a mixed label has the mixed loss, smoothing mixes with the uniform label."""
    logits, labels = random_batch(5, 7)
    others = labels.roll(1)
    one, other = (torch.nn.functional.one_hot(y, 7).double() for y in (labels, others))
    assert jsd_loss(logits, one).item() == pytest.approx(jsd_loss(logits, labels).item(), rel=1e-14)
    mixed = jsd_loss(logits, 0.3 * one + 0.7 * other).item()
    assert mixed == pytest.approx(
        0.3 * jsd_loss(logits, labels).item() + 0.7 * jsd_loss(logits, others).item(), rel=1e-12
    )
    uniform = torch.full((5, 7), 1 / 7, dtype=torch.float64)
    smooth = jsd_loss(logits, 0.9 * one + 0.1 * uniform).item()
    for given in (labels, one, one.float()):
        assert jsd_loss(logits, given, label_smoothing=0.1).item() == pytest.approx(smooth, rel=1e-12)
    timm = pytest.importorskip("timm.loss", reason="timm is not installed")
    assert timm.JsdCrossEntropy(smoothing=0.1, alpha=12)(logits, labels).item() == pytest.approx(smooth, rel=1e-12)


def test_compiles() -> None:
    logits, labels = random_batch(dtype=torch.bfloat16)
    compiled = torch.compile(jsd_loss, fullgraph=True)
    one, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss, expected = compiled(one, labels), jsd_loss(other, labels)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(one.grad, other.grad)


LOGITS, LABELS = torch.zeros(6, 5), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ((LOGITS.numpy(), LABELS), TypeError, r"logits: expected a torch.Tensor, got ndarray"),
    ((LOGITS.long(), LABELS), TypeError, r"logits: expected a floating dtype, got torch.int64"),
    ((LOGITS, [0, 1]), TypeError, r"labels: expected a torch.Tensor, got list"),
    ((LOGITS, LABELS.int()), TypeError, r"labels: expected int64 \[N\], or soft .*, got torch.int32 \[2\]"),
    ((LOGITS, LABELS[:, None]), ValueError, r"labels: expected int64 \[N\], or .*, got torch.int64 \[2, 1\]"),
    ((LOGITS[:0], LABELS[:0]), ValueError, r"labels: expected those of at least one image, got \[0\]"),
    ((LOGITS[:2], LABELS), ValueError, r"logits: expected \[6, C\] or \[4, C\], three or two views of 2 images, got \[2, 5\]"),
    ((LOGITS.view(3, 2, 5), LABELS), ValueError, r"logits: expected \[6, C\] or \[4, C\], three or two views of 2 images, got \[3, 2, 5\]"),
    ((LOGITS, LABELS.float()), ValueError, r"labels: expected .* soft labels, floating \[N, C\], got torch.float32 \[2\]"),
    ((LOGITS, torch.zeros(2, 4)), ValueError, r"labels: expected one number for each of 5 logits, got \[2, 4\]"),
    ((LOGITS, LABELS, 12.0, 1.5), ValueError, r"label_smoothing: expected 0 to 1, got 1.5"),
    ((LOGITS, LABELS, -1.0), ValueError, r"weight: expected a finite number >= 0, got -1.0"),
])  # fmt: skip
def test_bad_input(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        jsd_loss(*arguments)
