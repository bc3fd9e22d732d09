"""Images per second of a training loop fed by prime_dali.dali.train_pipeline, with PRIME over without.

::

    python benchmarks/training_loop.py FOLDER --device cuda --batch 256 --threads 16 --json training_loop.json
    python benchmarks/training_loop.py FOLDER --device cpu --model resnet18 --batch 2 --size 64 --steps 1 --no-compile

"bare" has one batch, over and over; the others decode photographs. With CUDA_DEVICE_MAX_CONNECTIONS=32 in the
environment, work that DALI launches does not wait for the network, and with ``--graph`` the network not for the host.

A step takes a batch of the loader through the network, forward and backward in bfloat16 autocast and channels last, and
ends with SGD. Rates are medians over the rounds, each of ``--steps`` steps of every candidate in turn; all candidates
have the same network. Exit status: 0; 1 if a candidate failed (a line says how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchvision
from common import (
    SEED,
    add_shared,
    circumstances,
    number,
    parsed,
    print_head,
    show_rates,
    take_turns,
)
from torch.nn.functional import cross_entropy

try:
    import nvidia.dali
    from nvidia.dali import types

    from prime_dali.dali import Augmentation, Execution, Loader, Output, RandomCrop, train_pipeline
except ImportError as error:
    sys.exit(f"the training loop needs NVIDIA DALI: {error}")

CLASSES = 1000
SETTLE = 4  # steps of a round before the clock starts: some batches were made ahead while the others had their turns
MODES = ("native", "cupy", "dlpack")
NOTES = {
    "bare": "one batch, over and over",
    "without": "config=None: decode, crop, flip, normalize",
    **{mode: f"the same with PRIME, mode={mode!r}" for mode in MODES},
}


def batches(name: str, options: argparse.Namespace) -> Iterator[Any]:
    """Batches of a candidate without an end."""
    if name == "bare":
        yield from itertools.repeat(next(batches("without", options)))
    cuda = options.device == "cuda"
    loader = Loader(train_pipeline(
        options.folder, None if name == "without" else Augmentation("imagenet", mode=name),
        batch_size=options.batch, seed=SEED, crop=RandomCrop(options.size),
        output=Output(dtype=types.FLOAT16 if cuda else types.FLOAT, layout="HWC"),
        execution=Execution("gpu" if cuda else "cpu", num_threads=options.threads),
    ))  # fmt: skip
    while True:
        yield from loader


def candidates(options: argparse.Namespace) -> dict[str, Callable[[], Callable[[], float]]]:
    """By name, what starts a candidate; all have one network."""
    model = getattr(torchvision.models, options.model)(weights=None, num_classes=CLASSES)
    model = model.to(options.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(options.device, torch.bfloat16):
            return cross_entropy(model(images).float(), labels)

    mode = "reduce-overhead" if options.graph else None
    forward = torch.compile(loss, dynamic=False, mode=mode) if options.compile else loss

    def steps(source: Iterator[Any], count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            batch = next(source)
            forward(batch.images, batch.labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        if options.device == "cuda":
            torch.cuda.synchronize()
        return count * options.batch / (time.perf_counter() - start)

    def start(name: str) -> Callable[[], float]:
        source = batches(name, options)
        steps(source, options.warmup)

        def round_of() -> float:
            steps(source, SETTLE)
            return steps(source, options.steps)

        return round_of

    return {name: partial(start, name) for name in NOTES}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = p.add_argument
    add("folder", type=Path, help="class folders of photographs")
    add("--model", choices=("resnet18", "resnet50"), default="resnet50", help="of torchvision (default: %(default)s)")
    add("--size", type=number(int, 32, 4096), default=224, metavar="PIXELS", help="of the crops (default: %(default)s)")
    add("--batch", type=number(int, 2, 2**20), default=256, metavar="N", help="images per step (default: %(default)s)")
    add("--steps", type=number(int, 1, 10**6), default=40, metavar="S", help="a round (default: %(default)s)")
    add("--rounds", type=number(int, 1, 1000), default=5, metavar="R", help="of all candidates (default: %(default)s)")
    add("--warmup", type=number(int, 1, 10**6), default=10, metavar="S", help="steps before (default: %(default)s)")
    add("--graph", action="store_true", help="the compiled network as CUDA graphs")
    add("--compile", action=argparse.BooleanOptionalAction, default=True, help="the network (default: yes)")
    add_shared(p, ())
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure, print and write."""
    p = parser()
    options = parsed(p, argv)
    if not options.folder.is_dir():
        p.error(f"argument folder: expected a folder of class folders, got {options.folder}")
    facts = circumstances(options, "imagenet")
    facts["versions"] += f", DALI {nvidia.dali.__version__}"
    print_head(facts, NOTES, NOTES)
    head = f"{options.model}, {options.size} x {options.size}, batch {options.batch}"
    return show_rates(take_turns(candidates(options), options.rounds), head, facts, options)


if __name__ == "__main__":
    sys.exit(main())
