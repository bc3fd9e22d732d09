"""The slots of a plan: numbers and names of primitives, slots written by hand, and what was drawn, in numbers and in
words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _waves, random
from ._wording import plural
from .config import MAX_COLOR_CUT, MAX_SPATIAL_CUT, PRIMITIVES
from .folding import folded_std

IDENTITY, SPECTRAL, SPATIAL, COLOR, NOISE = range(5)
NAMES = ("identity", *PRIMITIVES)
MAX_STRENGTH = 1e20  # csrc/core/plan.h


def primitive_name(number: int) -> str:
    """The name of a slot's primitive; of one that is not known, as in a plan edited by hand, its number."""
    return NAMES[number] if 0 <= number < len(NAMES) else f"primitive {number}"


def checked(at: str, slot: Any) -> tuple[int, float, int, int]:
    """Primitive, strength, first and last of a slot written by hand; a TypeError or ValueError names it as ``at``."""
    if not isinstance(slot, (tuple, list)) or len(slot) < 2:
        raise TypeError(f"{at}: expected (primitive, strength, ...), got {slot!r}")
    name, strength, *integers = slot
    if name not in NAMES:
        raise ValueError(_arguments.unknown(at, name, NAMES))
    wanted = {"spatial": 1, "color": 2}.get(name, 0)
    if len(integers) != wanted:
        raise ValueError(f"{at}: expected {wanted} integers after the strength, got {integers}")
    first, last = 0, 0
    if name == "spatial":
        last = _arguments.integer(f"{at}: cut", integers[0], 2, MAX_SPATIAL_CUT)
    elif name == "color":
        last = _arguments.integer(f"{at}: last frequency", integers[1], 1, MAX_COLOR_CUT)
        first = _arguments.integer(f"{at}: first frequency", integers[0], 1, last)
    return NAMES.index(name), _arguments.amplitude(f"{at}: strength", strength, MAX_STRENGTH), first, last


def typical_shift(strength: float, cut: int, size: tuple[int, int]) -> float:
    """Pixels: ``n sqrt(pi T ln c) / 2``, ``n^2 = H W``, of a strength ``sqrt(T)`` (docs/METHOD.md, "Spatial")."""
    return strength * math.sqrt(math.pi * math.log(cut) * size[0] * size[1]) / 2


def describe_row(plan: Any, row: int) -> str:
    """One line per chain of one row of a NumPy plan, with the chain's weight unless that is 1."""
    (clean, _), *chains = _weighted(plan, row)
    lines = [] if clean == 0 else [f"{clean:.2f} clean"]
    lines += [text if weight == 1 else f"{weight:.2f} {text}" for weight, text in chains]
    return "\n".join(lines + _describe_waves(plan, row))


def table(plan: Any, limit: int) -> str:
    """The first ``limit`` rows of a NumPy plan, with a line for each chain that has a weight."""
    rows = plan.rows.shape[0]
    lines = [f"{'row':>5}  {'image':>5}  {'view':>4}  {'weight':>6}  drawn"]
    for row in range(min(rows, limit)):
        place = f"{row:>5}  {row % plan.batch:>5}  {row // plan.batch:>4}"
        for weight, text in _weighted(plan, row):
            if weight != 0:
                lines.append(f"{place:<18}  {weight:>6.2f}  {text}")
                place = ""
        lines += [f"{'':>18}  {'':>6}  {text}" for text in _describe_waves(plan, row)]
    if rows > limit:
        lines.append(f"... and {plural(rows - limit, 'more row')}: describe(limit={rows}) shows all, describe(row) one")
    return "\n".join(lines)


def _weighted(plan: Any, row: int) -> Iterator[tuple[float, str]]:
    """Weight and steps of the clean image and of each chain."""
    weights = plan.weights[row]
    yield weights[0], "clean"
    for i in range(plan.chains):
        steps = [_describe(plan, row, i, j) for j in range(plan.depth) if plan.primitive[row, i, j] != IDENTITY]
        yield weights[i + 1], ", ".join(steps) or "identity"


def _describe(plan: Any, row: int, i: int, j: int) -> str:
    strength, last = plan.strength[row, i, j], plan.last[row, i, j]
    kind = plan.primitive[row, i, j]
    if kind == SPATIAL:
        return f"spatial c={last} ({typical_shift(float(strength), last, plan.size):.1f} px)"
    if kind == COLOR:
        return f"color T={strength**2:.2g} f={plan.first[row, i, j]}..{last}"
    if kind in (SPECTRAL, NOISE):
        return f"{NAMES[kind]} σ={strength:.2f}"
    numbers = f" {plan.first[row, i, j]}..{last}" if last else ""
    return f"{primitive_name(kind)} strength={strength:.2g}{numbers}"


def _describe_waves(plan: Any, row: int) -> list[str]:
    """A line, or none where there are no waves: amplitude and frequency of each channel's."""
    waves = _waves.drawn(plan, row)
    return ["+ waves " + ", ".join(f"a={w.amplitude:.2f} f={w.frequency}" for w in waves)] if waves else []


def coefficients(slot: Any, plan: Any) -> NDArray[np.float64]:
    """The random numbers of a slot of a NumPy plan: :attr:`prime_dali.plan.Slot.coefficients`."""
    own = plan.stream[slot.row].view(np.uint32), slot.chain, slot.slot
    stream, chain, j = random.field_place(slot.first if slot.primitive == "spatial" else 0, *own)

    def normals(count: int, base: random.Integers, purpose: str, channel: int = 0) -> NDArray[np.float64]:
        return random.normals(stream, count, base, chain, j, purpose, channel)

    height, width = plan.size
    if slot.primitive == "spectral":
        side = plan.filter_size
        taps = slot.strength * normals(side * side, 0, "filter").reshape(side, side)
        taps[side // 2, side // 2] += 1
        return taps
    if slot.primitive == "color":
        count = slot.last - slot.first + 1
        return slot.strength * np.stack([normals(count, 0, "color", c) for c in range(plan.channels)])
    if slot.primitive == "noise":
        rows = np.arange(plan.channels * height).reshape(plan.channels, height)
        return slot.strength * normals(width, rows * random.RUN, "noise")
    std = folded_std(slot.last, height, width)
    runs = random.RUN * np.arange(1, len(std) + 1)
    # Modes outside the disc have a standard deviation of 0; those inside are the first ones of their row.
    return std * np.stack([normals(std.shape[1], runs, purpose) for purpose in ("row_shift", "column_shift")])
