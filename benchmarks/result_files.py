"""Reads the files in benchmarks/results, for the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import kernels

RESULTS = Path(__file__).parent / "results"


class File:
    """What a benchmark wrote."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.content: dict[str, Any] = json.loads((RESULTS / name).read_text())

    def row(self, name: str, **where: Any) -> Mapping[str, Any]:
        """The result of this name with these settings; KeyError if there is none."""
        for row in self.content["results"]:
            if row["name"] == name and all(row.get(key) == value for key, value in where.items()):
                return row  # type: ignore[no-any-return]
        raise KeyError(f"{self.name} has no {name} {where}")

    def median(self, name: str, **where: Any) -> float:
        return float(self.row(name, **where)["median"])

    def spread(self) -> tuple[float, float]:
        """How far the rounds of a candidate are apart, in percent of their median: at least and at most."""
        apart = [100 * (max(row["rates"]) - min(row["rates"])) / row["median"]
                 for row in self.content["results"] if row["median"]]  # fmt: skip
        return min(apart), max(apart)

    def source(self) -> str:
        """Card, versions, date, kernels and command."""
        c = self.content
        device = "cuda" if "gpu" in c else "cpu"
        current = c.get("kernels_sha256") == kernels(device)
        of = "the kernels of this version" if current else "an earlier version's kernels"
        commit = f", commit {c['commit']}" if "commit" in c else ""
        what = f"{c.get('gpu', c['cpu'])}; {without_own(c['versions'])}; {c['date'][:10]}{commit}; {of}"
        note = f"; {c['note']}" if "note" in c else ""
        return f"[{self.name}](../benchmarks/results/{self.name}): {what}; `{c['command']}`{note}"


def without_own(versions: str) -> str:
    """The versions of other packages: which one of this package it was, a digest of its kernels says."""
    return re.sub(r", prime_dali.*?(?=,|$)", "", versions)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


def count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
