"""Read benchmarks of perturbation sequences: ImageNet-P and CIFAR-P (docs/EVALUATION.md, "Perturbation sequences")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from .._files import shown
from .._states import read_array
from ..data import cifar
from ..data.pictures import PhotoError
from . import layouts
from .benchmarks import SIDE, Reading
from .classes import absent_classes, class_positions
from .image_sets import readable
from .layouts import Layout
from .names import PERTURBATIONS

ALEXNET_FLIP_RATES = dict(zip(PERTURBATIONS, (
    0.2365, 0.3006, 0.0930, 0.0594, 0.1193, 0.0489, 0.1101, 0.1310, 0.0705, 0.2353,
), strict=True))  # fmt: skip
"""AlexNet's flip rates on ImageNet-P, which the mean flip rate is normalized by: reported, not measured.

Source: Hendrycks and Dietterich, appendix E of the draft in their repository (github.com/hendrycks/robustness, commit
de7653a, new_draft.pdf).
"""

ALEXNET_TOP5_DISTANCES = dict(zip(PERTURBATIONS, (
    4.77, 5.76, 1.93, 1.34, 2.42, 1.19, 2.63, 2.95, 1.75, 4.48,
), strict=True))  # fmt: skip
"""AlexNet's top-5 distances on ImageNet-P, which the mean top-5 distance is normalized by: reported, not measured.

Source: the same appendix, which calls them uT5D (unstandardized).
"""


class Sequences(Protocol):
    """The sequences of a perturbation, all of the same length."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sequences, and frames of each."""
        ...

    def batches(self, size: int, device: torch.device) -> Iterator[torch.Tensor]:
        """uint8 ``[n, frames, 3, H, W]``, RGB, on ``device``; at most ``size`` images if one sequence has no more."""
        ...


@dataclass(frozen=True)
class Perturbed(Layout):
    """A benchmark of perturbation sequences; it may lack classes too."""

    read: Callable[[str], Sequences]
    """The sequences of a perturbation."""
    reference: Mapping[str, float] | None = None
    """Flip rates that the mean is normalized by; None: it is not."""
    reference_distances: Mapping[str, float] | None = None
    """Top-5 distances that the mean is normalized by; None: there is no mT5D."""

    def parts(self) -> list[str]:
        """The perturbations that are present, in the order of the tables."""
        return [name for name in (*self.counted, *self.extra) if name in self.severities]


@dataclass(frozen=True)
class _Arrays:
    """Sequences in an array, usually a mapped file."""

    images: NDArray[np.uint8]
    """``[N, frames, H, W, 3]``."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.images.shape[0], self.images.shape[1]

    def batches(self, size: int, device: torch.device) -> Iterator[torch.Tensor]:
        step = max(size // self.shape[1], 1)
        for start in range(0, len(self.images), step):
            yield torch.from_numpy(np.array(self.images[start : start + step])).to(device).permute(0, 1, 4, 2, 3)


@dataclass(frozen=True)
class _Videos(Dataset[tuple[torch.Tensor, str]]):
    """Sequences in video files; an item is the frames ``[frames, 3, H, W]``, and an error message."""

    files: Sequence[str]
    frames: int
    """Of the first file, and so of all."""
    workers: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.files), self.frames

    def batches(self, size: int, device: torch.device) -> Iterator[torch.Tensor]:
        count, item_bytes = max(size // self.frames, 1), self.frames * 3 * SIDE**2
        for (videos,) in readable(self, item_bytes, count, self.workers, device, "video"):
            yield videos

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, str]:
        file = self.files[number]
        try:
            frames = read_video(file)
            if frames.shape != (self.frames, SIDE, SIDE, 3):
                raise PhotoError(
                    f"{shown(file)}: expected {self.frames} frames, as in {shown(self.files[0])}, of {SIDE} x {SIDE} "
                    f"pixels, got {frames.shape[0]} of {frames.shape[2]} x {frames.shape[1]}"
                )
            return torch.from_numpy(frames).permute(0, 3, 1, 2), ""
        except PhotoError as error:
            return torch.zeros(self.frames, 3, SIDE, SIDE, dtype=torch.uint8), str(error)


def read_video(file: str) -> NDArray[np.uint8]:
    """Decode all frames of a video with OpenCV: ``[frames, H, W, 3]``, RGB.

    Raises:
        PhotoError: It cannot be read, or it has no frames.
        ImportError: OpenCV is not installed.
    """
    import cv2

    capture, frames = cv2.VideoCapture(file), []
    try:
        while True:
            there, frame = capture.read()
            if not there:
                break
            frames.append(frame[..., ::-1])
    finally:
        capture.release()
    if not frames:
        raise PhotoError(f"{shown(file)}: not a readable video")
    return np.stack(frames)


def cifar_perturbed(folder: str | Path) -> Perturbed:
    """Open CIFAR-10-P or CIFAR-100-P; sequences stay in their files until they are used.

    Args:
        folder: Holds ``<perturbation>.npy``, uint8 ``[N, frames, 32, 32, 3]``; published: N = 10,000, 31 frames or
            fewer. There are no labels: the score does not need any.

    Raises:
        FileNotFoundError: There is no folder, or no perturbation.
        ValueError: An unknown perturbation, fewer than two frames, or other wrong shapes; the message names the file.
    """
    folder = Path(folder)
    layout = layouts.read("cifar-p", folder)
    names = sorted(layout.severities)
    images = {name: read_array(folder / f"{name}.npy", mapped=True) for name in names}
    count = len(images[names[0]]) if images[names[0]].ndim else 0
    for name, array in images.items():
        frames = array.shape[1] if array.ndim > 1 else 0
        wanted = (count, frames, cifar.SIDE, cifar.SIDE, 3)
        if array.dtype != np.uint8 or array.shape != wanted or not count or frames < 2:
            raise ValueError(
                f"{folder / name}.npy: expected uint8 [{count or 'N'}, frames, {cifar.SIDE}, {cifar.SIDE}, 3], "
                f"two frames or more, got {array.dtype} {list(array.shape)}"
            )
    return Perturbed(**vars(layout), read=lambda name: _Arrays(images[name]))


def imagenet_perturbed(folder: str | Path, classes: Sequence[str], reading: Reading = Reading()) -> Perturbed:
    """Open ImageNet-P: ``<perturbation>/<wnid>/*.mp4``, frames of 224 x 224 pixels, not resized or cropped.

    Args:
        folder: The folder of the benchmark.
        classes, reading: As for :func:`.benchmarks.imagenet_pictures`. The folders are checked; the score needs no
            labels. Its decoding's ``workers`` decode the videos, with OpenCV.

    Raises:
        FileNotFoundError: There is no folder, no perturbation, or a class folder without videos.
        ValueError: An unknown perturbation or class folder. Reading the sequences: a video that is not readable, has
            fewer than two frames, or another number of frames than the first one.
    """
    folder = Path(folder)
    layout = layouts.read("imagenet-p", folder)
    files: dict[str, list[str]] = {}
    for name in layout.severities:
        there = class_positions(folder / name, classes, reading.subset)
        files[name] = [str(file) for wnid in there for file in _mp4(folder / name / wnid)]
        if absent := absent_classes(there, classes):
            layout = replace(layout, lacking=(*layout.lacking, f"{absent} in {folder / name}"))

    def read(perturbation: str) -> _Videos:
        first = files[perturbation][0]
        frames = len(read_video(first))
        if frames < 2:
            raise ValueError(f"{shown(first)}: expected two frames or more, got {frames}")
        return _Videos(files[perturbation], frames, reading.decoding.workers)

    return Perturbed(
        **vars(layout), read=read, reference=ALEXNET_FLIP_RATES, reference_distances=ALEXNET_TOP5_DISTANCES
    )


def _mp4(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.mp4"))
    if not found:
        raise FileNotFoundError(f"{shown(folder)}: expected videos (.mp4), found none")
    return found
