"""Planar waves after the mix: the published formula, every back end against the reference, distributions and keys."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import emulated_cuda
import numpy as np
import pytest
import test_channels
import torch
from conftest import count_beyond, make_images
from scipy import stats
from test_channels import Run, images_of
from test_distributions import P_MIN

import prime_dali
from prime_dali import PRIME, Plan, _waves, preset, reference
from prime_dali.tools.gallery import captions, cells
from prime_dali.training.config import TrainConfig

ALONE = preset("cifar").replace(primitives=(), width=1, depth=1, wave_strength=10.0)
WITH_PRIME = preset("cifar").replace(wave_strength=10.0)
kernels = test_channels.kernels


@pytest.mark.parametrize("side", [8, 33, 64])
def test_the_formula_is_the_published_one(side: int) -> None:
    """There a wave is divided by its L2 norm and multiplied by side / 32; here it has an amplitude of strength sqrt(2) / 32."""
    plan = Plan.build([[[("identity", 0.0)]]] * 4, size=side, waves=[10.0] * 4, seed=1)
    at = np.linspace(-side / 2, side / 2, side)
    for row in range(4):
        for wave in _waves.drawn(plan, row):
            strength = wave.amplitude * 32 / np.sqrt(2)
            along = at[:, None] * np.cos(wave.direction) + at * np.sin(wave.direction)
            published = np.sin(2 * np.pi * wave.frequency / side * along - np.pi / 4)
            published *= strength * side / 32 / np.linalg.norm(published)
            np.testing.assert_allclose(reference._planar_wave(wave, (side, side)), published, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("size", [(8, 9), (33, 20), (61, 90)])
def test_kernels(size: tuple[int, int], channels: int, kernels: tuple[str, Run]) -> None:
    """Waves alone, of every strength: clipped, and nothing happens to clean images and where the strength is 0."""
    _, run = kernels
    images = images_of(channels, np.float32, count=4, size=size)
    plan = prime_dali.sample(ALONE, np.arange(4), size=size, seed=3, view=("clean", 0), channels=channels)
    plan.wave_strength[4:] = 0, 0.5, 10, 1e4
    expected = reference.apply(images, plan)
    out = run(images, plan)
    # The rounding of a frequency grows with the distance from the center: half a unit in the last place, some times.
    largest = max(wave.amplitude for row in (5, 6) for wave in _waves.drawn(plan, row))
    assert count_beyond(out[:7], expected[:7], 1e-6 * max(size) * max(largest, 1)) == 0
    assert np.array_equal(out[:5], images[[0, 1, 2, 3, 0]])
    assert np.abs(out[5:7] - images[1:3]).mean() > 0.01
    assert set(np.unique(out[7].round(2))) >= {0, 1}
    assert count_beyond(out[7], expected[7], 0.1) < 0.01 * out[7].size  # a wave of this amplitude is all edges


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_after_the_mix_in_every_format(dtype: type, kernels: tuple[str, Run]) -> None:
    """Rounded, normalized, mirrored and interleaved as all images are; chains as without waves."""
    name, run = kernels
    size = (20, 24)
    images = images_of(3, dtype, size=size)
    plan = prime_dali.sample(WITH_PRIME, np.arange(3), size=size, view=(0, 1))
    exact = reference.apply(images, plan)
    base = run(images, plan)
    assert count_beyond(base, exact, 1e-4 if name == "cpu" else 1 / 255) < 0.001 * base.size
    still = dataclasses.replace(plan, rows=plan.rows.copy())
    still.wave_strength[:] = 0
    without = prime_dali.sample("cifar", np.arange(3), size=size, view=(0, 1))
    assert np.array_equal(run(images, still), run(images, without))
    assert np.array_equal(plan.rows[:, :-1], without.rows)
    assert np.abs(base - run(images, without)).mean() > 0.05
    rounded = run(images, plan, np.uint8)
    assert np.abs(rounded / 255 - base).max() <= 0.501 / 255
    flip = np.array([True, False, True])
    last = run(images, plan, layout="NHWC", flip=flip, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    mirrored = np.where(np.tile(flip, 2)[:, None, None, None], base[..., ::-1], base)
    channel = (1, 3, 1, 1)
    normalized = (mirrored - np.reshape((0.5, 0.4, 0.3), channel)) / np.reshape((0.2, 0.3, 0.4), channel)
    np.testing.assert_allclose(last, normalized, atol=1e-5)


def test_the_weakest_waves_are_waves_too() -> None:
    plan = prime_dali.sample(ALONE.replace(wave_strength=0.01), np.arange(4), size=16)
    assert plan.waves
    assert (plan.wave_strength > 0).all()
    assert not prime_dali.sample(ALONE.replace(wave_strength=0), np.arange(4), size=16).waves


def test_cuda_draws_the_same_plan(cuda: Any) -> None:
    plan = prime_dali.sample(WITH_PRIME.replace(alpha=0.3), np.arange(5), size=(24, 32), seed=7)
    drawn = emulated_cuda.sample(cuda, WITH_PRIME.replace(alpha=0.3), np.arange(5), (24, 32), 7)
    assert np.array_equal(drawn, plan.rows)
    broken = dataclasses.replace(plan, rows=plan.rows.copy())
    broken.wave_strength[1] = -1  # on a GPU, which nobody waits for, the image becomes NaN
    out = emulated_cuda.apply(cuda, images_of(3, np.float32, count=5, size=(24, 32)), broken)
    assert np.isnan(out[1]).all()
    assert np.isfinite(out[[0, 2, 3, 4]]).all()


def test_distribution() -> None:
    """Frequencies U{1..side}, directions of the whole circle, strengths exponential; channels and images independent."""
    plan = prime_dali.sample(ALONE, np.arange(1500), size=(16, 64), seed=5)
    waves = np.array(
        [_waves.drawn(plan, row) for row in range(1500)]
    )  # [1500, channels, (amplitude, frequency, direction)]
    amplitude, frequency, direction = waves.transpose(2, 0, 1)
    counts = np.bincount(frequency.ravel().astype(int), minlength=33)[1:]
    assert len(counts) == 32
    assert stats.chisquare(counts).pvalue > P_MIN
    assert stats.kstest(direction.ravel() / (2 * np.pi), "uniform").pvalue > P_MIN
    assert stats.kstest(amplitude.ravel() * 32 / np.sqrt(2) / 10, "expon").pvalue > P_MIN
    uniforms = np.concatenate([stats.expon.cdf(amplitude / _waves.AMPLITUDE / 10), frequency / 32, direction], axis=1)
    correlations = np.corrcoef(uniforms.T)[np.triu_indices(9, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(1500)


def test_the_draws_are_keyed_by_image_epoch_and_view() -> None:
    images = make_images(6, 24, 24)
    plan = prime_dali.sample(WITH_PRIME, torch.arange(6), size=24, seed=2, epoch=1, view=(0, 1))
    out = prime_dali.apply(images, plan)
    part = prime_dali.sample(WITH_PRIME, torch.tensor([4, 2]), size=24, seed=2, epoch=1, view=1)
    assert torch.equal(prime_dali.apply(images[[4, 2]], part), out[[10, 8]])
    drawn = [_waves.drawn(plan.numpy(), row) for row in (0, 1, 6)]
    drawn += [
        _waves.drawn(prime_dali.sample(ALONE, np.arange(1), size=24, seed=s, epoch=e), 0) for s, e in ((2, 2), (3, 1))
    ]
    assert len({wave for waves in drawn for wave in waves}) == 15


def test_alpha_scales_strengths_and_0_changes_nothing() -> None:
    images = make_images(2, 16, 16)
    drawn = {
        alpha: prime_dali.sample(WITH_PRIME.replace(alpha=alpha), torch.arange(2), size=16) for alpha in (0.0, 0.5)
    }
    assert drawn[0.5].wave_strength.tolist() == [5.0, 5.0]
    assert torch.equal(prime_dali.apply(images, drawn[0.0]), images)


def test_the_module_and_clips() -> None:
    """The torch module, compiled plans for three views, and one wave for all frames."""
    augment = PRIME(ALONE, seed=1, views=3)
    images = make_images(2, 16, 16)
    out = augment(images, index=torch.arange(2), epoch=0)
    assert torch.equal(out[:2], images)
    assert (out[2:4] - out[4:6]).abs().mean() > 0.05
    clips = images[:, None].expand(2, 3, 3, 16, 16)
    assert torch.equal(augment(clips, index=torch.arange(2), epoch=0), out[:, None].expand(6, 3, 3, 16, 16))


def test_what_a_plan_says_of_its_waves() -> None:
    plan = Plan.build([[[("noise", 0.25)]], [[("noise", 0.5)]]], size=16, waves=[2.0, 0.0], channels=1)
    ((amplitude, frequency, _),) = _waves.drawn(plan, 0)
    assert plan.describe(0) == f"noise σ=0.25\n+ waves a={amplitude:.2f} f={frequency}"
    assert plan.describe(1) == "noise σ=0.50"
    assert f"+ waves a={amplitude:.2f}" in plan.describe()
    assert (
        repr(plan)
        == "Plan(rows=2, views=1, size=(16, 16), channels=1, chains=1, depth=1, waves=True, device='cpu', array='numpy')"
    )
    assert plan == plan.torch()
    assert plan[1:].wave_strength == [0.0]
    assert Plan.build([[[("noise", 0.25)]]], size=16).wave_strength is None
    plan.wave_strength[1] = np.nan
    with pytest.raises(ValueError, match=re.escape("plan: row 1: expected waves of a strength of 0 to 1e+20, got")):
        plan.validate()
    with pytest.raises(ValueError, match="wave_strength: expected a finite number >= 0, got -1"):
        preset("cifar").replace(wave_strength=-1)


@pytest.mark.parametrize("mode", ["native", "cupy"])
def test_the_dali_operator(mode: str, plugin: Path) -> None:
    """Both kinds of modes, three views, waves alone: the array interface's images."""
    import dali_runs

    images = dali_runs.IMAGES[:4]
    plan = prime_dali.sample(ALONE, np.arange(4), size=images.shape[1:3], seed=1, view=("clean", 0, 1))
    expected = prime_dali.arrays.apply(images, plan, layout="NHWC")
    (found,) = dali_runs.run("cpu", images=images, config=ALONE, mode=mode, views=3, seed=1)
    np.testing.assert_array_equal(np.concatenate(found), expected)


def test_gallery_and_settings() -> None:
    photo = cells.Photo("photo", make_images(1, 32, 32, torch.uint8)[0].permute(1, 2, 0).numpy(), 0)
    *primitives, waves = cells.alone(photo, WITH_PRIME, 0)
    assert [cell.heading for cell in primitives] == ["spectral alone", "spatial alone", "color alone"]
    assert not any("waves" in cell.words for cell in primitives)
    assert waves.heading == "waves alone"
    assert re.fullmatch(r"(waves a \d+\.\d\d, f \d+\n?){3}", waves.words)
    (sample,) = cells.samples(photo, WITH_PRIME, 0, 1)
    assert sample.words.endswith("\nwaves")
    assert len(re.findall(r"waves a", sample.whole)) == 3
    assert [entry.word for entry in captions.legend(cells.parts(ALONE), mixed=False)] == ["waves"]
    config = TrainConfig(data="d", out="o", primitives=(), width=1, depth=1, wave_strength=10.0)
    assert config.prime(0) == ALONE
