"""Arguments of pipelines and of the loader: each wrong one is named, with what was expected and what came."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

import pipelining
from nvidia.dali import types
from pipelining import COUNT, made, reader, train

from prime_dali import _findings
from prime_dali.dali import (
    Augmentation,
    CenterCrop,
    Execution,
    Loader,
    Reader,
    Source,
    native,
    train_pipeline,
    val_pipeline,
)

folder = pipelining.folder  # fixtures


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("function", [train_pipeline, val_pipeline])
def test_gpu_that_is_not_there(function: Callable, folder: Path) -> None:
    with pytest.raises(RuntimeError, match="device: expected a usable GPU, got: "):
        function(folder, batch_size=4, execution=Execution("gpu"))


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"data": None}, ValueError, "folder: expected either folder or files, got neither"),
    ({"files": ["a.jpg"], "labels": [0]}, ValueError, "folder: expected either folder or files, got both"),
    ({"data": "/nowhere"}, FileNotFoundError, "/nowhere: expected a folder, a shard or a pattern of shards, found none"),
    ({"labels": [0]}, ValueError, "labels: expected None with folder"),
    ({"data": None, "files": ["a.jpg", "b.jpg"]}, ValueError, "labels: expected one int per file, got None"),
    ({"data": None, "files": ["a.jpg", "b.jpg"], "labels": [0]}, ValueError, "labels: expected one per file, 2, got 1"),
    ({"data": None, "files": ["a.jpg"], "labels": [0.5]}, TypeError, "labels: expected ints, got float64"),
    ({"data": None, "files": [], "labels": []}, ValueError, "files: expected at least one path, got none"),
    ({"data": None, "files": "a.jpg", "labels": [0]}, TypeError, "files: expected a list of paths, got str"),
    ({"data": None, "files": {"a.jpg"}, "labels": [0]}, TypeError, "files: expected a list of paths, got set"),
    ({"data": None, "files": {"a": 0}.keys(), "labels": [0, 1]}, ValueError, "labels: expected one per file, 1, got 2"),
    ({"data": None, "files": ["a.jpg"], "labels": {0: 0}}, TypeError, "labels: expected a list of ints, got dict"),
    ({"data": None, "files": iter("a"), "labels": [0]}, TypeError, "files: expected a list of paths, got str_.*iterator"),
    ({"data": None, "files": ["a", b"b"], "labels": [0, 1]}, TypeError, "files: expected paths, got bytes at place 1"),
    ({"data": None, "files": ["a"], "labels": np.array([2**63], np.uint64)}, ValueError, "labels: expected ints that fit"),
    ({"shuffle": "no"}, TypeError, r"shuffle: expected True or False, got str \('no'\)"),
    ({"shard_id": 2, "num_shards": 2}, ValueError, "shard_id: expected 0 to 1, got 2"),
    ({"shard_id": 1}, ValueError, "num_shards: expected shard_id and num_shards together"),
    ({"shard_id": 0, "num_shards": 0}, ValueError, "num_shards: expected 1 to 2147483647, got 0"),
    ({"shard_id": 0, "num_shards": 12}, ValueError, "num_shards: expected at most the number of images, 11, got 12"),
    ({"batch_size": 12}, ValueError, "batch_size: expected at most the 11 images of a shard with last_batch='drop', got 12"),
    ({"batch_size": 6, "shard_id": 0, "num_shards": 2}, ValueError, "batch_size: expected at most the 5 images"),
    ({"batch_size": 0}, ValueError, "batch_size: expected 1 to"),
    ({"layout": "NCHW"}, ValueError, "layout: expected one of 'CHW', 'HWC', got 'NCHW'; did you mean 'CHW'"),
    ({"dtype": types.INT32}, TypeError, "dtype: expected types.UINT8, FLOAT16 or FLOAT"),
    ({"dtype": "int32"}, TypeError, "dtype: expected types.UINT8, FLOAT16 or FLOAT, got 'int32'"),
    ({"dtype": types.UINT8}, ValueError, "dtype: expected FLOAT or FLOAT16 with mean and std, got UINT8"),
    ({"mean": None}, ValueError, "mean: expected three numbers because std is given"),
    ({"size": "224"}, TypeError, r"size: expected \(height, width\) or an int, got .224."),
    ({"last_batch": "dorp"}, ValueError, "last_batch: expected one of .*, got 'dorp'; did you mean 'drop'"),
    ({"device": "cuda"}, ValueError, "device: expected one of 'auto', 'cpu', 'gpu', got 'cuda'"),
    ({"num_threads": 0}, ValueError, "num_threads: expected 1 to"),
    ({"prefetch_queue_depth": 0}, ValueError, "prefetch_queue_depth: expected 1 to"),
    ({"device_id": 1}, ValueError, "device_id: expected None with device='cpu', got 1"),
])  # fmt: skip
@pytest.mark.parametrize("function", [train_pipeline, val_pipeline])
def test_bad_arguments(function: Callable, arguments: dict, exception: type, message: str, folder: Path) -> None:
    with pytest.raises(exception, match=message):
        made(function, **({"data": folder, "batch_size": 4, "device": "cpu", "last_batch": "drop"} | arguments))


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"data": 3}, TypeError, "data: expected a folder, a Reader or a Source, got int"),
    ({"data": Source(lambda: 1, num_images=4)}, TypeError, "source: expected three outputs, DataNodes of .*, got int$"),
    ({"data": Source(lambda: (1, 2), num_images=4)}, TypeError, "source: expected three outputs, .*, got int, int$"),
    ({"data": Source(len, num_images=3)}, ValueError, "batch_size: expected at most num_images, 3, got 4"),
    ({"crop": 224}, TypeError, r"crop: expected (Random|Center)Crop\(\.\.\.\), got int \(224\)"),
    ({"output": None}, TypeError, r"output: expected Output\(\.\.\.\), got NoneType"),
    ({"execution": "cpu"}, TypeError, r"execution: expected Execution\(\.\.\.\), got str \('cpu'\)"),
])  # fmt: skip
@pytest.mark.parametrize("function", [train_pipeline, val_pipeline])
def test_bad_groups(function: Callable, arguments: dict, exception: type, message: str, folder: Path) -> None:
    with pytest.raises(exception, match=message):
        function(**({"data": folder, "batch_size": 4, "execution": Execution("cpu")} | arguments))


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"function": 3}, TypeError, "function: expected a function without arguments, got int"),
    ({"num_images": 0}, ValueError, "num_images: expected 1 to"),
    ({"decoded": "no"}, TypeError, r"decoded: expected True or False, got str \('no'\)"),
    ({"last_batch": "partial"}, ValueError, "last_batch: expected 'drop' or 'fill' with a Source"),
])  # fmt: skip
def test_bad_sources(arguments: dict, exception: type, message: str) -> None:
    with pytest.raises(exception, match=message):
        Source(**({"function": len, "num_images": 9} | arguments))


OLD = {
    "folder": "the first argument", "files": "data=Reader(files=...)", "labels": "data=Reader(labels=...)",
    "source": "data=Source(function, num_images=...)", "num_images": "data=Source(num_images=...)",
    "decoded": "data=Source(decoded=...)", "size": "crop={}(size=...)", "mean": "output=Output(mean=...)",
    "std": "output=Output(std=...)", "out_dtype": "output=Output(dtype=...)",
    "out_layout": "output=Output(layout=...)", "last_batch": "data=Reader(last_batch=...)",
    "shard_id": "data=Reader(shard_id=...)", "num_shards": "data=Reader(num_shards=...)",
    "device": "execution=Execution(device=...)", "device_id": "execution=Execution(device_id=...)",
    "num_threads": "execution=Execution(num_threads=...)",
    "prefetch_queue_depth": "execution=Execution(prefetch_queue_depth=...)",
}  # fmt: skip
OLD_OF_TRAINING = {
    "config": "prime=...", "views": "prime=Augmentation(views=...)", "mode": "prime=Augmentation(mode=...)",
    "area": "crop=RandomCrop(area=...)", "ratio": "crop=RandomCrop(ratio=...)", "flip": "crop=RandomCrop(flip=...)",
    "shuffle": "data=Reader(shuffle=...)", "alpha": "prime=preset(NAME).replace(alpha=...)",
}  # fmt: skip


def test_keywords_that_are_in_groups_now(folder: Path) -> None:
    """Each keyword of earlier versions says where it is now."""
    for function, crop, more in (
        (train_pipeline, "RandomCrop", OLD_OF_TRAINING),
        (val_pipeline, "CenterCrop", {"resize": "crop=CenterCrop(resize=...)"}),
    ):
        for name, place in (OLD | more).items():
            with pytest.raises(TypeError, match=re.escape(f"{name}: expected as {place.format(crop)}, got a keyword")):
                function(folder, batch_size=4, **{name: None})
    with pytest.raises(
        TypeError, match=re.escape("alpha: expected as preset(NAME).replace(alpha=...), got a keyword of")
    ):
        Augmentation("cifar", alpha=2)


def test_validation_keeps_the_order_of_the_list(folder: Path) -> None:
    with pytest.raises(ValueError, match="shuffle: expected False or None in validation"):
        val_pipeline(Reader(folder, shuffle=True), batch_size=4)


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"config": "imagnet"}, ValueError, "did you mean 'imagenet'"),
    ({"views": 4}, ValueError, "views: expected 1, 2"),
    ({"views": 3, "config": None}, ValueError, r"views: expected 1 without PRIME \(config=None\), got 3"),
    ({"area": (0, 1)}, ValueError, "area: expected 0 < minimum <= maximum <= 1, got"),
    ({"area": (0.5, 1.5)}, ValueError, "area: expected 0 < minimum <= maximum <= 1, got"),
    ({"area": 0.5}, TypeError, r"area: expected \(minimum, maximum\), got 0.5"),
    ({"ratio": (2, 1)}, ValueError, "ratio: expected 0 < minimum <= maximum, got"),
    ({"flip": 1.5}, ValueError, "flip: expected a probability, 0 to 1, got 1.5"),
    ({"seed": 0.5}, TypeError, "seed: expected an int"),
    ({"mode": "nativ"}, ValueError, "mode: expected one of .*; did you mean 'native'"),
])  # fmt: skip
def test_bad_arguments_of_training(folder: Path, arguments: dict, exception: type, message: str) -> None:
    with pytest.raises(exception, match=message):
        made(train_pipeline, folder, **({"batch_size": 4, "device": "cpu"} | arguments))


def test_the_gpu_needs_a_door_for_prime_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator, or in place of it CuPy, which takes a second to import and is left alone otherwise."""
    built = _findings.Finding("native DALI operator", True, "built")
    absent = _findings.Finding("CuPy", False, "not installed", "get CuPy")
    monkeypatch.setattr(_findings, "_gpu", lambda: _findings.Finding("GPU", True, "GPU"))
    monkeypatch.setattr(_findings, "_cuda_build", lambda: _findings.Finding("CUDA back end", True, "built"))
    monkeypatch.setattr(_findings, "_cupy", lambda: pytest.fail("imported"))
    assert _findings.dali_device("auto", lambda dali: absent, prime=False) == ("gpu", "GPU")
    assert _findings.dali_device("auto", lambda dali: built) == ("gpu", "GPU")
    monkeypatch.setattr(_findings, "_cupy", lambda: absent)
    assert _findings.dali_device("auto", lambda dali: absent) == ("cpu", "CuPy: not installed")
    monkeypatch.setattr(_findings, "_dali", lambda: _findings.Finding("DALI", False, "not installed", "get DALI"))
    with pytest.raises(RuntimeError, match=r"device: expected a usable GPU, got: DALI: not installed\. get DALI"):
        _findings.dali_device("gpu", native.finding, prime=False)


def test_bad_size_to_resize_to() -> None:
    with pytest.raises(ValueError, match="resize: expected 224 to 4096, got 200"):
        CenterCrop(resize=200)
    with pytest.raises(ValueError, match="resize: expected 300 to 4096, got 256"):
        CenterCrop((16, 300))


def test_processes_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)), raising=False)
    for processes, threads in (("1", 12), ("4", 3), ("16", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert Execution("cpu").threads() == threads
        assert Execution("cpu", num_threads=5).threads() == 5


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folder: expected one subfolder per class in .*, got none"):
        train_pipeline(tmp_path, batch_size=4)
    (tmp_path / "loose.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"folder: expected one subfolder per class in .*, got none"):
        train_pipeline(tmp_path, batch_size=4)
    (tmp_path / "cats").mkdir()
    with pytest.raises(ValueError, match=r"folder: expected images \(.*\) of each class, got none in .*cats"):
        train_pipeline(tmp_path, batch_size=4)


def test_bad_arguments_of_the_loader(folder: Path) -> None:
    loader = train(folder)
    with pytest.raises(TypeError, match="pipeline: expected one of train_pipeline or val_pipeline, got str"):
        Loader("train")
    with pytest.raises(ValueError, match="on_error: expected one of 'raise', 'skip', got 'skipp'; did you mean 'skip'"):
        Loader(loader.pipeline, on_error="skipp")
    run = train_pipeline(folder, batch_size=4, execution=Execution("cpu"))
    run.run()
    scheduled = train_pipeline(folder, batch_size=4, execution=Execution("cpu"))
    scheduled.schedule_run()  # as DALI's iterators do
    loaded = train(folder)
    loaded.load_state_dict(loaded.state_dict())
    for pipeline in (loader.pipeline, loaded.pipeline, run, scheduled):
        with pytest.raises(ValueError, match="pipeline: expected one for each Loader, and not run before"):
            Loader(pipeline)
    with pytest.raises(ValueError, match="on_error: expected 'raise' with a Source"):
        train(Source(reader(folder, True), num_images=COUNT), on_error="skip")
    with pytest.raises(TypeError, match="state: expected a state_dict"):
        loader.load_state_dict({"model": 1})
    for name, other in (("seed", {"seed": 6}), ("batch_size", {"batch_size": 3}), ("views", {"views": 3}),
                        ("num_shards", {"shard_id": 0, "num_shards": 2})):  # fmt: skip
        with pytest.raises(ValueError, match=f"state: expected one with {name} "):
            loader.load_state_dict(train(folder, **other).state_dict())


def test_shards_of_torch_distributed(folder: Path, tmp_path: Path) -> None:
    assert Reader(folder).shard() == (0, 1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        torch.distributed.get_rank, get_rank = (lambda: 2), torch.distributed.get_rank
        torch.distributed.get_world_size, get_world_size = (lambda: 3), torch.distributed.get_world_size
        assert Reader(folder).shard() == (2, 3)
        assert train(folder, batch_size=3).pipeline.data.sampling.shard_id == 2
    finally:
        torch.distributed.get_rank, torch.distributed.get_world_size = get_rank, get_world_size
        torch.distributed.destroy_process_group()
