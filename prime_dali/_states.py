"""Reads the files of earlier runs; their structure is checked before they are used.

A *schema* describes what is expected: a type (``float`` accepts ints too, and a bool is not a number), ``None``, a
``range`` (an int in it), an :class:`Interval` of numbers, a ``frozenset`` (one of these strings and ints), a tuple of
schemas (any of them), a list of one schema (a list of such values), a dictionary of schemas (a mapping with at least
these keys), :class:`Each` (a mapping with any keys), or a function that returns the schema for a value. Every message
names the file and the key, and says what was expected, what came and what to do.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._files import TEXT, out_of_reach

_KINDS: dict[Any, str] = {
    None: "null", dict: "a mapping", list: "a list", str: "a string", bool: "true or false", int: "an int",
    float: "a number", bytes: "bytes",
}  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A schema: a finite number from ``least`` to ``most``."""

    least: float
    most: float


@dataclass(frozen=True)
class Each:
    """A schema: a mapping all of whose values match the schema ``inner``."""

    inner: Any


@dataclass(frozen=True)
class Kind:
    """A kind of saved state."""

    schema: Any
    what: str
    """A name for messages, such as "a manifest of prime-dali augment"."""
    advice: str
    """What to do if it is something else."""

    def check(self, where: str, value: Any) -> Any:
        """``value``, if it matches the schema; ``where`` names it in messages, for example by its file's path.

        Raises:
            ValueError: It does not match; the message names the key.
        """
        fault = _fault(value, self.schema, "")
        if fault:
            raise self.error(where, fault)
        return value

    def error(self, where: str, fault: object) -> ValueError:
        """The error for a state in which ``fault`` was found."""
        return ValueError(f"{where}: not {self.what} ({fault}); {self.advice}")

    def read_json(self, path: Path) -> Any:
        """The content of a JSON file.

        Raises:
            OSError: It cannot be read; the message names it.
            ValueError: It is not JSON, or does not match the schema.
        """
        try:
            content = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise self.error(str(path), f"not JSON: {error}") from error
        return self.check(str(path), content)

    def json_lines(self, path: Path) -> Iterator[Any]:
        """The contents of a file of JSON lines.

        An unterminated last line is ignored: a run was stopped while it wrote it.

        Raises:
            OSError: It cannot be read.
            ValueError: A line is not JSON, or does not match the schema; the message has its number.
        """
        with path.open(**TEXT) as file:
            for number, line in enumerate(file, 1):
                if line.endswith("\n"):
                    where = f"{path}: line {number}"
                    try:
                        content = json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise ValueError(f"{where}: not JSON ({error}); {self.advice}") from error
                    yield self.check(where, content)

    def read_torch(self, path: Path) -> Any:
        """The content of a file of ``torch.save``, with tensors on the CPU; code in a file is never run.

        Raises:
            ValueError: The file is something else, or does not match the schema.
        """
        import torch

        try:
            # The options of a program, in the checkpoints of timm and torchvision's references: named plain values.
            with torch.serialization.safe_globals([argparse.Namespace]):
                content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle, zipfile and torch raise many kinds for a file that is something else
            if out_of_reach(error):
                raise
            # torch's own message advises allowing code in the file to run; that is not safe for files of others.
            reason = f"it cannot be read without running code, or is damaged: {type(error).__name__}"
            refused = re.search(r"GLOBAL (\S+)", str(error))
            if refused:
                reason = (
                    f"it has an object of {refused[1]}, and to make one can run code; where you trust it, save the "
                    "weights alone: torch.save(network.state_dict(), FILE)"
                )
            raise self.error(str(path), reason) from error
        return self.check(str(path), content)

    def read_arrays(self, path: Path) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a ``.npz`` file.

        Raises:
            FileNotFoundError: No such file.
            ValueError: It is something else, or does not match the schema.
        """
        content = _numpy(path, None)
        if isinstance(content, np.ndarray):
            raise self.error(str(path), "expected an archive (.npz), got one array (.npy)")
        try:
            with content:
                arrays = {name: content[name] for name in content.files}
        except Exception as error:  # each array is read and uncompressed now
            raise self.error(str(path), f"damaged: {error}") from error
        found: dict[str, np.ndarray[Any, Any]] = self.check(str(path), arrays)
        return found


def _fault(value: Any, schema: Any, key: str) -> str:
    """A description of what is wrong; empty: nothing."""
    if callable(schema) and not isinstance(schema, type):
        schema = schema(value)
    fits: Any
    kinds: Any
    if isinstance(schema, Each):
        schema = dict.fromkeys(value, schema.inner) if isinstance(value, Mapping) else {}
    if isinstance(schema, dict):
        fits = isinstance(value, Mapping)
        for name, inner in schema.items() if fits else ():
            place = f"{key}.{name}" if key else name
            fault = (
                _fault(value[name], inner, place) if name in value else f"{place}: expected {_kind(inner)}, got none"
            )
            if fault:
                return fault
    elif isinstance(schema, list):
        fits = isinstance(value, list)
        for place, one in enumerate(value) if fits else ():
            fault = _fault(one, schema[0], f"{key}[{place}]")
            if fault:
                return fault
    elif isinstance(schema, tuple):
        faults = [_fault(value, one, key) for one in schema]
        fits = not all(faults)
        inside = [fault for fault in faults if not fault.startswith(f"{key}: ")]
        if not fits and key and inside:  # a fault inside the alternative that was meant
            return inside[0]
    elif isinstance(schema, (range, frozenset)):  # `in` searches a whole range for a value that is not an int
        kinds = int if isinstance(schema, range) else (int, str)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and value in schema
    elif isinstance(schema, Interval):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = number and math.isfinite(value) and schema.least <= value <= schema.most
    elif schema is None:
        fits = value is None
    else:
        kinds = (int, float) if schema is float else Mapping if schema is dict else schema
        fits = isinstance(value, kinds) and not (isinstance(value, bool) and schema in (int, float))
    return "" if fits else f"{key}{': ' if key else ''}expected {_kind(schema)}, got {_short(value)}"


def _kind(schema: Any) -> str:
    if isinstance(schema, tuple):
        return " or ".join(map(_kind, schema))
    if isinstance(schema, Each):
        return _KINDS[dict]
    if isinstance(schema, (dict, list)):
        return _KINDS[type(schema)]
    if isinstance(schema, Interval):
        most = "on" if math.isinf(schema.most) else f"to {schema.most:g}"
        return f"a number from {schema.least:g} {most}"
    if isinstance(schema, range):
        return f"an int from {schema[0]} to {schema[-1]}"
    if isinstance(schema, frozenset):
        return " or ".join(map(repr, sorted(schema)))
    return _KINDS.get(schema) or f"a {schema.__name__}"


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} ({text if len(text) <= 60 else text[:60] + '...'})"


def read_array(path: Path, *, mapped: bool = False) -> np.ndarray[Any, Any]:
    """The array of a ``.npy`` file; ``mapped``: memory-mapped.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It is something else.
    """
    content = _numpy(path, "r" if mapped else None)
    if not isinstance(content, np.ndarray):
        content.close()
        raise ValueError(f"{path}: expected one NumPy array (.npy), got an archive (.npz)")
    return content


def _numpy(path: Path, mode: Any) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        return np.load(path, mmap_mode=mode)
    except Exception as error:  # zipfile, pickle and NumPy raise many kinds for a file that is something else
        if out_of_reach(error):
            raise
        # NumPy's advice is to allow pickles, which can run code.
        reason = "neither .npy nor .npz, or damaged" if "pickle" in str(error) else error
        raise ValueError(f"{path}: not a NumPy array ({reason})") from error
