"""What an evaluation consists of: its tasks, each a set or a part of one, and what is found of them, by set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import benchmarks, sequences
from .scores import Count, Counts, Stability

Found = Count | Stability
"""What is found of a task."""
Task = tuple[str, "str | None", int]
"""Name of the set; corruption and severity, perturbation and 0, or None and 0."""


def tasks_of(sets: Mapping[str, Any]) -> list[Task]:
    """What there is to count in these sets, by name, in the order of the tables."""
    tasks: list[Task] = []
    for name, what in sets.items():
        if isinstance(what, benchmarks.Corrupted):
            tasks += [(name, corruption, severity) for corruption, severity in what.parts()]
        elif isinstance(what, sequences.Perturbed):
            tasks += [(name, perturbation, 0) for perturbation in what.parts()]
        else:
            tasks.append((name, None, 0))
    return tasks


def by_set(tasks: Sequence[Task], found: Mapping[Task, Found]) -> Counts:
    """The counts of these tasks, as far as they are found, as :func:`.evaluate.run` returns them."""
    counts: dict[str, Any] = {}
    for task in tasks:
        name, corruption, severity = task
        if task in found and corruption is None:
            counts[name] = found[task]
        elif task in found:
            counts.setdefault(name, {}).setdefault(corruption, {})[severity] = found[task]
    return counts
