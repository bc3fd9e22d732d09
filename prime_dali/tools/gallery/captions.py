"""What the gallery says of its images: what was drawn for each, in words, and a legend of these words."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ... import _slots, _waves
from ...config import PrimeConfig, preset
from ...plan import Plan

_MEANING = {
    "spectral": "convolution with the identity plus a random filter. σ (no unit): standard deviation of its entries.",
    "spatial": "a smooth random displacement. Cutoff: its highest spatial frequency, in half-waves per image side. "
    "Shift: its typical length in pixels.",
    "color": "a random sum of sines is added to each channel. T (no unit, of intensities from 0 to 1): variance of "
    "its coefficients. f: its frequencies, in half-waves over the range of intensities.",
    "noise": "Gaussian noise is added to each value. σ: its standard deviation, of intensities from 0 to 1.",
    "waves": "a sine wave is added to each channel after the mix. a: its amplitude, of intensities from 0 to 1. f: its "
    "frequency, in waves per image side.",
}
_MIXED = "a mixture: the weight of the clean image, and weight and steps of each chain; → joins steps, first to last."


class Words(NamedTuple):
    """What was drawn for an image."""

    short: str
    """For a caption: the parameters of a single step; of several, the weight and the primitives of each chain."""
    whole: str
    """A line per chain, with all parameters."""


class Meaning(NamedTuple):
    """An entry of a legend."""

    word: str
    text: str


def about(config: PrimeConfig, seed: int) -> str:
    """What is drawn, in a few words: the preset, what differs from it, and the seed."""
    names = ("imagenet", "cifar")
    nearest = min(names, key=lambda name: len(_differing(config, preset(name))))
    words = [f"preset {nearest}", f"mixing {config.mixing}", f"alpha {config.alpha:g}"]
    for field in _differing(config, preset(nearest)):
        value = getattr(config, field)
        words.append(f"{field.replace('_', ' ')} {' '.join(value) if isinstance(value, tuple) else value}")
    return ", ".join([*words, f"seed {seed}"])


def _differing(config: PrimeConfig, other: PrimeConfig) -> list[str]:
    fields = (field.name for field in dataclasses.fields(config) if field.name not in ("mixing", "alpha"))
    return [field for field in fields if getattr(config, field) != getattr(other, field)]


def drawn(plan: Plan, row: int) -> Words:
    """What was drawn for a row of a NumPy plan."""
    waves = [f"waves a {wave.amplitude:.2f}, f {wave.frequency}" for wave in _waves.drawn(plan, row)]
    if waves and not any(_steps(plan, row, i) for i in range(plan.chains)):
        return Words("\n".join(waves), "\n".join(waves))
    weights = plan.weights[row]
    chains = [_steps(plan, row, i) for i in range(plan.chains)]
    if weights[0] == 0 and len(chains) == 1 and len(chains[0]) == 1:
        ((name, parameters),) = chains[0]
        return Words("\n".join(parameters) or name, f"{name} ({', '.join(parameters)})" if parameters else name)
    short, whole = [], []
    if weights[0] > 0:
        short, whole = ([f"{_percent(weights[0])} clean"] for _ in range(2))
    for weight, steps in zip(weights[1:], chains, strict=True):
        before = "" if weight == 1 else f"{_percent(weight)} "
        short.append(before + (" → ".join(name for name, _ in steps) or "identity"))
        whole.append(before + (" → ".join(f"{name} ({', '.join(each)})" for name, each in steps) or "identity"))
    return Words("\n".join(short + ["waves"] * bool(waves)), "\n".join(whole + waves))


def legend(names: tuple[str, ...], *, mixed: bool) -> list[Meaning]:
    """The entries for these primitives, and for mixtures of them."""
    entries = [Meaning(name, _MEANING[name]) for name in names if name in _MEANING]
    return entries + [Meaning("PRIME", _MIXED)] * mixed


def _percent(weight: float) -> str:
    return "<1 %" if 0 < weight < 0.005 else f"{weight:.0%}".replace("%", " %")


def _steps(plan: Plan, row: int, chain: int) -> list[tuple[str, list[str]]]:
    """Each step of a chain: its primitive, and its parameters in words."""
    slots = [(row, chain, j) for j in range(plan.depth) if plan.primitive[row, chain, j] != _slots.IDENTITY]
    return [(_slots.primitive_name(plan.primitive[slot]), _parameters(plan, slot)) for slot in slots]


def _parameters(plan: Plan, slot: tuple[int, int, int]) -> list[str]:
    kind, strength = plan.primitive[slot], float(plan.strength[slot])
    first, last = int(plan.first[slot]), int(plan.last[slot])
    if kind == _slots.SPATIAL:
        return [f"cutoff {last}", f"shift {_slots.typical_shift(strength, last, plan.size):.1f} px"]
    if kind == _slots.COLOR:
        return [
            f"variance T {strength**2:.2g}",
            f"frequencies f {first}–{last}" if first < last else f"frequency f {last}",
        ]
    if kind in (_slots.SPECTRAL, _slots.NOISE):
        return [f"deviation σ {strength:.2f}"]
    return [f"strength {strength:.2g}"]
