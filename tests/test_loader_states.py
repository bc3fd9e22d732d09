"""States of the loader: they continue exactly, outlive any format, and change nothing where they are damaged."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")


import pipelining
from nvidia.dali import types
from pipelining import COUNT, assert_same, reader, train, validate

from prime_dali import PrimeConfig
from prime_dali.dali import Loader, Source
from prime_dali.data.folders import image_folder

device, folder = pipelining.device, pipelining.folder  # fixtures


def test_state_in_the_middle_of_an_epoch(folder: Path, device: str, tmp_path: Path) -> None:
    arguments = {"last_batch": "partial", "batch_size": 3}
    whole = train(folder, device, **arguments)
    expected = [batch for _ in range(3) for batch in whole]
    for done in (0, 2, 4, 5):
        first = train(folder, device, **arguments)
        count = 0
        while count < done:
            for _ in first:
                count += 1
                if count == done:
                    break
        state = pickle.loads(pickle.dumps(first.state_dict()))
        restored = train(folder, device, **arguments)
        next(iter(restored))  # what it did before does not matter
        restored.load_state_dict(state)
        assert restored.epoch == done // 4
        assert_same([batch for _ in range(3 - restored.epoch) for batch in restored], expected[done:])
    torch.save(whole.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt") == whole.state_dict() == json.loads(json.dumps(whole.state_dict()))


def test_a_loader_that_was_started_has_the_same_batches(folder: Path, device: str, tmp_path: Path) -> None:
    """Also after a state, which the batch of the thread does not precede; errors of the thread come with the batch."""
    whole = train(folder, device)
    expected = [batch for _ in range(2) for batch in whole]
    started = train(folder, device)
    started.start()
    first = started._first
    started.start()  # goes on with that batch
    assert started._first is first
    assert started.epoch == 0
    with pytest.raises(ValueError, match="state: replaced"):
        started.load_state_dict({**started.state_dict(), "replaced": [[0, COUNT]]})
    assert_same([next(iter(started))], expected[:1])
    resumed = train(folder, device)
    resumed.start()
    resumed.load_state_dict(started.state_dict())
    assert_same([batch for _ in range(2) for batch in resumed], expected[1:])
    (tmp_path / "broken.jpg").write_bytes(b"x")
    broken = train(None, device, files=[tmp_path / "broken.jpg"] * 4, labels=[0] * 4)
    broken.start()
    with pytest.raises(ValueError, match=r"broken\.jpg"):
        next(iter(broken))


@pytest.mark.parametrize("of_source", [False, True])
def test_a_state_of_a_loader_that_was_started(of_source: bool, folder: Path) -> None:
    """It is that of the batch which the thread makes, and not of the one after it."""

    def make() -> Loader:
        return train(Source(reader(folder, True), num_images=COUNT) if of_source else folder)

    started, resumed = make(), make()
    for loader in (started, started):
        next(iter(loader))
        loader.start()
        resumed.load_state_dict(loader.state_dict())
        assert_same([next(iter(resumed))], [next(iter(loader))])


def test_an_interrupt_loses_no_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python sees Ctrl-C only when DALI has returned a batch. A source cannot be asked for one again, but the state of
    its loader has it."""

    def interrupted(loader: Loader) -> None:
        with monkeypatch.context() as patch:
            run = loader.pipeline.run
            patch.setattr(loader.pipeline, "run", lambda: [run(), signal.raise_signal(signal.SIGINT)])
            with pytest.raises(KeyboardInterrupt):
                next(iter(loader))

    loader = train(folder)
    interrupted(loader)
    assert_same([*loader, *loader], [batch for whole in [train(folder)] for _ in range(2) for batch in whole])
    source = Source(reader(folder, True), num_images=COUNT)
    loader, resumed = train(source), train(source)
    expected = [*train(source)]
    assert_same([next(iter(loader))], expected[:1])
    interrupted(loader)
    with pytest.raises(RuntimeError, match="the pipeline has failed; create a new one"):
        next(iter(loader))
    resumed.load_state_dict(loader.state_dict())
    assert_same([*resumed], expected[1:])


def test_an_interrupt_leaves_the_batch_of_a_loader_that_was_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, waiting = train(folder), threading.Event()
    run = loader.pipeline.run
    monkeypatch.setattr(loader.pipeline, "run", lambda: [waiting.wait(), *run()][1:])
    loader.start()
    interrupt = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    interrupt.join()
    waiting.set()
    assert_same([*loader], [*train(folder)])


def test_a_failure_that_no_image_caused_is_raised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, failures = (
        train(folder, on_error="skip"),
        iter([RuntimeError("out of memory"), AssertionError("run again")]),
    )

    def fail() -> None:
        raise next(failures)

    monkeypatch.setattr(loader.pipeline, "run", fail)
    for message in ("out of memory", "the pipeline has failed"):
        with pytest.raises(RuntimeError, match=message):
            next(iter(loader))
    assert loader.replaced == {}


@pytest.mark.parametrize("keep", [
    lambda state, path: [torch.save(state, path), torch.load(path)][1],
    lambda state, path: json.loads(json.dumps(state)),
    lambda state, path: {**state, "replaced": {int(k): v for k, v in state["replaced"]}},  # as earlier versions had it
    lambda state, path: {**state, "replaced": {str(k): v for k, v in state["replaced"]}},  # and that through JSON
])  # fmt: skip
def test_a_state_outlives_any_format(keep: Callable, folder: Path, tmp_path: Path) -> None:
    """After a skipped file, and of arguments of NumPy's types."""
    files, labels, _ = image_folder(folder)
    (tmp_path / "broken.png").write_bytes(b"x")
    files[3] = str(tmp_path / "broken.png")

    def make() -> Loader:
        return train(
            None, on_error="skip", files=files, labels=labels, config=None, batch_size=np.int32(2), size=(16, 16),
            seed=np.int64(5), shuffle=np.bool_(True), last_batch=np.str_("partial"), shard_id=np.int8(0),
            num_shards=np.uint8(1), views=np.int64(1), mean=None, std=None,
        )  # fmt: skip

    loader, restored = make(), make()
    list(loader)
    assert set(loader.replaced) == {3}
    restored.load_state_dict(keep(loader.state_dict(), tmp_path / "state.pt"))
    assert restored.replaced == loader.replaced
    assert_same(list(restored), list(loader))


def test_a_state_with_the_checkpoint_of_a_source(folder: Path) -> None:
    def make() -> Loader:
        source = Source(reader(folder, True), num_images=np.int64(COUNT))
        return train(source, config=None, batch_size=2, size=(16, 16), mean=None, std=None)

    loader, restored = make(), make()
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    restored.load_state_dict(state)
    assert_same(list(restored), list(loader))
    for text, message in (("AAAA", "of this DALI and source"), ("no base64!", "base64"), (None, "that of a pipeline of a source, got none")):  # fmt: skip
        with pytest.raises(ValueError, match=f"state: checkpoint: expected .*{message}"):
            restored.load_state_dict({**state, "checkpoint": text})


@pytest.mark.parametrize(("change", "message"), [
    ({"batches": "3"}, r"state: not a state_dict\(\) of a Loader \(batches: expected an int, got str"),
    ({"batches": -1}, "state: batches: expected 0 to"),
    ({"settings": []}, "settings: expected a mapping, got list"),
    ({"settings": {}}, "settings.views: expected an int, got none"),
    ({"replaced": [[0, COUNT]]}, rf"state: replaced: expected indices of {COUNT} files, .* got \[0, {COUNT}\]"),
    ({"replaced": [[COUNT, 0]]}, rf"state: replaced: expected indices of {COUNT} files, .* got \[{COUNT}, 0\]"),
    ({"replaced": [[0, 1], [1, 2]]}, r"each with that of a file that is not broken, got \[0, 1\]"),
    ({"replaced": [["a", 1]]}, r"replaced\[0\]\[0\]: expected an int, got str"),
    ({"replaced": {"a": 1}}, "state: replaced: expected pairs of file indices"),
    ({"checkpoint": "AAAA"}, "state: checkpoint: expected that of a pipeline of a data set, without one, got one"),
])  # fmt: skip
def test_a_state_that_is_damaged_changes_nothing(change: dict, message: str, folder: Path) -> None:
    loader = train(folder)
    before, pipeline = loader.state_dict(), loader.pipeline
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict({**before, **change})
    assert loader.state_dict() == before
    assert loader.pipeline is pipeline


@pytest.mark.parametrize(("other", "message"), [
    ({"config": "imagenet"}, "prime.spatial_cut_max 100, got 500; prime.color_variance_max 0.01, got 0.05; "
                             "prime.color_cut_max 10, got 500; prime.color_band None, got 20"),
    ({"config": None}, "prime a PrimeConfig, got None"),
    ({"config": PrimeConfig(alpha=0.5), "size": (16, 16), "flip": 0}, "prime.alpha 1.0, got 0.5; .*"
     r"crop.size \[16, 24\], got \[16, 16\]; crop.flip 0.5, got 0.0$"),
    ({"mean": None, "std": None, "dtype": types.UINT8, "layout": "HWC", "views": 3}, r"views 1, got 3; "
     r"output.mean \[0.485, .*\], got None; output.std .*; output.dtype 'FLOAT', got 'UINT8'; output.layout 'CHW', got "),
    ({"layout": "HWC"}, "output.layout 'CHW', got 'HWC'$"),
    ({"batch_size": 3}, "batch_size 4, got 3$"),
])  # fmt: skip
def test_a_state_of_other_arguments_names_all_of_them(other: dict, message: str, folder: Path) -> None:
    loader, state = train(folder), train(folder, **other).state_dict()
    with pytest.raises(ValueError, match=f"^state: expected one with {message}"):
        loader.load_state_dict(state)
    order = "batch_size" in other or "views" in other
    with pytest.raises(ValueError, match=r"views 1|batch_size 4") if order else nullcontext():
        loader.load_state_dict(state, strict=False)


def test_a_state_of_another_data_set_or_pipeline(folder: Path) -> None:
    files, labels, _ = image_folder(folder)
    with pytest.raises(ValueError, match=rf"^state: expected one with number of images {COUNT}, got 8$"):
        train(folder).load_state_dict(train(None, files=files[:8], labels=labels[:8]).state_dict())
    with pytest.raises(ValueError, match=r"shuffle False, got True; .*crop\.resize 256, got None"):
        validate(folder).load_state_dict(train(folder).state_dict())


def test_a_state_of_an_earlier_version(folder: Path) -> None:
    """It has neither PRIME, crop and output nor, of a source, the batch size; or no fields of PRIME that came later."""
    loader, source = train(folder), Source(reader(folder, True), num_images=COUNT)
    next(iter(loader))
    state = loader.state_dict()
    old = {k: v for k, v in state["settings"].items() if k not in ("prime", "crop", "output")}
    restored = train(folder, mode="cupy")
    restored.load_state_dict({**state, "settings": old})
    assert_same(list(restored), list(loader))
    prime = {k: v for k, v in state["settings"]["prime"].items() if k not in ("draws", "wave_strength")}
    restored.load_state_dict({**state, "settings": {**state["settings"], "prime": prime}})
    of_source = train(source)
    old = {k: v for k, v in of_source.state_dict()["settings"].items() if k in ("views", "batches an epoch")}
    of_source.load_state_dict({**of_source.state_dict(), "settings": old})
    with pytest.raises(ValueError, match=r"^state: expected one with batches an epoch 2, got 5$"):
        of_source.load_state_dict({**of_source.state_dict(), "settings": {**old, "batches an epoch": 5}})


def test_an_epoch_left_early_goes_on(folder: Path) -> None:
    loader = train(folder, last_batch="partial", batch_size=3)
    seen = next(iter(loader)).indices.tolist()
    for batch in loader:
        seen += batch.indices.tolist()
    assert sorted(seen) == list(range(COUNT))
    assert loader.epoch == 1


def test_checkpoints_of_the_pipeline_itself(folder: Path, device: str) -> None:
    """Without a Loader, DALI's own checkpoint does."""
    pipeline = train(folder, device).pipeline
    for _ in range(3):
        pipeline.run()
    restored = pipeline.restarted(checkpoint=pipeline.checkpoint())
    for _ in range(3):
        for one, other in zip(pipeline.run(), restored.run(), strict=True):
            np.testing.assert_array_equal(one.as_cpu().as_array(), other.as_cpu().as_array())
