"""Worker processes: tasks go out, results come back in order, and a worker that dies is an error at once.

Each worker has a connection of its own, whose other end no other process holds: whenever it dies, at its start or in
the middle of a result, that connection ends. (With queues that workers share, as those of ``concurrent.futures``, the
others may wait for ever: for a lock that the dead one held, or for the rest of its message.)
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from ._files import naming

_AHEAD = 2  # chunks of tasks that a worker has: one to work at, one for when this process is busy


class WorkerDied(RuntimeError):
    """A worker ended before its work was done."""


@contextlib.contextmanager
def pool(folder: Path, workers: int, tasks: int, begin: Callable[[Any], None], shared: Any) -> Iterator[Pool]:
    """Processes that have each called ``begin(shared)``; none is left when the block ends.

    Args:
        folder: Is made if need be; ``shared`` lies there in a file meanwhile. (What a process is told as it starts goes
            through a pipe that nobody empties if it dies: who tells it more than the pipe holds waits for ever.)
        workers: Processes, if there are as many tasks.
        tasks: How many there will be.
        begin: A function of a module.
        shared: Anything that can be pickled, of any size.
    """
    handed = folder / "shared.pickle"
    folder.mkdir(exist_ok=True)
    with naming(handed):
        handed.write_bytes(pickle.dumps(shared, pickle.HIGHEST_PROTOCOL))
    started: list[_Worker] = []
    try:
        for _ in range(max(1, min(workers, tasks))):
            started.append(_Worker(begin, handed))
        yield Pool(started)
    finally:
        for worker in started:
            worker.end()
        handed.unlink(missing_ok=True)


class Pool:
    """See :func:`pool`."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = workers

    def map(self, function: Callable[..., Any], *columns: Sequence[Any], chunksize: int = 1) -> Iterator[Any]:
        """``function(*arguments)`` for each row of the columns, in their order. One call at a time.

        Args:
            function: Of a module.
            columns: The arguments, small ones.
            chunksize: Rows that go to a worker together.

        Raises:
            WorkerDied: A worker was killed, or could not start.
            Exception: As ``function`` and ``begin`` raise it, with the worker's traceback as its cause.
        """
        rows = list(zip(*columns, strict=True))
        chunks = deque(enumerate(rows[i : i + chunksize] for i in range(0, len(rows), chunksize)))
        done: dict[int, list[Any]] = {}
        for wanted in range(len(chunks)):
            while wanted not in done:
                for worker in self._workers:
                    while chunks and len(worker.owed) < _AHEAD:
                        worker.give(function, *chunks.popleft())
                busy = {worker.connection: worker for worker in self._workers if worker.owed}
                for ready in connection.wait(list(busy)):
                    place, results = busy[ready].take()  # type: ignore[index]
                    done[place] = results
            yield from done.pop(wanted)


class _Worker:
    """One process, with the places of the chunks that it owes."""

    def __init__(self, begin: Callable[[Any], None], handed: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.owed: deque[int] = deque()
        self._process = context.Process(target=_work, args=(theirs, begin, handed), daemon=True)
        self._process.start()
        theirs.close()  # the worker has its own; with this one open its end would not be seen

    def give(self, function: Callable[..., Any], place: int, rows: list[Any]) -> None:
        try:
            self.connection.send((function, rows))
        except OSError as error:
            raise self._died() from error
        self.owed.append(place)

    def take(self) -> tuple[int, list[Any]]:
        """The oldest chunk that it owes; waits for it."""
        try:
            results = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(results, BaseException):
            raise results
        return self.owed.popleft(), results

    def end(self) -> None:
        """Stop it, whatever it does: what it has not finished has no name yet."""
        self.connection.close()
        self._process.terminate()
        self._process.join()

    def _died(self) -> WorkerDied:
        self._process.join(1)
        status = self._process.exitcode or 0
        how = f"was killed by signal {-status} ({_signal(-status)})" if status < 0 else f"ended with status {status}"
        return WorkerDied(
            f"workers: a worker process {how} before its work was done; if memory was short, take fewer workers; if a "
            "script started this, the call has to stand under `if __name__ == '__main__':`; the same again goes "
            "on where this one was"
        )


def _signal(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"


def _work(own: connection.Connection, begin: Callable[[Any], None], handed: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and stops the workers
    threading.Thread(target=_follow_parent, daemon=True).start()
    failed = _attempt(_begin, begin, handed)
    with contextlib.suppress(EOFError, OSError):  # the parent wants no more
        while True:
            function, rows = own.recv()
            own.send(failed or _attempt(_results, function, rows))


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or the exception that it raises, as something that can be sent."""
    try:
        return function(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
        return ExceptionWithTraceback(error, error.__traceback__)


def _begin(begin: Callable[[Any], None], handed: Path) -> None:
    begin(pickle.loads(handed.read_bytes()))


def _results(function: Callable[..., Any], rows: list[Any]) -> list[Any]:
    return [function(*row) for row in rows]


def _follow_parent() -> None:
    """End with a parent that was killed, in the middle of a task too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
