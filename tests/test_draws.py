"""Draws that the images of a batch share, ``PrimeConfig(draws="batch")``: docs/METHOD.md, "Draws per batch"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import count_beyond, make_images
from scipy import stats

import prime_dali
from prime_dali import PrimeConfig, preset, reference
from prime_dali._slots import COLOR, NOISE, SPATIAL, SPECTRAL
from prime_dali.tools import augment
from prime_dali.tools.copies import Settings

SIZE = (32, 32)
CONFIG = preset("imagenet").replace(primitives=("spectral", "spatial", "color", "noise"), noise_std=0.1, depth=2)
SHARED = CONFIG.replace(draws="batch")
INDEX = np.arange(200) + 7


def draw(config: PrimeConfig, index: np.ndarray = INDEX, **more):
    return prime_dali.sample(config, index, size=SIZE, seed=3, **more)


@pytest.mark.parametrize("mixing", ["paper", "official"])
def test_what_a_batch_shares(mixing: str) -> None:
    """One strength, cut, band and field for a primitive and slot; the choice of primitives, depths and weights as without."""
    plan, alone = draw(SHARED.replace(mixing=mixing)), draw(CONFIG.replace(mixing=mixing))
    for name in ("stream", "weights", "primitive"):
        assert np.array_equal(getattr(plan, name), getattr(alone, name)), name
    drawn = {}
    for primitive in (SPECTRAL, SPATIAL, COLOR, NOISE):
        for j in range(2):
            chosen = plan.primitive[:, :, j] == primitive
            found = {tuple(map(float, numbers)) for numbers in np.stack(
                [plan.strength[:, :, j], plan.first[:, :, j], plan.last[:, :, j]], -1)[chosen]}  # fmt: skip
            assert len(found) == 1
            drawn[primitive, j] = found.pop()
    assert len(set(drawn.values())) == 7  # noise has one strength anyway
    assert (plan.first[plan.primitive == SPATIAL] != 0).all()
    assert (alone.first[alone.primitive == SPATIAL] == 0).all()


def test_each_view_and_batch_draws_for_itself() -> None:
    plan = draw(SHARED.replace(primitives=("spatial",), include_identity=False), view=("clean", 0, 1))
    fields = plan.first.reshape(3, -1, 3, 2)
    assert (fields[0] == 0).all()
    assert len(np.unique(fields[1:])) == 4  # by view and slot
    other = draw(SHARED.replace(primitives=("spatial",), include_identity=False), INDEX[1:], view=0)
    assert not np.isin(other.first, fields).any()


def test_the_first_image_is_the_key() -> None:
    whole, reordered = draw(SHARED), draw(SHARED, np.append(INDEX[:1], INDEX[:0:-1]))
    assert np.array_equal(whole.rows[1:], reordered.rows[:0:-1])
    assert np.array_equal(draw(SHARED, epoch=np.full(200, 5)).rows, draw(SHARED, epoch=5).rows)
    assert draw(SHARED, torch.from_numpy(INDEX)) == whole
    later = draw(SHARED.replace(primitives=("spatial",), include_identity=False), epoch=6)
    assert not np.isin(
        later.first, draw(SHARED.replace(primitives=("spatial",), include_identity=False), epoch=5).first
    ).any()


def test_strengths_have_their_distributions_over_batches() -> None:
    """And primitives are independent of each other, which would not be so if they took the same words."""
    config = SHARED.replace(depth=1, include_identity=False, spatial_cut=20, width=20)
    plans = [draw(config, np.array([i])) for i in range(1700)]
    strength = {k: [p.strength[p.primitive == k][0] if (p.primitive == k).any() else np.nan for p in plans]
                for k in (SPECTRAL, COLOR)}  # fmt: skip
    spectral, variance = np.array(strength[SPECTRAL]), np.array(strength[COLOR]) ** 2
    known = ~np.isnan(spectral) & ~np.isnan(variance)
    assert stats.kstest(spectral[known], stats.uniform(0, 4).cdf).pvalue > 1e-4
    assert stats.kstest(variance[known], stats.uniform(0, 0.05).cdf).pvalue > 1e-4
    assert abs(np.corrcoef(spectral[known], variance[known])[0, 1]) < 4.5 / np.sqrt(known.sum())


def test_kernels_and_reference() -> None:
    images = make_images(4, *SIZE)
    plan = draw(preset("cifar").replace(draws="batch"), INDEX[:4])
    expected = reference.apply(images, plan)
    assert count_beyond(prime_dali.arrays.apply(images.numpy(), plan), expected, 1 / 255) < 0.01 * expected.size
    torches = prime_dali.apply(images, plan.torch())
    assert np.array_equal(torches.numpy(), prime_dali.arrays.apply(images.numpy(), plan))
    slots = [s for s in plan.materialize() if s.primitive == "spatial" and s.slot == 1]
    assert len({s.row for s in slots}) > 1
    assert all(np.array_equal(s.coefficients, slots[0].coefficients) for s in slots)


def test_a_batch_of_vmap_is_that_of_an_example() -> None:
    """Those of each example, not of all examples together."""
    module = prime_dali.PRIME(SHARED, seed=1)
    images, index = make_images(6, *SIZE).reshape(3, 2, 3, *SIZE), torch.arange(6).reshape(3, 2)
    for epoch in (torch.tensor([0, 5, 2]), index):
        each = [module(*one) for one in zip(images, index, epoch, strict=True)]
        assert torch.equal(torch.vmap(module)(images, index, epoch), torch.stack(each))


def test_where_batches_are_arbitrary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draws: expected one of 'image', 'batch', got 'bach'; did you mean 'batch'"):
        PrimeConfig(draws="bach")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"draws: expected 'image' in offline augmentation.* got 'batch'"):
        augment.run(Settings(tmp_path, tmp_path / "out", SHARED, copies=1))
