"""Scores against values computed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from prime_dali.evaluation import names, reported, scores
from prime_dali.evaluation.calibration import Calibration

SLOPE = {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6, 5: 0.5}  # mean 0.7
LOW = {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2, 5: 0.1}  # mean 0.3


def table(noise: Mapping[int, float] = LOW) -> dict[str, dict[int, float]]:
    """The three noises are ``noise``, all else SLOPE."""
    return {c: dict(noise if c in names.GROUPS["noise"] else SLOPE) for c in names.CORRUPTIONS}


def test_means() -> None:
    assert scores.corruption_accuracy(table()) == pytest.approx((3 * 0.3 + 12 * 0.7) / 15)
    assert scores.by_severity(table()) == pytest.approx({1: 0.82, 2: 0.72, 3: 0.62, 4: 0.52, 5: 0.42})
    assert scores.by_group(table()) == pytest.approx({"noise": 0.3, "blur": 0.7, "weather": 0.7, "digital": 0.7})
    found = scores.by_corruption(table())
    assert list(found) == list(names.CORRUPTIONS)
    assert found["shot_noise"] == pytest.approx(0.3)
    assert found["fog"] == pytest.approx(0.7)


def test_groups_are_the_papers() -> None:
    bright = table() | {
        "brightness": dict.fromkeys(names.SEVERITIES, 0.1),
        "contrast": dict.fromkeys(names.SEVERITIES, 0.3),
    }
    found = scores.by_group(bright)
    assert found["weather"] == pytest.approx((3 * 0.7 + 0.1) / 4)
    assert found["digital"] == pytest.approx((3 * 0.7 + 0.3) / 4)


def test_extra_corruptions_do_not_count() -> None:
    more = table() | {"saturate": dict.fromkeys(names.SEVERITIES, 0.0)}
    assert scores.corruption_accuracy(more) == scores.corruption_accuracy(table())
    assert scores.mean_corruption_error(more, "none") == scores.mean_corruption_error(table(), "none")


def test_mce_without_normalization() -> None:
    assert scores.mean_corruption_error(table(), "none") == pytest.approx(100 * (3 * 0.7 + 12 * 0.3) / 15)


def test_mce_of_alexnet() -> None:
    ruled = {c: dict.fromkeys(names.SEVERITIES, 1 - e) for c, e in scores.ALEXNET_ERRORS.items()}
    assert scores.mean_corruption_error(ruled, "alexnet") == pytest.approx(100)  # AlexNet's own
    # 100/15 * (sum of 0.5 / e over the fifteen published errors)
    half = {c: dict.fromkeys(names.SEVERITIES, 0.5) for c in names.CORRUPTIONS}
    assert scores.mean_corruption_error(half, "alexnet") == pytest.approx(64.6726, abs=1e-4)
    assert scores.ALEXNET_ERRORS["gaussian_noise"] == 0.886428
    assert scores.ALEXNET_ERRORS["brightness"] == 0.564592
    assert scores.ALEXNET_ERRORS["jpeg_compression"] == 0.606500


def test_mce_of_a_standard_network() -> None:
    """Errors are summed over severities before they are divided; a mean of ratios would be another number."""
    ours = {"fog": {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6, 5: 0.5}, "snow": {1: 1.0, 2: 0.9, 3: 0.8, 4: 0.7, 5: 0.6}}
    standard = {"fog": {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.25, 5: 0.25}, "snow": {1: 0.6, 2: 0.6, 3: 0.6, 4: 0.6, 5: 0.6}}
    # fog: 1.5 / 3.0 = 0.5; snow: 1.0 / 2.0 = 0.5
    assert scores.mean_corruption_error(ours, "standard", standard, ["fog", "snow"]) == pytest.approx(50)
    assert scores.mean_corruption_error(standard, "standard", standard, ["fog", "snow"]) == pytest.approx(100)


@pytest.mark.parametrize("row", [row for name in ("CIFAR-10", "CIFAR-100", "ImageNet-100", "ImageNet") for row in reported.of(name)],
                         ids=lambda row: f"{row.dataset} {row.method}")  # fmt: skip
def test_the_papers_tables_agree(row: reported.Network) -> None:
    """Means and mCE follow from the accuracies per corruption, so neither those nor the formulas can be off."""
    accuracies, standard = (
        {c: dict.fromkeys(names.SEVERITIES, a / 100) for c, a in each.corruptions.items()}
        for each in (row, reported.of(row.dataset)[0])
    )
    rounding = 0.11  # the paper rounds both sides
    assert 100 * scores.corruption_accuracy(accuracies) == pytest.approx(row.mean, abs=rounding)
    assert sum(row.severities.values()) / 5 == pytest.approx(row.mean, abs=rounding)
    reference = standard if row.normalization == "standard" else None
    mce = scores.mean_corruption_error(accuracies, row.normalization, reference)
    assert mce == pytest.approx(row.mce, abs=rounding)
    if row.c_bar:
        assert sum(row.c_bar.values()) / 10 == pytest.approx(row.c_bar_mean, abs=rounding)


def test_data_sets_that_the_paper_lacks() -> None:
    assert [row.method for row in reported.of("CIFAR-10")] == ["Standard", "AugMix", "PRIME"]
    assert reported.of("SVHN") == reported.of(None) == []


def test_what_is_missing_is_named() -> None:
    holes = table()
    del holes["snow"][3], holes["snow"][4], holes["fog"]
    message = "expected 15 corruptions x 5 severities for a mean, missing: snow severity 3, 4; fog (partial"
    for score in (scores.corruption_accuracy, scores.by_severity):
        with pytest.raises(ValueError, match=re.escape(message)):
            score(holes)
    with pytest.raises(ValueError, match="missing: snow severity 3, 4"):
        scores.by_corruption(holes)
    with pytest.raises(ValueError, match="missing: snow severity 3, 4; fog"):
        scores.by_group(holes)
    with pytest.raises(ValueError, match="missing: snow severity 3, 4"):
        scores.mean_corruption_error(holes, "none")


def test_partial_means_are_over_what_is_there() -> None:
    holes = {"fog": {1: 0.9, 2: 0.7}, "snow": dict(LOW)}
    assert scores.corruption_accuracy(holes, partial=True) == pytest.approx((0.9 + 0.7 + 5 * 0.3) / 7)
    assert scores.by_corruption(holes, partial=True) == pytest.approx({"snow": 0.3, "fog": 0.8})
    assert scores.by_severity(holes, partial=True) == pytest.approx({1: 0.7, 2: 0.55, 3: 0.3, 4: 0.2, 5: 0.1})
    assert scores.by_group(holes, partial=True) == pytest.approx({"weather": 3.1 / 7})
    # Of the two only snow has all severities.
    assert scores.mean_corruption_error(holes, "alexnet", partial=True) == pytest.approx(100 * 0.7 / 0.866816)
    with pytest.raises(ValueError, match="expected a corruption with all five severities, got none"):
        scores.mean_corruption_error({"fog": {1: 0.9}}, "none", partial=True)
    with pytest.raises(ValueError, match=r"expected some of gaussian_noise, .*, got none"):
        scores.corruption_accuracy({}, partial=True)


def test_bad_normalizations() -> None:
    with pytest.raises(
        ValueError, match="expected one of 'none', 'alexnet', 'standard', got 'alex'; did you mean 'alexnet'"
    ):
        scores.mean_corruption_error(table(), "alex")
    with pytest.raises(ValueError, match="reference: expected with normalization 'standard', and only then, got none"):
        scores.mean_corruption_error(table(), "standard")
    with pytest.raises(ValueError, match="reference: expected with normalization 'standard', and only then, got one"):
        scores.mean_corruption_error(table(), "none", table())
    with pytest.raises(ValueError, match="expected 'alexnet' to have an error on ripple, got none"):
        scores.mean_corruption_error({"ripple": SLOPE}, "alexnet", corruptions=["ripple"])
    perfect = table() | {"fog": dict.fromkeys(names.SEVERITIES, 1.0)}
    with pytest.raises(ValueError, match="expected 'standard' to have an error on fog, got none"):
        scores.mean_corruption_error(table(), "standard", perfect)
    lacking = table() | {"fog": {1: 0.5}}
    with pytest.raises(ValueError, match=r"accuracies: expected .* missing: fog severity 2, 3, 4, 5"):
        scores.mean_corruption_error(table(), "standard", lacking, partial=True)


def test_what_is_measured_survives_a_file() -> None:
    every: list[scores.Count | scores.Stability] = [
        scores.Count(3, 7), scores.Count(3, 7, Calibration(1 / 3, 0.1 + 0.2)), scores.Stability(9, 31, 1 / 7, 2 / 3),
    ]  # fmt: skip
    for found in every:
        again = scores.from_plain(json.loads(json.dumps(scores.as_plain(found))))
        assert repr(again) == repr(found)  # equal counts need not have equal calibrations
    with pytest.raises(TypeError, match="images"):
        scores.from_plain({"correct": 1})
