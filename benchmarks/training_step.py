"""What prime_dali.PRIME costs in a training step, beside its peers, in one process, on the same uint8 batch.

::

    python benchmarks/training_step.py --device cuda --official DIR --json training_step.json
    python benchmarks/training_step.py --device cuda --batch 128 --views 3
    python benchmarks/training_step.py --device cuda --model timm:vit_small_patch16_224 convnext_tiny
    python benchmarks/training_step.py --device cpu --model resnet18 --batch 2 --size 64 --steps 1 --no-compile

A step takes uint8 images, channels_last, forward and backward through the network in bfloat16 autocast, and ends with
SGD with Nesterov momentum. Its time is the median over the rounds, each of ``--steps`` steps of every candidate in
turn, so that a drifting clock hits all alike; "of plain" is its share of plain's time in the same round: median,
minimum, maximum. Memory is the largest growth during a step: of what torch has allocated on CUDA, of the resident set
on the CPU. Exit status: 0; 1 if a peer failed or there was a graph break (a line says how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch
from common import (
    MEAN,
    SEED,
    STD,
    Call,
    add_shared,
    aligned,
    circumstances,
    failure,
    natural_images,
    number,
    official_peer,
    parsed,
    peak_growth,
    print_head,
    significant,
    time_cpu,
    time_cuda,
    write_json,
)
from torch.nn.functional import cross_entropy
from torchvision.transforms import v2

import prime_dali
from prime_dali.models import networks
from prime_dali.training.losses import jsd_loss

PRESET = "imagenet"
CLASSES = 1000
Forward = Callable[[torch.Tensor], torch.Tensor]
PEERS = ("official", "augmix")
NOTES = {
    "plain": "normalizes the images, uint8 to bfloat16, in the compiled function; with --views 3, each three times",
    "prime": "prime_dali.PRIME in the compiled function: draws, augments, normalizes; uint8 in, bfloat16 out",
    "prime-eager": "the same, called before the compiled network",
    "official": "the authors' code and configuration, called before the compiled network; float32 in [0, 1] in",
    "augmix": "torchvision v2.AugMix(), image by image because it draws once per call, called before plain",
    "1 view": "prime_dali.PRIME by itself, without a network",
    "3 views": "the same with views=3: clean, augmented, augmented",
}
SLOW_STEPS = {"augmix": 2}  # a round at most, because image by image each takes long


@dataclass(frozen=True)
class Result:
    """The time of one candidate with one batch; where it failed, ``seconds`` is empty and ``error`` says why."""

    model: str
    name: str
    batch: int
    seconds: tuple[float, ...] = ()  # a step, in each round
    steps: int = 0  # a round
    peak_bytes: int = 0  # largest growth of memory during a step
    error: str = ""

    @property
    def median(self) -> float:
        """Seconds a step."""
        return statistics.median(self.seconds) if self.seconds else math.nan


def new_prime(views: int, device: torch.device) -> prime_dali.PRIME:
    """The module that is measured; it numbers the images itself, so that no two steps draw the same."""
    return prime_dali.PRIME(PRESET, views=views, mean=MEAN, std=STD, out_dtype=torch.bfloat16).to(device)


def candidates(
    options: argparse.Namespace, classifier: str, official: torch.nn.Module | None, images: torch.Tensor
) -> dict[str, Call]:
    """By name, the calls that each do one training step, all with this classifier, or augment alone."""
    device, views = images.device, options.views
    labels = torch.randint(CLASSES, (len(images),), device=device)
    model = networks.create(classifier, CLASSES).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, fused=True)
    augment = new_prime(views, device)
    mean, std = (255 * torch.tensor(v, device=device).view(3, 1, 1) for v in (MEAN, STD))

    def compiled(function: Forward) -> Forward:
        # A graph break is an error with fullgraph; shapes do not change in training.
        return torch.compile(function, fullgraph=True, dynamic=False) if options.compile else function

    def loss(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(inputs).float()
        return jsd_loss(logits, labels) if views == 3 else cross_entropy(logits, labels)

    network = compiled(loss)
    plain = compiled(lambda images: loss(((images - mean) / std).bfloat16()))
    prime = compiled(lambda images: loss(augment(images)))

    def step(forward: Callable[[], torch.Tensor]) -> Call:
        def run() -> None:
            forward().backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    def of_network(batch: torch.Tensor) -> torch.Tensor:
        """In the one format that the network is compiled for."""
        return batch.to(memory_format=torch.channels_last)

    clean = of_network(images.repeat(views, 1, 1, 1))
    calls = {
        "plain": step(lambda: plain(clean)),
        "prime": step(lambda: prime(images)),
        "prime-eager": step(lambda: network(augment(images))),
    }
    if official is not None:
        floats = images.float() / 255  # not timed: their data loader hands over float32
        calls["official"] = step(lambda: network(of_network(official(floats).bfloat16())))
    if "augmix" in options.peers:
        transform = v2.AugMix()

        def augmix() -> torch.Tensor:
            augmented = [transform(image) for _ in range(1 if views == 1 else 2) for image in images]
            return plain(of_network(torch.stack(augmented if views == 1 else [*images, *augmented])))

        calls["augmix"] = step(augmix)
    for name, module in (("1 view", new_prime(1, device)), ("3 views", new_prime(3, device))):
        calls[name] = partial(module, images)
    return calls


def peak(call: Call, device: str) -> int:
    """Largest growth of memory during one call, in bytes."""
    if device == "cpu":
        return peak_growth(call, 0)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def measure(calls: dict[str, Call], model: str, batch: int, options: argparse.Namespace) -> list[Result]:
    """Time all candidates. Where a peer fails, out of memory for instance, its result says so; the others continue."""
    peaks, errors = {}, {}
    for name, call in calls.items():
        print(f"warming up {name}, {model}, batch {batch} ...", file=sys.stderr, flush=True)
        try:
            for _ in range(min(options.warmup, SLOW_STEPS.get(name, options.warmup))):
                call()
            peaks[name] = peak(call, options.device)
        except torch._dynamo.exc.Unsupported as error:
            sys.exit(f"{name}: expected one graph under torch.compile, got a graph break: {error}")
        except RuntimeError as error:
            if name not in PEERS:
                raise
            errors[name] = failure(error)
    steps = {name: min(options.steps, SLOW_STEPS.get(name, options.steps)) for name in peaks}
    seconds: dict[str, list[float]] = {name: [] for name in peaks}
    for number_of_round in range(options.rounds):
        print(f"round {number_of_round + 1} of {options.rounds} ...", file=sys.stderr, flush=True)
        for name, count in steps.items():
            cuda = options.device == "cuda"
            passed = time_cuda(calls[name], count) if cuda else time_cpu(calls[name], 0, count)[1]
            seconds[name].append(passed / count)
    timed = [Result(model, name, batch, tuple(seconds[name]), steps[name], peaks[name]) for name in peaks]
    return timed + [Result(model, name, batch, error=error) for name, error in errors.items()]


def table(results: list[Result], options: argparse.Namespace) -> str:
    """The results of one batch, in aligned columns, and what else is to say about them."""
    medians = {r.name: r.median for r in results}
    (plain,) = [r.seconds for r in results if r.name == "plain"]
    rows = [["", "ms / step", "min", "max", "images/s", "of plain", "min", "max", "peak MiB", "rounds", "steps"]]
    for r in (r for r in results if r.seconds):
        times = [significant(1000 * seconds) for seconds in (r.median, min(r.seconds), max(r.seconds))]
        shares = [mine / theirs for mine, theirs in zip(r.seconds, plain, strict=True)]
        ratios = [f"{f(shares):.3f}" for f in (statistics.median, min, max)]
        memory = f"{r.peak_bytes / 2**20:,.1f}"
        counts = [str(len(r.seconds)), str(r.steps)]
        rows.append([r.name, *times, significant(r.batch / r.median), *ratios, memory, *counts])
    how = "compiled" if options.compile else "not compiled"
    size = f"{options.size} x {options.size}"
    head = f"{results[0].model}, {size}, batch {results[0].batch}, --views {options.views}, {how}"
    ratio = significant(medians["3 views"] / medians["1 view"])
    both = f"PRIME by itself: 3 views (two augmented and the clean one) take {ratio} times as long as 1 view"
    return "\n".join([head, *aligned(rows), both, *(f"{r.name} failed: {r.error}" for r in results if r.error)])


def _model(name: str) -> str:
    """A name of the command line, of a network that there is."""
    try:
        with torch.device("meta"):
            networks.create(name, CLASSES)
    except (ImportError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = p.add_argument
    models = "classifiers of torchvision, or timm:NAME (default: resnet50)"
    add("--model", type=_model, nargs="+", default=["resnet50"], metavar="NAME", help=models)
    size = "side of the square images (default: %(default)s)"
    add("--size", type=number(int, 32, 4096), default=224, metavar="PIXELS", help=size)
    batch = "images per step (default: 128 256)"
    add("--batch", type=number(int, 2, 2**20), nargs="+", default=[128, 256], metavar="N", help=batch)
    views = (
        "3: with the Jensen-Shannon loss of clean, augmented, augmented, so the network gets 3 N images (default: 1)"
    )
    add("--views", type=int, choices=(1, 3), default=1, help=views)
    add("--steps", type=number(int, 1, 10**6), default=20, metavar="S", help="a round (default: %(default)s)")
    add("--rounds", type=number(int, 1, 1000), default=5, metavar="R", help="of all candidates (default: %(default)s)")
    add("--warmup", type=number(int, 1, 1000), default=5, metavar="S", help="steps before (default: %(default)s)")
    compiled = "torch.compile the loss, PRIME included, and the network (default: yes)"
    add("--compile", action=argparse.BooleanOptionalAction, default=True, help=compiled)
    add_shared(p, PEERS)
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure every batch; print, and write, what came out."""
    p = parser()
    options = parsed(p, argv, PEERS)
    official = official_peer(p, options, PRESET, options.views)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.backends.cudnn.benchmark = True
    facts = circumstances(options, PRESET)
    print_head(facts, NOTES, set(NOTES) - (set(PEERS) - set(options.peers)))
    results: list[Result] = []
    for model, batch in itertools.product(options.model, options.batch):
        torch.compiler.reset()  # what was compiled before is of no use
        torch.manual_seed(SEED)
        images = natural_images(batch, options.size, options.device).to(memory_format=torch.channels_last)
        rows = measure(candidates(options, model, official, images), model, batch, options)
        results += rows
        print(f"\n{table(rows, options)}", flush=True)
        if options.json:
            listed = [{**asdict(r), "median": r.median if r.seconds else None} for r in results]
            write_json(options.json, {**facts, "settings": vars(options), "results": listed})
    return int(any(r.error for r in results))


if __name__ == "__main__":
    sys.exit(main())
