"""Tables in Markdown and CSV, and what made them."""

from __future__ import annotations

import csv as _csv
import io
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from ._files import shown


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns also line up as plain text: the first to the left, the others to the right. Cells may be
    names with any characters."""
    header, *rows = ([shown(cell).replace("|", "\\|") for cell in cells] for cells in (header, *rows))
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        aligned = [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        return f"| {' | '.join(aligned)} |"

    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:]), ""])
    return "\n".join([line(header), rule, *map(line, rows)])


def csv(rows: Iterable[Sequence[object]]) -> str:
    """These rows, the header first, each in a line that ends alike on every system."""
    out = io.StringIO()
    _csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def now() -> str:
    """Date and time as a file of results has them: UTC, in ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def origin() -> str:
    """When and by which command a table was made, for a line below or above it."""
    return f"{now()}: {shlex.join(['prime-dali', *sys.argv[1:]])}"
