"""Writing results: one run at a time in a folder, and no incomplete files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Report = Callable[[str], None]
_TEMPORARY = ".unfinished-"  # prefix of the names of files that are being written


@contextlib.contextmanager
def held(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock the folder, which is created if it does not exist, for this run alone; ``shared``: for runs that share it.

    Raises:
        RuntimeError: Another run has locked it, or it was removed or replaced within the block, and what was written
            there is lost.
    """
    make_folder(folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"{folder}: another run is writing there") from None
        yield
        if not (folder.exists() and os.path.samestat(os.fstat(handle), folder.stat())):
            raise RuntimeError(f"{folder}: expected the folder of this run, but it was removed or replaced meanwhile")
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Of the content of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where results are kept that can be made again: ``PRIME_DALI_CACHE``, by default ``~/.cache/prime-dali``."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prime-dali"
    return Path(os.environ.get("PRIME_DALI_CACHE") or default)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process holds the file, which is created if it does not exist."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Lock a file, which is created if it does not exist. Unlike the lock of a folder it holds for other machines too.

    A file system without such locks gives none.

    Raises:
        RuntimeError: Another process has locked it; the message is ``refusal``.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # NFS locks only what is open for writing
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(refusal) from None
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                raise
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; if the block succeeds, the file is synced and renamed to ``path``.

    Temporary files of writers that were killed are removed; a live writer holds a lock on its file.

    Raises:
        OSError: It cannot be written; the message names ``path``, which is then unchanged.
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


def create(path: Path, text: str) -> None:
    """Write a complete new file. If it exists, or another process creates it at the same time, that one stays."""
    _remove_stale(path.parent)
    handle, temporary = _temporary(path)
    try:
        with naming(path, temporary):
            temporary.write_text(text)
            temporary.chmod(0o666 & ~_umask())
            sync(temporary)
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass
            except OSError as error:  # a file system without links: what comes last stays
                if error.errno not in (errno.EPERM, errno.ENOSYS, errno.ENOTSUP):
                    raise
                temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    sync(path.parent)


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write these texts to files of these names in a folder, each as :func:`replacing` does; returns their paths."""
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text)
    return [folder / name for name in texts]


def commit(temporary: Path, path: Path) -> None:
    """Sync a file, rename it to ``path``, and sync the folder: after a power failure the old or the new file is there,
    complete."""
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
        # Some file systems do not support this for folders, and a folder may not be readable.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def sync_file_system(folder: Path) -> None:
    """Wait until everything written to the file system of a folder is on the disk.

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
    """Create a folder and its parents, and sync their names to the disk."""
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
    """Let an OSError in the block that names no file (as for a full disk) or ``temporary`` name ``path`` instead."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and (temporary is None or Path(os.fsdecode(error.filename)) != temporary):
            raise
        if error.errno is None:  # raised by NumPy, with a count of bytes
            raise OSError(f"{path}: cannot be written ({error})") from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def _temporary(path: Path) -> tuple[int, Path]:
    """A new file beside ``path``, and a handle that holds a lock on it."""
    while True:
        try:
            handle, name = tempfile.mkstemp(prefix=_TEMPORARY, suffix=path.suffix, dir=path.parent)
        except OSError as error:  # it names the temporary file, which the user does not know
            raise OSError(error.errno, error.strerror, str(path)) from error
        with contextlib.suppress(OSError):  # no locks in this file system: then no process considers it stale
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:  # no process removed it as stale before it was locked
            return handle, Path(name)
        os.close(handle)


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):  # locked: its writer is alive; gone: it was renamed
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
