"""The draws of AugMix against their distributions, and against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from prime_dali import random
from prime_dali.training.augmix import (
    AUTOCONTRAST,
    EQUALIZE,
    NONE,
    POSTERIZE,
    ROTATE,
    SHEAR_X,
    SHEAR_Y,
    SOLARIZE,
    TRANSLATE_X,
    TRANSLATE_Y,
    AugMix,
)


def drawn(module: AugMix, index: torch.Tensor, size: tuple[int, int] = (48, 96), epoch: Any = None) -> Any:
    return module.draw(index, epoch, size)


def test_law_of_operations_and_depth() -> None:
    module = AugMix(3, views=3)
    operation = drawn(module, torch.arange(10_000)).operation
    assert operation.shape == (3, 2, 3, 10_000)
    depth = (operation != NONE).sum(0)
    assert torch.equal(operation != NONE, torch.arange(3)[:, None, None, None] < depth)
    chains = depth.numel()
    for value in (1, 2, 3):
        assert ((depth == value).sum() / chains).item() == pytest.approx(1 / 3, abs=5 * (2 / 9 / chains) ** 0.5)
    for slot in operation:
        used = slot[slot != NONE]
        shares = used.bincount(minlength=9) / used.numel()
        assert (shares - 1 / 9).abs().max() < 5 * (8 / 81 / used.numel()) ** 0.5
    # What one slot, chain or view draws says nothing of another.
    for a, b in ((operation[0, 0, 0], operation[1, 0, 0]), (operation[0, 0, 0], operation[0, 0, 1]),
                 (operation[0, 0, 0], operation[0, 1, 0])):  # fmt: skip
        used = (a != NONE) & (b != NONE)
        table = (a * 9 + b)[used].bincount(minlength=81).double()
        expected = table.sum() / 81
        assert ((table - expected) ** 2 / expected).sum() < 80 + 5 * 160**0.5


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_fixed_depth_and_width(depth: int) -> None:
    draws = drawn(AugMix(3, depth=depth, width=2), torch.arange(50))
    assert draws.operation.shape == draws.magnitude.shape == (depth, 1, 2, 50)
    assert (draws.operation != NONE).all()
    assert draws.weights.shape == (1, 3, 50)


# Level L ~ U(0.1, severity): int(L * 4 / 10), int(L * 30 / 10), ..., int(L * (side / 3) / 10); height 48, width 96.
@pytest.mark.parametrize(("severity", "bits", "degrees", "threshold", "shear", "rows", "columns"), [
    (1, {4}, 2, (231, 254), 0.03, 1, 3),
    (3, {3, 4}, 8, (180, 254), 0.09, 4, 9),
    (10, {1, 2, 3, 4}, 29, (1, 254), 0.3, 15, 31),
])  # fmt: skip
def test_law_of_magnitudes(
    severity: int, bits: set[int], degrees: int, threshold: tuple[int, int], shear: float, rows: int, columns: int
) -> None:
    draws = drawn(AugMix(severity, depth=1), torch.arange(30_000))
    values = {place: draws.magnitude[draws.operation == place] for place in range(9)}

    def whole(place: int) -> list[int]:
        assert torch.equal(values[place], values[place].round())
        return sorted(set(values[place].int().tolist()))

    assert whole(AUTOCONTRAST) == whole(EQUALIZE) == [0]
    assert set(whole(POSTERIZE)) == bits
    assert whole(ROTATE) == list(range(-degrees, degrees + 1))
    assert whole(SOLARIZE) == list(range(threshold[0], threshold[1] + 1))
    assert whole(TRANSLATE_X) == list(range(-columns, columns + 1))
    assert whole(TRANSLATE_Y) == list(range(-rows, rows + 1))
    for place in (SHEAR_X, SHEAR_Y):
        size, low = values[place].abs(), 0.1 * 0.03
        assert low < size.min() < 1.05 * low + 0.01 * shear
        assert 0.99 * shear < size.max() < shear
        error = (shear - low) / (12 * len(size)) ** 0.5
        assert size.mean().item() == pytest.approx((low + shear) / 2, abs=5 * error)
        assert size.std().item() == pytest.approx((shear - low) / 12**0.5, rel=0.05)
    for place in (ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y):
        moved = values[place][values[place] != 0]
        assert (moved > 0).double().mean().item() == pytest.approx(0.5, abs=2.5 / len(moved) ** 0.5)


def test_law_of_weights() -> None:
    """``1 - Beta(1, 1)``, and Dirichlet(1, 1, 1): mean 1/3, variance 1/18, covariance -1/36."""
    weights = drawn(AugMix(3), torch.arange(40_000)).weights[0].double()
    assert weights.shape == (4, 40_000)
    torch.testing.assert_close(weights.sum(0), torch.ones(40_000).double(), rtol=0, atol=1e-6)
    clean, shares = weights[0], weights[1:] / weights[1:].sum(0)
    assert ((clean * 10).long().bincount() - 4000).abs().max() < 5 * 3600**0.5
    covariance = torch.full((3, 3), -1 / 36).fill_diagonal_(1 / 18).double()
    torch.testing.assert_close(shares.mean(1), torch.full((3,), 1 / 3).double(), rtol=0, atol=0.006)
    torch.testing.assert_close(shares.cov(), covariance, rtol=0, atol=0.002)
    assert torch.stack([clean, *shares]).corrcoef()[0, 1:].abs().max() < 0.025


def test_draws_are_those_of_numpy() -> None:
    """Word for word, from the second definition of the random numbers, in plain integers and floats."""
    seed, epoch, size, severity = 5, 7, (32, 40), 3
    index = torch.tensor([0, 3, 2**40 + 1])
    draws = drawn(AugMix(severity, seed=seed, views=3), index, size, epoch)
    largest = [0, 0, 4, 30, 256, 0.3, 0.3, size[1] / 3, size[0] / 3]
    for view, (n, number) in ((v, pair) for v in (0, 1) for pair in enumerate(index.tolist())):
        blocks = [random.stream(seed, np.int64(number), np.int64(epoch), np.int64(16 * view + b)) for b in range(4)]
        words = [int(word) for block in blocks for word in block]
        unit = [(word + 0.5) / 2**32 for word in words]
        shares = -np.log(unit[1:4])
        expected = [1 - unit[0], *(unit[0] * shares / shares.sum())]
        np.testing.assert_allclose(draws.weights[view, :, n], expected, rtol=1e-6)
        for chain in range(3):
            for slot in range(3):
                operation, rest = divmod(words[7 + 3 * slot + chain] * 9, 2**32)
                half, rest = divmod(rest, 2**31)
                level = 0.1 + (severity - 0.1) * (rest + 0.5) / 2**31
                if slot >= 1 + int(3 * unit[4 + chain]):
                    operation, magnitude = NONE, 0.0
                else:
                    amount = level * largest[operation] / 10
                    amount = amount if operation in (SHEAR_X, SHEAR_Y) else int(amount)
                    magnitude = {POSTERIZE: 4 - amount, SOLARIZE: 256 - amount}.get(operation, (2 * half - 1) * amount)
                assert draws.operation[slot, view, chain, n] == operation
                assert draws.magnitude[slot, view, chain, n].item() == pytest.approx(magnitude, rel=1e-12)
