"""Plots of the files in benchmarks/results, and of those of ``throughput.py --json``.

::

    python benchmarks/plots.py        # draws every plot in benchmarks/results again
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import significant
from result_files import RESULTS

from prime_dali import _plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULT_KEYS = {"name", "size", "batch", "median"}
KERNEL_KEYS = {"name", "size", "batch", "calls", "us_per_image"}
LABEL_LENGTH = 40  # characters of a kernel's name, which can be hundreds
TITLES = {
    "prime": "prime-dali",
    "prime-graph": "prime-dali, CUDA graph",
    "copy": "plain copy of the bytes",
    "augmix": "AugMix of torchvision",
    "trivial": "TrivialAugmentWide of torchvision",
    "official": "authors' code",
}
OWN = ("prime", "prime-graph")


def read(paths: Iterable[Path]) -> dict[str, Any]:
    """The content of one file that ``throughput.py --json`` has written, or of several in one.

    Raises:
        ValueError: A file that cannot be read, is none of these, or was measured on another processor or with other
            distributions than the first: one picture cannot hold both.
    """
    everything: dict[str, Any] = {}
    for path in paths:
        try:
            one = json.loads(path.read_text())
            one.setdefault("kernels", [])
            for key, needed in (("results", RESULT_KEYS), ("kernels", KERNEL_KEYS)):
                for row in one[key]:
                    if missing := needed - row.keys():
                        raise KeyError(*missing)
            if not any(row["median"] for row in one["results"]):
                raise ValueError("no rate in it")
            what = title(one)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"expected a file that throughput.py --json has written, got {path}"
            raise ValueError(f"{message} ({type(error).__name__}: {error})") from None
        if not everything:
            everything = one
        elif what != title(everything):
            raise ValueError(f"{path}: expected {title(everything)!r} as in the first file, got {what!r}")
        else:
            everything["results"] += one["results"]
            everything["kernels"] += one["kernels"]
    return everything


def title(everything: dict[str, Any]) -> str:
    """What all numbers of a picture have in common."""
    settings = everything["settings"]
    processor = everything["gpu"] if settings["device"] == "cuda" else everything["cpu"]
    return f"{processor}; PRIME {settings['preset']}, {settings['mixing']} mixing"


def draw(everything: dict[str, Any], folder: Path) -> list[Path]:
    """Draw one picture of each kind that there are numbers for; their paths."""
    rows = [row for row in everything["results"] if row["median"] is not None]
    kernels = everything["kernels"]
    kinds: dict[str, tuple[float, Callable[[Figure], None]]] = {
        "throughput_batch.png": (5.2, lambda figure: rates_by_batch(rows, figure)),
        "throughput_size.png": (5.2, lambda figure: pixels_by_size(rows, figure)),
    }
    if kernels:
        kinds["kernels.png"] = (1.4 + 0.3 * len(kernels), lambda figure: kernel_bars(kernels, figure))
    for name, (height, fill) in kinds.items():
        with _plots.plot(folder / name, height) as figure:
            fill(figure)
            figure.suptitle(title(everything))
    return [folder / name for name in kinds]


def most(values: Sequence[Any]) -> Any:
    """The value that occurs most often, the first of several."""
    return max(values, key=values.count)


def rates_by_batch(rows: list[dict[str, Any]], figure: Figure) -> None:
    """Images/s by batch size, at the (first) image size that has the most batch sizes; all candidates at one batch."""
    size = most([row["size"] for row in rows])
    here = [row for row in rows if row["size"] == size]
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    lines(above, [(row["name"], row["batch"], row["median"]) for row in here])
    above.set(title=f"{size} x {size} pixels", xlabel="batch, images", ylabel="images per second")
    batch = most([row["batch"] for row in here])
    rates = {TITLES.get(row["name"], row["name"]): row["median"] for row in here if row["batch"] == batch}
    below.set_xscale("log")
    _plots.dots(below, list(rates), [_plots.Series("images per second", rates)], ",.0f")
    below.set(title=f"batch {batch}, beside others (logarithmic)", xlabel="images per second")


def pixels_by_size(rows: list[dict[str, Any]], figure: Figure) -> None:
    """Megapixels/s of input by image size, at the (first) batch size that has the most image sizes, and the share of a
    plain copy's rate if that was measured."""
    batch = most([row["batch"] for row in rows])
    here = [row for row in rows if row["batch"] == batch]
    copies = {row["size"]: row["median"] for row in here if row["name"] == "copy"}
    above, *below = figure.subplots(2 if copies else 1, 1, sharex=True, squeeze=False)[:, 0]
    points = [(row["name"], row["size"], row["median"] * row["size"] ** 2 / 1e6) for row in here]
    lines(above, points)
    above.set(title=f"batch {batch}", ylabel="megapixels per second")
    known = [row for row in here if row["size"] in copies]
    shares = [(row["name"], row["size"], 100 * row["median"] / copies[row["size"]]) for row in known]
    for axes in below:
        lines(axes, shares)
        axes.set(ylabel="of a plain copy's rate, %")
    [above, *below][-1].set(xlabel="side of the square images, pixels")


def kernel_bars(kernels: list[dict[str, Any]], figure: Figure) -> None:
    """Microseconds per image of each kernel, in the largest batch of the first size."""
    size = kernels[0]["size"]
    batch = max(kernel["batch"] for kernel in kernels if kernel["size"] == size)
    shown = [kernel for kernel in kernels if (kernel["size"], kernel["batch"]) == (size, batch)]
    axes = figure.subplots()
    labels = [k["name"] if len(k["name"]) <= LABEL_LENGTH else k["name"][: LABEL_LENGTH - 3] + "..." for k in shown]
    bars = axes.barh(range(len(shown)), [k["us_per_image"] for k in shown], color=_plots.COLORS[0])
    beside = [f"{significant(k['us_per_image'])} us in {k['calls']:g} calls" for k in shown]
    axes.bar_label(bars, beside, padding=3, fontsize=8.5)
    axes.set_yticks(range(len(shown)), labels)
    axes.invert_yaxis()  # the first on top
    axes.margins(x=0.4)  # room for what stands beside the bars
    axes.grid(axis="y", visible=False)
    total = significant(sum(k["us_per_image"] for k in shown))
    axes.set(title=f"{size} x {size} pixels, batch {batch}: {total} us per image", xlabel="microseconds per image")


def lines(axes: Axes, points: Sequence[tuple[str, int, float]]) -> None:
    """A line for each candidate of our own through its ``(name, x, y)``, y from zero; x has a tick at each value."""
    from matplotlib.ticker import NullLocator, StrMethodFormatter

    own = [point for point in points if point[0] in OWN]
    for number, name in enumerate(dict.fromkeys(name for name, _, _ in own)):
        values = sorted({x: y for other, x, y in own if other == name}.items())  # measured twice: the last counts
        axes.plot(
            *zip(*values, strict=True), marker=_plots.MARKERS[number], color=_plots.COLORS[number], label=TITLES[name]
        )
    axes.set_xscale("log", base=2)
    every = sorted({x for _, x, _ in own})
    axes.set_xticks(every, [f"{x:,}" for x in every])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.1 * max(y for _, _, y in own))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if len(axes.lines) > 1:
        axes.legend(loc="lower right")


def main() -> None:
    """Draw every plot in benchmarks/results from the files there."""
    from prime_dali.experiments import (
        ablation,
        alpha,
        compare,
        cost,
        grid_tables,
        methods,
        sample_complexity,
        similarity_report,
    )

    grids = {"ablation/ablation": ablation.draw, "alpha/alpha": alpha.draw}
    grids["sample-complexity/sample-complexity"] = sample_complexity.draw
    grids |= {f"{dataset}/methods": methods.draw for dataset in ("cifar10", "cifar100", "tinyimagenet")}
    grids |= {f"{name}/{name}": question.draw for name, question in compare.QUESTIONS.items()}
    grids["tinywaves/waves"] = compare.QUESTIONS["waves"].draw
    for name, draw_grid in grids.items():
        if (RESULTS / f"{name}.json").exists():
            draw_grid(grid_tables.read(RESULTS / f"{name}.json"), RESULTS / f"{name}.png")
    cost.draw(json.loads((RESULTS / "cost.json").read_text())["methods"], RESULTS / "cost.png")
    similarity_report.draw(json.loads((RESULTS / "similarity.json").read_text()), RESULTS / "similarity.png")
    draw(read(RESULTS / f"h200_{name}.json" for name in ("imagenet", "batch", "size")), RESULTS)


if __name__ == "__main__":
    argparse.ArgumentParser(description=main.__doc__).parse_args()  # there are no options; --help draws nothing
    main()
