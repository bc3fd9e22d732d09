"""Scores of corruption benchmarks (docs/EVALUATION.md, "Scores"), from accuracies per corruption and severity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import _arguments
from .calibration import Calibration
from .names import CORRUPTIONS, GROUPS, SEVERITIES


@dataclass(frozen=True)
class Count:
    """The number of images of a set that a network classifies correctly."""

    correct: int
    images: int
    calibration: Calibration | None = field(default=None, compare=False)
    """None: not measured."""
    fingerprint: str | None = field(default=None, compare=False)
    """Of the images (:meth:`.image_sets.ImageSet.fingerprint`); None: counts of earlier versions have none."""

    @property
    def accuracy(self) -> float:
        """In [0, 1]."""
        return self.correct / self.images


@dataclass(frozen=True)
class Stability:
    """How a network's answers change within the sequences of a perturbation (:mod:`.stability`)."""

    sequences: int
    frames: int
    """Of each sequence."""
    flip_rate: float
    """In [0, 1]: :func:`.stability.flip_rates`, mean over sequences."""
    top5_distance: float
    """:func:`.stability.top5_distances`, mean over sequences."""


Counts = Mapping[str, "Count | Mapping[str, Mapping[int, Count]] | Mapping[str, Mapping[int, Stability]]"]
"""By name of the set; for a corruption benchmark by corruption and severity, for sequences by perturbation and 0."""


def as_plain(found: Count | Stability) -> dict[str, Any]:
    """The content for a JSON file."""
    return asdict(found)


def from_plain(content: Mapping[str, Any]) -> Count | Stability:
    """The inverse of :func:`as_plain`, exactly.

    Raises:
        TypeError: A field is missing, or unknown.
    """
    if "flip_rate" in content:
        return Stability(**content)
    errors = content.get("calibration")
    return Count(**{**content, "calibration": None if errors is None else Calibration(**errors)})


Accuracies = Mapping[str, Mapping[int, float]]
"""Accuracy in [0, 1] by corruption and severity."""

NORMALIZATIONS = ("none", "alexnet", "standard")
"""The reference error of each corruption in the mCE: 1, AlexNet's, or that of a network with standard training."""

ALEXNET_ERRORS = dict(zip(CORRUPTIONS, (
    0.886428, 0.894468, 0.922640, 0.819880, 0.826268, 0.785948, 0.798360, 0.866816, 0.826572, 0.819324, 0.564592,
    0.853204, 0.646056, 0.717840, 0.606500,
), strict=True))  # fmt: skip
"""Mean errors over the five severities of ImageNet-C (Hendrycks and Dietterich, 2019)."""


def missing(present: Mapping[str, Collection[int]], corruptions: Sequence[str] = CORRUPTIONS) -> list[str]:
    """Descriptions of the severities of ``corruptions`` that are not ``present``, such as accuracies or layouts."""
    out = []
    for corruption in corruptions:
        lacking = [s for s in SEVERITIES if s not in present.get(corruption, ())]
        if len(lacking) == len(SEVERITIES):
            out.append(corruption)
        elif lacking:
            out.append(f"{corruption} severity {', '.join(map(str, lacking))}")
    return out


def check_complete(accuracies: Accuracies, corruptions: Sequence[str] = CORRUPTIONS) -> None:
    """Raise a ValueError that names the missing severities of ``corruptions``, if there are any."""
    lacking = missing(accuracies, corruptions)
    if lacking:
        raise ValueError(
            f"accuracies: expected {len(corruptions)} corruptions x {len(SEVERITIES)} severities for a mean, "
            f"missing: {'; '.join(lacking)} (partial: the mean over the rest)"
        )


def corruption_accuracy(
    accuracies: Accuracies, corruptions: Sequence[str] = CORRUPTIONS, *, partial: bool = False
) -> float:
    """Mean over corruptions and severities, in [0, 1].

    Args:
        accuracies: At least those of ``corruptions``; others are ignored.
        corruptions: The corruptions that the mean includes.
        partial: If some are missing, take the mean over the rest.

    Raises:
        ValueError: A corruption or severity is missing and ``partial`` is not set, or all are missing; the message
            names them.
    """
    return _mean(accuracies, corruptions, SEVERITIES, partial)


def by_corruption(
    accuracies: Accuracies, corruptions: Sequence[str] = CORRUPTIONS, *, partial: bool = False
) -> dict[str, float]:
    """Mean over the severities of each corruption; arguments and errors as :func:`corruption_accuracy`.

    With ``partial``, a corruption without any severity is left out.
    """
    return {c: _mean(accuracies, [c], SEVERITIES, partial) for c in _there(accuracies, corruptions, partial)}


def by_severity(
    accuracies: Accuracies, corruptions: Sequence[str] = CORRUPTIONS, *, partial: bool = False
) -> dict[int, float]:
    """Mean over the corruptions of each severity; arguments and errors as :func:`corruption_accuracy`.

    With ``partial``, a severity without any corruption is left out.
    """
    if not partial:
        check_complete(accuracies, corruptions)
    there = [s for s in SEVERITIES if any(s in accuracies.get(c, {}) for c in corruptions)]
    return {s: _mean(accuracies, corruptions, [s], True) for s in there}


def by_group(accuracies: Accuracies, *, partial: bool = False) -> dict[str, float]:
    """Mean over the corruptions of each of the paper's four groups; errors as :func:`corruption_accuracy`.

    With ``partial``, a group without any corruption is left out.
    """
    there = [g for g, inside in GROUPS.items() if not partial or any(accuracies.get(c) for c in inside)]
    return {g: _mean(accuracies, GROUPS[g], SEVERITIES, partial) for g in there}


def mean_corruption_error(
    accuracies: Accuracies,
    normalization: str,
    reference: Accuracies | None = None,
    corruptions: Sequence[str] = CORRUPTIONS,
    *,
    partial: bool = False,
) -> float:
    """``mCE = 100 * mean over c of (sum over s of E[c, s] / sum over s of E_reference[c, s])``, E = 1 - accuracy.

    Args:
        accuracies, corruptions: As for :func:`corruption_accuracy`.
        normalization: ``"none"``: E_reference is 1. ``"alexnet"``: :data:`ALEXNET_ERRORS`. ``"standard"``: that of
            ``reference``.
        reference: Accuracies of a network with standard training on the same benchmark; only for ``"standard"``.
        partial: Take the mean over the corruptions that have all five severities.

    Returns:
        The mCE in percent: 100 is the error of the reference or, without one, an error on every image.

    Raises:
        ValueError: As for :func:`corruption_accuracy`; or an unknown normalization, or corruptions that the reference
            lacks or has no error on.
    """
    _arguments.one_of("normalization", normalization, NORMALIZATIONS)
    if (reference is None) == (normalization == "standard"):
        got = "none" if reference is None else "one"
        raise ValueError(f"reference: expected with normalization 'standard', and only then, got {got}")
    if partial:
        corruptions = [c for c in corruptions if not missing(accuracies, [c])]
        if not corruptions:
            raise ValueError("accuracies: expected a corruption with all five severities, got none")
    errors = {c: 1 - accuracy for c, accuracy in by_corruption(accuracies, corruptions).items()}
    if normalization == "none":
        divisors: Mapping[str, float] = dict.fromkeys(corruptions, 1.0)
    elif normalization == "alexnet":
        divisors = ALEXNET_ERRORS
    else:
        assert reference is not None
        divisors = {c: 1 - a for c, a in by_corruption(reference, corruptions).items()}
    unfit = [c for c in corruptions if not divisors.get(c, 0) > 0]
    if unfit:
        raise ValueError(f"normalization: expected {normalization!r} to have an error on {', '.join(unfit)}, got none")
    return 100 * sum(errors[c] / divisors[c] for c in corruptions) / len(corruptions)


def _there(accuracies: Accuracies, corruptions: Sequence[str], partial: bool) -> Sequence[str]:
    return [c for c in corruptions if accuracies.get(c)] if partial else corruptions


def _mean(accuracies: Accuracies, corruptions: Sequence[str], severities: Collection[int], partial: bool) -> float:
    if not partial:
        check_complete(accuracies, corruptions)
    cells = [accuracies[c][s] for c in corruptions for s in severities if s in accuracies.get(c, {})]
    if not cells:
        raise ValueError(f"accuracies: expected some of {', '.join(corruptions)}, got none")
    return sum(cells) / len(cells)
