"""Results of ``prime-dali analyze similarity`` as JSON, CSV, Markdown and a plot, beside the numbers of the paper."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _plots, _tables
from .._files import write_texts
from .._wording import plural
from ..evaluation.reported import SOURCE
from .arguments import CLEAN, SIMILARITY

_TITLES = {
    CLEAN: "no augmentation", "augmix-no-mix": "AugMix without mixing", "prime-no-mix": "PRIME without mixing",
    "augmix": "AugMix", "prime": "PRIME",
}  # fmt: skip
PERCENTILES = (5, 10, 25, 50, 75)
_STATISTICS = ("mean", "median", *(f"p{q}" for q in PERCENTILES))

# Times 1000 (tables "simclr_distances" and "simclr_percentiles"); the medians of the two differ in the last digit.
_REPORTED = {
    CLEAN: (25.38, 6.44, 0.33, 0.64, 1.97, 6.43, 17.44),
    "augmix-no-mix": (20.57, 3.56, 0.17, 0.31, 1.04, 3.55, 10.71),
    "prime-no-mix": (10.61, 1.88, 0.04, 0.07, 0.24, 1.87, 7.11),
    "augmix": (17.48, 2.61, 0.11, 0.21, 0.69, 2.61, 8.37),
    "prime": (7.71, 1.61, 0.08, 0.12, 0.32, 1.61, 5.76),
}
_REPORTED_SETUP = "SimCLRv2 ResNet-50, 1,000 training images of ImageNet, 75 corruptions, 100 samples"


def reported() -> dict[str, Any]:
    """The numbers of the paper, not measured by this package."""
    numbers = {
        name: dict(zip(_STATISTICS, (value / 1000 for value in row), strict=True)) for name, row in _REPORTED.items()
    }
    return {"source": SOURCE, "setup": _REPORTED_SETUP, "methods": numbers}


def statistics(distances: NDArray[np.float64], corruptions: Sequence[str], severities: Sequence[int]) -> dict[str, Any]:
    """Mean, median and percentiles (linear between ranks): of all, by corruption, by severity and by both.

    Args:
        distances: ``[images, corruptions, severities]``.
        corruptions, severities: Their names.
    """
    return {
        **_numbers(distances),
        "by_corruption": {name: _numbers(distances[:, c]) for c, name in enumerate(corruptions)},
        "by_severity": {str(severity): _numbers(distances[..., s]) for s, severity in enumerate(severities)},
        "by_part": {
            name: {str(severity): _numbers(distances[:, c, s]) for s, severity in enumerate(severities)}
            for c, name in enumerate(corruptions)
        },
    }


def _numbers(distances: NDArray[np.float64]) -> dict[str, float]:
    values = [distances.mean(), np.median(distances), *np.percentile(distances, PERCENTILES)]
    return {name: float(value) for name, value in zip(_STATISTICS, values, strict=True)}


def write(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``results.json``, ``results.csv``, ``results.md`` and ``results.png``; their paths."""
    texts = {
        "results.json": json.dumps(results, indent=1) + "\n",
        "results.csv": _tables.csv(_csv_rows(results)),
        "results.md": markdown(results) + "\n",
    }
    paths = write_texts(folder, texts)
    draw(results, folder / "results.png")
    return [*paths, folder / "results.png"]


def _csv_rows(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """A row per method, corruption and severity, including ``all``; distances as measured, not times 1000."""
    yield ["source", "method", "corruption", "severity", *_STATISTICS]
    for method, content in results["measured"].items():
        parts = {("all", "all"): content}
        parts |= {("all", severity): row for severity, row in content["by_severity"].items()}
        for name, row in content["by_corruption"].items():
            parts[name, "all"] = row
            parts |= {(name, severity): part for severity, part in content["by_part"][name].items()}
        for place, row in parts.items():
            yield ["measured", method, *place, *(row[key] for key in _STATISTICS)]
    for method, row in results["reported"]["methods"].items():
        yield ["reported", method, "all", "all", *(row[key] for key in _STATISTICS)]


def markdown(results: Mapping[str, Any]) -> str:
    """The tables, distances times 1000."""
    measured, network = results["measured"], results["backbone"]
    rows = [[SIMILARITY[name], "measured", *_thousandths(content)] for name, content in measured.items()]
    rows += [[SIMILARITY[n], "reported", *_thousandths(row)] for n, row in results["reported"]["methods"].items()]
    by_corruption = [
        [name, *(f"{1000 * content['by_corruption'][name]['mean']:.2f}" for content in measured.values())]
        for name in results["corruptions"]
    ]
    by_severity = [
        [str(s), *(f"{1000 * content['by_severity'][str(s)]['mean']:.2f}" for content in measured.values())]
        for s in results["severities"]
    ]
    titles = [SIMILARITY[name] for name in measured]
    count = len(results["corruptions"]) * len(results["severities"])
    return "\n".join([
        "# Minimum cosine distance from corrupted to augmented images, times 1000", "",
        f"Measured: {network['name']} ({network['source']}), {network['layer']}, width {network['width']}; "
        f"{plural(len(results['images']), 'image')}, {plural(count, 'corruption')}, "
        f"{plural(results['samples'], 'sample')}, seed {results['seed']}; "
        f"corrupted images: {results['corrupted']}; {results['hardware']}, {results['date']}.", "",
        f"Reported: {results['reported']['source']}; {results['reported']['setup']}.", "",
        _tables.markdown(["method", "", "mean", "median", *(f"{q} %" for q in PERCENTILES)], rows), "",
        "## Means by corruption, measured", "", _tables.markdown(["corruption", *titles], by_corruption), "",
        "## Means by severity, measured", "", _tables.markdown(["severity", *titles], by_severity),
    ])  # fmt: skip


def _thousandths(row: Mapping[str, float]) -> list[str]:
    return [f"{1000 * row[key]:.2f}" for key in _STATISTICS]


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Plot percentiles and means by corruption, both of what was measured."""
    measured, corruptions = results["measured"], results["corruptions"]
    titles = [name.replace("_", " ") for name in corruptions]
    network = results["backbone"]
    with _plots.plot(path, 4.4 + 0.34 * len(corruptions)) as figure:
        above, below = figure.subplots(2, 1, height_ratios=(3, 0.34 * len(corruptions)))
        for number, (method, content) in enumerate(measured.items()):
            values = [content[f"p{q}"] for q in PERCENTILES]
            above.plot(PERCENTILES, values, label=_TITLES[method], **_plots.series_style(number))
        above.set(xlabel="percentile over images and corruptions, %", ylabel="minimum cosine distance")
        above.set_xticks(PERCENTILES)
        series = [
            _plots.Series(_TITLES[method], {
                title: content["by_corruption"][name]["mean"] for name, title in zip(corruptions, titles, strict=True)
            })
            for method, content in measured.items()
        ]  # fmt: skip
        _plots.dots(below, titles, series)
        below.set(xlabel="minimum cosine distance, mean by corruption", xlim=(0, None))
        figure.suptitle(f"measured by {network['name']}, {network['layer']}, {results['samples']} samples per image")
        _plots.legend(figure, above)
