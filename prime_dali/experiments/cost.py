"""``prime-dali analyze cost``: the time of a training epoch with each method, relative to standard training."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import __version__, _arguments, _devices, _plots, _tables
from .._files import make_output_folder, write_texts
from .._wording import facts, plural
from ..evaluation import reported
from ..training.config import TrainConfig
from ..training.ranks import Ranks
from ..training.trainer import Trainer
from . import grid_file, official
from .arguments import COST, OFFICIAL

# Training time on ImageNet-100 over standard training (section "Sample complexity": PRIME 1.27 times standard training
# and 1.06 times AugMix).
REPORTED = {"augmix": 1.20, "prime": 1.27}

# The authors' code can replace AugMix in a run: both take batches of uint8 images on the device.
METHODS: dict[str, dict[str, Any]] = {
    name: {"method": name.removesuffix("+jsd").replace("official", "augmix"), "jsd": name.endswith("+jsd")}
    for name in COST
}
_TITLES = {
    "standard": "standard training", "augmix": "AugMix", "prime": "PRIME", "augmix+jsd": "AugMix, JSD loss",
    "prime+jsd": "PRIME, JSD loss", "official": "authors' PRIME", "official+jsd": "authors' PRIME, JSD loss",
}  # fmt: skip
_NOTES = {
    "standard": "crops, flips, normalization",
    "augmix": "this package's AugMix, in batches on the device; the published one works image by image on the CPU",
    "prime": "this package's PRIME",
    "+jsd": "three views of each image through the network, the Jensen-Shannon loss",
    "official": f"{OFFICIAL} and its configuration, in place of PRIME",
}


@dataclass(frozen=True)
class Cost:
    """Times of a method; if it failed, ``seconds`` is empty and ``error`` says why."""

    method: str
    steps: int = 0
    """Of an epoch."""
    images: int = 0
    """Of a step."""
    seconds: list[float] = field(default_factory=list)
    """Of a step, in each round."""
    error: str = ""

    @property
    def epoch(self) -> float:
        """Seconds per epoch: the median of the rounds."""
        return statistics.median(self.seconds) * self.steps

    def row(self, standard: Cost | None) -> dict[str, float | None]:
        """The numbers of its row; without a ratio if standard training was not measured."""
        known = bool(self.seconds)
        ratio = self.epoch / standard.epoch if known and standard is not None and standard.seconds else None
        return {
            "s an epoch": self.epoch if known else None,
            "least": min(self.seconds) * self.steps if known else None,
            "most": max(self.seconds) * self.steps if known else None,
            "images/s": self.steps * self.images / self.epoch if known else None,
            "over standard": ratio,
            "reported": REPORTED.get(self.method),
        }


def run(options: argparse.Namespace) -> None:
    """Measure, print and write.

    Raises:
        TypeError, ValueError: A setting or an option is out of its range.
        RuntimeError: Some methods failed; the table has the others.
    """
    _arguments.integer("rounds", options.rounds, 1, 1000)
    _arguments.integer("steps", options.steps, 0, 10**6)
    _arguments.integer("warmup", options.warmup, 1, 10**6)
    methods = options.methods or [m for m in METHODS if options.official or not m.startswith("official")]
    if options.official is None and any(method.startswith("official") for method in methods):
        raise ValueError(f"official: expected --official DIR, a clone of {OFFICIAL}, got none")
    base = grid_file.given(options)
    # Enough epochs that the schedule does not end; the learning rate does not affect the time.
    own = {method: {**METHODS[method], "epochs": 10**6, "out": str(options.out / method)} for method in methods}
    for name in sorted(base.keys() & own[methods[0]].keys()):
        raise ValueError(f"set: expected settings that all methods share, got {name}, which this command chooses")
    configs = {method: grid_file.train_config({**base, **settings}) for method, settings in own.items()}
    grid_file.check_read(base, configs.values())
    config = next(iter(configs.values()))
    ranks = Ranks.start(config.device, decodes=not config.is_cifar)
    make_output_folder(options.out)
    print(_about(config, ranks, options, methods), file=sys.stderr, flush=True)
    starts = {
        method: partial(Training, config, ranks, options.warmup, options.official if "official" in method else None)
        for method, config in configs.items()
    }
    costs = take_turns(starts, options.rounds, options.steps, lambda line: print(line, file=sys.stderr, flush=True))
    notes = _conditions(config, ranks, options, costs)
    print(markdown(notes, costs))
    for path in write(options.out, notes, costs):
        print(f"wrote {path}")
    failed = [f"{cost.method}: {cost.error}" for cost in costs if cost.error]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(costs)} methods failed: {'; '.join(failed)}")


def _about(config: TrainConfig, ranks: Ranks, options: argparse.Namespace, methods: Sequence[str]) -> str:
    """What is measured, for its user; on stderr, as the table on stdout is a document."""
    return facts({
        "data": f"{config.recipe} in {config.data}",
        "images": f"{config.size} x {config.size}, batches of {config.batch}",
        "network": f"{config.network}, stem {config.stem}{'' if config.compile else ', not compiled'}",
        "methods": f"{', '.join(methods)}; {plural(options.rounds, 'round')} of "
        f"{plural(options.steps, 'step') if options.steps else 'an epoch'}, "
        f"after {plural(options.warmup, 'step')} to warm up",
        "device": _devices.name(ranks.device), "out": options.out,
    })  # fmt: skip


class Training:
    """Training by a method, after so many steps to warm up.

    Args:
        folder: A clone of :data:`OFFICIAL`, whose augmentation takes the place of the method's; None: none does.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, warmup: int, folder: Path | None) -> None:
        self._trainer, self._device = Trainer(config, ranks, lambda line: None), ranks.device
        if folder is not None:
            mean, std = config.statistics
            preset = "cifar" if config.is_cifar else "imagenet"
            self._trainer.data.augment = official.Official(
                folder, preset, views=config.views, mean=mean, std=std, out_dtype=self._trainer.dtype
            ).to(ranks.device)
        self._batches = self._trainer.data.batches(0)
        self._trainer.network.train()
        self.steps, self.images = self._trainer.steps, config.batch
        self.seconds(warmup)

    def seconds(self, count: int) -> float:
        """The time of a step, mean over the next ``count``."""
        begun = time.perf_counter()
        for _ in range(count):
            self._trainer.train_step(*next(self._batches))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return (time.perf_counter() - begun) / count


def take_turns(
    starts: Mapping[str, Callable[[], Training]], rounds: int, steps: int, tell: Callable[[str], None]
) -> list[Cost]:
    """Start and warm up every method, then alternate between them, so that a drifting clock affects all equally.

    If a method fails, its error is recorded, and the others continue. ``steps``: of a round; 0: an epoch.
    """
    costs: dict[str, Cost] = {}
    ready: dict[str, Training] = {}
    for method, start in starts.items():
        tell(f"warming up {method} ...")
        try:
            ready[method] = training = start()
            costs[method] = Cost(method, training.steps, training.images)
        except (RuntimeError, ImportError, ValueError, OSError) as error:
            costs[method] = Cost(method, error=str(error).partition("\n")[0])
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds} ...")
        for method, training in ready.items():
            costs[method].seconds.append(training.seconds(steps or training.steps))
    return list(costs.values())


def _conditions(config: TrainConfig, ranks: Ranks, options: argparse.Namespace, costs: Sequence[Cost]) -> list[str]:
    """The conditions of the numbers, a line each."""
    steps = f"{options.steps} steps" if options.steps else "an epoch"
    shown = [n for n in _NOTES if any(n == c.method or (n == "+jsd" and n in c.method) for c in costs)]
    return [
        f"{config.recipe}, {config.network}, batch {config.batch}, {config.size} x {config.size} pixels, "
        f"{'bfloat16' if config.low_precision(ranks.device.type) else 'float32'}, "
        f"{'compiled' if config.compile else 'not compiled'}",
        f"{_devices.hardware(ranks.device)}, {torch.get_num_threads()} threads; torch {torch.__version__}, "
        f"CUDA {torch.version.cuda or 'none'}, prime-dali {__version__}",
        f"time of training steps, without validation: median of {plural(options.rounds, 'round')} of {steps} of every "
        f"method in turn, after {plural(options.warmup, 'step')} to warm up",
        *(f"{name}: {_NOTES[name]}" for name in shown),
        f'"reported": {reported.SOURCE}, on ImageNet-100, hardware and loss not stated; not measured',
        _tables.origin(),
    ]


def rows(costs: Sequence[Cost]) -> dict[str, dict[str, float | None]]:
    """The numbers by method."""
    standard = next((cost for cost in costs if cost.method == "standard"), None)
    return {cost.method: cost.row(standard) for cost in costs}


def markdown(notes: Sequence[str], costs: Sequence[Cost]) -> str:
    """The table as Markdown."""
    numbers = rows(costs)
    header = ["method", *next(iter(numbers.values()))]
    digits = {"over standard": 3, "images/s": 0}
    cells = []
    for cost in costs:
        own = [
            "-" if value is None else f"{value:,.{digits.get(name, 2)}f}"
            for name, value in numbers[cost.method].items()
        ]
        cells.append([cost.method + (" (failed)" if cost.error else ""), *own])
    table = _tables.markdown(header, cells)
    return "\n".join(["# cost: time of a training epoch", "", *(f"- {note}" for note in notes), "", table, ""])


def write(folder: Path, notes: Sequence[str], costs: Sequence[Cost]) -> list[Path]:
    """Write ``cost.md``, ``cost.csv``, ``cost.json`` and ``cost.png``; their paths."""
    numbers = rows(costs)
    content: dict[str, Any] = {
        "format": "prime-dali-cost", "version": 1, "notes": list(notes),
        "methods": [{**asdict(cost), **numbers[cost.method]} for cost in costs],
    }  # fmt: skip
    header = ["method", *next(iter(numbers.values())), "error"]
    cells = ([cost.method, *numbers[cost.method].values(), cost.error] for cost in costs)
    texts = {
        "md": markdown(notes, costs),
        "csv": _tables.csv([header, *cells]),
        "json": json.dumps(content, indent=1) + "\n",
    }
    paths = write_texts(folder, {f"cost.{suffix}": text for suffix, text in texts.items()})
    if any(own["over standard"] for own in numbers.values()):
        paths.append(folder / "cost.png")
        draw(content["methods"], paths[-1])
    return paths


def draw(methods: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the time of an epoch relative to standard training, with the rounds' range as error bars.

    Args:
        methods: As in ``cost.json``.
        path: The PNG to write.
    """
    done = [row for row in methods if row["over standard"] is not None]
    base = next(row["s an epoch"] for row in done if row["method"] == "standard")
    names = {row["method"]: _TITLES[row["method"]] for row in done}
    values = {names[row["method"]]: row["over standard"] for row in done}
    ranges = {
        names[row["method"]]: ((row["s an epoch"] - row["least"]) / base, (row["most"] - row["s an epoch"]) / base)
        for row in done
    }
    with _plots.plot(path, 1.1 + 0.34 * len(done)) as figure:
        axes = figure.subplots()
        _plots.dots(axes, list(values), [_plots.Series("measured", values, ranges)], ".3f")
        axes.set(xlabel="time of a training epoch over standard training (bars: range of the rounds)")
