"""The command line that the examples share: a folder of images, and how to train on it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torchvision.datasets.folder import IMG_EXTENSIONS


def image_folder(text: str) -> str:
    """``text`` if it names a folder of folders with at least one image; argparse's error otherwise."""
    if not any(path.suffix.lower() in IMG_EXTENSIONS for path in Path(text).glob("*/**/*")):
        raise argparse.ArgumentTypeError(f"expected a folder with one folder of images for each class, got {text!r}")
    return text


def positive(text: str) -> int:
    """``text`` as a whole number from 1; argparse's error otherwise."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def parse(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options in ``argv``, or of the command line where it is None; exits with status 2 if one is wrong."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=image_folder, help="holds one folder of images for each class")
    parser.add_argument("--epochs", type=positive, default=90, help="passes over the folder (default: %(default)s)")
    parser.add_argument("--batch", type=positive, default=256, help="images per step (default: %(default)s)")
    parser.add_argument("--size", type=positive, default=224, help="side of the crops (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=8, help="processes that decode (default: %(default)s)")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="where to augment and train (here: %(default)s)")
    return parser.parse_args(argv)
