"""Plots of the measurements of throughput.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import significant

from prime_dali._files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULT_KEYS = {"name", "size", "batch", "median"}
KERNEL_KEYS = {"name", "size", "batch", "calls", "us_per_image"}
LABEL_LENGTH = 48  # characters of a kernel's name, which can be hundreds


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
    figures = {
        "throughput_batch.png": rates_by_batch(rows),
        "throughput_size.png": pixels_by_size(rows),
    }
    if everything["kernels"]:
        figures["kernels.png"] = kernel_bars(everything["kernels"])
    for name, figure in figures.items():
        figure.suptitle(title(everything), fontsize=10)
        with replacing(folder / name) as temporary:
            figure.savefig(temporary, dpi=150)
    return [folder / name for name in figures]


def rates_by_batch(rows: list[dict[str, Any]]) -> Figure:
    """Images/s by batch size, at the (first) image size that has the most batch sizes."""
    sizes = [row["size"] for row in rows]
    size = max(sizes, key=sizes.count)
    points = [(row["name"], row["batch"], row["median"]) for row in rows if row["size"] == size]
    figure, axes = new_figure(7, 4.8)
    lines(axes, points)
    axes.set(title=f"{size} x {size} pixels", xlabel="batch size (images)", ylabel="throughput (images / s)")
    return figure


def pixels_by_size(rows: list[dict[str, Any]]) -> Figure:
    """Megapixels/s of input by image size, at the (first) batch size that has the most image sizes."""
    batches = [row["batch"] for row in rows]
    batch = max(batches, key=batches.count)
    points = [
        (row["name"], row["size"], row["median"] * row["size"] ** 2 / 1e6) for row in rows if row["batch"] == batch
    ]
    figure, axes = new_figure(7, 4.8)
    lines(axes, points)
    axes.set(title=f"batch {batch}", xlabel="side length (pixels)", ylabel="throughput (megapixels in / s)")
    return figure


def kernel_bars(kernels: list[dict[str, Any]]) -> Figure:
    """Microseconds per image of each kernel, in the largest batch of the first size."""
    size = kernels[0]["size"]
    batch = max(kernel["batch"] for kernel in kernels if kernel["size"] == size)
    shown = [kernel for kernel in kernels if (kernel["size"], kernel["batch"]) == (size, batch)]
    figure, axes = new_figure(9, 1.6 + 0.35 * len(shown))
    labels = [k["name"] if len(k["name"]) <= LABEL_LENGTH else k["name"][: LABEL_LENGTH - 3] + "..." for k in shown]
    bars = axes.barh(range(len(shown)), [k["us_per_image"] for k in shown])
    beside = [f"{significant(k['us_per_image'])} us, calls: {k['calls']:g}" for k in shown]
    axes.bar_label(bars, beside, padding=3, fontsize=8)
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.invert_yaxis()  # the first on top
    axes.margins(x=0.25)  # room for what stands beside the bars
    total = significant(sum(k["us_per_image"] for k in shown))
    axes.set(title=f"{size} x {size} pixels, batch {batch}: {total} us / image", xlabel="time (us / image)")
    return figure


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of ``width`` x ``height`` inches, without windows, and its only axes."""
    from matplotlib.figure import Figure  # here, because who draws nothing needs no matplotlib

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def lines(axes: Axes, points: Sequence[tuple[str, int, float]]) -> None:
    """A line for each name through its ``(name, x, y)``, on logarithmic axes; x has a tick at each of its values."""
    from matplotlib.ticker import NullLocator

    for name in dict.fromkeys(name for name, _, _ in points):
        own = sorted({x: y for other, x, y in points if other == name}.items())  # measured twice: the last counts
        axes.plot(*zip(*own, strict=True), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    every = sorted({x for _, x, _ in points})
    axes.set_xticks(every, [str(x) for x in every])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(which="major", alpha=0.4)
    axes.legend()
