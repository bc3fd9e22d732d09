"""The corruptions of CIFAR-C, ImageNet-C and C-bar in memory."""

from __future__ import annotations

import io
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage.data import astronaut

from prime_dali.evaluation import c_bar, corruptions, distortions
from prime_dali.evaluation.names import CORRUPTIONS, EXTRA_CORRUPTIONS


def tiles(count: int) -> np.ndarray:
    """Photographs of CIFAR's size, [count, 32, 32, 3]: the astronaut, reduced and cut."""
    small = np.asarray(Image.fromarray(astronaut()).resize((256, 256), Image.Resampling.BOX))
    return small.reshape(8, 32, 8, 32, 3).swapaxes(1, 2).reshape(64, 32, 32, 3)[:count].copy()


def photo() -> np.ndarray:
    return np.asarray(Image.fromarray(astronaut()).resize((224, 224), Image.Resampling.BOX))


def flat(value: Any, count: int = 1) -> np.ndarray:
    return np.full((count, 32, 32, 3), value, np.uint8)


class Legacy:
    """NumPy's old stream by a generator's names, to draw what code that uses ``np.random`` draws."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)

    def integers(self, *arguments: Any) -> Any:
        return self.state.randint(*arguments)


class Always:
    """Draws this angle."""

    def __init__(self, angle: float) -> None:
        self.angle = angle

    def uniform(self, low: float, high: float) -> float:
        return self.angle


def test_every_set_has_its_corruptions_at_five_severities() -> None:
    for kind, which in corruptions.STRENGTHS:
        if which == "c":
            assert corruptions.main_names(kind, "c") == CORRUPTIONS
            assert tuple(corruptions.STRENGTHS[kind, "c"]) == CORRUPTIONS + EXTRA_CORRUPTIONS
        else:
            assert len(corruptions.main_names(kind, "c-bar")) == 10
    assert {len(five) for table in corruptions.STRENGTHS.values() for five in table.values()} == {5}


@pytest.mark.parametrize("name", [*corruptions.STRENGTHS["cifar", "c"], *corruptions.STRENGTHS["cifar", "c-bar"]])
def test_an_image_depends_on_its_number_and_not_on_its_batch(name: str) -> None:
    images = tiles(5)
    together = corruptions.cifar(images, name, 3, seed=7, numbers=[10, 11, 12, 13, 14])
    assert together.shape == images.shape
    assert together.dtype == np.uint8
    assert not np.array_equal(together, images)
    np.testing.assert_array_equal(corruptions.cifar(images[3:4], name, 3, seed=7, numbers=[13]), together[3:4])
    fixed = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "gaussian_blur",
             "saturate", "circular_motion_blur"}  # fmt: skip
    for other in ({"seed": 8, "numbers": range(10, 15)}, {"seed": 7, "numbers": range(20, 25)}):
        assert np.array_equal(corruptions.cifar(images, name, 3, **other), together) == (name in fixed)


@pytest.mark.parametrize("name", [*corruptions.STRENGTHS["imagenet", "c"], *corruptions.STRENGTHS["imagenet", "c-bar"]])
def test_imagenet_images(name: str) -> None:
    image = photo()
    changed = corruptions.imagenet(image, name, 2, seed=1, number=9)
    assert changed.shape == image.shape
    assert changed.dtype == np.uint8
    assert 0.3 < np.abs(changed.astype(int) - image).mean() < 120
    if name == "caustic_refraction":
        np.testing.assert_array_equal(corruptions.imagenet(image, name, 2, seed=1, number=9), changed)


@pytest.mark.parametrize("name", corruptions.STRENGTHS["tinyimagenet", "c"])
def test_images_of_tiny_imagenet(name: str) -> None:
    image = np.array(Image.fromarray(photo()).resize((64, 64)))
    mild, strong = (corruptions.tinyimagenet(image, name, severity, seed=1, number=9) for severity in (1, 5))
    assert mild.shape == strong.shape == image.shape
    assert 0.3 < np.abs(mild.astype(int) - image).mean() < 120
    assert not np.array_equal(mild, strong)


@pytest.mark.parametrize("name", [
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "gaussian_blur", "defocus_blur", "zoom_blur", "fog",
    "brightness", "contrast", "pixelate", "jpeg_compression", *corruptions.STRENGTHS["cifar", "c-bar"],
])  # fmt: skip
def test_the_error_grows_with_the_severity(name: str) -> None:
    images = tiles(24)
    errors = [np.abs(corruptions.cifar(images, name, s).astype(int) - images).mean() for s in (1, 2, 3, 4, 5)]
    assert errors == sorted(errors)
    assert errors[4] > 1.15 * errors[0]


def test_seeds_are_what_the_documentation_says() -> None:
    images = flat(0)
    key = (zlib.crc32(b"frost"), 2, 41)
    rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=key))
    ice = distortions.ice(int(rng.integers(5)), 0.2)
    top, left = rng.integers(0, ice.shape[0] - 32), rng.integers(0, ice.shape[1] - 32)
    expected = (0.3 * ice[top : top + 32, left : left + 32]).astype(np.uint8)
    np.testing.assert_array_equal(corruptions.cifar(images, "frost", 2, seed=5, numbers=[41])[0], expected)


@pytest.mark.parametrize(("name", "strength", "std"), [
    ("gaussian_noise", 0.04, 0.04 * 255), ("shot_noise", 500, (0.4 / 500) ** 0.5 * 255), ("speckle_noise", 0.2, 0.2 * 102),
])  # fmt: skip
def test_noise_has_the_moments_of_its_law(name: str, strength: float, std: float) -> None:
    gray = flat(102, 40)  # 0.4 of 255
    added = getattr(distortions, name)(gray, [np.random.default_rng(i) for i in range(40)], strength) - 102
    assert abs(added.mean()) < 5 * std / added.size**0.5
    assert added.std() == pytest.approx(std, rel=0.01)
    assert len(np.unique(added)) > 50  # each value has its own


def test_impulse_noise_makes_a_fraction_black_or_white() -> None:
    changed = corruptions.cifar(flat(102, 40), "impulse_noise", 5)
    count = changed.size
    for value, probability in ((0, 0.035), (255, 0.035), (102, 0.93)):
        deviation = (count * probability * (1 - probability)) ** 0.5
        assert abs((changed == value).sum() - count * probability) < 5 * deviation
    assert set(np.unique(changed)) == {0, 102, 255}


def test_brightness_and_saturation_by_hand() -> None:
    color = flat([100, 50, 200])  # HSV value 200 / 255, saturation 3/4
    # Value + 0.1 is 225.5 of 255: every channel times 225.5 / 200.
    np.testing.assert_array_equal(corruptions.cifar(color, "brightness", 2)[0, 0, 0], [112, 56, 225])
    # Saturation 3/4 * 0.3 = 0.225: the least channel 200 * 0.775 = 155, the middle one stays a third of the way up.
    np.testing.assert_allclose(corruptions.cifar(color, "saturate", 1)[0, 0, 0], [170, 155, 200], atol=1)
    np.testing.assert_array_equal(corruptions.cifar(flat(240), "brightness", 5), 255)


def test_values_beyond_the_range_are_clipped() -> None:
    assert corruptions.cifar(flat(255), "gaussian_noise", 5).min() > 100
    assert corruptions.cifar(flat(0), "gaussian_noise", 5).max() < 155


def test_contrast_by_hand() -> None:
    images = flat(50)
    images[0, :16] = 150  # mean 100; a half of the distance to it stays
    changed = corruptions.cifar(images, "contrast", 2)
    np.testing.assert_allclose(changed[0, :16], 125, atol=1)
    np.testing.assert_allclose(changed[0, 16:], 75, atol=1)


def test_pixelate_and_jpeg_are_pillows() -> None:
    image = tiles(1)
    box = Image.Resampling.BOX
    small = Image.fromarray(image[0]).resize((20, 20), box)  # 32 * 0.65 = 20.8
    np.testing.assert_array_equal(corruptions.cifar(image, "pixelate", 5)[0], np.asarray(small.resize((32, 32), box)))
    file = io.BytesIO()
    Image.fromarray(image[0]).save(file, "JPEG", quality=58)
    np.testing.assert_array_equal(corruptions.cifar(image, "jpeg_compression", 3)[0], np.asarray(Image.open(file)))


def test_defocus_blur_of_radius_one_is_a_cross() -> None:
    images = flat(0)
    images[0, 10, 20] = 255
    blurred = corruptions.cifar(images, "defocus_blur", 4)[0, ..., 0].astype(int)
    cross = [(10, 20), (9, 20), (11, 20), (10, 19), (10, 21)]
    assert all(abs(blurred[at] - 51) <= 1 for at in cross)
    assert blurred.sum() == sum(blurred[at] for at in cross)


def test_motion_blur_is_half_a_gaussian_along_the_angle() -> None:
    images = flat(0)
    images[0, :, 16] = 255  # a vertical line
    weights = np.exp(-(np.arange(13) ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    level = distortions.motion_blur(images, [Always(0)], 6, 1.5)
    for tap in range(13):  # each pixel sees what lies to its right
        np.testing.assert_allclose(level[0, :, 16 - tap], 255 * weights[tap], atol=0.01)
    np.testing.assert_allclose(level[0, :, 17:], 0, atol=0.01)
    upright = distortions.motion_blur(images.swapaxes(1, 2), [Always(90)], 6, 1.5)
    np.testing.assert_allclose(upright, level.swapaxes(1, 2), atol=1e-9)
    # The edge repeats: a line at the right edge fills all that the taps see beyond it.
    images[0, :, 31] = 255
    assert distortions.motion_blur(images, [Always(0)], 6, 1.5)[0, 0, 31, 0] == pytest.approx(255, abs=0.01)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_blur_moves_pixels_one_after_the_other(reach: int) -> None:
    side = 16
    expected = np.arange(side * side).reshape(side, side)
    rng = np.random.default_rng(3)
    for row in range(side - reach, reach, -1):
        for column in range(side - reach, reach, -1):
            right, down = rng.integers(-reach, reach, 2)
            expected[row, column] = expected[row + down, column + right]
    source = distortions._glass([np.random.default_rng(3)], side, reach)
    np.testing.assert_array_equal(source[0], expected.ravel())


def test_flat_images_stay_flat_where_only_places_change() -> None:
    images = flat([30, 120, 210])
    for name in ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "elastic_transform",
                 "pixelate", "contrast"):  # fmt: skip
        np.testing.assert_allclose(corruptions.cifar(images, name, 5).astype(int), images, atol=1, err_msg=name)


def test_no_strength_changes_nothing() -> None:
    images = tiles(2)
    rngs = [np.random.default_rng(i) for i in range(2)]
    for changed in (
        distortions.gaussian_noise(images, rngs, 0), distortions.elastic_transform(images, rngs, 0, 0, 0),
        distortions.frost(images, rngs, 1, 0, 0.2), distortions.fog(images, rngs, 0, 2),
        c_bar.ripple(images, rngs, 0), c_bar.circular_motion_blur(images, rngs, 0),
        c_bar.brownish_noise(images, rngs, 0), c_bar.plasma_noise(images, rngs, 0), c_bar.perlin_noise(images, rngs, 0),
        c_bar.cocentric_sine_waves(images, rngs, 0), c_bar.single_frequency_greyscale(images, rngs, 0),
        c_bar.caustic_refraction(images, rngs, 0), c_bar.checkerboard_cutout(images, rngs, 0),
        c_bar.lines(images, rngs, 0),
    ):  # fmt: skip
        np.testing.assert_allclose(changed, images, atol=1e-3)


def test_fog_keeps_the_brightest_value() -> None:
    images = tiles(8)
    changed = corruptions.cifar(images, "fog", 5)
    assert (changed.max((1, 2, 3)) <= images.max((1, 2, 3))).all()
    np.testing.assert_array_equal(corruptions.cifar(flat(0), "fog", 5), 0)
    heights = distortions._plasma([np.random.default_rng(0)], 64, 2.0)
    assert heights.shape == (1, 64, 64)
    assert (heights.min(), heights.max()) == (0, 1)


def test_snow_whitens_and_adds_a_layer_and_its_turned_self() -> None:
    changed = distortions.snow(flat(0), [np.random.default_rng(0)], 0.1, 0.2, 1, 0.6, 8, 3, 0.95)[0, ..., 0]
    # Black turns to 0.05 * 0.5; the rest are flakes and the same turned by half a turn.
    assert changed.min() == pytest.approx(0.025 * 255, abs=0.01)
    np.testing.assert_allclose(changed, np.rot90(changed, 2), atol=1e-9)
    assert changed.max() > 20


def test_spatter_without_a_drop_leaves_the_image() -> None:
    images = tiles(1)
    changed = distortions.spatter(images, [np.random.default_rng(0)], 0.0, 0.1, 0.7, 0.7, 0.5, 0)
    np.testing.assert_allclose(changed, images, atol=1e-3)


def test_c_bar_facts() -> None:
    images = tiles(32) // 2 + 20  # 20 to 147
    black = (corruptions.cifar(images, "blue_noise_sample", 4) == 0).all(-1)
    assert black.mean() == pytest.approx(0.0735, abs=0.005)  # the normal distribution below 0.3 * 3.5 - 2.5
    gray = corruptions.cifar(images, "checkerboard_cutout", 5)
    changed = (gray != images).any(-1)
    assert (gray[changed] == 128).all()
    assert changed.mean() == pytest.approx(0.25, abs=0.06)  # half of the squares of one of two colors
    noise = c_bar.brownish_noise(images, [np.random.default_rng(i) for i in range(32)], 4) - images
    np.testing.assert_allclose(noise.std((1, 2)), 25.6, rtol=1e-9)
    wave = c_bar.single_frequency_greyscale(images, [np.random.default_rng(i) for i in range(32)], 2) - images
    assert 38 < np.abs(wave).max() <= 39.2
    lattice = np.mgrid[:4, :4].astype(float)
    gradients = np.random.default_rng(0).normal(size=(256, 2))
    np.testing.assert_array_equal(c_bar._perlin(lattice, np.arange(256), gradients), 0)
    star = c_bar._star(32, np.array([10.0, 20.0]), np.full(50, 3.0), 1.0)[..., 0]
    assert star[10, 20] == 1
    assert star[10, 29] < 9 / 81 + 1e-9  # radius squared over distance squared, and less between two rays
    lines = c_bar.lines(images, [np.random.default_rng(i) for i in range(32)], 10).astype(int)
    assert np.abs(lines - 128).mean() < 0.5 * np.abs(images.astype(int) - 128).mean()
    window = c_bar.inverse_sparkles(flat(0), [np.random.default_rng(1)], 5)[0, ..., 0]
    assert window[0, 0] > 100
    assert window[8:24, 8:24].min() < 1


@pytest.mark.parametrize("name", [
    "gaussian_noise", "shot_noise", "defocus_blur", "motion_blur", "zoom_blur", "fog", "brightness", "contrast", "pixelate",
    "jpeg_compression",
])  # fmt: skip
def test_imagecorruptions_says_the_same(name: str) -> None:
    """Where that package follows ImageNet-C's algorithm, with the same random numbers."""
    other = pytest.importorskip("imagecorruptions", reason="imagecorruptions is not installed")
    image = photo()
    for severity in (1, 5):
        np.random.seed(4)  # noqa: NPY002  what that package draws from
        expected = other.corrupt(image, severity, name).astype(int)
        strengths = corruptions.STRENGTHS["imagenet", "c"][name][severity - 1]
        changed = getattr(distortions, name)(image[None], [Legacy(4)], *strengths)[0]
        difference = np.clip(changed, 0, 255).astype(np.uint8) - expected
        assert np.abs(difference).max() <= 1
        assert np.count_nonzero(difference) < 0.03 * difference.size  # motion blur: rounded to 16 bits first, or not


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"name": "motion_blurr"}, ValueError, "did you mean 'motion_blur'?"),
    ({"name": "perlin_noise"}, ValueError, "corruption: expected one of"),
    ({"severity": 6}, ValueError, "severity: expected 1 to 5, got 6"),
    ({"severity": 0}, ValueError, "severity: expected 1 to 5, got 0"),
    ({"severity": 1.0}, TypeError, "severity: expected an int, got float"),
    ({"seed": -1}, ValueError, "seed: expected 0 to"),
    ({"numbers": [1]}, ValueError, "numbers: expected one for each of 2 images, got 1"),
    ({"numbers": [1, -2]}, ValueError, "number: expected 0 to 4294967295, got -2"),
    ({"images": flat(0).astype(float)}, TypeError, "images: expected a uint8 NumPy array, got float64"),
    ({"images": None}, TypeError, "images: expected a uint8 NumPy array, got NoneType"),
    ({"images": flat(0)[:, :31]}, ValueError, "images: expected [N, 32, 32, 3], got [1, 31, 32, 3]"),
    ({"images": flat(0)[:0]}, ValueError, "images: expected [N, 32, 32, 3], got [0, 32, 32, 3]"),
])  # fmt: skip
def test_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"images": flat(0, 2), "name": "fog", "severity": 1} | change
    with pytest.raises(error) as raised:
        corruptions.cifar(**arguments)
    assert message in str(raised.value)


def test_bad_imagenet_image() -> None:
    with pytest.raises(ValueError, match=r"image: expected \[224, 224, 3\], got \[224, 224\]"):
        corruptions.imagenet(np.zeros((224, 224), np.uint8), "fog", 1)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distortions, "find_spec", lambda name: None)
    distortions.ice.cache_clear()
    with pytest.raises(ImportError, match=r"imagecorruptions: pip install 'prime-dali\[train\]'"):
        corruptions.cifar(flat(0), "frost", 1)
    program = "import sys; sys.modules.update(dict.fromkeys(['cv2', 'scipy', 'skimage']))\n"
    program += "from prime_dali import cli; from prime_dali.evaluation import corruptions\n"
    program += "cli.main(['corrupt', '--sed', '3']); corruptions.algorithms()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.startswith("prime-dali corrupt: --sed: no such option; did you mean --seed?")  # takes no second
    assert "OpenCV and Pillow" in done.stderr
    assert "pip install 'prime-dali[train]'" in done.stderr
