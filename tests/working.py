"""Tasks of the workers in test_states.py. A worker imports this module, which is why it is not that one."""

from __future__ import annotations

import os
import signal
from typing import Any


def begin(shared: str) -> None:
    """As the argument of a pool that starts."""
    if shared == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if shared == "raises":
        raise KeyError("no such thing")


def squared(shared: str, number: int, how: str) -> Any:
    """The task."""
    if how == "dies":
        os._exit(3)
    if how == "raises":
        raise ValueError(f"task {number}")
    return number**2, b"x" * 10**6  # more than a pipe holds
