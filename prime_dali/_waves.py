"""Planar waves of a plan: what the kernels draw for each channel (csrc/core/wave.h), in NumPy and float64."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import random

AMPLITUDE = math.sqrt(2) / 32  # of a wave of strength 1


class Wave(NamedTuple):
    """The wave of one channel: amplitude, on the [0, 1] scale; frequency, per side of the image; direction, in radians
    from down to right."""

    amplitude: float
    frequency: int
    direction: float


def drawn(plan: Any, row: int) -> list[Wave]:
    """The waves of one row of a NumPy plan, one a channel; none if their strength is 0."""
    if not plan.waves or plan.wave_strength[row] == 0:
        return []
    side, strength = math.isqrt(plan.size[0] * plan.size[1]), float(plan.wave_strength[row])
    return [
        _wave(random.blocks(_stream(plan, row), 1, 0, 0, 0, "wave", c)[0], strength, side) for c in range(plan.channels)
    ]


def _stream(plan: Any, row: int) -> random.Words:
    stream: random.Words = plan.stream[row].view("uint32")
    return stream


def _wave(words: random.Words, strength: float, side: int) -> Wave:
    _, direction, chance, _ = random.uniform(words).tolist()
    frequency = 1 + (int(words[0]) * side >> 32)
    return Wave(-math.log(chance) * strength * AMPLITUDE, frequency, 2 * math.pi * direction)
