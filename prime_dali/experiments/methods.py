"""``prime-dali analyze methods``: the paper's main table, standard training beside AugMix and PRIME, over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _tables
from ..evaluation import reported
from ..evaluation.names import CORRUPTIONS, SEVERITIES
from . import grid_file, grid_plots, grids
from .grid_file import PRIME_ALONE, Reported, Run, of_method
from .grid_tables import DATASETS, Row, benchmark, cell, label, mean_and_spread

METHODS: dict[str, dict[str, Any]] = {
    "standard": {"method": "standard", "jsd": False},
    "AugMix + JSD": {"method": "augmix", "jsd": True},
    "PRIME": {"method": "prime", "jsd": False},
    "PRIME, official mixing": {"method": "prime", "jsd": False, "mixing": "official"},
    "PRIME + JSD": {"method": "prime", "jsd": True},
    "PRIME + JSD, official mixing": {"method": "prime", "jsd": True, "mixing": "official"},
}
"""Settings by name. ``official`` is the mixing of the authors' published code (docs/METHOD.md, "Chain and mix")."""

# The paper's word for a method, in :mod:`prime_dali.evaluation.reported`. Its PRIME is with JSD, but on ImageNet.
_REPORTED = {"standard": "Standard", "AugMix + JSD": "AugMix", "PRIME + JSD": "PRIME"}


def _known(name: str, dataset: str) -> tuple[Reported, ...]:
    if name == "PRIME" and dataset in PRIME_ALONE:
        return (PRIME_ALONE[dataset],)
    return of_method(_REPORTED.get(name, ""), dataset)


def folder(name: str) -> str:
    """A method's name as that of a folder."""
    return name.lower().replace(" + ", "+").replace(", ", "-").replace(" ", "-")


def build(base: Mapping[str, Any], content: Mapping[str, Any]) -> Sequence[Run]:
    """The methods of the file's list, or all of them.

    Raises:
        ValueError: It is no list of names of :data:`METHODS`.
    """
    wanted = content.get("methods", list(METHODS))
    if not isinstance(wanted, list):
        raise ValueError(f"methods: expected a list of names, got {wanted!r}")
    grid_file.check_names("methods", wanted, list(METHODS))
    dataset = DATASETS.get(base.get("recipe", "cifar10"), "")
    return [Run(folder(name), METHODS[name], _known(name, dataset)) for name in wanted]


def notes(rows: Sequence[Row]) -> list[str]:
    """Explanations of the names."""
    return ["official mixing: that of the authors' published code, with its arcsine-distributed strengths"]


def tables(rows: Sequence[Row]) -> list[str]:
    """Accuracy by corruption and by severity, means and standard deviations over seeds, beside the reported ones."""
    out = []
    for what, key, keys in (
        ("corruption", "by_corruption", CORRUPTIONS),
        ("severity", "by_severity", tuple(map(str, SEVERITIES))),
    ):
        columns: list[tuple[str, Mapping[Any, float], Mapping[Any, float], int]] = []
        for row in rows:
            if row.finished:
                found = [_percent(benchmark(one)["scores"][key]) for one in row.results]
                columns.append((label(row), *mean_and_spread(found), 2))
            elif not row.measured:
                columns += [(label(row), numbers, {}, 1) for numbers in _reported(row, key)]
        if columns:
            cells = [[name, *(cell(m.get(name), digits, s.get(name)) for _, m, s, digits in columns)] for name in keys]
            out += [f"## Accuracy by {what}, %", "", _tables.markdown([what, *(c[0] for c in columns)], cells), ""]
    return out


def _percent(numbers: Mapping[Any, float]) -> dict[str, float]:
    return {str(name): 100 * number for name, number in numbers.items()}


def _reported(row: Row, key: str) -> list[dict[str, float]]:
    method = {folder(name): theirs for name, theirs in _REPORTED.items()}.get(row.run)
    known = [one for one in reported.of(row.dataset) if one.method == method]
    numbers = [one.corruptions if key == "by_corruption" else one.severities for one in known]
    return [{str(name): number for name, number in one.items()} for one in numbers]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Plot accuracies by method, with error bars over seeds and open markers for reported numbers."""
    grid_plots.draw(rows, path, {folder(name): name for name in METHODS})


ANALYSIS = grids.Analysis(
    name="methods",
    own={"methods": "a list of them"},
    base={},
    build=build,
    draw=draw,
    notes=notes,
    tables=tables,
)
add_arguments, run = grids.command(ANALYSIS)
