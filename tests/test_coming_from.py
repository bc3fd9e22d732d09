"""The lines to write of docs/coming_from.md are run; those that a reader has need their own libraries, and are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_images
from PIL import Image

pytest.importorskip("timm", reason="timm is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
from nvidia.dali import pipeline_def, types
from timm.data import ImageDataset

from prime_dali.integrations import timm as command
from prime_dali.integrations.timm import AugmentedLoader

PAGE = (Path(__file__).parent.parent / "docs" / "coming_from.md").read_text()
ROWS = re.findall(r"^\| (\w+) \| `(.+)`[^|]* \| `([^`]+)` \|$", PAGE, re.M)
SIZE = 32


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    """The imports of the page, and what its lines name."""
    folder = tmp_path / "photos"
    folder.mkdir()
    images = make_images(2, SIZE, SIZE, torch.uint8)
    for i, image in enumerate(images):
        (folder / "ab"[i]).mkdir()
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / "ab"[i] / "0.png")
    [imports] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict[str, Any] = {
        "images": images, "index": torch.arange(2), "epoch": 1, "image": images[0].permute(1, 2, 0).numpy(), "i": 0,
        "videos": images.expand(3, 2, 3, SIZE, SIZE), "device": torch.device("cpu"), "data": ImageDataset(folder),
    }  # fmt: skip
    exec(imports, names)
    return names


def augmented(library: str, line: str, given: dict[str, Any]) -> Any:
    """What a line makes of the images."""
    if library == "DALI":

        @pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def pipeline() -> Any:
            return eval(line, {**given, "jpegs": types.Constant(given["image"], device="cpu")})

        return pipeline().run()[0].as_array()
    made = eval(line, given)
    if isinstance(made, AugmentedLoader):
        return next(iter(made))[0]
    return made(given["images"]) if isinstance(made, torch.nn.Module) else made


def test_every_library_has_lines() -> None:
    assert {library for library, *_ in ROWS} == {"torchvision", "timm", "Kornia", "DALI", "Albumentations"}
    assert len(ROWS) == PAGE.count("\n| ") - 1  # and the header's


@pytest.mark.parametrize(("library", "line"), [(library, line) for library, _, line in ROWS])
def test_the_line_to_write(library: str, line: str, given: dict[str, Any]) -> None:
    if line.startswith("python -m "):
        module, *words = line.split()[2:]
        assert module == command.__name__
        options, unknown = command.parser().parse_known_args(words)
        assert not unknown
        assert (options.script.name, options.arguments[0]) == ("train.py", "DATA")
        return
    out = augmented(library, line, given)
    assert SIZE in out.shape[-3:]
    assert len(out) in (2, 3, 6, SIZE)
