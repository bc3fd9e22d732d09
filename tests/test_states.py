"""What runs leave and read again: files that are written whole, and states that are damaged, foreign or of others."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_corruptions import tiles
from working import begin, squared

import prime_dali
from prime_dali import _files, _workers, cli
from prime_dali._states import Kind, read_array
from prime_dali.data.records import Records
from prime_dali.evaluation import corrupt
from prime_dali.tools import augment
from prime_dali.training import checkpoint

KIND = Kind(
    {"a": {"b": int}, "c": [(None, float)], "d": dict, "e": range(3, 5), "f": frozenset(("x", "y"))},
    "a state",
    "start again",
)


@pytest.mark.parametrize(("text", "message"), [
    ('{"a": {"b": 1}, "c": [1, null], "d": {}, "e": 4, "f": "x"}', None),
    ('{"a": {"b": 1}, "c": [], "d": {}, "e": 5}', "e: expected an int from 3 to 4, got int (5)"),
    ('{"a": {"b": 1}, "c": [], "d": {}, "e": 4, "f": true}', "f: expected 'x' or 'y', got bool (True)"),
    ('{"a": {"b": 1}, "c": [], "d": {}, "e": 4, "f": []}', "f: expected 'x' or 'y', got list ([])"),
    ("[]", "expected a mapping, got list ([])"),
    ('{"a": {}}', "a.b: expected an int, got none"),
    ('{"a": {"b": true}}', "a.b: expected an int, got bool (True)"),
    ('{"a": {"b": 1}}', "c: expected a list, got none"),
    ('{"a": {"b": 1}, "c": [1.5, "x"]}', "c[1]: expected null or a number, got str ('x')"),
    ('{"a": {"b": 1}, "c": [], "d": 3}', "d: expected a mapping, got int (3)"),
    ("{", "not JSON: "),
    ("[" * 100000, "not JSON: "),
    ("\x00\x00", "not JSON: "),
])  # fmt: skip
def test_schemas(text: str, message: str | None, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    if message is None:
        assert KIND.read_json(path) == json.loads(text)
        return
    with pytest.raises(ValueError, match=re.escape(f"{path}: not a state ({message}")) as caught:
        KIND.read_json(path)
    assert str(caught.value).endswith("; start again")


def test_arrays_of_another_kind(tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", a=np.arange(3))
    (tmp_path / "many.npz").rename(tmp_path / "one.npy")
    with pytest.raises(ValueError, match=r"one.npy: expected one NumPy array \(.npy\), got an archive"):
        read_array(tmp_path / "one.npy")
    np.save(tmp_path / "one.npy", np.arange(3))
    (tmp_path / "one.npy").rename(tmp_path / "many.npz")
    kind = Kind({"a": np.ndarray}, "distances", "measure again")
    with pytest.raises(ValueError, match=r"many.npz: not distances \(expected an archive \(.npz\), got one array"):
        kind.read_arrays(tmp_path / "many.npz")
    np.savez(tmp_path / "many.npz", a=np.arange(10**4))
    whole = (tmp_path / "many.npz").read_bytes()
    for content in (b"", whole[:100], whole[:20_000], whole[:500] + b"damage" + whole[506:]):
        (tmp_path / "many.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"many.npz: not "):
            kind.read_arrays(tmp_path / "many.npz")


def test_files_are_on_the_disk_before_they_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    sync, rename = os.fsync, Path.replace

    def synced(handle: int) -> None:
        did.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        sync(handle)

    def renamed(path: Path, other: Path) -> Path:
        did.append((path.name, other.name))
        return rename(path, other)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    with _files.replacing(tmp_path / "deep" / "a.txt") as temporary:
        temporary.write_text("whole")
    assert did == [tmp_path.name, temporary.name, (temporary.name, "a.txt"), "deep"]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    """And nothing else: not what a living writer writes, and no file of the user's."""
    program = f"""if True:
        import os, sys, time
        from pathlib import Path
        from prime_dali._files import replacing
        with replacing(Path({str(tmp_path)!r}) / "a.pt") as temporary:
            temporary.write_text("half")
            print("writing", flush=True)
            time.sleep(60)
    """
    (tmp_path / ".a-12345678.pt").write_text("mine")
    writers = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        assert [writer.stdout.readline() for writer in writers] == [b"writing\n"] * 2
        writers[0].kill()
        writers[0].wait()
        assert len(list(tmp_path.iterdir())) == 3
        with _files.replacing(tmp_path / "b.pt") as temporary:
            temporary.write_text("whole")
        left = [path for path in tmp_path.iterdir() if path.name.startswith(".unfinished-")]
        assert [path.read_text() for path in left] == ["half"]
        assert sorted(p.name for p in tmp_path.iterdir() if p not in left) == [".a-12345678.pt", "b.pt"]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    with _files.replacing(tmp_path / "b.pt") as temporary:
        temporary.write_text("again")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a-12345678.pt", "b.pt"]


@pytest.mark.parametrize(("error", "message"), [
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device: '{path}'"),
    (OSError("4096 requested and 0 written"), "{path}: cannot be written (4096 requested and 0 written); the disk or a quota may be full"),
    (OSError(errno.EACCES, "Permission denied", "other"), "Permission denied: 'other'"),
])  # fmt: skip
def test_a_failed_write_names_the_file(error: OSError, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(OSError, match=re.escape(message.format(path=path))), _files.replacing(path):
        raise error
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "before"


# Worker processes.


def test_a_folder_that_takes_no_file_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "some temporary name")

    monkeypatch.setattr(_files.tempfile, "mkstemp", full)
    with pytest.raises(OSError, match=r"No space left on device: .*/x.png'"), _files.replacing(tmp_path / "x.png"):
        pass


def test_workers(tmp_path: Path) -> None:
    shared = "x" * 10**6
    with _workers.pool(tmp_path / "w", 2, 7, shared, begin) as pool:
        found = [number for number, _ in pool.map(squared, range(7), ["works"] * 7, chunksize=2)]
        assert found == [number**2 for number in range(7)]
        assert [number for number, _ in pool.map(squared, [9], ["works"])] == [81]
        with pytest.raises(ValueError, match="task 0") as caught:
            list(pool.map(squared, [0], ["raises"]))
        assert "in squared" in str(caught.value.__cause__)
    assert list((tmp_path / "w").iterdir()) == []


@pytest.mark.parametrize(("start", "how", "message"), [
    ("dies", "works", r"a worker process was killed by signal 9 \(SIGKILL\) before its work was done; if memory was short"),
    ("works", "dies", r"a worker process ended with status 3 before its work was done; .* `if __name__ == '__main__':`"),
    ("raises", "works", "no such thing"),
])  # fmt: skip
def test_a_worker_that_dies_is_an_error_at_once(start: str, how: str, message: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with (
        pytest.raises((_workers.WorkerDied, KeyError), match=message),
        _workers.pool(tmp_path / "w", 2, 9, start, begin) as pool,
    ):
        list(pool.map(squared, range(9), ["works"] * 4 + [how] * 5))
    assert time.monotonic() - started < 60


def test_a_worker_killed_as_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it is to be told: more than a pipe holds would never be read."""
    start = _workers._Worker.__init__

    def killed(self: Any, *arguments: Any) -> None:
        start(self, *arguments)
        os.kill(self._process.pid, signal.SIGKILL)

    monkeypatch.setattr(_workers._Worker, "__init__", killed)
    images = np.zeros((200, 32, 32, 3), np.uint8)
    (tmp_path / "clean").mkdir()
    records = np.concatenate([np.zeros((200, 1), np.uint8), images.reshape(200, -1)], 1)
    records.tofile(tmp_path / "clean" / "test_batch.bin")
    settings = corrupt.Settings("cifar10", tmp_path / "clean", tmp_path / "out", names=["brightness"])
    with pytest.raises(_workers.WorkerDied, match="killed by signal 9"):
        corrupt.run(settings)
    assert not (tmp_path / "out" / ".unfinished").exists()


@pytest.mark.parametrize("command", ["evaluate", "analyze"])
def test_a_worker_of_a_data_loader_that_dies(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prime_dali.evaluation import image_sets
    from prime_dali.experiments.images import Corruptions, Photos, _Pairs, pairs

    Image.fromarray(tiles(1)[0]).save(tmp_path / "a.png")
    files = [str(tmp_path / "a.png")] * 4
    dataset = image_sets._Files if command == "evaluate" else _Pairs
    monkeypatch.setattr(dataset, "__getitem__", lambda self, number: os.kill(os.getpid(), signal.SIGKILL))
    if command == "evaluate":
        batches = image_sets.Pictures(
            Records(files, np.zeros(4, np.int64)), 32, None, image_sets.Decoding(workers=1)
        ).batches(2, torch.device("cpu"))
    else:
        images = Photos([Path(file) for file in files], None)
        batches = pairs(Corruptions.of(images, None, [1], 0, None), range(4), 1)
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid.* (killed by signal|exited unexpectedly)"):
        list(batches)
    assert time.monotonic() - started < 30


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    """A worker that is started imports it, and cannot start workers itself."""
    (tmp_path / "photos").mkdir()
    Image.fromarray(tiles(1)[0]).save(tmp_path / "photos" / "a.png")
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\nimport prime_dali\nfrom prime_dali.tools import augment\n"
        f"root = Path({str(tmp_path)!r})\nconfig = prime_dali.preset('cifar')\n"
        "augment.run(augment.Settings(root / 'photos', root / 'out', config, 1, device='cpu', workers=1))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert "put the call under `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]


# The files of a folder of `prime-dali augment`.


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "photos").mkdir()
    Image.fromarray(tiles(1)[0]).save(folder / "photos" / "a.png")
    augment.run(
        augment.Settings(folder / "photos", folder / "out", prime_dali.preset("cifar"), 1, device="cpu", workers=1)
    )
    return folder


def without(key: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        content = json.loads(text)
        del content[key]
        return json.dumps(content) + "\n"

    return change


@pytest.mark.parametrize(("name", "change", "message"), [
    ("files.jsonl", lambda t: "[1]\n", "files.jsonl: line 1: not a line of prime-dali augment (expected a mapping, got list"),
    ("files.jsonl", without("file"), "(file: expected a string, got none); remove this line, and the run makes its file again"),
    ("files.jsonl", lambda t: t.replace('"number": 0', '"number": "0"'), "(number: expected an int from 0 to 9223372036854775807, got str ('0'))"),
    ("files.jsonl", lambda t: t.replace('"number": 0', '"number": -1'), "from 0 to 9223372036854775807, got int (-1))"),
    ("files.jsonl", lambda t: "\x00\n" + t, "files.jsonl: line 1: not JSON"),
    ("manifest.json", without("source"), "manifest.json: not a manifest of prime-dali augment (source: expected a mapping, got none)"),
    ("manifest.json", lambda t: t.replace('"path"', '"way"'), "(source.path: expected a string, got none); put back a copy"),
    ("manifest.json", lambda t: "3", "(expected a mapping, got int (3))"),
    ("manifest.json", lambda t: "", "(not JSON"),
])  # fmt: skip
def test_damaged_files_of_augment(
    name: str, change: Callable, message: str, made: Path, capsys: pytest.CaptureFixture
) -> None:
    out, path = made / "out", made / "out" / name
    before = path.read_text()
    path.write_text(change(before))
    try:
        for command in (
            [str(made / "photos"), str(out), "--copies", "1", "--preset", "cifar"],
            ["--remake", str(out / "a-0.png"), str(made / "b.png")],
        ):
            assert (
                cli.main(
                    ["augment", *command, *([] if command[0] == "--remake" else ["--device", "cpu", "--workers", "1"])]
                )
                == 1
            )
            error = capsys.readouterr().err.splitlines()[-1]
            assert str(path) in error
            assert message in error
    finally:
        path.write_text(before)


def test_lines_of_another_data_set(made: Path) -> None:
    """Or of names that no file can have: they are dropped, and the file is made again."""
    path = made / "out" / "files.jsonl"
    before = path.read_text()
    cifar = {"file": "a-0.png", "records": 3, "first_number": 0}
    settings = augment.Settings(made / "photos", made / "out", prime_dali.preset("cifar"), 1, device="cpu", workers=1)
    settings = augment._checked(settings)
    for line in (cifar, {**json.loads(before), "file": "a" * 5000}, {**json.loads(before), "file": "a\0"}):
        path.write_text(json.dumps(line) + "\n")
        assert augment._provenance.done(settings.destination, settings.source) == set()
    path.write_text(json.dumps({**json.loads(before), "source": "a\0"}) + "\n")
    with pytest.raises(ValueError, match=r"files.jsonl: expected the name of an image in"):
        augment.run(settings)
    path.write_text(before)


@pytest.mark.parametrize(("given", "other", "message"), [
    ('"png"', '"gif"', r"manifest.json: not a manifest of .* \(format: expected 'jpeg' or 'png', got str \('gif'\)"),
    ('"cpu"', '"tpu"', r"manifest.json: not a manifest of .* \(device: expected 'cpu' or 'cuda', got str \('tpu'\)"),
    ('"copies": 1', '"copies": -1', r"manifest.json: not a manifest of .* \(copies: expected an int from 1 to 10000"),
    ('"width"', '"girth"', r"manifest.json: config: expected a PrimeConfig \(.*'girth'"),
])  # fmt: skip
def test_remaking_needs_a_sound_manifest(given: str, other: str, message: str, made: Path) -> None:
    path = made / "out" / "manifest.json"
    before = path.read_text()
    path.write_text(before.replace(given, other))
    try:
        with pytest.raises(ValueError, match=message):
            augment.remake(made / "out" / "a-0.png")
    finally:
        path.write_text(before)


@pytest.mark.parametrize("key", ["copies", "seed", "cifar", "size", "format", "quality", "device", "config"])
def test_remaking_needs_the_whole_manifest(key: str, made: Path) -> None:
    path = made / "out" / "manifest.json"
    before = path.read_text()
    path.write_text(without(key)(before))
    try:
        with pytest.raises(ValueError, match=rf"manifest.json: not a manifest of prime-dali augment \({key}: expected"):
            augment.remake(made / "out" / "a-0.png")
    finally:
        path.write_text(before)


def test_parts_of_a_training_checkpoint(tmp_path: Path) -> None:
    """Another version of torch may have other keys, but not values of another type; at step 0 a log begins anew."""
    checkpoint.check_alike({"a": 1, "b": [True], "new": 2}, {"a": 0.5, "b": [False], "old": 3})
    for given, own, message in (
        ({"a": [1]}, {"a": [True]}, r"a\[0\]: expected a value like True, got 1"),
        ({"a": {"b": "1"}}, {"a": {"b": 1}}, r"a\.b: expected a value like 1, got '1'"),
    ):
        with pytest.raises(ValueError, match=message):
            checkpoint.check_alike(given, own)
    torch.save({"format": "prime-dali", "config": {}, "run": {}}, tmp_path / "last.pt")
    with pytest.raises(ValueError, match=r"last\.pt: not a checkpoint .* \(model: expected a mapping, got none\)"):
        checkpoint.load(tmp_path)
    (tmp_path / "log.jsonl").write_text("damaged\n")
    with pytest.raises(ValueError, match=r"log\.jsonl: line 1"):
        checkpoint.Log(tmp_path, 1)
    checkpoint.Log(tmp_path, 0).write(step=1)
    assert checkpoint.read_log(tmp_path) == [{"step": 1}]
