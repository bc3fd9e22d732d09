"""Images per second of a DataLoader whose workers read photographs, crop, augment and normalize them on CPU cores.

::

    python benchmarks/throughput.py --loader FOLDER --workers 16
    python benchmarks/throughput.py --loader FOLDER --workers 16 --decoded --json loader.json

Every candidate reads the same files with as many workers, one thread each, and gives normalized float32 batches. In
each round all candidates take turns, each with new workers, whose first batches are not counted, and then with as many
batches from each worker; rates are medians over the rounds. ``--decoded`` keeps decoded images in memory, so that
decoding JPEGs costs nothing. Exit status: 0; 1 if a candidate failed (a line says how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import PIL.Image
import torch
from common import (
    MEAN,
    STD,
    add_crops,
    add_shared,
    circumstances,
    number,
    parsed,
    print_head,
    rates_table,
    show_rates,
    take_turns,
)
from torch.utils.data import DataLoader, Dataset, RandomSampler, default_collate
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

import prime_dali
import prime_dali.v2
from prime_dali import _devices
from prime_dali._wording import plural
from prime_dali.data.folders import image_folder

Image = Any  # uint8 [3, H, W], or a PIL image
AHEAD = 2  # batches that a worker makes ahead
NOTES = {
    "prime": "prime_dali.v2.PRIME on each uint8 tensor, in the worker",
    "prime-batch": "prime_dali.PRIME on each batch, in the worker: it normalizes as well",
    "plain": "without an augmentation; the others do the same besides: read, random resized crop, normalize",
    "augmix": "torchvision v2.AugMix on each uint8 tensor",
    "augmix-pil": "the same on PIL images, read by PIL",
    "trivial": "torchvision v2.TrivialAugmentWide on each uint8 tensor",
    "trivial-pil": "the same on PIL images, read by PIL",
}


def read_tensor(path: str) -> torch.Tensor:
    """uint8 ``[3, H, W]``."""
    return decode_image(path, ImageReadMode.RGB)


def read_pil(path: str) -> PIL.Image.Image:
    """In RGB, decoded."""
    return PIL.Image.open(path).convert("RGB")


class Photographs(Dataset[torch.Tensor]):
    """Cropped and augmented images of files, or of what they decode to if that is kept."""

    def __init__(self, images: Sequence[Any], read: Callable[[Any], Image], transform: Callable[[Image], Any]) -> None:
        self.images, self.read, self.transform = images, read, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.read(self.images[index]))


@dataclass(frozen=True)
class Candidate:
    """How a loader reads an image, what it does with it, and with a batch of those."""

    read: Callable[[str], Image]
    transform: Callable[[Image], Any]
    collate: Callable[[list[Any]], torch.Tensor] = default_collate


def augmented_batch(module: prime_dali.PRIME, images: list[torch.Tensor]) -> torch.Tensor:
    """The batch of a list of images, augmented in one call, which draws from the worker's generator."""
    index = torch.randint(2**40, (len(images),))
    return module(torch.stack(images), index, 0)


def candidates(size: int) -> dict[str, Candidate]:
    """By name."""
    crop = v2.RandomResizedCrop(size, antialias=True)
    normalize = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def loader(augment: Callable[[Image], Image], read: Callable[[str], Image] = read_tensor) -> Candidate:
        return Candidate(read, v2.Compose([crop, augment, normalize]))

    batch = prime_dali.PRIME("imagenet", mean=MEAN, std=STD, out_dtype=torch.float32)
    return {
        "prime": loader(prime_dali.v2.PRIME("imagenet")),
        "prime-batch": Candidate(read_tensor, crop, partial(augmented_batch, batch)),
        "plain": loader(v2.Identity()),
        "augmix": loader(v2.AugMix()),
        "augmix-pil": loader(v2.AugMix(), read_pil),
        "trivial": loader(v2.TrivialAugmentWide()),
        "trivial-pil": loader(v2.TrivialAugmentWide(), read_pil),
    }


def kept(image: Image) -> Image:
    """An image that was read already."""
    return image


Kept = dict[Callable[[str], Image], list[Image]]
"""Decoded images, by how they are read; candidates that read alike share them."""


def decoded(files: Sequence[str], workers: int) -> Kept:
    """The images of these files."""
    with ThreadPoolExecutor(workers) as pool:
        return {read: list(pool.map(read, files)) for read in (read_tensor, read_pil)}


def start(candidate: Candidate, files: Sequence[str], images: Kept, options: argparse.Namespace) -> Callable[[], float]:
    """What measures a round of a candidate."""
    read = kept if images else candidate.read
    photographs = Photographs(images.get(candidate.read, files), read, candidate.transform)
    loader = DataLoader(
        photographs, options.batch, sampler=RandomSampler(photographs, replacement=True, num_samples=2**40),
        num_workers=options.workers, prefetch_factor=AHEAD, collate_fn=candidate.collate,
    )  # fmt: skip
    return partial(round_of, loader, options)


def round_of(loader: DataLoader[torch.Tensor], options: argparse.Namespace) -> float:
    """Images per second over ``--seconds`` at least, all workers at work before and after.

    The workers begin together, so their batches come in waves, of which whole ones are counted."""
    batches = iter(loader)
    count, begin, passed = 0, 0.0, 0.0
    while passed < options.seconds:
        for _ in range(options.workers):
            next(batches)
        if begin:
            count, passed = count + options.workers, time.perf_counter() - begin
        else:  # the first wave also starts the workers
            begin = time.perf_counter()
    return count * options.batch / passed  # the workers end with the iterator


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], prog="throughput.py --loader FOLDER")
    add = p.add_argument
    add("--loader", type=Path, required=True, metavar="FOLDER", help="class folders of photographs")
    workers = "processes, one thread each (default: one for each logical CPU)"
    add("--workers", type=number(int, 1, 1024), default=_devices.cores(), metavar="N", help=workers)
    add_crops(p, batch=32, seconds=5.0)
    add("--decoded", action="store_true", help="keep the decoded images of --files files in memory")
    files = "how many of the files are read, at most (default: %(default)s)"
    add("--files", type=number(int, 1, 10**9), default=2000, metavar="N", help=files)
    add("--repeats", type=number(int, 1, 1000), default=5, metavar="R", help="rounds (default: %(default)s)")
    add_shared(p, ())
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure, print and write."""
    p = parser()
    options = parsed(p, argv)
    if options.device != "cpu":
        p.error(f"argument --device: expected cpu with --loader, got {options.device}")
    try:
        files, _, _ = image_folder(options.loader)
    except (OSError, ValueError) as error:
        p.error(f"argument --loader: {error}")
    files = files[:: max(1, len(files) // options.files)][: options.files]  # from all classes
    facts = circumstances(options, "imagenet")
    print_head(facts, NOTES, NOTES)
    images = decoded(files, options.workers) if options.decoded else {}
    starts = {name: partial(start, one, files, images, options) for name, one in candidates(options.size).items()}
    results = take_turns(starts, options.repeats)
    how = f"{len(files)} files, decoded{' in advance' if options.decoded else ''}"
    head = f"{options.size} x {options.size}, batch {options.batch}, {plural(options.workers, 'worker')}, {how}"
    return show_rates(results, rates_table(results, head), facts, options)
