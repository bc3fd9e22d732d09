"""The distributions that plans are drawn from, against docs/METHOD.md.

Every statistical test has fixed seeds and the same threshold on its p-value. It follows from the number of tests: with
about a hundred of them, P_MIN = 1e-5 makes a false alarm of the whole file, on fresh seeds, a matter of 1 in 1,000.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import prime_dali
from prime_dali import PrimeConfig, _slots, preset
from prime_dali._slots import COLOR, IDENTITY, SPATIAL, SPECTRAL
from prime_dali.folding import folded_std

P_MIN = 1e-5
N = 20_000


def draw(config: PrimeConfig, size: tuple[int, int] = (224, 224), seed: int = 11, count: int = N):
    return prime_dali.sample(config, np.arange(count), size=size, seed=seed)


def only(primitive: str, name: str = "imagenet", **changes) -> PrimeConfig:
    return preset(name).replace(primitives=(primitive,), include_identity=False, random_depth=False, **changes)


def chi_square(observed: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value; neighboring cells are pooled until each expects at least 20."""
    expected = probabilities * observed.sum()
    edges = [0]
    for i in range(len(expected)):
        if expected[edges[-1] : i + 1].sum() >= 20:
            edges.append(i + 1)
    if expected[edges[-1] :].sum() < 20 and len(edges) > 1:
        edges.pop()
    pooled = [np.add.reduceat(v, edges if edges[-1] < len(v) else edges[:-1]) for v in (observed, expected)]
    return float(stats.chisquare(*pooled).pvalue)


@pytest.mark.parametrize(
    ("mixing", "options"), [("paper", [0, 1, 2, 3]), ("none", [0, 1, 2, 3]), ("official", [1, 2, 3])]
)
def test_choice_is_uniform(mixing: str, options: list[int]) -> None:
    plan = draw(preset("imagenet").replace(mixing=mixing, random_depth=False))
    counts = np.bincount(plan.primitive.ravel(), minlength=5)
    assert set(np.flatnonzero(counts)) == set(options)
    assert chi_square(counts[options], np.full(len(options), 1 / len(options))) > P_MIN


@pytest.mark.parametrize(
    "subset", [("color",), ("spectral", "color"), ("spatial", "noise"), ("spectral", "spatial", "color", "noise")]
)
def test_choice_of_subsets(subset: tuple[str, ...]) -> None:
    plan = draw(preset("cifar").replace(primitives=subset, noise_std=0.1 if "noise" in subset else None))
    allowed = [0] + [("spectral", "spatial", "color", "noise").index(p) + 1 for p in subset]
    counts = np.bincount(plan.primitive.ravel(), minlength=5)
    assert set(np.flatnonzero(counts)) == set(allowed)
    assert chi_square(counts[allowed], np.full(len(allowed), 1 / len(allowed))) > P_MIN


def test_slots_chains_and_images_choose_independently() -> None:
    primitive = draw(preset("imagenet")).primitive
    pairs = {
        "slots": (primitive[:, 0, 0], primitive[:, 0, 1]),
        "chains": (primitive[:, 0, 0], primitive[:, 1, 0]),
        "images": (primitive[:-1, 0, 0], primitive[1:, 0, 0]),
    }
    for name, (a, b) in pairs.items():
        table = np.zeros((4, 4))
        np.add.at(table, (a, b), 1)
        assert stats.chi2_contingency(table).pvalue > P_MIN, name


@pytest.mark.parametrize("primitive", ["spectral", "spatial", "color"])
def test_strengths_are_drawn_per_image_chain_and_slot(primitive: str) -> None:
    strength = draw(only(primitive, spatial_cut=20)).strength
    assert len(np.unique(strength)) > 0.98 * strength.size  # 2^23 possible values: a few repeats are expected
    for a, b in (
        (strength[:-1, 0, 0], strength[1:, 0, 0]),
        (strength[:, 0, 0], strength[:, 1, 0]),
        (strength[:, 0, 0], strength[:, 0, 1]),
    ):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(len(a))


@pytest.mark.parametrize("primitive", ["spectral", "spatial", "color"])
def test_strengths_do_not_depend_on_which_primitive_was_chosen(primitive: str) -> None:
    """Where there is a choice they are distributed as where there is none."""
    number = _slots.NAMES.index(primitive)
    chosen, alone = draw(preset("imagenet")), draw(only(primitive))
    for name in ("strength", "first", "last"):
        among, whole = (getattr(plan, name)[plan.primitive == number] for plan in (chosen, alone))
        assert len(among) < 0.3 * len(whole)
        assert stats.ks_2samp(among, whole[: len(among)]).pvalue > P_MIN, name


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_spectral_strength(alpha: float) -> None:
    plan = draw(only("spectral", alpha=alpha))
    assert (plan.primitive == SPECTRAL).all()
    assert stats.kstest(plan.strength.ravel(), stats.uniform(0, 4 * alpha).cdf).pvalue > P_MIN


def quantile_cdf(distribution: str):
    """cdf of q: uniform, or Beta(1/2, 1/2)."""
    return stats.uniform.cdf if distribution == "uniform" else stats.beta(0.5, 0.5).cdf


def cut_probabilities(most: int, distribution: str) -> np.ndarray:
    """P(cut = c) for c = 2 .. most, from c_max ~ U{3..C} and c = floor(q (c_max + 1 - 2) + 2)."""
    cdf = quantile_cdf(distribution)
    p = np.zeros(most + 1)
    for c_max in range(3, most + 1):
        cells = np.arange(c_max) / (c_max - 1)  # q from i / range to (i + 1) / range gives c = 2 + i
        p[2 : c_max + 1] += np.diff(cdf(cells)) / (most - 2)
    return p[2:]


@pytest.mark.parametrize("distribution", ["uniform", "arcsine"])
@pytest.mark.parametrize(("name", "most", "size"), [
    ("imagenet", 500, (224, 224)), ("imagenet", 500, (112, 448)), ("imagenet", 500, (448, 112)), ("cifar", 100, (32, 32)),
])  # fmt: skip
def test_spatial_cut_and_temperature(name: str, most: int, size: tuple[int, int], distribution: str) -> None:
    plan = draw(only("spatial", name, spatial_distribution=distribution), size)
    assert (plan.primitive == SPATIAL).all()
    cut, strength = plan.last.ravel(), plan.strength.ravel().astype(np.float64)
    assert chi_square(np.bincount(cut, minlength=most + 1)[2:], cut_probabilities(most, distribution)) > P_MIN

    square = float(size[0] * size[1])
    t1 = 1 / (np.pi * square * np.log(cut))
    t2 = 4 / (np.pi**3 * cut.astype(np.float64) ** 2 * np.log(cut))
    free = t2 > t1 * 1.001
    assert 0.3 < 1 - free.mean() < 0.95  # "over a third of the draws" are the single point T1
    np.testing.assert_allclose(strength[t2 < t1] ** 2, t1[t2 < t1], rtol=2e-6)
    q = (strength[free] ** 2 - t1[free]) / (t2[free] - t1[free])
    # Small cuts resolve q best: where T2 is near T1, float32 rounding of T shows.
    q = np.clip(q, 0, 1)[cut[free] < size[0] / 4]
    assert stats.kstest(q, quantile_cdf(distribution)).pvalue > P_MIN


@pytest.mark.parametrize(("name", "size", "distribution", "expected"), [
    ("imagenet", 224, "uniform", 7.6), ("imagenet", 224, "arcsine", 17.5), ("cifar", 32, "uniform", 2.6), ("cifar", 32, "arcsine", 4.0),
])  # fmt: skip
def test_typical_shift_quantiles_of_the_method(name: str, size: int, distribution: str, expected: float) -> None:
    plan = draw(only("spatial", name, spatial_distribution=distribution), (size, size))
    shift = plan.strength * np.sqrt(np.pi * np.log(plan.last)) * size / 2
    below = (shift <= expected).mean()
    # docs/METHOD.md rounds the shift to a tenth of a pixel: the 95 % quantile lies within that, give or take sampling.
    low, high = (shift <= expected - 0.06).mean(), (shift <= expected + 0.06).mean()
    sampling = 4.5 * np.sqrt(0.95 * 0.05 / shift.size)
    assert low - sampling <= 0.95 <= high + sampling, below


def test_the_typical_shift_of_an_oblong_image() -> None:
    """n^2 = H W."""
    expected = 0.1 * 32 * np.sqrt(np.pi * np.log(20)) / 2
    assert _slots.typical_shift(0.1, 20, (16, 64)) == pytest.approx(expected)
    assert _slots.typical_shift(0.1, 20, (64, 16)) == pytest.approx(expected)


@pytest.mark.parametrize("distribution", ["uniform", "arcsine"])
def test_no_cut_is_larger_than_the_largest(distribution: str) -> None:
    """Also where q is so near 1 that float32 rounds it up, as one arcsine number in 9,000 is."""
    plan = draw(only("spatial", spatial_cut_max=3, spatial_distribution=distribution))
    assert set(np.unique(plan.last)) == {2, 3}


def test_fixed_cuts() -> None:
    assert set(np.unique(draw(only("spatial", spatial_cut=7)).last)) == {7}
    plan = draw(only("color", color_cut=40, color_band=None))
    assert (plan.first == 1).all()
    assert (plan.last == 40).all()


def test_color_band_imagenet() -> None:
    plan = draw(only("color"))
    assert (plan.primitive == COLOR).all()
    assert stats.kstest((plan.strength.ravel().astype(float)) ** 2, stats.uniform(0, 0.05).cdf).pvalue > P_MIN
    first, last = plan.first.ravel(), plan.last.ravel()
    # f0 ~ U{1..K}, K ~ U{1..500}: P(f0 = f) = sum over K >= f of 1 / (500 K).
    harmonic = np.cumsum((1 / np.arange(1, 501))[::-1])[::-1] / 500
    assert chi_square(np.bincount(first, minlength=501)[1:], harmonic) > P_MIN
    length = last - first + 1
    # Given K and f0, the band has min(20, K - f0 + 1) frequencies.
    p = np.zeros(21)
    for k in range(1, 501):
        lengths = np.minimum(20, k - np.arange(1, k + 1) + 1)
        p += np.bincount(lengths, minlength=21) / (500 * k)
    assert chi_square(np.bincount(length, minlength=21)[1:], p[1:]) > P_MIN
    assert (p * np.arange(21)).sum() == pytest.approx(18.2, abs=0.05)  # the average of docs/METHOD.md


def test_color_cifar() -> None:
    plan = draw(only("color", "cifar"), (32, 32))
    assert (plan.first == 1).all()
    assert chi_square(np.bincount(plan.last.ravel(), minlength=11)[1:], np.full(10, 0.1)) > P_MIN
    assert stats.kstest((plan.strength.ravel().astype(float)) ** 2, stats.uniform(0, 0.01).cdf).pvalue > P_MIN


def test_noise_strength() -> None:
    plan = draw(only("noise", noise_std=0.2, alpha=0.5))
    np.testing.assert_allclose(plan.strength, 0.1, rtol=1e-6)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_weights_paper(width: int) -> None:
    weights = draw(preset("imagenet").replace(width=width)).weights.astype(np.float64)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    for i in range(width + 1):  # marginals of Dirichlet(1, ..., 1)
        assert stats.kstest(weights[:, i], stats.beta(1, width).cdf).pvalue > P_MIN
    if width == 3:  # and of sums of two: Beta(2, 2), which pins the dependence
        assert stats.kstest(weights[:, 0] + weights[:, 1], stats.beta(2, 2).cdf).pvalue > P_MIN
        assert stats.kstest(weights[:, 2] + weights[:, 3], stats.beta(2, 2).cdf).pvalue > P_MIN


@pytest.mark.parametrize("width", [1, 3])
def test_weights_official(width: int) -> None:
    weights = draw(preset("imagenet").replace(width=width, mixing="official")).weights.astype(np.float64)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    assert stats.kstest(weights[:, 0], stats.uniform.cdf).pvalue > P_MIN
    share = weights[:, 1] / (1 - weights[:, 0])
    if width == 1:
        np.testing.assert_allclose(share, 1, atol=1e-5)
    else:
        assert stats.kstest(share, stats.beta(1, width - 1).cdf).pvalue > P_MIN
        assert abs(np.corrcoef(weights[:, 0], share)[0, 1]) < 4.5 / np.sqrt(N)


def test_no_mixing_is_one_chain() -> None:
    plan = draw(preset("imagenet").replace(mixing="none"))
    assert plan.chains == 1
    assert (plan.weights == [0, 1]).all()


def test_official_depth() -> None:
    plan = draw(preset("imagenet").replace(mixing="official"))
    used = plan.primitive != IDENTITY
    assert (used[..., :-1] >= used[..., 1:]).all()  # what is not used lies at the end
    assert chi_square(np.bincount(used.sum(-1).ravel(), minlength=4)[1:], np.full(3, 1 / 3)) > P_MIN
    pairs = np.zeros((3, 3))  # of two chains of an image
    np.add.at(pairs, tuple(used.sum(-1)[:, :2].T - 1), 1)
    assert chi_square(pairs.ravel(), np.full(9, 1 / 9)) > P_MIN


@pytest.mark.parametrize(("cut", "height", "width"), [
    (500, 224, 224), (100, 32, 32), (500, 32, 32), (20, 32, 32), (31, 32, 32), (100, 8, 37), (223, 224, 224), (447, 224, 100),
])  # fmt: skip
def test_folded_displacement_has_the_covariance_of_the_direct_sum(cut: int, height: int, width: int) -> None:
    """Cov(u(p), u(p')) over random pairs of grid points: all modes of the disc, against the folded ones."""
    rng = np.random.default_rng(cut + height + width)
    y, x = rng.integers(0, height, (2, 400)), rng.integers(0, width, (2, 400))

    def covariance(std: np.ndarray) -> np.ndarray:
        i, j = np.arange(1, std.shape[0] + 1)[:, None], np.arange(1, std.shape[1] + 1)[:, None]
        rows = np.sin(np.pi * i * y[0] / (height - 1)) * np.sin(np.pi * i * y[1] / (height - 1))
        columns = np.sin(np.pi * j * x[0] / (width - 1)) * np.sin(np.pi * j * x[1] / (width - 1))
        return np.einsum("ij,ip,jp->p", std**2, rows, columns, optimize=True)

    i, j = np.meshgrid(np.arange(1, cut + 1), np.arange(1, cut + 1), indexing="ij")
    direct = np.where(np.sqrt(i**2 + j**2) < cut + 0.5, 1 / np.sqrt(i**2 + j**2), 0)
    folded = folded_std(cut, height, width)
    assert folded.shape == (min(cut, height - 2), min(cut, width - 2))
    np.testing.assert_allclose(covariance(folded), covariance(direct), atol=1e-10)


def test_displacement_variance_of_samples() -> None:
    """Sampled displacements at one point have the variance that the modes give: a chi-square per field and cut."""
    for cut, height, width in ((2, 224, 224), (500, 32, 40), (12, 50, 33)):
        plan = draw(only("spatial", spatial_cut=cut, mixing="none", depth=1, alpha=1.0), (height, width), count=200)
        slots = plan.materialize()
        y, x = height // 3, width // 2
        std = folded_std(cut, height, width)
        a, b = np.arange(1, std.shape[0] + 1), np.arange(1, std.shape[1] + 1)
        wave = np.outer(np.sin(np.pi * a * y / (height - 1)), np.sin(np.pi * b * x / (width - 1)))
        variance = (std**2 * wave**2).sum()
        u = np.array([[(field * wave).sum() for field in slot.coefficients] for slot in slots])
        for field in range(2):
            statistic = (u[:, field] ** 2).sum() / variance
            assert 2 * min(stats.chi2(200).cdf(statistic), stats.chi2(200).sf(statistic)) > P_MIN
        assert abs(np.corrcoef(u.T)[0, 1]) < 4.5 / np.sqrt(200)  # the two fields are independent


def test_the_size_is_part_of_the_numbers() -> None:
    numbers = preset("cifar").distributions(16, 20)
    assert (numbers.height, numbers.width) == (16, 20)
    assert numbers[2:] == preset("cifar").distributions()[2:]


def test_the_largest_cut_and_band() -> None:
    config = preset("cifar")  # cuts up to 100 and 10, all frequencies up to the cut
    assert (config.max_cut, config.max_band) == (100, 10)
    for changes, expected in (
        ({"color_band": 20}, (100, 10)), ({"color_band": 4}, (100, 4)), ({"color_cut": 30}, (100, 30)),
        ({"color_cut": 30, "color_band": 20}, (100, 20)), ({"spatial_cut": 7}, (7, 10)),
        ({"primitives": ("color",)}, (0, 10)), ({"primitives": ("spatial",)}, (100, 0)),
    ):  # fmt: skip
        changed = config.replace(**changes)
        assert (changed.max_cut, changed.max_band) == expected, changes


@pytest.mark.parametrize(("mixing", "implied"), [
    ("paper", (True, False, "uniform", "dirichlet")), ("official", (False, True, "arcsine", "beta")),
    ("none", (True, False, "uniform", "none")),
])  # fmt: skip
def test_what_each_mixing_implies(mixing: str, implied: tuple) -> None:
    """And each part can be set by itself, to False too."""
    names = ("include_identity", "random_depth", "spatial_distribution", "blend")
    config = PrimeConfig(mixing=mixing)
    assert config.distributions() == config.replace(**dict(zip(names, implied, strict=True))).distributions()
    other = PrimeConfig(mixing="paper" if mixing == "official" else "official")
    given = other.replace(**dict(zip(names, implied, strict=True)))
    assert given.distributions() == config.distributions()
    assert given.distributions() != other.distributions()
