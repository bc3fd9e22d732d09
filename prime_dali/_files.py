"""Writing results: no two runs in one folder, no half-written files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Report = Callable[[str], None]
_TEMPORARY = ".unfinished-"  # how the names of files begin that are being written


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder, made if need be, for this run alone.

    Raises:
        RuntimeError: Another run holds it, or it was taken away or replaced within the block: what was written there
            is lost.
    """
    make_folder(folder)
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
    """A temporary name beside ``path`` to write to; when the block ends well, the file is synced and takes that place.

    What writers left there that were killed is removed; those that live hold a lock on their file.

    Raises:
        OSError: It cannot be written; the message names ``path``, which then holds what it held before.
    """
    make_folder(path.parent)
    _remove_stale(path.parent)
    handle, temporary = _temporary(path)
    try:
        with naming(path, temporary):
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            commit(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write a file of each name and text into a folder, each as :func:`replacing` does; their paths."""
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text)
    return [folder / name for name in texts]


def commit(temporary: Path, path: Path) -> None:
    """Sync a file, give it its name, and sync that: a loss of power leaves the old file or the new one, whole."""
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # Some file systems cannot do this for folders, and a folder may be closed to reading.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def sync_file_system(folder: Path) -> None:
    """Wait until all that was written to the file system of a folder is on the disk.

    Raises:
        OSError: Some of it cannot be written.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those that it lies in, with their names on the disk."""
    try:
        folder.mkdir()
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    except OSError:
        if not folder.is_dir():
            raise
    else:
        sync(folder.parent)


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """An OSError in the block that names no file, as of a write to a full disk, or ``temporary``, names ``path``."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and (temporary is None or Path(os.fsdecode(error.filename)) != temporary):
            raise
        if error.errno is None:  # NumPy counts bytes
            raise OSError(f"{path}: cannot be written ({error})") from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def _temporary(path: Path) -> tuple[int, Path]:
    """A new file beside ``path``, and a handle that has it locked."""
    while True:
        try:
            handle, name = tempfile.mkstemp(prefix=_TEMPORARY, suffix=path.suffix, dir=path.parent)
        except OSError as error:  # it names a file that nobody knows
            raise OSError(error.errno, error.strerror, str(path)) from error
        with contextlib.suppress(OSError):  # no locks in this file system: then nobody takes it for stale either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:  # nobody took it for stale before it was locked
            return handle, Path(name)
        os.close(handle)


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):  # locked: its writer lives; gone: it has its name now
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
