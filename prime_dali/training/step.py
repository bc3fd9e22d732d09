"""A training step: the loss, its gradients, and the update of the weights and of their average."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ..data.sampling import step_seed
from ..models.creation import check_logits
from . import optimization, replay
from .averaging import Average
from .config import TrainConfig
from .losses import jsd_loss
from .ranks import Ranks, SharedGradients


class TrainingStep:
    """What every step of a run does, and what it keeps from step to step.

    Args:
        network: On the device of ``ranks``, in the memory format of training; in training mode when this is called.
        config: The settings.
        ranks: The processes of the run.
        dtype: bfloat16 for autocast.
        total: Steps of the run.

    Attributes:
        optimizer, schedule: Of the network's parameters.
        average: Of the weights (EMA), if the run has one.
        lr: Learning rate of the last step.

    Raises:
        ValueError, ImportError: As for :func:`.optimization.optimizer` and :func:`.optimization.schedule`.
    """

    def __init__(self, network: nn.Module, config: TrainConfig, ranks: Ranks, dtype: torch.dtype, total: int) -> None:
        self.ranks, self.lr = ranks, 0.0
        self._network, self._config, self._dtype, self._total = network, config, dtype, total
        self._parameters = list(network.parameters())  # collecting them takes a tenth of a small step
        self.optimizer = optimization.optimizer(network, config)
        self.schedule = optimization.schedule(self.optimizer, config, total)
        self.average = Average(network, config.ema_decay) if config.ema_decay else None
        # The host cannot launch kernels as fast as the GPU runs them: with small images, or while DALI decodes.
        self._replays = config.compile and ranks.device.type == "cuda"
        self._replayed: replay.Replayed | None = None
        # With other processes, each step has gradients of its own; other optimizers are few kernels.
        captured = self._replays and ranks.world == 1 and config.optimizer == "muon"
        self._update = replay.ReplayedUpdate(self.optimizer, ranks.device) if captured else None
        self._shared = SharedGradients(network) if ranks.world > 1 else None
        self._model: Callable[[torch.Tensor], torch.Tensor] = network
        self._loss = _loss(config)
        if config.compile:
            self._model = torch.compile(self._model, dynamic=False)
            self._loss = torch.compile(self._loss, dynamic=False)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor, step: int) -> torch.Tensor:
        """Take a step on a batch of ``data.batches()``.

        Args:
            images, labels: The batch.
            step: The number of steps before this one.

        Returns:
            The loss, a scalar on the device.
        """
        if self._config.drop_path:  # keyed, so that it differs between processes
            torch.manual_seed(step_seed("network", self._config.seed, step, self.ranks.rank))
        if self._replays:
            loss = self._replay(images, labels)
        else:
            self.optimizer.zero_grad()
            loss = self.gradients(images, labels)
        if self._shared is not None:
            self._shared.average()
        if self._config.clip:
            nn.utils.clip_grad_norm_(self._parameters, self._config.clip)
        if self._update is None:
            self.optimizer.step()
        else:
            self._update()
        if self.average is not None:
            self.average.update(self._network, step + 1)
        self.lr = optimization.learning_rate(self.optimizer)  # of this step
        if step + 1 < self._total:
            self.schedule.step()
        return loss

    def gradients(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns the loss, and writes its gradients to the parameters: in equal parts, whose gradients are added."""
        parts, losses = self._config.accumulate, []
        for pixels, classes in _parts(images, labels, self._config.views, parts):
            with torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16):
                logits = check_logits(self._model(pixels), len(pixels), f"network {self._config.network} in training")
            loss = self._loss(logits, classes)
            (loss / parts if parts > 1 else loss).backward()
            losses.append(loss.detach())
        if self._shared is not None:
            self._shared.gather()
        return torch.stack(losses).mean() if parts > 1 else losses[0]

    def _replay(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """:meth:`gradients` as a CUDA graph, captured anew for other shapes."""
        if self._replayed is None or not self._replayed.takes(images, labels):
            self._replayed = None  # its memory first
            self._replayed = replay.Replayed(self.gradients, self._network, images, labels)
            if self._update is not None:
                self._update.forget()
        return self._replayed(images, labels)


def _parts(
    images: torch.Tensor, labels: torch.Tensor, views: int, count: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A batch in ``count`` equal parts, for gradient accumulation.

    Args:
        images: ``[views * N, 3, H, W]``, one view after another.
        labels: int64 ``[N]``, or soft ones ``[N, classes]``.

    Yields:
        Images ``[views * N / count, 3, H, W]``, one view after another, and their labels.
    """
    if count == 1:
        yield images, labels
        return
    pieces = [view.chunk(count) for view in images.chunk(views)]
    for part, classes in enumerate(labels.chunk(count)):
        own = [piece[part] for piece in pieces]
        yield own[0] if views == 1 else torch.cat(own), classes


def _loss(config: TrainConfig) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The loss of a run, from logits and labels."""

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if config.jsd:
            return jsd_loss(logits, labels, config.jsd_weight, config.label_smoothing)
        return cross_entropy(logits.float(), labels, label_smoothing=config.label_smoothing)

    return loss
