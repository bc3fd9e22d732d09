"""Numbers of things, times, rates and facts in words, as all messages and tables write them."""

from __future__ import annotations

from collections.abc import Mapping


def facts(named: Mapping[str, object]) -> str:
    """The header of a long run: a line for each fact, its name before it, in one column; empty ones are left out."""
    width = max(map(len, named), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in named.items() if value not in ("", None))


def plural(count: int, unit: str, units: str = "") -> str:
    """A number of things, as ``1 image`` or ``2,000 images``; ``units`` is the plural if it is irregular.

    >>> plural(1, "image"), plural(2000, "image"), plural(3, "copy", "copies")
    ('1 image', '2,000 images', '3 copies')
    """
    return f"{count:,} {unit if count == 1 else units or unit + 's'}"


def clock(seconds: float) -> str:
    """A time as ``4.2 s``, ``3:07`` or ``1:03:07``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def speed(count: int, seconds: float, unit: str) -> str:
    """A rate as ``1,240 images per second``, or ``3.1 s per image``."""
    rate = count / max(seconds, 1e-9)
    if rate >= 1 or not count:
        return f"{rate:,.0f} {unit}s per second" if rate >= 10 else f"{rate:.1f} {unit}s per second"
    return f"{1 / rate:.1f} s per {unit}"
