"""Checks of arguments. Every message names the argument, what was expected and what was given."""

from __future__ import annotations

import difflib
import functools
import math
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from ._wording import plural

MIN_SIDE, MAX_SIDE = 8, 4096  # pixels
PIXEL_TOLERANCE = 1 / 512  # floats this far outside [0, 1] count as rounding; kPixelTolerance in csrc/core/image.h
CONVERT = "convert pixels to uint8 in 0..255, or to float32 in [0, 1]"
MAX_VIEWS = 16
MAX_CHANNELS = 16
CLEAN = "clean"

P = ParamSpec("P")
R = TypeVar("R")

# torch's and DALI's names of the same thing, and an earlier one
_SYNONYMS = {"gpu": "cuda", "cuda": "gpu", "fail": "raise"}

_SIMILAR, _SHORTEST = 0.75, 3  # one wrong letter of four is 0.75; shorter parts are in many words


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The name of ``known`` that ``name`` is probably a misspelling of, or that one is a part of the other: the
    beginning, or a word between hyphens, as ``--batch`` and ``--batch-size``. None: there is no such name."""
    words = {word.lstrip("-"): word for word in known}
    given = str(name).lstrip("-")
    long = [word for word in words if min(len(word), len(given)) >= _SHORTEST]
    candidates = [
        _SYNONYMS.get(given, ""),
        *(word for word in words if sorted(word) == sorted(given)),
        *difflib.get_close_matches(given, words, n=1, cutoff=_SIMILAR),
        *(word for word in long if given.startswith(word) or word.startswith(given)),
        *(word for word in long if word in given.split("-") or given in word.split("-")),
    ]
    return next((words[word] for word in candidates if word in words), None)


def expected_one_of(name: object, known: Iterable[str]) -> str:
    """Message for a name that is not one of ``known``, with the nearest one if there is one."""
    known = list(known)
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"expected one of {', '.join(map(repr, known))}, got {name!r}{hint}"


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """The message of :func:`expected_one_of`, for the argument ``what``."""
    return f"{what}: {expected_one_of(name, known)}"


def renamed(name: str, now: str) -> str:
    """The message for a name of earlier versions."""
    return f"{name}: is called {now} now"


def unread(*rules: tuple[object, str, str, str]) -> dict[str, str]:
    """Why options that nothing reads are errors, by their name: what is wrong and what to do, without the name.

    Args:
        rules: Of some options whether they are read, with what they would be, what was given instead, and their names,
            with spaces between them. Of several rules for an option the last one that it fails counts.
    """
    return {
        name: f"expected with {wanted}, got it with {got}, where nothing reads it; leave it out"
        for read, wanted, got, names in rules
        if not read
        for name in names.split()
    }


def elsewhere(where: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function or a constructor raise a TypeError for a keyword that belongs elsewhere.

    Args:
        where: What to write instead, by keyword.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def answering(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in where:
                    raise TypeError(f"{name}: expected as {where[name]}, got a keyword of {called}()")
            return function(*args, **kwargs)

        return answering

    return decorate


def one_of(argument: str, value: Any, known: Collection[str]) -> None:
    """ValueError unless ``value`` is one of these names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(unknown(argument, value, known))


def integer(argument: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int in ``[low, high]``; TypeError or ValueError otherwise. NumPy's integers and integer arrays of
    shape [] count as ints; a bool does not. A symbolic int of torch is returned as it is."""
    number = _index(value)
    if number is None:
        raise TypeError(f"{argument}: expected an int, got {type(value).__name__} ({value!r})")
    if not low <= number <= high:
        raise ValueError(f"{argument}: expected {low} to {high}, got {number}")
    return number


def _index(value: Any) -> Any:
    """The int that ``value`` is, or None."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.SymInt):
        return value
    if getattr(value, "ndim", 0) != 0 or "bool" in str(getattr(value, "dtype", "")):
        return None
    if not hasattr(value, "__index__"):  # before torch 2.12 torch.compile does not catch the error of operator.index()
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def amplitude(argument: str, value: Any, high: float = math.inf) -> float:
    """``value`` as a float if it is a finite number from 0 to ``high``; TypeError or ValueError otherwise."""
    number = _float(value)
    if number is None:
        raise TypeError(f"{argument}: expected a number, got {type(value).__name__} ({value!r})")
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{argument}: expected a finite number >= 0, got {value!r}")
    if number > high:
        raise ValueError(f"{argument}: expected 0 to {high:g}, got {value!r}")
    return number


def _float(value: Any) -> float | None:
    """The real number that ``value`` is, or None: text, bools and complex numbers are not."""
    if isinstance(value, float):
        return float(value)  # also of a subclass, such as NumPy's
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__") or getattr(value, "ndim", 0) != 0:
        return None
    if any(kind in str(getattr(value, "dtype", "")) for kind in ("bool", "complex")):
        return None
    try:
        return float(value)
    except OverflowError:  # an int that is too large for float64
        return math.inf


def interval(argument: str, value: Any, high: float) -> tuple[float, float]:
    """``value`` as ``(low, up)`` with ``0 < low <= up <= high``; TypeError or ValueError otherwise."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{argument}: expected (minimum, maximum), got {value!r}")
    low, up = (amplitude(argument, v) for v in value)
    if not 0 < low <= up <= high:
        limit = "" if math.isinf(high) else f" <= {high:g}"
        raise ValueError(f"{argument}: expected 0 < minimum <= maximum{limit}, got {value!r}")
    return low, up


def entry_key(argument: str, value: Any) -> str | int:
    """``value`` if it can be the key of an entry in a dict, or its position in a tuple; TypeError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(
            f"{argument}: expected the key or the position of an entry of a batch or sample, got {type(value).__name__}"
            f" ({value!r})"
        )
    return value


def per_channel(argument: str, value: Any, channels: int | None, *, positive: bool = False) -> tuple[float, ...]:
    """``value`` as finite floats, one for each of ``channels`` (None: 1 to 16 of them); TypeError or ValueError
    otherwise."""
    ordered = hasattr(value, "__iter__") and not isinstance(value, (str, bytes, dict, set, frozenset))
    numbers = [_float(v) for v in value] if ordered and getattr(value, "ndim", 1) == 1 else [None]
    found = tuple(number for number in numbers if number is not None)
    if len(found) != len(numbers):
        raise TypeError(f"{argument}: expected {_numbers(channels)}, one per channel, got {value!r}")
    fits = 1 <= len(found) <= MAX_CHANNELS if channels is None else len(found) == channels
    if not fits or not all(math.isfinite(v) and (v > 0 or not positive) for v in found):
        kind = _numbers(channels).replace(" number", " finite number") + (" > 0" if positive else "")
        raise ValueError(f"{argument}: expected {kind}, one per channel, got {value!r}{_per_channel(found, channels)}")
    return found


def _per_channel(found: Sequence[float], channels: int | None) -> str:
    """What to do about another count of numbers than channels; empty where the count is right, or not known yet."""
    if channels is None or len(found) == channels:
        return ""
    if len(found) == 1:
        return f"; give [{', '.join([f'{found[0]:g}'] * channels)}] to treat all channels alike"
    return f", which are {len(found)}; give one for each of the images' channels"


def _numbers(channels: int | None) -> str:
    """How many numbers are expected for images of so many channels, or of some that are not known yet."""
    return {1: "one number", 3: "three numbers", None: f"1 to {MAX_CHANNELS} numbers"}.get(
        channels, f"{channels} numbers"
    )


def triple(argument: str, value: Any) -> tuple[float, float, float]:
    """``value`` as three finite floats, one per channel; TypeError or ValueError otherwise."""
    red, green, blue = per_channel(argument, value, 3)
    return red, green, blue


def entry(argument: str, batch: Any, key: str | int | None, kind: str = "batch", hint: str = "") -> Any:
    """The entry of a batch (a mapping, tuple or list) at ``key``, the value of ``argument``; if there is none, a
    ValueError that says what the batch has, and ends with ``hint``."""
    if isinstance(batch, (Mapping, tuple, list)):
        try:
            return batch[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            pass
    if isinstance(batch, Mapping):
        got = f"one with the keys {list(batch)}"
    elif isinstance(batch, (tuple, list)):
        got = f"one with {plural(len(batch), 'entry', 'entries')}"
    else:
        got = type(batch).__name__
    raise ValueError(f"{argument}: expected a {kind} with the entry {key!r}, got {got}{hint}")


def side(argument: str, value: Any) -> int:
    """``value`` as an int if it can be the side of an image, 8 to 4096 pixels; TypeError or ValueError otherwise."""
    return integer(argument, value, MIN_SIDE, MAX_SIDE)


def image_size(argument: str, size: Any) -> tuple[int, int]:
    """``(height, width)`` as ints, each 8 to 4096 pixels, from a pair (a tuple, a list, torch.Size, an array) or from
    an int, the side of a square; TypeError or ValueError otherwise."""
    if _index(size) is not None:
        both = side(argument, size)
        return both, both
    if not (isinstance(size, (tuple, list)) or getattr(size, "ndim", 0) == 1) or len(size) != 2:
        raise TypeError(f"{argument}: expected (height, width) or an int, got {size!r}")
    return side(f"{argument}: height", size[0]), side(f"{argument}: width", size[1])


def odd(argument: str, value: Any, high: int) -> int:
    """``value`` if it is an odd int from 1 to ``high``; TypeError or ValueError otherwise."""
    number = integer(argument, value, 1, high)
    if number % 2 == 0:
        raise ValueError(f"{argument}: expected an odd number, got {number}")
    return number


def layouts(layout: str, out_layout: str | None, known: Collection[str]) -> str:
    """The layout of the output: ``out_layout``, or ``layout`` if that is None; ValueError for an unknown one."""
    one_of("layout", layout, known)
    if out_layout is None:
        return layout
    one_of("out_layout", out_layout, [name for name in known if sorted(name) == sorted(layout)])
    return out_layout


def layout_hint(shape: Sequence[int], layout: str, known: Collection[str]) -> str:
    """What to add to the message on images that do not fit ``layout``: another one of ``known`` that they fit."""
    for name in known:
        sides = dict(zip(name, shape, strict=False))
        if len(name) == len(shape) and name != layout and 1 <= sides["C"] <= MAX_CHANNELS:
            return f"; if they are {name}, give layout={name!r}"
    return ""


def pixel_range(argument: str, low: float, high: float) -> None:
    """ValueError unless ``low`` and ``high`` are in [0, 1], up to rounding; NaN is not."""
    if not (low >= -PIXEL_TOLERANCE and high <= 1 + PIXEL_TOLERANCE):
        raise ValueError(
            f"{argument}: expected finite values in [0, 1] (up to 1/{1 / PIXEL_TOLERANCE:g} outside is rounding, and "
            f"clamped), got {low:.9g} to {high:.9g}"
        )


def gpu_number(argument: str, device: Any) -> int:
    """The number of a GPU, or -1 if ``device`` is None; TypeError or ValueError otherwise."""
    return -1 if device is None else integer(argument, device, 0, 1023)


# The argument ``view`` of sample() for 1 view, and for the 2 or 3 of the Jensen-Shannon loss.
TRAINING_VIEWS: dict[int, Any] = {1: 0, 2: (CLEAN, 0), 3: (CLEAN, 0, 1)}


def training_views(views: Any) -> int:
    """``views`` as an int if it is 1, 2 or 3; ValueError otherwise."""
    number = _index(views)
    if number not in TRAINING_VIEWS:
        raise ValueError(f"views: expected 1, 2 (clean, augmented) or 3 (clean, augmented, augmented), got {views!r}")
    return int(number)


def views(view: Any) -> list[int]:
    """``view`` of :func:`prime_dali.sample` as the numbers for the kernels; -1 is the clean image."""
    several = isinstance(view, (tuple, list, range)) or getattr(view, "ndim", 0) == 1
    wanted = list(view) if several else [view]
    if not 1 <= len(wanted) <= MAX_VIEWS:
        raise ValueError(f"view: expected 1 to {MAX_VIEWS} views, got {len(wanted)}")
    return [-1 if isinstance(v, str) and v == CLEAN else integer("view", v, 0, 2**32 - 1) for v in wanted]


def seed(seed: Any) -> int:
    """``seed`` if it fits a signed 64-bit int; TypeError or ValueError otherwise."""
    return integer("seed", seed, -(2**63), 2**63 - 1)


def epoch(epoch: Any) -> int:
    """``epoch`` if it fits an unsigned 32-bit int; TypeError or ValueError otherwise."""
    return integer("epoch", epoch, 0, 2**32 - 1)


def channels(
    mean: Sequence[float] | None, std: Sequence[float] | None, count: int | None = 3
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """``(mean, std)`` as Python floats, one for each of ``count`` channels (None: of images that are not known yet), or
    ``(None, None)``; TypeError or ValueError if only one is given, if a mean is above 1, the largest pixel, or if a
    number, or 1 / std, is not finite in float32."""
    if mean is None and std is None:
        return None, None
    for argument, value, other in (("mean", mean, "std"), ("std", std, "mean")):
        if value is None:
            raise ValueError(
                f"{argument}: expected {_numbers(count)} because {other} is given, got None; give both or neither"
            )
    means, stds = per_channel("mean", mean, count), per_channel("std", std, count, positive=True)
    if len(means) != len(stds):
        raise ValueError(
            f"mean, std: expected as many numbers each, got {len(means)} and {len(stds)}; give one per channel to both"
        )
    if max(means) > 1:
        raise ValueError(
            f"mean: expected numbers up to 1, on the [0, 1] scale, got {mean!r}; divide mean and std of the 0 to 255 "
            "scale by 255"
        )
    if min(means) < -_MOST:
        raise ValueError(f"mean: expected numbers from {-_MOST:.2g} on (float32), got {mean!r}")
    if min(stds) < 1 / _MOST or max(stds) > _MOST:
        held = f"numbers from {1 / _MOST:.2g} to {_MOST:.2g} (float32)"
        raise ValueError(f"std: expected {held}, got {std!r}")
    return means, stds


_MOST = 2.0**126  # it and its reciprocal are normal numbers of float32


def normalization(
    mean: Sequence[float] | None, std: Sequence[float] | None, count: int
) -> tuple[list[float], list[float]]:
    """``(mean, 1 / std)`` of ``count`` channels, of the numbers rounded to float32, as in DALI; empty lists if both are
    None."""
    means, stds = channels(mean, std, count)
    if means is None or stds is None:
        return [], []
    return [_single(m) for m in means], [1 / _single(s) for s in stds]


def _single(x: float) -> float:
    """``x`` rounded to float32; without NumPy, whose numbers torch.compile would trace as tensors."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 2**24), exponent - 24)
