"""The training loop: steps, checkpoints, log, validation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.functional import cross_entropy

from .. import _devices
from .._files import Report, held, replacing
from .._progress import clock, facts, plural
from ..data.sampling import step_seed
from ..models import creation, networks
from . import checkpoint, numerics, optimization, replay
from .averaging import Average
from .config import TrainConfig, differences
from .data import CifarData, FolderData
from .losses import jsd_loss
from .ranks import Ranks, SharedGradients
from .stopping import Stopping
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
        self.config, self.ranks, self.report, self.progress = config, ranks, report, progress
        self.folder = Path(config.out)
        config.share(ranks.world)
        self._written = checkpoint.written(self.folder)
        state = checkpoint.load(self.folder)
        if state is not None and (differ := differences(state["config"], config.plain())):
            found = f"{self.folder} with {'; '.join(differ)}"
            raise ValueError(f"out: expected an empty folder or one of the same run, got {found}")
        numerics.choose(config.deterministic)
        torch.manual_seed(config.seed)
        self.dtype = torch.bfloat16 if config.low_precision(ranks.device.type) else torch.float32
        self.data: CifarData | FolderData = (CifarData if config.is_cifar else FolderData)(config, ranks, self.dtype)
        self.classifier = self._classifier(config.weights if state is None else "")
        self.network = self.classifier.network.to(ranks.device).to(memory_format=torch.channels_last)
        numerics.choose_attention(self.network, ranks.device, config.deterministic)
        given = {"sizes": config.sizes, "size": (config.size,)}
        creation.check_sizes(self.network, config.network, given, ranks.device)
        self._parameters = list(self.network.parameters())  # collecting them takes a tenth of a small step
        # The host cannot launch kernels as fast as the GPU runs them: with small images, or while DALI decodes.
        self._replays = config.compile and ranks.device.type == "cuda"
        self._replayed: replay.Replayed | None = None
        self.optimizer = optimization.optimizer(self.network, config)
        # With other processes, each step has gradients of its own; other optimizers are few kernels.
        captured = self._replays and ranks.world == 1 and config.optimizer == "muon"
        self._update = replay.ReplayedUpdate(self.optimizer, ranks.device) if captured else None
        self.steps = min(self.data.steps, config.limit_steps or self.data.steps)
        self.total = self.steps * config.epochs
        self.schedule = optimization.schedule(self.optimizer, config, self.total)
        self._average = Average(self.network, config.ema_decay) if config.ema_decay else None
        self.step, self.seconds = 0, 0.0
        self.accuracy: float | None = None
        self._validated = 0  # step of the last validation
        self._losses: list[torch.Tensor] = []  # since the last log line
        if state is not None:
            self._restore(state)
        ranks.broadcast(self.network.state_dict().values())
        self._shared = SharedGradients(self.network) if ranks.world > 1 else None
        self._model, self._loss = self._compiled()
        within = plural(config.log_every, "step")
        notice = f"stopping within {within}, then saving; Ctrl-C again stops at once, without saving"
        self._stopping = Stopping(notice if ranks.first else "")
        self._lr = 0.0
        self._from = self.step, self.seconds  # at the start of this process
        self._starting = 0.0  # seconds of its first step, which compiles the network, and is not counted
        self._log: checkpoint.Log
        self._bar: Any = None
        self._curves: Any = None

    def _classifier(self, weights: str) -> networks.Classifier:
        config, classes = self.config, self.data.classes
        classifier = None
        if weights:
            try:
                classifier = networks.load(weights, network=config.network, num_classes=len(classes), stem=config.stem)
            except ValueError as error:
                raise ValueError(f"weights: {error}; --weights= starts from random ones") from error
        if classifier is None or config.drop_path:
            network = networks.create(config.network, len(classes), config.stem, config.drop_path)
            if classifier is not None:
                network.load_state_dict(classifier.network.state_dict())
            classifier = networks.Classifier(network, config.network, len(classes), config.stem)
        mean, std = config.statistics
        return replace(classifier, classes=classes, mean=mean, std=std, size=config.size, resize=config.resize or None)

    def _compiled(self) -> tuple[Any, Any]:
        config = self.config

        def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            if config.jsd:
                return jsd_loss(logits, labels, config.jsd_weight, config.label_smoothing)
            return cross_entropy(logits.float(), labels, label_smoothing=config.label_smoothing)

        if not config.compile:
            return self.network, loss
        return torch.compile(self.network, dynamic=False), torch.compile(loss, dynamic=False)

    def run(self) -> Result:
        """Train to the end, or until a signal (SIGTERM, SIGUSR1, Ctrl-C: save and stop; Ctrl-C again: stop at once).

        Raises:
            checkpoint.Diverged: The loss is NaN or infinite; the last checkpoint is kept.
            OSError: A checkpoint or the log cannot be written.
            RuntimeError: Another run is writing in the folder.
        """
        with self._stopping, self._outputs():
            return self._run()

    def _run(self) -> Result:
        config, batches = self.config, self.data.batches(self.step)
        self.network.train()
        saved = started = time.monotonic()
        timed = 0  # steps since then
        stop = 0
        if self._validation_due():  # the run was stopped before it
            stop = self._validate()
            self._save()
        while self.step < self.total and not stop:
            if self._starting:
                self._losses.append(self.train_step(*next(batches)))
                timed += 1
            else:
                self._losses.append(self._first_step(batches))
                started = time.monotonic()
            if self._bar is not None:
                self._bar.update()
            if self.step % self.steps and self.step % config.log_every:
                continue
            self._write_losses(started, timed)
            stop, late = self.ranks.sum(self._stopping.asked, time.monotonic() - saved > 60 * config.save_minutes)
            if not stop and self._validation_due():  # which may take longer than who asks to stop will wait
                stop = self._validate()
            if stop or late or self.step == self.total:
                self._save()
                saved = time.monotonic()
            started, timed = time.monotonic(), 0
        finished = self.step >= self.total and not self._validation_due()
        return Result(finished, self.step, self.accuracy, self.seconds, self._stopping.interrupted and not finished)

    def about(self) -> str:
        """A summary of the run for the user: a line each for data, network, method, device and folder."""
        config, device = self.config, self.ranks.device
        parameters = sum(parameter.numel() for parameter in self._parameters)
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
        start, says = time.monotonic(), self.config.compile and self.ranks.first
        if says:
            self._tell("compiling the network ...")
        loss = self.train_step(*next(batches))
        loss.item()
        self._starting = time.monotonic() - start
        if says:
            self._tell(f"compiled, and ran the first step, in {clock(self._starting)}")
        return loss

    def _epoch_seconds(self) -> float:
        """Time of an epoch at the speed of this process's steps, without the first one if there are others."""
        steps, seconds = self.step - self._from[0], self.seconds - self._from[1]
        return (seconds / (steps - 1) if steps > 1 else self._starting) * self.steps

    def _gradients(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns the loss, and writes its gradients to the parameters: in equal parts, whose gradients are added."""
        parts, losses = self.config.accumulate, []
        for pixels, classes in optimization.parts(images, labels, self.config.views, parts):
            with torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                logits = self._model(pixels)
            loss = self._loss(logits, classes)
            (loss / parts if parts > 1 else loss).backward()
            losses.append(loss.detach())
        if self._shared is not None:
            self._shared.gather()
        return torch.stack(losses).mean() if parts > 1 else losses[0]

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step of :meth:`run`, on a batch of ``data.batches()``; returns the loss, a scalar on the device."""
        if self.config.drop_path:  # keyed, so that it differs between processes
            torch.manual_seed(step_seed("network", self.config.seed, self.step, self.ranks.rank))
        if self._replays:
            if self._replayed is None or not self._replayed.takes(images, labels):
                self._replayed = None  # its memory first
                self._replayed = replay.Replayed(self._gradients, self.network, images, labels)
                if self._update is not None:
                    self._update.forget()
            loss = self._replayed(images, labels)
        else:
            self.optimizer.zero_grad()
            loss = self._gradients(images, labels)
        if self._shared is not None:
            self._shared.average()
        if self.config.clip:
            nn.utils.clip_grad_norm_(self._parameters, self.config.clip)
        if self._update is None:
            self.optimizer.step()
        else:
            self._update()
        self.step += 1
        if self._average is not None:
            self._average.update(self.network, self.step)
        self._lr = optimization.learning_rate(self.optimizer)  # of this step
        if self.step < self.total:
            self.schedule.step()
        return loss

    def _write_losses(self, started: float, timed: int) -> None:
        """Write the log line for the steps since the last one, ``timed`` of them since ``started``; synchronizes."""
        losses = torch.stack(self._losses)
        if self.ranks.world > 1:
            dist.all_reduce(losses, dist.ReduceOp.AVG)
        numbers = losses.tolist()
        elapsed = time.monotonic() - started
        self.seconds += elapsed
        checkpoint.check_losses(self.folder, numbers, self.step, self.total)
        self._losses = []
        rate = self.config.batch * (timed / elapsed if timed else 1 / self._starting)
        self._line(loss=sum(numbers) / len(numbers), lr=self._lr, images_per_second=rate)
        self._note(f"loss {numbers[-1]:.3f}")

    def _validation_due(self) -> bool:
        epoch, rest = divmod(self.step, self.steps)
        wanted = epoch % self.config.validate_every == 0 or self.step == self.total
        return not rest and wanted and self._validated != self.step

    def _validate(self) -> bool:
        """Measure accuracy, of the averaged weights if there are such, with the first process's batch-norm statistics.

        Returns whether the run has been asked to stop. All processes end the validation then; the resumed run does it.
        """
        network = self.network if self._average is None else self._average.network
        self.ranks.broadcast(network.buffers())
        images = self.data.validation_images
        counts = count_correct(
            network, self.data.validation(), self.ranks, self.dtype, lambda: self._stopping.asked,
            lambda count: self._note(f"validating, {min(count * self.ranks.world / images, 1):.0%}"),
        )  # fmt: skip
        self._note("")
        self.network.train()
        if counts is None:
            return True
        correct, images_seen, asked = self.ranks.sum(*counts, self._stopping.asked)
        self.accuracy, self._validated = correct / images_seen, self.step
        self._line(accuracy=self.accuracy, correct=correct, images=images_seen)
        if self.ranks.first:
            self._tell(
                f"epoch {self.step // self.steps} of {self.config.epochs}: {100 * self.accuracy:.2f} % of "
                f"{plural(images_seen, 'validation image')} correct{'' if self._average is None else ' (EMA)'}"
                f"{f'; {self._epoch_seconds():.2f} s per epoch' if self.step > self._from[0] else ''}"
            )
        return bool(asked)

    def _line(self, **numbers: float) -> None:
        if not self.ranks.first:
            return
        self._log.write(step=self.step, epoch=self.step / self.steps, **numbers)
        if self._curves is not None:
            for name, number in numbers.items():
                self._curves.add_scalar(name, number, self.step)

    def _note(self, note: str) -> None:
        if self._bar is not None:
            self._bar.note = note

    def _tell(self, line: str) -> None:
        with contextlib.nullcontext() if self._bar is None else self._bar.hidden():
            self.report(line)

    def _save(self) -> None:
        own: list[Any] = [self.data.state()] * self.ranks.world
        if self.ranks.world > 1:
            dist.all_gather_object(own, self.data.state())
        if not self.ranks.first:
            return
        random = {"cpu": torch.get_rng_state()}
        if self.ranks.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.ranks.device)
        run = {
            "step": self.step, "seconds": self.seconds, "accuracy": self.accuracy, "validated": self._validated,
            "data": own, "random": random,
            "images": self.data.identity,
            "optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict(),
        }  # fmt: skip
        content = networks.checkpoint(
            self.classifier, config=self.config.plain(), epoch=self.step / self.steps, run=run,
            **({} if self._average is None else {"ema": self._average.network.state_dict()}),
        )  # fmt: skip
        self._log.sync()
        checkpoint.save(self.folder, content)
        self._written = checkpoint.written(self.folder)

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
        if self._average is not None:
            with restoring("ema"):
                self._average.load(state["ema"])
        with restoring("run.optimizer"):
            optimization.restore_optimizer(self.optimizer, run["optimizer"], self.config)
        with restoring("run.schedule"):
            optimization.restore_schedule(self.schedule, run["schedule"], run["step"], self.total)
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
        if self.ranks.first:
            self.report(f"resuming {self.folder} after step {self.step} of {self.total}")

    @contextlib.contextmanager
    def _outputs(self) -> Iterator[None]:
        """Lock the folder, and open its files, the progress bar and TensorBoard's file, in the first process."""
        with contextlib.ExitStack() as stack:
            if not self.ranks.first:
                yield
                return
            stack.enter_context(held(self.folder))
            for left in self.folder.glob(".last-????????.pt"):  # of runs of earlier versions that were killed
                left.unlink()
            if checkpoint.written(self.folder) != self._written:
                raise RuntimeError(f"{self.folder}: another run has written there meanwhile; run the command again")
            with replacing(self.folder / checkpoint.CONFIG) as temporary:
                temporary.write_text(yaml.safe_dump(self.config.plain(), sort_keys=False))
            self._log = checkpoint.Log(self.folder, self.step)
            if self.progress is not None:
                self._bar = stack.enter_context(self.progress(self.total, "training", "step", self.step))
            if self.config.tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                self._curves = stack.enter_context(
                    SummaryWriter(str(self.folder / "tensorboard"), purge_step=self.step)
                )
            yield
