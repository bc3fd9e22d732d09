"""What ``prime-dali evaluate`` makes of its options: how sets are read, and how they are scored."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluating import classifier, save_cifar_c
from test_report import FOG, SNOW, corrupted

from prime_dali.evaluation import benchmarks, chosen, image_sets, imagenet_sets, names, report
from prime_dali.evaluation.scores import Count


def options(**given: Any) -> Namespace:
    settings = {
        "clean": None,
        "label": None,
        "subset": False,
        "loader": "pillow",
        "workers": 0,
        "normalize": None,
        "reference": None,
    }
    return Namespace(**settings | {"partial": False} | given)


def test_how_sets_of_imagenet_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the options; a label only of those that are shards, and Tiny-ImageNet's size of a network of that."""
    made: dict[str, tuple[Any, ...]] = {}

    def corrupted(folder: Path, classes: Any, reading: Any, *, c_bar: bool, size: int) -> None:
        made[folder.name] = classes, reading, c_bar, size

    def pictures(name: str, folder: Path, classes: Any, reading: Any, *, size: int, resize: int) -> None:
        made[name] = classes.names, reading, size, resize

    monkeypatch.setattr(benchmarks, "imagenet_corrupted", corrupted)
    monkeypatch.setattr(imagenet_sets, "pictures", pictures)
    folders = {name: tmp_path / name for name in ("clean", "imagenet-c", "imagenet-c-bar")}
    for folder in folders.values():
        (folder / "fog" / "1").mkdir(parents=True)
    (folders["imagenet-c"] / "fog" / "1" / "a.tar").touch()
    given = options(folders=folders, label="kind", loader="dali", workers=3)
    own = ("a", "b")
    _, dataset = chosen.open_sets(given, replace(classifier(2, 64, resize=72), classes=own))
    plain = benchmarks.Reading(False, None, image_sets.Decoding("dali", 3))
    assert dataset is None
    assert made == {
        "clean": (own, plain, 64, 72),
        "imagenet-c": (own, replace(plain, label="kind"), False, benchmarks.TINY_SIDE),
        "imagenet-c-bar": (own, plain, True, benchmarks.TINY_SIDE),
    }
    for absent in ("imagenet-c", "nowhere"):  # class folders, or nothing
        given = options(folders={"clean": tmp_path / absent / "fog"}, label="kind")
        with pytest.raises((ValueError, FileNotFoundError), match=r"label: expected a set of shards|no such folder"):
            chosen.open_sets(given, replace(classifier(2, 64), classes=own))


def test_classes_that_are_named_by_a_file(tmp_path: Path) -> None:
    (path := tmp_path / "names.txt").write_text("dog\ncat\n")
    found, source = chosen.named(classifier(2, 64), options(classes=path))
    assert (found.classes, source) == (("dog", "cat"), path)
    again, source = chosen.named(found, options(classes=path))
    assert (again.classes, source) == (("dog", "cat"), None)


def test_the_data_sets_that_the_paper_has_numbers_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wnids = tuple(f"n{number:08d}" for number in range(1000))
    monkeypatch.setattr(benchmarks, "imagenet_classes", lambda count, clean: wnids[:: 1000 // count])
    for count, own, expected in (
        (1000, wnids, "ImageNet"),
        (100, wnids[::10], "ImageNet-100"),
        (100, wnids[:100], None),
    ):
        assert chosen.open_sets(options(folders={}), replace(classifier(count, 224), classes=own))[1] == expected
    save_cifar_c(tmp_path)
    for count in (10, 100):
        _, dataset = chosen.open_sets(options(folders={"cifar-c": tmp_path}), classifier(count))
        assert dataset == f"CIFAR-{count}"
    seen: list[Any] = []
    monkeypatch.setattr(benchmarks, "cifar_clean", lambda *own, **named: seen.append((own, named)))
    own = tuple("abcdefghij")  # to check their order
    chosen.open_sets(options(folders={"clean": tmp_path}, label="kind"), replace(classifier(10), classes=own))
    assert seen == [((tmp_path, 10, own), {"label": "kind"})]
    with pytest.raises(ValueError, match="label: expected --clean with shards"):
        chosen.open_sets(options(folders={"cifar-c": tmp_path}, label="kind"), classifier(10))


def test_how_benchmarks_are_scored(tmp_path: Path) -> None:
    """ImageNet-C by AlexNet's errors, C-bar by none; with a reference, by what is scored here alone."""
    sets = {"imagenet-c": corrupted(FOG, SNOW), "imagenet-c-bar": corrupted("sparkles")}
    folders = dict.fromkeys(sets, tmp_path)
    for dataset, expected in (("ImageNet", "alexnet"), ("ImageNet-100", "none"), (None, "none")):
        rules = chosen.scoring_rules(options(folders=folders), sets, dataset)
        assert [rules[name].normalization for name in sets] == [expected, "none"]
    counts = {FOG: {s: Count(1, 4) for s in names.SEVERITIES}}
    results = report.collect(classifier(), None, {"imagenet-c": corrupted(FOG)}, {"imagenet-c": counts},
                             {"imagenet-c": report.Rule("none")}, {"bn_adapt": None})  # fmt: skip
    (path := tmp_path / "results.json").write_text(json.dumps(results))
    part = {"imagenet-c": replace(sets["imagenet-c"], severities=corrupted(FOG).severities, lacking=(SNOW,))}
    given = options(folders=folders, reference=path, partial=True)
    assert chosen.scoring_rules(given, part, None)["imagenet-c"].missing == (SNOW,)
    with pytest.raises(ValueError, match="lacks snow; evaluate that network on the same folder"):
        chosen.scoring_rules(given, sets, None)
    with pytest.raises(ValueError, match="expected all of imagenet-c for a mean, missing: snow"):
        chosen.scoring_rules(options(folders=folders), part, None)
