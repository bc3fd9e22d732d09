"""Places that are full, missing, another's or not writable: caches, shared memory, files, the working directory."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from prime_dali import _command, _files
from prime_dali._states import Kind, read_array
from prime_dali.evaluation import loading


class Items(Dataset[Any]):
    """Of an image, a label, and a string, as the evaluation has them."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        return torch.full((3, 64, 64), number, dtype=torch.uint8), torch.tensor(number), str(number)


@pytest.mark.parametrize("size", [3, None])
def test_little_shared_memory(size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are the same; nothing is put into shared memory that is too small for it."""
    expected = [list(batch) for batch in loading.load(Items(), 3 * 64**2, size, 2)]
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**10))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", refuse)  # in the worker processes too, which are forks
    monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", refuse)
    monkeypatch.setattr(torch.UntypedStorage, "_share_filename_cpu_", refuse)
    with pytest.raises(OSError, match="No space left"):
        list(torch.utils.data.DataLoader(Items(), 3, num_workers=1))
    found = [list(batch) for batch in loading.load(Items(), 3 * 64**2, size, 2)]
    assert len(found) == len(expected)
    for (images, labels, names), (given, numbers, strings) in zip(found, expected, strict=True):
        assert images.equal(given)
        assert labels.equal(numbers)
        assert list(names) == list(strings)


def test_no_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_SHARED", "/proc/none")
    assert [labels.tolist() for _, labels, _ in loading.load(Items(), 3 * 64**2, 3, 2)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_folders_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system call fails in /proc and in a deleted folder as if the parent were missing."""
    with pytest.raises(FileNotFoundError, match="/proc/none"):
        _files.make_folder(Path("/proc/none/a/b"))
    (tmp_path / "deleted").mkdir()
    monkeypatch.chdir(tmp_path / "deleted")
    (tmp_path / "deleted").rmdir()
    with pytest.raises(FileNotFoundError, match="out"):
        _files.make_folder(Path("out/a"))


def test_a_cache_that_cannot_be_written() -> None:
    message = "^/proc/none: no such file or directory; set PRIME_DALI_CACHE to a folder that you can write to"
    with pytest.raises(OSError, match=message), _files.filling_cache(Path("/proc/none/parquet/lock")):
        pass


def test_another_users_lock_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "a.lock"
    lock.touch()
    opened = os.open

    def refuse(path: object, flags: int, *rest: Any) -> int:
        if path == lock and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with _files.filling_cache(lock):
        (tmp_path / "a").touch()
    with pytest.raises(OSError, match=r"a: no space left on device; set PRIME_DALI_CACHE"), _files.filling_cache(lock):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a"))
    with pytest.raises(PermissionError, match="elsewhere"), _files.filling_cache(lock):
        raise PermissionError(errno.EACCES, "Permission denied", "elsewhere")


def test_a_converted_file_in_another_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from prime_dali.data import arrow

    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    rows = {"image": [{"bytes": b"x", "path": "x.png"}], "label": [0]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    made = arrow.unpacked(str(tmp_path / "a.parquet"), None)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "lock")

    monkeypatch.setattr(arrow, "filling_cache", refuse)
    assert arrow.unpacked(str(tmp_path / "a.parquet"), None) == made


@pytest.mark.parametrize("error", [
    PermissionError(errno.EACCES, "Permission denied", "f"), OSError(errno.EIO, "Input/output error", "f"),
    OSError(errno.ESTALE, "Stale file handle", "f"), MemoryError(),
], ids=str)  # fmt: skip
def test_a_file_that_cannot_be_read_is_not_called_damaged(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    path = tmp_path / "a.npy"
    np.save(path, np.zeros(3))
    monkeypatch.setattr(np, "load", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    for read in (Kind({}, "a checkpoint", "delete it").read_torch, read_array):
        with pytest.raises(type(error)) as caught:
            read(path)
        assert caught.value is error


def test_a_parquet_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    from prime_dali.data import arrow

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Failed to open local file")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.parquet").touch()
    with pytest.raises(PermissionError) as caught:
        arrow.unpacked(str(tmp_path / "a.parquet"), None)
    advice = "permission denied; change the permissions, or choose another place"
    assert _command.describe(caught.value) == f"{tmp_path}/a.parquet: {advice}"


def test_a_folder_for_results_is_written_to_at_the_start(tmp_path: Path) -> None:
    _files.make_output_folder(tmp_path / "new" / "out")
    assert list((tmp_path / "new" / "out").iterdir()) == []
    with pytest.raises(OSError, match=r"'/proc'$"):
        _files.make_output_folder(Path("/proc"))  # no user can


def test_a_deleted_working_directory(tmp_path: Path) -> None:
    program = "import os, sys; from prime_dali.cli import main; os.rmdir(os.getcwd()); sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    message = "the working directory cannot be used (it was deleted); change to another one first"
    assert done.stderr == f"prime-dali doctor: {message}\n"
