"""The content of ``results.json`` and ``results.csv``, from counts that are known."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from evaluating import classifier, gray

from prime_dali import _plots
from prime_dali.evaluation import benchmarks, image_sets, names, report, report_tables
from prime_dali.evaluation.calibration import Calibration
from prime_dali.evaluation.scores import Count

SNOW, FOG, GAUSSIAN = "snow", "fog", "gaussian_noise"
SETTINGS = {"bn_adapt": None, "hardware": "a machine", "precision": "float32", "batch": 8}
ACCURACIES = {c: dict.fromkeys(names.SEVERITIES, 0.5) for c in names.CORRUPTIONS if c != SNOW}


def corrupted(*counted: str, extra: tuple[str, ...] = (), manifest: dict | None = None) -> benchmarks.Corrupted:
    severities = dict.fromkeys((*counted, *extra), names.SEVERITIES)
    return benchmarks.Corrupted(Path("c"), counted, extra, severities, (), manifest, lambda c, s: None)  # type: ignore[arg-type, return-value]


def test_a_set_of_images() -> None:
    what = image_sets.Arrays(gray([3, 3, 5]), np.array([3, 3, 5]), masked=True)
    count = Count(2, 3, Calibration(0.125, 0.25))
    results = report.collect(classifier(), None, {"clean": what}, {"clean": count}, {}, {})
    entry = {"images": 3, "correct": 2, "accuracy": 2 / 3, "calibration": {"ece": 0.125, "rms": 0.25}}
    assert results["sets"]["clean"] == entry | {"missing": [], "masked_to_classes": 2}
    assert list(report._csv_rows(results))[1] == ["clean", False, "", "", 3, 2, 2 / 3, 0.125, 0.25, "", ""]


@pytest.mark.parametrize("manifest", [None, {"severities": [3]}, {"benchmark": "ImageNet-C"}])
def test_further_corruptions_are_in_no_mean(manifest: dict | None) -> None:
    what = corrupted(FOG, extra=("saturate",), manifest=manifest)
    rows = {FOG: (1, Calibration(0.5, 0.25)), "saturate": (4, Calibration(0.125, 0.0625))}
    counts = {c: {s: Count(right, 4, errors) for s in names.SEVERITIES} for c, (right, errors) in rows.items()}
    results = report.collect(classifier(), None, {"imagenet-c": what}, {"imagenet-c": counts}, {"imagenet-c": report.Rule("none")}, {})  # fmt: skip
    found = results["sets"]["imagenet-c"]
    scores = found["scores"]
    assert (scores["corruption_accuracy"], scores["by_severity"][3], scores["mce"]) == (0.25, 0.25, 75)
    assert scores["by_corruption"] == {FOG: 0.25, "saturate": 1}
    assert found["calibration"]["mean"] == {"ece": 0.5, "rms": 0.25}
    made = "benchmark" in (manifest or {})
    assert found["regenerated"] is made
    rows_of_csv = list(report._csv_rows(results))
    assert rows_of_csv[1] == ["imagenet-c", made, FOG, 1, 4, 1, 0.25, 0.5, 0.25, "", ""]
    assert rows_of_csv[10] == ["imagenet-c", made, "saturate", 5, 4, 4, 1, 0.125, 0.0625, "", ""]


def partly_corrupted() -> dict:
    """Results on ImageNet-C, with fog of four severities, and one further corruption; and one corruption of C-bar."""
    fog = {s: Count(s, 8, Calibration(s / 10, 0.0)) for s in names.SEVERITIES if s != 3}
    whole = {s: Count(8, 8, Calibration(0.0, 0.0)) for s in names.SEVERITIES}
    sets = {"imagenet-c": corrupted(FOG, GAUSSIAN, extra=("saturate",)), "imagenet-c-bar": corrupted("sparkles")}
    counts = {"imagenet-c": {FOG: fog, GAUSSIAN: whole, "saturate": whole}, "imagenet-c-bar": {"sparkles": whole}}
    rules = {"imagenet-c": report.Rule("none", missing=("fog severity 3",)), "imagenet-c-bar": report.Rule("none")}
    return report.collect(classifier(), "ImageNet", sets, counts, rules, SETTINGS)


def test_the_tables_of_a_benchmark() -> None:
    lines = [re.sub(" +", " ", line) for line in report_tables.markdown(partly_corrupted()).splitlines()]
    for line in (
        "| fog | 12.50 | 25.00 | - | 50.00 | 62.50 | 37.50 | 62.50 | 30.00 | 45.4 | 47.1 | 52.1 | 54.1 | 55.9 | 56.3 |",
        "| saturate (not counted) | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 0.00 | 0.00 | - | - | - | - | - | - |",
        "| mean | 56.25 | 62.50 | 100.00 | 75.00 | 81.25 | 72.22 | 27.78 | 13.33 | 39.2 | 48.3 | 52.6 | 55.0 | 58.1 | 59.9 |",
        "| PRIME, reported | 68.9 | 63.1 | 56.9 | 48.3 | 37.6 |",
        "| | noise | weather |", "| measured | 100.00 | 37.50 |",
        "| sparkles | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 0.00 | 0.00 | 65.2 | 66.4 | 66.8 | 66.5 |",
        "| mean | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 100.00 | 0.00 | 0.00 | 40.0 | 46.5 | 48.3 | 49.6 |",
    ):  # fmt: skip
        assert line in lines
    assert report_tables._reported_on("imagenet-3dcc", "ImageNet") == {}


def test_the_plot_of_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list = []
    monkeypatch.setattr(report_tables._plots, "dots", lambda axes, names, series, text: drawn.extend(series))
    report_tables.draw(partly_corrupted(), "imagenet-c", tmp_path / "c.png")
    prime = next(one for one in drawn if one.label == "PRIME, reported")
    assert drawn[0] == _plots.Series("measured", {"fog": 37.5, "gaussian noise": 100.0, "saturate": 100.0})
    assert prime == _plots.Series("PRIME, reported", {"fog": 54.1, "gaussian noise": 61.9}, reported=True)


def test_a_benchmark_without_calibration() -> None:
    counts = {FOG: {s: Count(1, 4, Calibration(0.5, 0.25) if s > 1 else None) for s in names.SEVERITIES}}
    results = report.collect(classifier(), None, {"cifar-c": corrupted(FOG)}, {"cifar-c": counts}, {"cifar-c": report.Rule("none")}, {})  # fmt: skip
    assert "calibration" not in results["sets"]["cifar-c"]
    assert list(report._csv_rows(results))[2] == ["cifar-c", False, FOG, 2, 4, 1, 0.25, "", "", "", ""]


def test_a_reference_is_read_as_it_was_written(tmp_path: Path) -> None:
    counts = {FOG: {s: Count(s - 1, 4, fingerprint=f"of {s}") for s in names.SEVERITIES}}
    results = report.collect(classifier(source="a network"), None, {"cifar-c": corrupted(FOG)}, {"cifar-c": counts},
                             {"cifar-c": report.Rule("none", missing=("1 class",))}, {"bn_adapt": None})  # fmt: skip
    (path := tmp_path / "results.json").write_text(json.dumps(results))
    found = report.read_reference(path, "cifar-c", None)
    assert found.accuracies == {FOG: {s: (s - 1) / 4 for s in names.SEVERITIES}}
    assert (found.source, found.missing, found.images[FOG]["5"]) == ("a network", ("1 class",), 4)
    assert found.fingerprints[FOG]["5"] == "of 5"
    scored = {"cifar-c": report.Rule("standard", found, ("1 class",))}
    for last, said in (("of 5", "results.json"), ("of others", "results.json, of OTHER images, or in another order")):
        counts[FOG][5] = Count(4, 4, fingerprint=last)
        again = report.collect(
            classifier(), None, {"cifar-c": corrupted(FOG)}, {"cifar-c": counts}, scored, results["settings"]
        )
        assert [fact for fact in report_tables._facts("cifar-c", again["sets"]["cifar-c"], None) if fact.endswith(said)]
    path.write_text(json.dumps(results | {"format": "another"}))
    with pytest.raises(ValueError, match=r"expected results.json of prime-dali evaluate with cifar-c .*'another'"):
        report.read_reference(path, "cifar-c", None)


def test_what_a_reference_lacks() -> None:
    """But for what nobody has: no corruption that is not scored, and no classes that are missing here too."""
    found = report.Reference(Path("r"), "a network", ACCURACIES, {}, (SNOW, "1 class"))
    assert found.lacks([FOG], ["1 class"]) == []
    assert found.lacks([FOG], []) == ["1 class"]
    assert found.lacks([FOG, SNOW], ["1 class"]) == [SNOW]
    assert report_tables._unlike({"images": {FOG: {"1": 3}}}, {"images": {FOG: {1: 3, 2: 4}, SNOW: {1: 5}}}) == ""


def test_the_mce_of_parts() -> None:
    """Over the corruptions that have all severities; without any there is none."""
    rule = report.Rule("none", missing=("some",))
    accuracies = {FOG: dict.fromkeys(names.SEVERITIES, 0.75), SNOW: {1: 1.0}}
    assert rule.mce(accuracies, [FOG, SNOW]) == 25
    assert rule.mce(accuracies, [SNOW]) is None
    with pytest.raises(ValueError, match="snow severity 2, 3, 4, 5"):
        report.Rule("none").mce(accuracies, [SNOW])


def test_names_of_corruptions_have_any_characters(tmp_path: Path) -> None:
    """Those of C-bar are the user's; bytes that are no text come back from the files."""
    odd = ["a|b", "two\nlines", 'c,"d', "\udce9", "a$b^$c"]
    counts = {c: {s: Count(3, 4) for s in names.SEVERITIES} for c in odd}
    what = corrupted(*odd)
    given: tuple[dict, ...] = tuple({"imagenet-c-bar": part} for part in (what, counts, report.Rule("none")))
    results = report.collect(classifier(), None, *given, SETTINGS)
    report.write(results, tmp_path)
    read = json.loads((tmp_path / "results.json").read_text())["sets"]["imagenet-c-bar"]["accuracy"]
    assert list(read) == odd
    with (tmp_path / "results.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["corruption"] for row in rows[::5]] == odd
    table = [line for line in report_tables.markdown(results).splitlines() if "75.00" in line and line.count(" | ") > 5]
    assert [line.split(" | ")[0].strip("| ") for line in table[:5]] == [
        "a\\|b",
        "two\\nlines",
        'c,"d',
        "\\xe9",
        "a$b^$c",
    ]
