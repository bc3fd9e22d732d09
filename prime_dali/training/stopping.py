"""The signals that make a run save and stop."""

from __future__ import annotations

import os
import signal
from typing import Any, TypeVar

Self = TypeVar("Self", bound="SignalHandler")
ASKING = 2.0  # seconds between the steps after which the processes of a run ask each other whether to stop


def steps_between(steps: int, seconds: float) -> int:
    """How many steps to take before asking again, after ``steps`` took ``seconds``.

    As many as take :data:`ASKING` seconds, but at least one, and at most twice those measured, as the first ones may
    have been faster: their images were ready. The processes must give the same numbers, to ask after the same step.
    """
    return max(1, int(steps * ASKING / max(seconds, ASKING / 2)))


class SignalHandler:
    """Within the block, :meth:`handle` is called at SIGTERM, SIGUSR1, SIGHUP and Ctrl-C."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def __enter__(self: Self) -> Self:
        handled = [signal.SIGTERM, signal.SIGUSR1]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
            handled.append(signal.SIGINT)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # what nohup starts ignores it
            handled.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self.handle) for number in handled}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: Any) -> None:
        """The handler, as :func:`signal.signal` calls it."""
        raise NotImplementedError


class Stopping(SignalHandler):
    """Within the block, the signals are caught and recorded; a second Ctrl-C raises KeyboardInterrupt.

    Args:
        notice: Printed to stderr at Ctrl-C; empty: nothing is printed.
    """

    def __init__(self, notice: str) -> None:
        super().__init__()
        self.notice = notice
        self.asked = False
        """Whether one of the signals has arrived."""
        self.interrupted = False
        """Whether it was Ctrl-C."""

    def handle(self, number: int, frame: Any) -> None:
        self.asked = True
        if number == signal.SIGINT:
            self.interrupted = True
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
            if self.notice:
                os.write(2, f"\n{self.notice}\n".encode())  # the handler may have interrupted print
