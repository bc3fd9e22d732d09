"""A run: it takes steps, validates, saves and resumes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from .. import _devices
from .._command import keeping_all
from .._files import shown
from .._progress import Report, since_start
from .._wording import clock, facts, plural
from ..data.records import numbered
from ..models import creation, networks
from . import checkpoint, numerics, optimization
from .config import TrainConfig, differences
from .data import CifarData, FolderData
from .outputs import Outputs
from .ranks import Ranks
from .step import TrainingStep
from .stopping import ASKING, Stopping, steps_between
from .validation import count_correct


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    finished: bool
    """False: a signal or Ctrl-C stopped it; the same command resumes."""
    step: int
    accuracy: float | None
    """Accuracy in the last validation, 0 to 1."""
    seconds: float
    """Time of the training steps, also before the run was resumed; without validations, checkpoints and startup, and
    without the first step of each process, which compiles the network."""
    interrupted: bool = False
    """Whether Ctrl-C stopped it."""


class Trainer:
    """One run, from its configuration or from its last checkpoint.

    Args:
        config: The settings. ``last.pt`` (a checkpoint that ``prime-dali evaluate`` reads), ``log.jsonl`` and
            ``config.yaml`` are written to its folder ``out``; if a checkpoint is there, the run resumes from it.
        ranks: The processes of the run.
        report: Called by the first process with lines for the user.
        progress: Creates a progress bar, as :class:`._progress.Progress` does; None: no bar.

    Raises:
        ValueError: The folder contains a run with other settings (the message names them) or a damaged checkpoint, or
            the data do not match the settings.
        FileNotFoundError: The data set is missing.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, report: Report = print, progress: Any = None) -> None:
        self.config, self.ranks = config, ranks
        self._startup: dict[str, float] = {}  # for the next line of the log: when each phase of it ended
        self._ended("imports")
        config.share(ranks.world)
        self.outputs = Outputs(config, ranks.first, report, progress)
        self.folder = self.outputs.folder
        state = checkpoint.load(self.folder)
        if state is not None and (differ := differences(state["config"], config.plain())):
            found = f"{self.folder} with {'; '.join(differ)}"
            raise ValueError(f"out: expected an empty folder or one of the same run, got {found}")
        numerics.choose(config.deterministic)
        torch.manual_seed(config.seed)
        self.dtype = torch.bfloat16 if config.low_precision(ranks.device.type) else torch.float32
        with self.outputs.telling_if_slow("reading the data set ..."):
            self.data: CifarData | FolderData
            self.data = (CifarData if config.is_cifar else FolderData)(config, ranks, self.dtype)
        if state is None:
            self.data.start()
        self._ended("data")
        self.classifier, unlike = _classifier(config, self.data.classes, config.weights if state is None else "")
        for line in unlike:
            self.outputs.tell(line)
        creation.check_sizes(self.classifier.network, config.network, {"sizes": config.sizes, "size": (config.size,)})
        self.network = self.classifier.network.to(ranks.device).to(memory_format=torch.channels_last)
        numerics.choose_attention(self.network, ranks.device, config.deterministic)
        self.steps = min(self.data.steps, config.limit_steps or self.data.steps)
        self.total = self.steps * config.epochs
        self.training_step = TrainingStep(self.network, config, ranks, self.dtype, self.total)
        self.step, self.seconds = 0, 0.0
        self.accuracy: float | None = None
        self._validated = 0  # step of the last validation
        self._losses: list[float] = []  # since the last log line, averaged over the processes
        self._uncollected: list[torch.Tensor] = []  # those of the steps after them, on the device
        if state is not None:
            self._restore(state)
        ranks.broadcast(self.network.state_dict().values())
        within = f"{ASKING:g} seconds, or a step if that takes longer"
        notice = f"stopping within about {within}, then saving; Ctrl-C again stops at once, without saving"
        self._stopping = Stopping(notice if ranks.first else "")
        self._from = self.step, self.seconds  # at the start of this process
        self._starting = 0.0  # seconds of its first step, which compiles the network, and is not counted
        self._ended("network")

    def run(self) -> Result:
        """Train to the end, or until SIGTERM, SIGUSR1, SIGHUP or Ctrl-C: then save and stop. A second Ctrl-C stops at
        once.

        Raises:
            checkpoint.Diverged: The loss is NaN or infinite; the last checkpoint is kept.
            OSError: A checkpoint or the log cannot be written; or a line for the user could not, and the run has saved
                and stopped.
            RuntimeError: Another run is writing in the folder.
        """
        with self._stopping, self.outputs.opened(self.step, self.total):
            return self._run()

    def _run(self) -> Result:
        config, batches = self.config, self.data.batches(self.step)
        self.network.train()
        saved = started = time.monotonic()
        timed = 0  # steps since then
        ask = 0  # the step after which the processes ask each other whether to stop
        stop = 0
        if self._validation_due():  # the run was stopped before it
            stop = self._validate()
            self._save()
        while self.step < self.total and not stop:
            if self._starting:
                self._uncollected.append(self.train_step(*next(batches)))
                timed += 1
            else:
                self._uncollected.append(self._first_step(batches))
                started = time.monotonic()
            self.outputs.advance()
            logs = not (self.step % self.steps and self.step % config.log_every)
            if self.step < ask and not logs:
                continue
            self._collect_losses()
            now = time.monotonic()
            stop, late, microseconds = self.ranks.sum(
                self._asked, logs and now - saved > 60 * config.save_minutes, round(1e6 * (now - started))
            )
            ask = self.step + steps_between(timed, 1e-6 * microseconds / self.ranks.world)
            if not (logs or stop):
                continue
            self.seconds += now - started
            if logs:
                self._write_losses(now - started, timed)
            if not stop and self._validation_due():  # which may take longer than who asks to stop will wait
                stop = self._validate()
            if stop or late or self.step == self.total:
                self._save()
                saved = time.monotonic()
            started, timed = time.monotonic(), 0
        if self.outputs.failed is not None:
            raise self.outputs.failed
        finished = self.step >= self.total and not self._validation_due()
        return Result(finished, self.step, self.accuracy, self.seconds, self._stopping.interrupted and not finished)

    @property
    def _asked(self) -> bool:
        """Whether this process is to save and stop."""
        return self._stopping.asked or self.outputs.failed is not None

    def about(self) -> str:
        """A summary of the run for the user: a line each for data, network, method, device and folder."""
        config, device = self.config, self.ranks.device
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        return facts({
            "data": f"{config.recipe} in {config.data}, {plural(len(self.data.classes), 'class', 'classes')}",
            "images": f"{config.size} x {config.size}, {plural(self.steps, 'step')} of {config.batch} per epoch, "
            f"{plural(config.epochs, 'epoch')}",
            "network": f"{config.network}, stem {config.stem}, {plural(parameters, 'parameter')}",
            "method": config.method + config.also(),
            "device": f"{_devices.name(device)}, {str(self.dtype).removeprefix('torch.')}"
            + (f", {plural(self.ranks.world, 'process', 'processes')}" if self.ranks.world > 1 else "")
            + ("" if config.compile else ", not compiled"),
            "out": self.folder,
        })  # fmt: skip

    def _first_step(self, batches: Iterator[Any]) -> torch.Tensor:
        """The first step of this process, which is slow, so its time is measured separately; synchronizes."""
        start = time.monotonic()
        if self.config.compile:
            self.outputs.tell("compiling the network ...")
        batch = next(batches)
        self._ended("first_batch")
        with keeping_all():
            loss = self.train_step(*batch)
            loss.item()
        self._ended("first_step")
        self._starting = time.monotonic() - start
        if self.config.compile:
            self.outputs.tell(f"compiled, and ran the first step, in {clock(self._starting)}")
        return loss

    def _ended(self, phase: str) -> None:
        """Note when a phase of the start-up was over."""
        self._startup[f"startup_{phase}"] = round(since_start(), 3)

    def _epoch_seconds(self) -> float:
        """Time of an epoch at the speed of this process's steps, without the first one if there are others."""
        steps, seconds = self.step - self._from[0], self.seconds - self._from[1]
        return (seconds / (steps - 1) if steps > 1 else self._starting) * self.steps

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step of :meth:`run`, on a batch of ``data.batches()``; returns the loss, a scalar on the device."""
        loss = self.training_step(images, labels, self.step)
        self.step += 1
        return loss

    def _collect_losses(self) -> None:
        """Average over the processes, and check, the losses of the steps since the last time; synchronizes.

        Without this, the host would be many steps ahead of a GPU: it could not stop for as long as those take.
        """
        losses = self.ranks.mean(torch.stack(self._uncollected))
        checkpoint.check_losses(self.folder, losses, self.step, self.total)
        self._losses += losses
        self._uncollected = []

    def _write_losses(self, seconds: float, timed: int) -> None:
        """Write the log line for the steps since the last one, ``timed`` of which took so many seconds."""
        rate = self.config.batch * (timed / seconds if timed else 1 / self._starting)
        loss, lr = sum(self._losses) / len(self._losses), self.training_step.lr
        self._log(loss=loss, lr=lr, images_per_second=rate, **self._startup)
        self._startup = {}
        self.outputs.note(f"loss {self._losses[-1]:.3f}")
        self._losses = []

    def _validation_due(self) -> bool:
        epoch, rest = divmod(self.step, self.steps)
        wanted = epoch % self.config.validate_every == 0 or self.step == self.total
        return not rest and wanted and self._validated != self.step

    def _validate(self) -> bool:
        """Measure accuracy, of the averaged weights if there are such, with the first process's batch-norm statistics.

        Returns whether the run has been asked to stop. All processes end the validation then; the resumed run does it.
        """
        average = self.training_step.average
        network = self.network if average is None else average.network
        self.ranks.broadcast(network.buffers())
        images = self.data.validation_images
        counts = count_correct(
            network, self.data.validation(), self.ranks, self.dtype, lambda: self._asked,
            lambda count: self.outputs.note(f"validating, {min(count * self.ranks.world / images, 1):.0%}"),
        )  # fmt: skip
        self.outputs.note("")
        self.network.train()
        if counts is None:
            return True
        correct, images_seen, asked = self.ranks.sum(*counts, self._asked)
        self.accuracy, self._validated = correct / images_seen, self.step
        self._log(accuracy=self.accuracy, correct=correct, images=images_seen)
        own = "" if average is None else " (EMA)"
        each = f"; {self._epoch_seconds():.2f} s per epoch" if self.step > self._from[0] else ""
        self.outputs.tell(
            f"epoch {self.step // self.steps} of {self.config.epochs}: {100 * self.accuracy:.2f} % of "
            f"{plural(images_seen, 'validation image')} correct{own}{each}"
        )
        return bool(asked)

    def _log(self, **numbers: float) -> None:
        self.outputs.log(self.step, self.step / self.steps, **numbers)

    def _save(self) -> None:
        data = self.ranks.gathered(self.data.state())
        if not self.ranks.first:
            return
        random = {"cpu": torch.get_rng_state()}
        if self.ranks.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.ranks.device)
        step = self.training_step
        run = {
            "step": self.step, "seconds": self.seconds, "accuracy": self.accuracy, "validated": self._validated,
            "losses": self._losses, "data": data, "random": random, "images": self.data.identity,
            "optimizer": step.optimizer.state_dict(), "schedule": step.schedule.state_dict(),
        }  # fmt: skip
        averages = {} if step.average is None else {"ema": step.average.network.state_dict()}
        self.outputs.save(networks.checkpoint(
            self.classifier, config=self.config.plain(), epoch=self.step / self.steps, run=run, **averages
        ))  # fmt: skip

    def _restore(self, state: dict[str, Any]) -> None:
        run = state["run"]
        if run.get("images") != self.data.identity:
            raise ValueError(
                f"data: expected the images and classes that the run started with, got others in {self.config.data}"
            )
        checkpoint.check_step(self.folder, run["step"], self.total)
        restoring = partial(checkpoint.restoring, self.folder)
        with restoring("model"):
            self.network.load_state_dict(state["model"])
        step = self.training_step
        if step.average is not None:
            with restoring("ema"):
                step.average.load(state["ema"])
        with restoring("run.optimizer"):
            optimization.restore_optimizer(step.optimizer, run["optimizer"], self.config)
        with restoring("run.schedule"):
            optimization.restore_schedule(step.schedule, run["schedule"], run["step"], self.total)
        if len(run["data"]) == self.ranks.world:
            with restoring("run.data"):
                self.data.restore(run["data"][self.ranks.rank])
        elif not run["data"] or run["data"][0] is not None:
            raise ValueError(f"processes: expected {len(run['data'])}, as the run had, got {self.ranks.world}")
        with restoring("run.random"):
            torch.set_rng_state(run["random"]["cpu"])
            if self.ranks.device.type == "cuda" and "cuda" in run["random"]:
                torch.cuda.set_rng_state(run["random"]["cuda"], self.ranks.device)
        self.step, self.seconds, self.accuracy = run["step"], run["seconds"], run["accuracy"]
        self._validated = run.get("validated", self.step)  # earlier versions validated before they saved
        with restoring("run.losses"):
            self._losses = [float(loss) for loss in run.get("losses", [])]  # earlier versions saved at log lines only
        self.outputs.tell(f"resuming {self.folder} after step {self.step} of {self.total}")


def _classifier(config: TrainConfig, classes: tuple[str, ...], weights: str) -> tuple[networks.Classifier, list[str]]:
    """The classifier that a run begins with, from these weights or from random ones; and lines for the user about what
    the weights are for, if it is not what the run has."""
    found, unlike = None, list[str]()
    if weights:
        try:
            found = networks.load(weights, network=config.network, num_classes=len(classes), stem=config.stem)
        except (OSError, ValueError) as error:
            kind = OSError if isinstance(error, OSError) else ValueError
            raise kind(f"weights: {error}; --weights= starts from random ones") from error
        unlike = list(_unlike(found, config, classes))
    if found is None or config.drop_path:
        network = networks.create(config.network, len(classes), config.stem, config.drop_path)
        if found is not None:
            network.load_state_dict(found.network.state_dict())
        found = networks.Classifier(network, config.network, len(classes), config.stem)
    mean, std = config.statistics
    found = replace(found, classes=classes, mean=mean, std=std, interpolation="bilinear")
    return replace(found, size=config.size, resize=config.resize or None), unlike


def _unlike(weights: networks.Classifier, config: TrainConfig, classes: tuple[str, ...]) -> Iterator[str]:
    """What these weights are for, as far as their file and network say it, that the run has otherwise."""
    if weights.classes not in (None, classes) and numbered(len(classes)) not in (weights.classes, classes):
        theirs, own = next((a, b) for a, b in zip(weights.classes or (), classes, strict=True) if a != b)
        yield f"weights: their last layer is for other classes, {shown(theirs)} where this run has {shown(own)}"
    for what, before, now in zip(("mean", "std"), weights.statistics, config.statistics, strict=True):
        if max(abs(a - b) for a, b in zip(before, now, strict=True)) > 1e-3:
            yield f"weights: for images normalized by the {what} {before}, where this run has {now}"
