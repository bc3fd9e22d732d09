"""``prime-dali analyze waves``: planar waves after the mix, alone and with PRIME, by their strength."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _arguments
from . import ablation, grids
from .grid_file import Run
from .grid_tables import Row

STRENGTHS = (5, 10, 20)
_WITHOUT = {"alone": "standard", "prime": "prime", "prime-jsd": "prime-jsd"}  # names of the runs without waves


def build(base: Mapping[str, Any], content: Mapping[str, Any]) -> Sequence[Run]:
    """Waves alone, after PRIME, and after PRIME with the JSD loss: without waves, and at each strength of the file,
    or of :data:`STRENGTHS`.

    Raises:
        TypeError, ValueError: The strengths are no list of different positive numbers.
    """
    wanted = content.get("strengths", list(STRENGTHS))
    if not isinstance(wanted, list) or not wanted:
        raise TypeError(f"strengths: expected a list of numbers, got {wanted!r}")
    strengths = [_arguments.amplitude("strengths", strength) for strength in wanted]
    if 0 in strengths or len(set(strengths)) != len(strengths):
        raise ValueError(
            f"strengths: expected different numbers > 0 (runs without waves are there anyway), got {wanted}"
        )
    kinds: dict[str, dict[str, Any]] = {"alone": {"primitives": []}, "prime": {}, "prime-jsd": {"jsd": True}}
    runs = []
    for kind, settings in kinds.items():
        runs.append(Run(_WITHOUT[kind], settings, x=0))
        runs += [Run(f"waves-{kind}={s:g}", {**settings, "wave_strength": s}, x=s) for s in strengths]
    return runs


def notes(rows: Sequence[Row]) -> list[str]:
    """The best strength of each kind, by corruption accuracy."""
    out = []
    for kind, without in _WITHOUT.items():
        own = [
            row for row in rows if row.run.partition("=")[0] in (without, f"waves-{kind}") and "corrupted" in row.scores
        ]
        if own:
            best = max(own, key=lambda row: row.scores["corrupted"])
            out.append(f"best corruption accuracy, {kind}: {best.scores['corrupted']:.2f} % at strength {best.x:g}")
    return out


ANALYSIS = grids.Analysis(
    "waves", {"strengths": "a list of mean strengths > 0"}, {"jsd": False}, build, notes, ablation.draw
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    grids.add_arguments(parser, ANALYSIS)


def run(options: argparse.Namespace) -> None:
    """Run the grid; errors as :func:`grids.run`."""
    grids.run(ANALYSIS, options)
