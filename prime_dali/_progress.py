"""What long work tells who waits for it: what it is, how far it is, how fast, how long yet, and what it has made.

On a terminal tqdm draws a bar, which moves each second, whether work is finished or not; elsewhere, as in a job's log,
stands a line now and then. The bar goes to stderr, as stdout may have results.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

from ._wording import clock

QUIET = 30.0  # seconds between lines where there is no terminal
_TICK = 0.5  # seconds between pictures of the bar

Item = TypeVar("Item")

Report = Callable[[str], None]
"""Takes a line for the user, such as ``print``."""


def since_start() -> float:
    """Seconds since this process began, before Python could look at a clock."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        began = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")  # after the name: proc(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


class Progress:
    """How far a run is; within its block it is shown. A thread of its own draws, so that Ctrl-C cannot interrupt that.

    Args:
        total: All there is to do.
        name: What is done.
        unit: Of ``total``, singular.
        done: So many were done before; they do not count for the rate.
        stream: Where it is shown; None: stderr.
    """

    def __init__(
        self, total: int, name: str = "", unit: str = "image", done: int = 0, stream: TextIO | None = None
    ) -> None:
        from tqdm import tqdm

        self.total, self.name, self.done = total, name, done
        self.note = ""
        """Stands at the end, such as a loss."""
        self._stream = sys.stderr if stream is None else stream
        self._shared = {"total": total, "initial": done, "unit": unit}
        self._tqdm, self._start = tqdm, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def update(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count

    def write(self, line: str) -> None:
        """A line for the user, on stdout, above the bar."""
        with self.hidden():
            print(line, flush=True)

    def hidden(self) -> contextlib.AbstractContextManager[None]:
        """Within, the bar is not on the terminal, which others may write to."""
        return self._tqdm.external_write_mode(self._stream)

    def line(self) -> str:
        """Where it is, as tqdm says it: what is done, time, time left, rate, and the note."""
        elapsed = time.monotonic() - self._start
        return self._tqdm.format_meter(
            self.done, elapsed=elapsed, ncols=0, prefix=self.name, postfix=self.note, **self._shared
        )

    def _run(self) -> None:
        if self._stream.isatty():
            self._draw()
        else:
            while not self._over.wait(QUIET):
                print(self.line(), file=self._stream, flush=True)

    def _draw(self) -> None:
        with self._tqdm(desc=self.name, file=self._stream, dynamic_ncols=True, miniters=1, **self._shared) as bar:
            over = False
            while not over:
                over = self._over.wait(_TICK)
                bar.set_postfix_str(self.note, refresh=False)
                bar.update(self.done - bar.n)
                bar.refresh()


def over(items: Iterable[Item], name: str = "", unit: str = "image") -> Iterator[Item]:
    """The items, with a bar of how many of them are done."""
    wanted = list(items)
    with Progress(len(wanted), name, unit) as bar:
        for item in wanted:
            yield item
            bar.update()


@contextlib.contextmanager
def phase(name: str, stream: TextIO | None = None) -> Iterator[None]:
    """Say what begins, such as a compilation, of which nobody knows how far it is; on a terminal its time runs."""
    out = sys.stderr if stream is None else stream
    ended, start = threading.Event(), time.monotonic()

    def run() -> None:
        while not ended.wait(_TICK):
            out.write(f"\r{name} ... {clock(time.monotonic() - start)}\x1b[K")
            out.flush()

    print(f"{name} ...", end="" if out.isatty() else "\n", file=out, flush=True)
    thread = threading.Thread(target=run, daemon=True)
    if out.isatty():
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if out.isatty():
            thread.join()
            out.write(f"\r{name} ... {clock(time.monotonic() - start)}\x1b[K\n")
            out.flush()
