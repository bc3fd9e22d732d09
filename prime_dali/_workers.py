"""Worker processes: tasks go out, results come back in order, and a worker that dies is an error at once.

Each worker has its own connection, whose other end no other process has open: when it dies, at its start or in the
middle of a result, that connection closes. (With queues shared by workers, as in ``concurrent.futures``, the others may
wait forever for a lock that the dead worker held, or for the rest of its message.)
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

_AHEAD = 2  # chunks of tasks that a worker has: the current one, and one in reserve while this process is busy


class WorkerDied(RuntimeError):
    """A worker ended before its work was done."""


Begin = Callable[[Any], object] | None


@contextlib.contextmanager
def pool(folder: Path, workers: int, tasks: int, shared: Any, begin: Begin = None) -> Iterator[Pool]:
    """Processes that each have ``shared``; none is left when the block ends.

    Args:
        folder: Created if it does not exist; a file in it holds ``shared`` meanwhile. (Arguments of a new process go
            through a pipe that nobody reads if the process dies: more than the pipe holds would block forever.)
        workers: Number of processes; not more than tasks are started.
        tasks: Number of tasks.
        shared: Anything that can be pickled, of any size.
        begin: A module-level function that each process calls first, with ``shared``.
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
        """``function(shared, *arguments)`` for each row of the columns, in their order. One call at a time.

        Args:
            function: A module-level function.
            columns: The arguments, which should be small.
            chunksize: Rows that are sent to a worker together.

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
    """One process, with the numbers of the chunks whose results it has not yet returned."""

    def __init__(self, begin: Begin, handed: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.owed: deque[int] = deque()
        self._process = context.Process(target=_work, args=(theirs, begin, handed), daemon=True)
        self._process.start()
        theirs.close()  # the worker has its own copy; while this one is open, its death would not be noticed

    def give(self, function: Callable[..., Any], place: int, rows: list[Any]) -> None:
        try:
            self.connection.send((function, rows))
        except OSError as error:
            raise self._died() from error
        self.owed.append(place)

    def take(self) -> tuple[int, list[Any]]:
        """The results of its oldest chunk; waits for them."""
        try:
            results = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(results, BaseException):
            raise results
        return self.owed.popleft(), results

    def end(self) -> None:
        """Stop it, whatever it does: files that are not finished do not have their names yet."""
        self.connection.close()
        self._process.terminate()
        self._process.join()

    def _died(self) -> WorkerDied:
        self._process.join(1)
        status = self._process.exitcode or 0
        how = f"was killed by signal {-status} ({_signal(-status)})" if status < 0 else f"ended with status {status}"
        return WorkerDied(
            f"workers: a worker process {how} before its work was done; if memory was short, use fewer workers; in a "
            "script, put the call under `if __name__ == '__main__':`; the same command resumes"
        )


def _signal(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"


def _work(own: connection.Connection, begin: Begin, handed: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and stops the workers
    threading.Thread(target=_follow_parent, daemon=True).start()
    shared = _attempt(_shared, begin, handed)
    failed = isinstance(shared, ExceptionWithTraceback)
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the connection
        while True:
            function, rows = own.recv()
            own.send(shared if failed else _attempt(_results, function, shared, rows))


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or the exception that it raises, in a form that can be pickled."""
    try:
        return function(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
        return ExceptionWithTraceback(error, error.__traceback__)


def _shared(begin: Begin, handed: Path) -> Any:
    shared = pickle.loads(handed.read_bytes())
    if begin is not None:
        begin(shared)
    return shared


def _results(function: Callable[..., Any], shared: Any, rows: list[Any]) -> list[Any]:
    return [function(shared, *row) for row in rows]


def _follow_parent() -> None:
    """Exit when the parent has been killed, even in the middle of a task."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
