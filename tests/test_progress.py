"""Bars, lines and phases of long work, as a user sees them."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import pytest

from prime_dali import _progress, _wording


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_and_many() -> None:
    assert _wording.plural(1, "image") == "1 image"
    assert _wording.plural(0, "image") == "0 images"
    assert _wording.plural(2000, "copy", "copies") == "2,000 copies"


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextlib.contextmanager
def screen() -> Iterator[tuple[TextIO, Callable[[int], None], Callable[[], list[str]]]]:
    """A real terminal: what is written to, how many columns it has, and what has been drawn in its lines."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    said = b""

    def drawn() -> list[str]:
        nonlocal said
        with contextlib.suppress(BlockingIOError):
            while part := os.read(ours, 4096):
                said += part
        return [line.rstrip() for line in re.split("[\r\n]+", said.decode())]

    def resize(columns: int) -> None:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))

    with open(theirs, "w", encoding="ascii") as stream:  # where there are no blocks to draw a bar with
        yield stream, resize, drawn
    os.close(ours)


def test_a_bar_moves_though_nothing_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "_TICK", 0.01)
    with screen() as (stream, resize, drawn):
        resize(61)
        with _progress.Progress(10, "copies", "image", 4, stream=stream) as bar:
            line = r"copies:  40%\|########4            \| 4/10 \[00:0\d<\?, \?image/s]"
            wait_for(lambda: sum(re.fullmatch(line, one) is not None for one in drawn()) >= 3)
            bar.update(3)
            bar.note = "loss 0.5"
            line = r"copies:  70%\|[#\d]+ *\| 7/10 \[00:0\d<00:0\d, [ \d.]+image/s, loss 0.5]"
            wait_for(lambda: re.fullmatch(line, drawn()[-1]) is not None)
            with bar.hidden():
                before = drawn()
                assert before[-1] == ""  # what else is written has the line for itself
                time.sleep(0.05)
                assert drawn() == before
            resize(41)
            wait_for(lambda: len(drawn()[-1]) == 40)
        assert drawn()[-2].startswith("copies:  70%")
        assert drawn()[-1] == ""  # what comes then has a line for itself


def test_lines_stand_above_the_bar(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with _progress.Progress(2, "copies") as bar:
        bar.write("skipped a.png")
        bar.update(2)
    said = capsys.readouterr()
    assert said.out == "skipped a.png\n"
    assert "copies: 100%|" in said.err.splitlines()[-1]


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "QUIET", 0.05)
    out = io.StringIO()
    with _progress.Progress(10, "copies", stream=out):
        wait_for(lambda: out.getvalue().count("\n") >= 2)
    assert "\r" not in out.getvalue()
    assert re.fullmatch(r"(copies:   0% 0/10 \[00:00<\?, \?image/s]\n)+", out.getvalue())
    with _progress.Progress(10, "copies", "image", 4, stream=out) as bar:
        bar.update(2)
        bar.note = "loss 0.5"
        assert re.fullmatch(r"copies:  60% 6/10 \[00:00<00:00, [\d.]+image/s, loss 0.5]", bar.line())
    quick = io.StringIO()
    with _progress.Progress(10, "copies", stream=quick):
        pass
    assert quick.getvalue() == ""


def test_phases_times_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with _progress.phase("compiling", out):
        pass
    assert out.getvalue() == "compiling ...\n"
    shown = Terminal()
    with _progress.phase("compiling", shown):
        pass
    assert re.fullmatch(r"compiling \.\.\.\rcompiling \.\.\. 0\.\d s\x1b\[K\n", shown.getvalue())
    assert [_wording.clock(s) for s in (0.04, 59.94, 61, 3723)] == ["0.0 s", "59.9 s", "1:01", "1:02:03"]
    assert _wording.speed(1000, 2, "image") == "500 images per second"
    assert _wording.speed(1, 4, "step") == "4.0 s per step"
    assert _wording.facts({"data": "d", "out": "", "network": 3}) == "data     d\nnetwork  3"
