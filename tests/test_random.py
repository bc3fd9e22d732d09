"""Philox against its published vectors; normals and their layout."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import prime_dali
from prime_dali import _arrays, random

# Random123's known-answer file (kat_vectors), philox4x32 with 10 rounds: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_known_answers(counter: str, key: str, expected: str) -> None:
    assert _arrays.philox(words(counter), words(key)) == words(expected)
    ours = random.philox(np.array(words(counter), np.uint32), np.array(words(key), np.uint32))
    assert ours.tolist() == words(expected)


def test_uniform_is_open() -> None:
    ends = random.uniform(np.array([0, 0xFFFFFFFF], np.uint32))
    assert 0 < ends[0] < 2**-23
    assert 1 - 2**-23 < ends[1] < 1


def test_normals_are_normal_and_independent() -> None:
    stream = random.stream(1, 2, 3, 4)
    z = np.concatenate([random.normals(stream, 4096, row * random.RUN, 0, 0, "noise") for row in range(32)])
    assert stats.kstest(z, "norm").pvalue > 1e-4
    for lag in (1, 2, 1024, 4096):  # neighbors, lanes of one block, runs
        # The correlation of n independent pairs is N(0, 1 / n).
        assert abs(np.corrcoef(z[:-lag], z[lag:])[0, 1]) < 4.5 / np.sqrt(len(z))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 49, 224])
def test_runs_have_their_length_and_no_repeats(count: int) -> None:
    z = random.normals(random.stream(0, 0, 0, 0), count, 0, 1, 2, "filter")
    assert z.shape == (count,)
    assert len(np.unique(z)) == count


def test_streams_of_many_images_at_once() -> None:
    numbers, epochs, views = [5, -7, 2**40], [1, 2, 2**32 - 1], [0, 9, 2**32 - 1]
    words = random.stream(-3, np.array(numbers)[:, None], np.array(epochs)[:, None], np.array(views))
    for i, (number, epoch) in enumerate(zip(numbers, epochs, strict=True)):
        for j, view in enumerate(views):
            np.testing.assert_array_equal(words[i, j], random.stream(-3, number, epoch, view))


def test_streams_differ_in_every_word_of_their_name() -> None:
    names = [(0, 0, 0, 0), (1, 0, 0, 0), (2**40, 0, 0, 0), (0, 1, 0, 0), (0, 2**40, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    streams = {tuple(random.stream(*name)) for name in names}
    assert len(streams) == len(names)


def test_kernels_derive_a_plan_from_every_bit_of_its_names() -> None:
    """Seed, index, epoch and view, as here in NumPy."""
    index, epoch = np.array([5, -7, 2**40, 2**63 - 1]), np.array([0, 3, 2**16, 2**32 - 1])
    views = (0, 9, 2**31, 2**32 - 1)
    for seed in (0, -3, 2**40 + 1):
        plan = prime_dali.sample("cifar", index, size=32, seed=seed, epoch=epoch, view=views)
        expected = [random.stream(seed, index, epoch, view) for view in np.array(views)]
        np.testing.assert_array_equal(plan.stream.view(np.uint32), np.concatenate(expected))
