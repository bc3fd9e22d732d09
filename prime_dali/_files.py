"""Writing results: one run at a time in a folder, and no incomplete files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TEXT: Any = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
"""Options of text files, whatever the locale: names of files may be any bytes."""
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
    """Where results are kept that can be made again: ``PRIME_DALI_CACHE``, by default ``~/.cache/prime-dali``.

    Raises:
        RuntimeError: Neither is known: the user has no home folder, as some of containers.
    """
    given = os.environ.get("PRIME_DALI_CACHE")
    try:
        if given:
            return Path(given).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prime-dali"
    except RuntimeError:
        raise RuntimeError(
            "cache: expected a home folder, got none for this user; set PRIME_DALI_CACHE to a folder that you can "
            "write to"
        ) from None


@contextlib.contextmanager
def filling_cache(lock: Path) -> Iterator[None]:
    """Wait until no other process holds this file in the cache; it and its folder are created if they do not exist.

    Raises:
        OSError: A file of the cache cannot be written, here or in the block; the message says how to choose
            another one.
    """
    try:
        make_folder(lock.parent)
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)  # NFS locks only what is open for writing
        except PermissionError:  # another user's, in a folder that both may write to
            handle = os.open(lock, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        path = Path(os.fsdecode(error.filename or lock))
        if not error.strerror or not (path.is_relative_to(lock.parent) or lock.is_relative_to(path)):
            raise
        reason = f"{error.strerror[0].lower()}{error.strerror[1:]}"
        advice = "set PRIME_DALI_CACHE to a folder that you can write to, with enough space"
        raise OSError(f"{path}: {reason}; {advice}") from error


_NOT_ITS_CONTENT = (
    errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
)  # fmt: skip


def out_of_reach(error: BaseException) -> bool:
    """Whether an error of reading a file says nothing about its content: it is perhaps whole, but this user cannot read
    it, or not now."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _NOT_ITS_CONTENT)


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
            temporary.write_text(text, **TEXT)
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


def shown(name: str | os.PathLike[str]) -> str:
    """A file name as printable text; bytes that are not valid text are written as ``\\xe9``."""
    # UTF-8 whatever the locale: the text can also be words of ours, beside a name.
    text = os.fsdecode(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def write_text(path: Path, text: str) -> None:
    """Write a text file as :func:`replacing` does, in UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, **TEXT)


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write these texts to files of these names in a folder; returns their paths."""
    for name, text in texts.items():
        write_text(folder / name, text)
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
    except OSError as error:
        if folder.is_dir():
            return
        # The second: mkdir fails so in /proc, and where the working directory was deleted.
        if not isinstance(error, FileNotFoundError) or folder.parent == folder:
            raise
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    sync(folder.parent)


def make_output_folder(folder: Path) -> None:
    """Create the folder of a command's results, if it does not exist, and write to it: so that what would fail at the
    end of a long run fails at its start.

    Raises:
        OSError: It cannot be written to; the message names the folder.
    """
    make_folder(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let an OSError in the block that names no file (as for a full disk) or ``temporary`` name ``path`` instead."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and (temporary is None or Path(os.fsdecode(error.filename)) != temporary):
            raise
        if error.errno is None:  # raised by NumPy, with a count of bytes
            raise OSError(f"{path}: cannot be written ({error}); the disk or a quota may be full") from error
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
