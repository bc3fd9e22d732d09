"""Images per second of DALI pipelines that decode photographs, crop, augment and normalize: what PRIME costs in them.

::

    python benchmarks/throughput.py --pipeline FOLDER --device cuda --batch 256 --threads 16
    python benchmarks/throughput.py --pipeline FOLDER --device cuda --decoded --official DIR --json pipeline.json

Every candidate is a pipeline of its own over the same files; rates are medians over the rounds, in which all candidates
take turns, and count decoded images, also where three views come of each. ``--decoded`` keeps the decoded images in
DALI's cache, so that decoding bounds nothing. Exit status: 0; 1 if a candidate failed (a line says how); 2 for a bad
argument.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    MEAN,
    SEED,
    STD,
    add_crops,
    add_shared,
    circumstances,
    number,
    official_peer,
    parsed,
    print_head,
    rates_table,
    show_rates,
    take_turns,
)

import prime_dali

try:
    import nvidia.dali
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import auto_augment, trivial_augment

    import prime_dali.dali
except ImportError as error:
    sys.exit(f"--pipeline needs NVIDIA DALI: {error}")

PEERS = ("trivial", "auto", "official")
NOTES = {
    "plain": "decode, random crop to the size, normalize: float16 (cuda) or float32 (cpu), CHW; the others do this too",
    "copy": "plain, and one more fn.copy of the cropped images",
    "native": "prime_dali.dali.prime(mode='native'), which normalizes as well",
    "cupy": "mode='cupy': fn.python_function with CuPy, or with NumPy on the CPU",
    "dlpack": "mode='dlpack': fn.dl_tensor_python_function with torch",
    "torch": "mode='torch': fn.torch_python_function",
    "... x 3": "views=3: the clean image and two augmented ones of each decoded image",
    "trivial": "DALI's trivial_augment_wide",
    "auto": "DALI's auto_augment, policy image_net",
    "official": "the authors' code in fn.torch_python_function",
}
AHEAD = 2  # batches that a pipeline makes ahead, also after its turn
SETTLE = 6  # batches of a round before the clock starts, more than were made ahead
Augment = Callable[[Any], Any]  # of cropped uint8 HWC images


def candidates(options: argparse.Namespace, official: torch.nn.Module | None) -> dict[str, Augment]:
    """By name, what happens to the cropped images; normalized at the end."""
    cuda = options.device == "cuda"
    dtype = types.FLOAT16 if cuda else types.FLOAT

    def normalize(images: Any) -> Any:
        mean, std = ([255 * v for v in values] for values in (MEAN, STD))
        return fn.crop_mirror_normalize(images, mean=mean, std=std, dtype=dtype, output_layout="CHW")

    def prime(mode: str, views: int) -> Augment:
        return lambda images: prime_dali.dali.prime(
            images, "imagenet", seed=SEED, views=views, mean=MEAN, std=STD, out_dtype=dtype, out_layout="CHW", mode=mode
        )

    def authors(images: Any) -> Any:
        from nvidia.dali.plugin.pytorch.fn import torch_python_function

        assert official is not None

        def augment(batch: list[torch.Tensor]) -> list[torch.Tensor]:
            stacked = torch.stack(batch).permute(0, 3, 1, 2).float().div(255)
            return list(official(stacked).half())

        return torch_python_function(
            images, function=augment, batch_processing=True, device="gpu", output_layouts="CHW"
        )

    found: dict[str, Augment] = {"plain": normalize, "copy": lambda images: normalize(fn.copy(images))}
    for mode in ("native", "cupy", "dlpack", *(["torch"] if cuda else [])):
        found[mode] = prime(mode, 1)
        found[f"{mode} x 3"] = prime(mode, 3)
    if "trivial" in options.peers:
        found["trivial"] = lambda images: normalize(trivial_augment.trivial_augment_wide(images))
    if "auto" in options.peers:
        shape = [options.size, options.size]
        found["auto"] = lambda images: normalize(auto_augment.auto_augment_image_net(images, shape=shape))
    if official is not None:
        found["official"] = authors
    return found


def build(augment: Augment, options: argparse.Namespace) -> Any:
    """The pipeline of one candidate."""
    gpu = options.device == "cuda"

    @pipeline_def(
        batch_size=options.batch, num_threads=options.threads or 2, device_id=0 if gpu else None, seed=SEED,
        enable_conditionals=True, prefetch_queue_depth=AHEAD,
    )  # fmt: skip
    def definition() -> Any:
        encoded, _ = fn.readers.file(file_root=str(options.pipeline), random_shuffle=True, name="reader")
        device = "mixed" if gpu else "cpu"
        if options.decoded:
            cache = {"cache_size": options.cache, "cache_type": "largest"} if gpu else {}
            images = fn.resize(fn.decoders.image(encoded, device=device, **cache), size=[options.size, options.size])
        else:
            images = fn.decoders.image_random_crop(encoded, device=device, random_area=[0.08, 1.0])
            images = fn.resize(images, size=[options.size, options.size])
        out = augment(images)
        return tuple(out) if isinstance(out, (tuple, list)) else out

    pipeline = definition()
    pipeline.build()
    return pipeline


def round_of(pipeline: Any, options: argparse.Namespace) -> float:
    """Images per second over ``--seconds`` at least, waiting for the last batch; afterwards the machine is idle."""
    for _ in range(SETTLE):
        pipeline.run()
    batches, start = 0, time.perf_counter()
    while True:
        pipeline.run()
        batches += 1
        if time.perf_counter() - start >= options.seconds:
            break
    if options.device == "cuda":
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    time.sleep(2 * AHEAD * elapsed / batches)  # what is made ahead would slow down whoever has the next turn
    return batches * options.batch / elapsed


def start(augment: Augment, options: argparse.Namespace) -> Callable[[], float]:
    """Build and warm up a pipeline; what measures a round of it."""
    pipeline = build(augment, options)
    for _ in range(options.warmup):
        pipeline.run()
    return partial(round_of, pipeline, options)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], prog="throughput.py --pipeline FOLDER")
    add = p.add_argument
    add("--pipeline", type=Path, required=True, metavar="FOLDER", help="class folders of photographs")
    add_crops(p, batch=256, seconds=2.0)
    add("--decoded", action="store_true", help="take decoded images from DALI's cache (cuda)")
    add("--cache", type=number(int, 1, 2**20), default=8192, metavar="MB", help="of --decoded (default: %(default)s)")
    add("--repeats", type=number(int, 1, 1000), default=5, metavar="R", help="rounds (default: %(default)s)")
    add("--warmup", type=number(int, 1, 10**6), default=8, metavar="B", help="batches before (default: %(default)s)")
    add_shared(p, PEERS)
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure, print and write."""
    p = parser()
    options = parsed(p, argv, PEERS)
    if not options.pipeline.is_dir() or not any(folder.is_dir() for folder in options.pipeline.iterdir()):
        p.error(f"argument --pipeline: expected a folder of class folders, got {options.pipeline}")
    if "official" in options.peers and options.device != "cuda":
        p.error("argument --peers: expected --device cuda for official, got cpu")
    official = official_peer(p, options, "imagenet")
    if official is not None:
        official = official.to(options.device)
    facts = circumstances(options, "imagenet")
    facts["versions"] += f", DALI {nvidia.dali.__version__}"
    print_head(facts, NOTES, NOTES.keys() - set(PEERS) | set(options.peers))
    starts = {name: partial(start, augment, options) for name, augment in candidates(options, official).items()}
    results = take_turns(starts, options.repeats)
    how = "decoded in advance" if options.decoded else "decoded"
    head = f"{options.size} x {options.size}, batch {options.batch}, {options.threads or 2} threads, {how}"
    return show_rates(results, rates_table(results, head), facts, options)


if __name__ == "__main__":
    sys.exit(main())
