"""Processes of tests, forked from one that has imported what they need: importing torch takes longer than what they do."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

METHOD = "forkserver"
_CONTEXT = multiprocessing.get_context(METHOD)
# DALI may start CUDA where there is a GPU, and CUDA does not outlive a fork.
_DALI = () if torch.cuda.is_available() else ("prime_dali.dali",)
_CONTEXT.set_forkserver_preload(["cv2", "prime_dali.evaluation.corrupt", "prime_dali.training.trainer", *_DALI])


def start(said: Path, function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """A process that calls a module-level function; a file gets what it prints, to stdout and to stderr."""
    process = _CONTEXT.Process(target=_call, args=(said, function, arguments))
    process.start()
    return process


def in_a_copy(function: Callable[[], Any]) -> None:
    """Call a function in a process that is forked from this one, where it must not fail."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join()
    assert process.exitcode == 0


def command(said: Path, *words: str) -> BaseProcess:
    """A process that does what ``prime-dali`` does with these words."""
    return start(said, _command, words)


def _call(said: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    function(*arguments)


def _command(words: tuple[str, ...]) -> None:
    from prime_dali import cli

    raise SystemExit(cli.main(list(words)))
