"""Docstrings as Markdown: cross-references, literal blocks and tables are reStructuredText in the sources."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`[~.]*([^`]+)`")
# Several names or errors with one text: griffe would take the second name for a type, and the errors for a tuple.
_NAMES = re.compile(r"(?m)^( *)(\w+(?:, \w+)+):(?= )")
_ERRORS = re.compile(r"\w*(?:Error|Exception)(?:, \w*(?:Error|Exception))*")
_TABLE = re.compile(r"^ *(=+)  =+\n(.*?)^ *\1  =+\n(.*?)^ *\1  =+$", re.M | re.S)


class Docstrings(Extension):
    """Rewrites each docstring before it is parsed."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value)


def _markdown(text: str) -> str:
    text = _ROLE.sub(r"``\1``", text)
    text = _NAMES.sub(_joined, text)
    text = _TABLE.sub(_table, text)
    return re.sub(r"(?m)^( *)::$", "", text).replace("::\n\n", ":\n\n")


def _joined(match: re.Match[str]) -> str:
    """Names of an entry with no-break spaces between them, and no type; errors as a union."""
    names = match[2].split(", ")
    if _ERRORS.fullmatch(match[2]):
        return f"{match[1]}{' | '.join(names)}:"
    joined = ",\N{NO-BREAK SPACE}".join(names)
    return f"{match[1]}{joined} ():"  # without the brackets griffe takes the type of the entry before


def _table(match: re.Match[str]) -> str:
    """A simple table of two columns; a line without a first cell continues the row above."""
    width = len(match[1]) + 2
    rows: list[list[str]] = []
    for line in (match[2] + match[3]).splitlines():
        first, second = line[:width].strip(), line[width:].strip()
        if first:
            rows.append([first, second])
        else:
            rows[-1][1] += f" {second}"
    head, *body = [f"| {first} | {second} |" for first, second in rows]
    return "\n".join([head, "|---|---|", *body])
