"""Calibration errors against values computed by hand, and against a loop over the definition."""

from __future__ import annotations

import dataclasses
import doctest
import math

import numpy as np
import pytest
import torch
from evaluating import CPU, STATISTICS, Gray, gray
from torch import nn

from prime_dali.evaluation import calibration, evaluate, image_sets, report, report_tables, results, stability
from prime_dali.evaluation.calibration import Calibration, expected_calibration_error, rms_calibration_error
from prime_dali.evaluation.scores import Count


def test_ece_by_hand() -> None:
    # Bins of a fifth: (0, 0.2] 0.2 and 0.1, of which one is right; (0.4, 0.6] 0.6, right; (0.8, 1] 1 and 0.9, both wrong.
    confidences, correct = [0.2, 0.1, 0.6, 1.0, 0.9], [True, False, True, False, False]
    expected = (2 * abs(0.5 - 0.15) + 1 * 0.4 + 2 * 0.95) / 5
    assert expected_calibration_error(confidences, correct, bins=5) == pytest.approx(expected)
    assert expected_calibration_error(confidences, correct, bins=1) == pytest.approx(abs(0.4 - 0.56))
    assert expected_calibration_error([0.0, 1.0], [False, True]) == 0


def test_rms_by_hand() -> None:
    # Sorted: 0.1 wrong, 0.2 right; 0.6 right, 0.9 wrong, 1.0 wrong: the last bin takes what does not fill one.
    confidences, correct = [0.2, 0.1, 0.6, 1.0, 0.9], [True, False, True, False, False]
    first, last = 0.5 - 0.15, 1 / 3 - 2.5 / 3
    expected = math.sqrt((2 * first**2 + 3 * last**2) / 5)
    assert rms_calibration_error(confidences, correct, size=2) == pytest.approx(expected)
    assert rms_calibration_error(confidences, correct) == pytest.approx(abs(0.4 - 0.56))  # fewer than 100: one bin


def test_errors_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    confidences = rng.choice(np.linspace(0, 1, 46), 1250).astype(np.float32)  # many on the edges of bins
    correct = rng.random(1250) < np.sin(9 * confidences) ** 2  # too confident in some bins, not enough in others
    expected = 0.0
    for m in range(1, 16):
        inside = [k for k, c in enumerate(confidences.tolist()) if (m - 1) / 15 < c <= m / 15 or (m == 1 and c == 0)]
        expected += abs(sum(confidences[inside].tolist()) - correct[inside].sum()) / 1250
    assert expected_calibration_error(confidences, correct) == pytest.approx(expected)
    order = sorted(range(1250), key=lambda k: confidences[k])
    bins = [order[start : start + 100] for start in range(0, 1100, 100)] + [order[1100:]]
    gaps = [(len(b), np.mean([correct[k] - float(confidences[k]) for k in b])) for b in bins]
    assert rms_calibration_error(confidences, correct) == pytest.approx(
        math.sqrt(sum(n / 1250 * g**2 for n, g in gaps))
    )
    found = calibration.calibration(confidences, correct)
    assert found == Calibration(
        expected_calibration_error(confidences, correct), rms_calibration_error(confidences, correct)
    )


def test_examples() -> None:
    for module, examples in ((calibration, 2), (stability, 4)):
        assert doctest.testmod(module) == (0, examples)


def test_bad_confidences() -> None:
    with pytest.raises(
        ValueError, match=r"confidences: expected \[N\], with as many answers in correct, got \[2\] and \[1\]"
    ):
        expected_calibration_error([0.1, 0.2], [True])
    with pytest.raises(ValueError, match=r"got \[0\] and \[0\]"):
        rms_calibration_error([], [])
    with pytest.raises(ValueError, match=r"confidences: expected 0 to 1, got 0\.5 to 1\.5"):
        expected_calibration_error([0.5, 1.5], [True, True])
    with pytest.raises(ValueError, match="correct: expected True or False for each image, got int64 with other values"):
        expected_calibration_error([0.5, 0.5], [1, 7])  # predicted classes
    with pytest.raises(ValueError, match="confidences: expected 0 to 1, got nan"):
        rms_calibration_error([math.nan], [True])
    with pytest.raises(ValueError, match="bins: expected 1 to"):
        expected_calibration_error([0.5], [True], bins=0)


class Tempered(nn.Module):
    """Logits so near each other that their softmax is not all or nothing."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return logits / 20


@pytest.mark.parametrize("masked", [False, True])
def test_the_confidence_of_a_network(masked: bool) -> None:
    """The largest softmax probability, in a masked set among its classes; the size of the batch does not matter."""
    images, labels = gray([1, 3, 6, 0]), np.array([0, 4, 6, 0])
    part = image_sets.Arrays(images, labels, masked=masked)
    network = nn.Sequential(Gray(10), Tempered())
    logits = network(torch.from_numpy(images).permute(0, 3, 1, 2) / 255)
    chosen = np.array([0, 4, 6]) if masked else np.arange(10)
    probabilities = torch.softmax(logits[:, torch.from_numpy(chosen)], 1).numpy()
    expected = calibration.calibration(probabilities.max(1), chosen[probabilities.argmax(1)] == labels)
    for batch in (1, 3, 4):
        found = evaluate.count(network, part, STATISTICS, CPU, batch).calibration
        assert found is not None
        assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(expected), abs=1e-6)
    assert 0 < expected.ece < 1


def test_means_of_a_benchmark() -> None:
    def count(ece: float) -> Count:
        return Count(1, 2, Calibration(ece, 2 * ece))

    counts = {"fog": {1: count(0.1), 2: count(0.2)}, "snow": {1: count(0.3)}, "saturate": {1: count(0.9)}}
    content = report._calibrations(counts, corruptions=("fog", "snow"), partial=True)
    assert content["calibration"]["mean"] == pytest.approx({"ece": 0.2, "rms": 0.4})
    assert results.ece_by_corruption(content) == pytest.approx({"fog": 0.15, "snow": 0.3, "saturate": 0.9})
    counts["snow"][2] = Count(1, 2)  # not measured: no mean of the rest
    assert report._calibrations(counts, corruptions=("fog", "snow"), partial=True) == {}
    clean = {"calibration": {"ece": 0.05, "rms": 0.1}}
    header, rows = report_tables.calibration_rows({"clean": clean, "C": {"scores": {}, **content}, "R": {}}) or ([], [])
    assert header == ["", "clean", "C mean"]
    assert rows == [["ECE", "5.00", "20.00"], ["RMS calibration error", "10.00", "40.00"]]
    assert report_tables.calibration_rows({"R": {}}) is None
