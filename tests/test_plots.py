"""Plots of numbers by name: all are within the axes, what is far below all others is an arrow, and a name its row."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from PIL import Image

from prime_dali import _plots


def test_numbers_far_below_all_others_do_not_press_these_together(tmp_path: Path) -> None:
    values = {"standard": 73.5, "AugMix": 88.5, "PRIME": 88.7, "PRIME + JSD": 89.5}
    series = [
        _plots.Series("measured", values, {"PRIME": 0.2}),
        _plots.Series("reported", {"standard": 74.0, "AugMix": 88.6}, reported=True),
    ]
    with _plots.plot(tmp_path / "deep" / "plot.png", 2) as figure:
        axes = figure.subplots()
        _plots.dots(axes, list(values), series, ".2f")
        _plots.legend(figure, axes)
        left, right = axes.get_xlim()
        assert 88 < left < 88.5
        assert 89.5 < right < 91
        assert [label.get_text() for label in axes.get_yticklabels()] == list(values)
        assert sorted(text.get_text() for text in axes.texts) == ["73.50", "74.0", "88.50", "88.70", "89.50"]
        arrows = [line for line in axes.lines if line.get_marker() == "<"]
        assert [line.get_xdata()[0] for line in arrows] == [left, left]
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["measured", "reported"]
    with Image.open(tmp_path / "deep" / "plot.png") as image:
        assert image.width == round(150 * _plots.WIDTH)


def test_names_have_any_characters(tmp_path: Path) -> None:
    values = {"a$b^$c": 1.0, "x_\\y$": 2.0, "\udce9": 3.0, "two\nlines": 4.0}
    with _plots.plot(tmp_path / "plot.png", 2) as figure:
        axes = figure.subplots()
        _plots.dots(axes, list(values), [_plots.Series("$measured", values)])
        assert [label.get_text() for label in axes.get_yticklabels()][2:] == ["\\xe9", "two\\nlines"]
        axes.set_title("a$b^$c")
    assert (tmp_path / "plot.png").is_file()


@pytest.mark.parametrize(("scale", "values", "texts"), [
    ("log", [0.05, 20000.0], {"0.1", "1", "10,000"}), ("symlog", [0.0, 300.0], {"0", "10", "100"}),
    ("log", [300.0, 900.0], {"400", "600"}),  # between powers of ten
])  # fmt: skip
def test_numbers_of_logarithmic_axes_are_no_formulas(
    scale: str, values: list[float], texts: set[str], tmp_path: Path
) -> None:
    with _plots.plot(tmp_path / "plot.png", 2) as figure:
        axes = figure.subplots()
        axes.plot(values, values)
        axes.set_xscale(scale)
    found = {label.get_text() for label in axes.get_xticklabels(which="both")}
    assert texts <= found
    assert not any("$" in text for text in found)


@pytest.mark.parametrize(("values", "least"), [
    ([1.0, 2.0, 3.0], 1.0), ([5.0, 5.0], 5.0), ([0.0, 100.0], 0.0), ([float("nan"), 2.0], 2.0),
    ([10.0, 20.0, 80.0, 90.0], 10.0),  # half of the numbers: no exception
    ([26.6, 31.3, 31.4], 26.6),  # two others only
    ([10.0, 11.0, 80.0, 81.0, 82.0], 10.0),  # more than a third
])  # fmt: skip
def test_all_other_numbers_are_within_the_axes(values: list[float], least: float, tmp_path: Path) -> None:
    names = [str(number) for number in range(len(values))]
    with _plots.plot(tmp_path / "plot.png", 2) as figure:
        axes = figure.subplots()
        _plots.dots(axes, names, [_plots.Series("measured", dict(zip(names, values, strict=True)))])
        left, right = axes.get_xlim()
        assert left <= least
        assert right >= max(value for value in values if value == value)


@pytest.mark.parametrize(("length", "columns"), [(10, 3), (30, 2), (60, 1)])
def test_a_legend_is_as_wide_as_the_plot_at_most(length: int, columns: int, tmp_path: Path) -> None:
    with _plots.plot(tmp_path / "plot.png", 2) as figure:
        axes = figure.subplots()
        for name in "abc":
            axes.plot([], [], label=name * length)
        _plots.legend(figure, axes)
        (legend,) = figure.legends
        assert legend._ncols == columns
        assert legend.get_window_extent().width <= figure.bbox.width


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no numbers"), _plots.plot(tmp_path / "plot.png", 2):
        raise ValueError("no numbers")
    assert list(tmp_path.iterdir()) == []
