"""Commands of this package in processes of their own, which get the signals of this process, and end with it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from .. import _command
from ..training.stopping import SignalHandler


def say(line: str, to: TextIO | None = None) -> None:
    """Print a line in one piece: print writes its end apart, and a line of another thread may come between."""
    print(f"{line}\n", end="", file=to, flush=True)


class Children(SignalHandler):
    """Runs commands of this package, from any thread, and passes on the signals that ask to save and stop."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopping, self._status = False, _command.STOPPED

    def handle(self, number: int, frame: Any) -> None:
        if number == signal.SIGINT and self._status == _command.INTERRUPTED:  # once more: at once
            for process in list(self._processes):
                process.kill()
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            self._status = _command.INTERRUPTED
        self._stopping = True
        for process in list(self._processes):
            process.send_signal(number)

    def check(self) -> None:
        """SystemExit, with status 75, or 130 for Ctrl-C, once a signal has stopped this process: nothing begins."""
        if self._stopping:
            raise SystemExit(self._status)

    def call(self, name: str, gpu: str, *arguments: str) -> None:
        """``prime-dali`` with these arguments, in a process of its own, whose memory and faults are its own.

        Args:
            name: Stands before every line of its output, which has no progress bars then; empty: it writes as it likes.
            gpu: The one that it sees, as in ``CUDA_VISIBLE_DEVICES``; empty: those that this process sees.
            arguments: The first one is the command.

        Raises:
            RuntimeError: It failed; the message has its last line on stderr.
            SystemExit: With status 75: a signal stopped it, or this process; 130: Ctrl-C did.
        """
        self.check()
        command = [sys.executable, "-m", __package__.partition(".")[0], *arguments]
        said, status = self._follow(name, gpu, command)
        if status == _command.STOPPED or (status and self._stopping):
            raise SystemExit(self._status)
        if status:
            lines = said.decode(errors="replace").strip().splitlines() or [""]
            own = [line for line in lines if line.startswith("prime-dali ")]  # a message may have more lines than one
            raise RuntimeError(f"{arguments[0]} ended with status {status} ({(own or lines)[-1]})")

    def _follow(self, name: str, gpu: str, command: Sequence[str]) -> tuple[bytes, int]:
        """Pass on what it says; the end of that, and its exit status."""
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        pipes: dict[str, Any] = {"stdout": pipe, "stderr": both} if name else {"stderr": pipe}
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
        process = subprocess.Popen(command, env=environment, preexec_fn=_die_with_parent, **pipes)
        self._processes.add(process)
        if self._stopping:  # the signal came while the process began
            process.send_signal(signal.SIGTERM)
        said, output = b"", process.stdout or process.stderr
        assert output is not None
        try:
            while part := output.readline() if name else os.read(output.fileno(), 4096):
                text = part.decode(errors="replace")
                say(f"{name}: {text.rstrip()}") if name else sys.stderr.write(text)
                said = (said + part)[-2000:]
            return said, process.wait()
        finally:
            self._processes.discard(process)
            process.kill()  # only an exception leaves it alive
            process.wait()
            output.close()


def _die_with_parent() -> None:
    """Without this, a run whose grid was killed would train on beside its own continuation.

    In a process group of its own it hears Ctrl-C once, from the grid, and not from the terminal as well.
    """
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; a checkpoint is whole at any moment
