"""What long work tells who waits for it: what it is, how far it is, how fast, how long yet, and what it has made.

On a terminal a bar moves each second, whether work is finished or not; elsewhere, as in a job's log, stands a line now
and then. The bar goes to stderr, as stdout may have results.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO, TypeVar

QUIET = 30.0  # seconds between lines where there is no terminal
_TICK = 0.5  # seconds between pictures of the bar
_WINDOW = 40  # ticks that the rate is taken over

Item = TypeVar("Item")


def facts(named: Mapping[str, object]) -> str:
    """The header of a long run: a line for each fact, its name before it, in one column; empty ones are left out."""
    width = max(map(len, named), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in named.items() if value not in ("", None))


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


class Progress:
    """How far a run is.

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
        self.total, self.name, self.unit, self.done = total, name, unit, done
        self.note = ""
        """Stands at the end, such as a loss."""
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._said = time.monotonic()
        self._first = self._said, done
        self._seen: deque[tuple[float, int]] = deque([self._first], _WINDOW)
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            if self._terminal:
                self._draw("\n")

    def update(self, count: int = 1) -> None:
        """So many more are done."""
        with self._lock:
            self.done += count

    def write(self, line: str) -> None:
        """A line for the user, on stdout, above the bar."""
        with self.hidden():
            print(line, flush=True)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Within, the bar is not on the terminal, which others may write to."""
        with self._lock:
            self._erase()
            yield
            if self._terminal:
                self._draw()

    def line(self) -> str:
        """Where it is, in words: what is done, time, rate, time left, and the note."""
        with self._lock:
            now = time.monotonic()
            parts = [f"{self.done:,}/{self.total:,} {self.unit}s", clock(now - self._first[0])]
            since, before = self._first if self._seen[0][1] == self.done else self._seen[0]
            if self.done > before:
                rate = (self.done - before) / max(now - since, 1e-9)
                left = max(self.total - self.done, 0) / rate
                parts += [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s", f"{clock(left)} left"]
            return ", ".join([*parts, *filter(None, [self.note])])

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            with self._lock:
                now = time.monotonic()
                self._seen.append((now, self.done))
                if self._terminal:
                    self._draw()
                elif now - self._said >= QUIET:
                    self._said = now
                    print(f"{self.name}: {self.line()}" if self.name else self.line(), file=self._stream, flush=True)

    def _draw(self, end: str = "") -> None:
        width = shutil.get_terminal_size().columns - 1
        part = min(self.done / self.total, 1.0) if self.total else 1.0
        full = round(10 * part)
        head, bar, line = f"{self.name} {100 * part:3.0f} %".lstrip(), f"|{'#' * full}{'-' * (10 - full)}|", self.line()
        text = f"{head} {bar} {line}" if len(head) + len(bar) + len(line) + 2 <= width else f"{head} {line}"
        self._stream.write(f"\r{text[:width]}\x1b[K{end}")
        self._stream.flush()

    def _erase(self) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


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
