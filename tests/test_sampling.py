"""Crops, shifts, flips and orders that are named by numbers: their distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prime_dali.data import sampling as order

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")


RATIO = (3 / 4, 4 / 3)


def windows(
    count: int, height: int, width: int, ratio: tuple = RATIO, area: tuple = (0.08, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    ones = np.ones(count, np.int64)
    return order.random_crops(height * ones, width * ones, np.arange(count), 0 * ones, 5, area, ratio)


# Images of few pixels, where a pixel more or less is a large part of a window.
@pytest.mark.parametrize(
    ("height", "width", "area", "ratio"),
    [(300, 400, (0.08, 1.0), RATIO), (300, 400, (0.3, 0.6), (0.2, 3)), (3, 4, (0.08, 1.0), (0.2, 3))],
)
def test_crops_have_the_laws_of_torchvision(height: int, width: int, area: tuple, ratio: tuple) -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    count = 4000
    corner, window = windows(count, height, width, ratio, area)
    assert (corner >= 0).all()
    assert (corner + window <= [height, width]).all()
    image = torch.empty(3, height, width)
    draw = torchvision.transforms.RandomResizedCrop.get_params
    theirs = np.array([draw(image, list(area), list(ratio)) for _ in range(count)])
    for ours, other in zip(np.concatenate([corner, window], 1).T, theirs.T, strict=True):
        grid = np.arange(0, width, max(1, width // 40))
        distance = np.abs((ours[:, None] <= grid).mean(0) - (other[:, None] <= grid).mean(0)).max()
        assert distance < 1.95 * (2 / count) ** 0.5  # Kolmogorov-Smirnov, 0.1 % of honest runs


def test_shifts_are_uniform() -> None:
    count, padding = 8000, 4
    corners = order.random_shifts(np.arange(count), 3, 5, padding)
    for axis in range(2):
        found = np.bincount(corners[:, axis], minlength=2 * padding + 1)
        assert len(found) == 2 * padding + 1
        assert ((found - count / 9) ** 2 / (count / 9)).sum() < 26.1  # chi square, 8 degrees, 0.1 % of honest runs
    assert abs(np.corrcoef(corners.T)[0, 1]) < 4 / count**0.5


@pytest.mark.parametrize("probability", [0.5, 0.2])
def test_flips_are_fair_and_independent_of_places(probability: float) -> None:
    count, epoch = 4000, np.zeros(4000, np.int64)
    flips = order.random_flips(np.arange(count), epoch, 5, probability)
    assert abs(flips.mean() - probability) < 4 * (probability * (1 - probability) / count) ** 0.5
    places = order.random_shifts(np.arange(count), epoch, 5, 4)
    assert (np.abs(np.corrcoef(places.T, flips)[2, :2]) < 4 / count**0.5).all()


@pytest.mark.parametrize(("height", "width", "middle"), [(1, 1, (1, 1)), (10, 20000, (10, 13)), (20000, 10, (13, 10))])
def test_crops_of_images_that_no_attempt_fits(height: int, width: int, middle: tuple[int, int]) -> None:
    corner, window = windows(50, height, width)
    assert (corner >= 0).all()
    assert (window >= 1).all()
    assert (corner + window <= [height, width]).all()
    assert {tuple(w) for w in window.tolist()} == {middle}
    assert (corner == (np.array([height, width]) - window) // 2).all()


def test_no_two_purposes_have_the_same_random_numbers() -> None:
    attempts = range(order._VIEW_ATTEMPTS, order._VIEW_ATTEMPTS + order._ATTEMPTS // 2)
    views = [order._VIEW_ORDER, order._VIEW_PLACE, *order._VIEWS_OF_STEPS.values(), *attempts]
    assert len(set(views)) == len(views)
    assert max(views) < 2**32


def test_permutations() -> None:
    orders = [order.permutation(seed, epoch, 1000) for seed in (-1, 2) for epoch in (0, 1)]
    for one in orders:
        np.testing.assert_array_equal(np.sort(one), np.arange(1000))
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).mean() < 0.02
