"""The README's code runs; what is for a GPU runs on the CPU where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_images
from PIL import Image

import prime_dali

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def block(word: str) -> str:
    [found] = [b for b in BLOCKS if word in b]
    return found


def test_torch_block() -> None:
    code = block("for images, labels, index in loader")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    model = model.cuda() if torch.cuda.is_available() else model
    batch = (make_images(4, 32, 32, torch.uint8), torch.arange(4), torch.arange(4))
    names = {"loader": [batch], "model": model, "criterion": torch.nn.CrossEntropyLoss(), "epoch": 1}
    exec(code if torch.cuda.is_available() else code.replace(".cuda()", ""), names)
    assert names["loss"].isfinite()


def test_without_dali_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    timm_loop = pytest.importorskip("timm_loop", reason="torchvision is not installed", exc_type=ImportError)
    images, labels = make_images(4, 32, 32, torch.uint8), torch.arange(4)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    names = {"torch": torch, "PRIME": prime_dali.PRIME, "jsd_loss": timm_loop.jsd_loss, "device": "cpu"}
    names |= {"model": model, "images": images, "labels": labels}
    torch._dynamo.reset()
    exec(block("jsd_loss").replace("fullgraph=True", 'fullgraph=True, backend="eager"'), names)
    assert names["loss"].isfinite()


def test_pipelines_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    for folder in ("train/a", "train/b", "val/a"):
        (tmp_path / folder).mkdir(parents=True)
        for i, image in enumerate(make_images(2, 60, 80, torch.uint8)):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / folder / f"{i}.jpg")
    monkeypatch.chdir(tmp_path)
    from prime_dali.dali import Execution

    names = {"torch": torch, "Execution": Execution}
    small = block("train_pipeline").replace("range(90)", "range(2)").replace("=256", "=2")
    for given in ("seed=1)", "batch_size=2)"):
        small = small.replace(given, f'{given[:-1]}, execution=Execution("cpu"))')
    exec(small, names)
    assert names["clean"].shape == names["first"].shape == (2, 3, 224, 224)
    assert names["train"].epoch == 2
    assert torch.load(tmp_path / "state.pt")["loader"] == names["train"].state_dict()
    assert len(names["val"]) == 1


def test_dali_block(tmp_path: Path) -> None:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    for name, image in zip("ab", make_images(2, 60, 80, torch.uint8), strict=True):
        (tmp_path / name).mkdir()
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / name / "photo.jpg")
    code = block("@pipeline_def").replace('file_root="train"', f'file_root="{tmp_path}"')
    # The block is for a GPU and for many files.
    names: dict = {}
    exec(code.replace("device_id=0", "device_id=None").replace('"mixed"', '"cpu"').replace("=256", "=2"), names)
    pipeline = names["training"]()
    pipeline.build()
    images, labels = pipeline.run()
    assert images.shape() == [(224, 224, 3)] * 2
    assert sorted(int(np.array(label)[0]) for label in labels) == [0, 1]


def test_numpy_block(capsys: pytest.CaptureFixture) -> None:
    names = {"images": make_images(4, 32, 32, torch.uint8).permute(0, 2, 3, 1).numpy()}
    exec(block("prime_dali.arrays.apply"), names)
    assert names["augmented"].shape == (4, 32, 32, 3)
    assert names["augmented"].dtype == np.float32
    assert "clean" in capsys.readouterr().out


def test_own_distributions_block() -> None:
    names = {"prime_dali": prime_dali, "torch": torch, "images": make_images(64, 224, 224, torch.uint8)}
    exec(block("prime_dali.preset"), names)
    assert names["config"].width == 4
    assert names["augmented"].shape == (64, 3, 224, 224)
