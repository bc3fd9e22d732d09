"""``prime-dali analyze compare``: the grids of open questions, their tables and plots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gridding import options, table
from PIL import Image
from test_grid_tables import finished

from prime_dali.experiments import compare, grid_file, grid_plots, grid_tables, grids
from prime_dali.experiments.grid_tables import Row

WORDS = ["--set", "data=/d", "--evaluate", "cifar-c=/c"]


def grid_of(question: str, folder: Path, *more: object) -> grid_file.Grid:
    parsed = options(compare, question, "--out", folder, *WORDS, *more)
    return grids.read_grid(compare.analysis(question), parsed, {})


@pytest.mark.parametrize("question", compare.QUESTIONS)
def test_questions(question: str, tmp_path: Path) -> None:
    """Every run is one of training, all differ, and the first is the default where there is one."""
    grid = grid_of(question, tmp_path)
    grid_file.check(grid, [])
    configs = [grid.config(run) for run in grid.runs]
    assert {config.seed for config in configs} == {1, 2}
    lasting = [{**config.plain(), "out": "", "seed": 0} for config in configs]
    assert sum(one == lasting[0] for one in lasting) == 2  # the seeds
    assert len({str(one) for one in lasting}) == len(lasting) / 2
    assert set(compare.QUESTIONS[question].reported) <= {run.of for run in grid.runs}
    fast = grid_of(question, tmp_path, "--set", "recipe=cifar10-fast", "epochs=42", "jsd_views=3")
    if question in ("draws", "strengths", "mixing", "schedule"):  # what is compared is said, whatever the recipe has
        chosen = (
            ("mixing", "draws", "spatial_distribution", "jsd") if question != "schedule" else ("alpha", "alpha_start")
        )
        assert [[getattr(fast.config(run), name) for name in chosen] for run in fast.runs] == [
            [getattr(config, name) for name in chosen] for config in configs
        ]
    assert not any(run.reported for run in fast.runs)
    assert not any(run.reported for run in grid_of(question, tmp_path, "--set", "recipe=cifar100").runs)
    if question == "networks":
        assert [c.network for c in configs[:10:2]][1:3] == ["wrn_40_2", "resnext29_4x32d"]
        assert len(grid_of(question, tmp_path, "--set", "recipe=tinyimagenet").runs) == 12
        assert len(grid_of(question, tmp_path, "--set", "recipe=in100").runs) == 4
    else:
        assert not configs[-1].jsd or question == "mixing"


def test_differences_are_those_of_one_seed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """By hand, with a run missing, which is named; and the plot."""
    grid = grid_of("draws", tmp_path)
    corrupted = {"image,seed=1": 0.5, "batch,seed=1": 0.51, "batch-official,seed=1": 0.6, "image,seed=2": 0.7, "batch,seed=2": 0.73,
                 "image-official,seed=2": 0.6, "batch-official,seed=2": 0.7}  # fmt: skip
    for run in grid.runs:
        if run.name in corrupted:
            finished(grid, run, corrupted[run.name])
    parsed = options(compare, "draws", "--out", tmp_path, "--collect", *WORDS)
    compare.run(parsed)
    said = capsys.readouterr().out
    assert "8 runs, 7 finished" in said
    assert "PARTIAL: 1 run is missing: image-official,seed=1" in said
    assert "| image-official, 1 of 2 seeds finished " in said
    below = said.partition("## Difference from image")[2]
    rows = {line.split()[1]: line for line in below.splitlines() if line.startswith("| ")}
    assert f"+2.00 ± {2**0.5:.2f}" in rows["batch"]
    assert "-10.00" in rows["image-official"]
    assert rows["image-official"].rstrip(" |").endswith(" 1")
    assert f"+5.00 ± {50**0.5:.2f}" in rows["batch-official"]
    assert table(tmp_path, "draws")["image reported"]["corrupted"] == "89.3"
    with Image.open(tmp_path / "draws.png") as picture:
        assert np.asarray(picture).std() > 10


def test_a_network_with_prime_is_compared_with_the_same_one_without(tmp_path: Path) -> None:
    scores = {"resnet-standard": 0.4, "resnet-prime": 0.6, "vit-standard": 0.2, "vit-prime": 0.3, "convnext-prime": 0.9}
    grid = grid_of("networks", tmp_path)
    for run in grid.runs:
        if run.of in scores:
            finished(grid, run, scores[run.of])
    analysis = compare.analysis("networks")
    said = "\n".join(analysis.tables(grid_tables.rows(grid, {run.name: grids.state(grid, run) for run in grid.runs})))
    rows = {cells[0]: cells for line in said.splitlines() if len(cells := line.replace("|", " ").split()) > 3}
    assert rows["vit-prime"][1:3] == ["from", "vit-standard"]
    assert ("vit-standard" in rows, rows["resnet-prime"][-1], rows["convnext-prime"][-1]) == (False, "2", "0")
    assert "+20.00" in rows["resnet-prime"]
    assert "+10.00" in rows["vit-prime"]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that are drawn from now on."""
    made, plot = [], grid_plots._plots.plot

    @contextlib.contextmanager
    def kept(*arguments: Any) -> Iterator[Any]:
        with plot(*arguments) as figure:
            yield figure
            made.append(figure)

    monkeypatch.setattr(grid_plots._plots, "plot", kept)
    return made


def test_the_legend_names_what_only_some_panels_have(tmp_path: Path, figures: list[Any]) -> None:
    """Robustness is often reported without clean accuracy."""
    measured = Row("image", "CIFAR-10", True, "", {"clean": 93.0, "corrupted": 88.0})
    grid_plots.draw([measured, Row("image", "CIFAR-10", False, "", {"corrupted": 89.3})], tmp_path / "plot.png")
    (legend,) = figures[0].legends
    assert [text.get_text().split()[0] for text in legend.get_texts()] == ["measured", "reported,"]


@pytest.mark.parametrize(("runs", "said"), [
    ((), "one seed"), ((1, 1), "one seed"), ((3, 3), "bars: standard deviation over 3 seeds"),
    ((3, 2, 0), "bars: standard deviation over 2 or 3 seeds"),
])  # fmt: skip
def test_a_plot_says_of_how_many_seeds_it_is(
    runs: tuple[int, ...], said: str, tmp_path: Path, figures: list[Any]
) -> None:
    """Of the finished ones; reported numbers, which are of none, do not count."""
    rows = [Row(f"run-{i}", "CIFAR-10", True, "", {"clean": 93.0}, runs=n, minutes=1.0) for i, n in enumerate(runs)]
    rows.append(Row("run-0", "CIFAR-10", False, "", {"clean": 94.2}))
    assert grid_plots.over_seeds(rows) == said
    if runs:
        grid_plots.draw(rows, tmp_path / "plot.png")
        grid_plots.draw_minutes(rows, tmp_path / "minutes.png")
        assert figures[0].legends[0].get_texts()[0].get_text() == f"measured ({said})"
        assert figures[1].get_suptitle() == f"CIFAR-10, measured ({said})"


def test_methods_of_a_network_stand_in_its_row(tmp_path: Path, figures: list[Any]) -> None:
    """Also of one whose other method is not finished."""
    given = {"wrn_40_2-standard": 92.1, "wrn_40_2-prime": 88.8, "vit-standard": 69.5, "vit-prime": None}
    rows = [Row(name, "CIFAR-10", True, "", {} if score is None else {"clean": score}) for name, score in given.items()]
    grid_plots.draw_methods(rows, tmp_path / "plot.png")
    (clean,) = figures[0].axes
    assert [label.get_text() for label in clean.get_yticklabels()] == ["wrn_40_2", "vit"]
    assert [text.get_text() for text in clean.texts] == ["92.10", "69.50", "88.80"]
    assert [text.get_text().split()[0] for text in figures[0].legends[0].get_texts()] == ["standard", "prime"]


def test_minutes_against_accuracy(tmp_path: Path, figures: list[Any]) -> None:
    """A line per recipe, from its shortest run to its longest, at the accuracies of the runs that have them."""
    given = {"prime-100": (2.0, 93.0), "prime-25": (0.5, 90.0), "other-80": (1.0, 94.0), "prime-50": (None, None)}
    rows = [Row(name, "CIFAR-10", True, "", {} if score is None else {"clean": score, "corrupted": score - 5}, minutes=minutes,
                jobs=[1, 4]) for name, (minutes, score) in given.items()]  # fmt: skip
    grid_plots.draw_minutes([*rows, Row("prime-100", "CIFAR-10", False, "", {"clean": 1.0})], tmp_path / "plot.png")
    clean, corruption = figures[0].axes
    assert corruption.get_xlabel() == "minutes of training steps, of runs alone on a device"
    lines = [container[0] for container in clean.containers]
    assert [line.get_xydata().tolist() for line in lines] == [[[0.5, 90.0], [2.0, 93.0]], [[1.0, 94.0]]]
    assert [container.get_label() for container in corruption.containers] == ["prime", "other"]
    assert corruption.containers[1][0].get_ydata().tolist() == [89.0]
    reported = {line.get_label(): set(line.get_ydata()) for line in clean.lines if "reported" in str(line.get_label())}
    assert reported == {"prime, reported, Modas et al., ECCV 2022": {1.0}}  # a dashed line, for it has no minutes


def test_rows_without_their_base_have_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["networks", "--out", tmp_path, "--collect", *WORDS, "--rows", "resnet-prime", "vit-standard", "vit-prime"]
    grid = grids.read_grid(compare.analysis("networks"), options(compare, *words), {})
    assert [run.name for run in grid.runs[:3]] == ["resnet-prime,seed=1", "vit-standard,seed=1", "vit-prime,seed=1"]
    for number, run in enumerate(grid.runs):
        finished(grid, run, 0.5 + number / 100)
    compare.run(options(compare, *words))
    below = capsys.readouterr().out.partition("## Difference, percentage points")[2]
    assert [line.split(" | ")[0] for line in below.splitlines() if "vit" in line or "resnet" in line] == [
        "| vit-prime from vit-standard"
    ]
    compare.run(options(compare, *words[:-2]))
    said = capsys.readouterr().out
    assert "| resnet-prime" in said
    assert "## Difference" not in said


def test_one_seed_compares_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"seeds: expected two or more for views, .* got \[3\]"):
        grid_of("views", tmp_path, "--seeds", 3)
