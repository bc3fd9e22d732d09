"""Photographs that the tests of ``prime-dali gallery`` share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ODD_NAME = '<b>"it\'s" & more.png'
NAMES = [ODD_NAME, "gray.jpg", "Cats/a.png"]  # folder after folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "Cats").mkdir(parents=True)
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(folder / "Cats" / "a.png")
    Image.fromarray(rng.integers(0, 256, (70, 50), np.uint8)).save(folder / "gray.jpg")
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(folder / ODD_NAME)
    (folder / "notes.txt").write_text("not a photo")
    return folder
