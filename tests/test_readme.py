"""The README's code for torch, NumPy and own distributions runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_images

import prime_dali

README = (Path(__file__).parent.parent / "README.md").read_text()
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
