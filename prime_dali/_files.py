"""Writing results: no two runs in one folder, no half-written files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

Report = Callable[[str], None]


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder, made if need be, for this run alone.

    Raises:
        RuntimeError: Another run holds it, or it was taken away or replaced within the block: what was written there
            is lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"{folder}: another run is writing there") from None
        yield
        if not (folder.exists() and os.path.samestat(os.fstat(handle), folder.stat())):
            raise RuntimeError(f"{folder}: expected the folder of this run, but it was removed or replaced meanwhile")
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes the place of ``path`` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem[:32]}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
