"""The signals that ask a run to save and stop."""

from __future__ import annotations

import os
import signal
from typing import Any


class Stopping:
    """Within the block, SIGTERM, SIGUSR1 and Ctrl-C are heard and remembered; Ctrl-C a second time is a
    KeyboardInterrupt.

    Args:
        notice: Goes to stderr at Ctrl-C; empty: nothing does.
    """

    def __init__(self, notice: str) -> None:
        self.notice = notice
        self.asked = False
        """One of the signals came."""
        self.interrupted = False
        """It was Ctrl-C."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        heard = [signal.SIGTERM, signal.SIGUSR1]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
            heard.append(signal.SIGINT)
        self._before = {number: signal.signal(number, self._hear) for number in heard}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: Any) -> None:
        self.asked = True
        if number == signal.SIGINT:
            self.interrupted = True
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
            if self.notice:
                os.write(2, f"\n{self.notice}\n".encode())  # print may be at work below this handler
