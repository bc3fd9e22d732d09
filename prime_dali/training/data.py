"""Training and validation batches of a run: CIFAR in device memory, photographs through DALI."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.transforms.v2.functional import resize

from .. import _extras
from ..data import sampling
from ..data.cifar import SIDE, NotCifarError, read_cifar
from ..data.records import Records, joined, numbered
from .augmentation import Plain, augmentation, compiled, follow_alpha, mirrored
from .config import TrainConfig
from .datasets import ANY_CLASSES, check_exists, count_classes, matched, opened
from .mixing import Mixing
from .ranks import Ranks

if TYPE_CHECKING:
    from ..dali import Execution, Loader, Output

PADDING = 4  # pixels, of CIFAR's random crops
VALIDATION_BATCH = 1000

Batch = tuple[torch.Tensor, torch.Tensor]
"""Normalized images, ``[views * N, 3, H, W]`` in channels_last, the clean ones first; labels, int64 ``[N]``, or soft
ones of mixed images, float32 ``[N, classes]``."""


class CifarData:
    """CIFAR in device memory; crops, flips and augmentation run there.

    Order, crops and flips depend only on the seed, the epoch and each image's index, and the processes take equal parts
    of every batch: a step has the same images for any number of processes.

    Attributes:
        validation_images: Their number, of all processes.
        identity: A hash of these images and classes; a run resumes only with the same ones.
        augment: From uint8 ``[N, 3, 32, 32]``, indices, epoch and ``flip`` to normalized images.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, out_dtype: torch.dtype) -> None:
        check_exists("data", config.data)
        try:
            train, test = (
                read_cifar(config.data, config.cifar_classes, train=part, label=config.label or None)
                for part in (True, False)
            )
        except NotCifarError as error:
            raise ValueError(f"data: {error}; {ANY_CLASSES}") from error
        if train.classes != test.classes:
            raise ValueError(f"{config.data}: expected the same classes in both parts")
        _check_batch(config, len(train.images))
        if config.size != SIDE:
            raise ValueError(f"size: expected {SIDE} for CIFAR, got {config.size}")
        self._config, self._ranks, self.classes = config, ranks, train.classes
        self.steps = len(train.images) // config.batch
        self.augment: Any = augmentation(config, out_dtype).to(ranks.device)
        self._plain = Plain(*config.statistics, out_dtype).to(ranks.device)
        self._mixing = Mixing(config, len(train.classes), ranks.rank)
        if config.compile and config.method != "prime":  # PRIME is two kernels already
            self.augment = compiled(self.augment, ranks.device)
        border = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
        digest = hashlib.sha256(train.images.tobytes() + train.labels.tobytes() + "\n".join(train.classes).encode())
        self.identity = digest.hexdigest()
        self._images = torch.from_numpy(np.pad(train.images, border)).to(ranks.device)
        self._labels = torch.from_numpy(train.labels).to(ranks.device)
        keep = _validated(config, len(test.images))
        self._test = torch.from_numpy(test.images[keep]), torch.from_numpy(test.labels[keep])
        self.validation_images = len(self._test[1])

    def batches(self, step: int) -> Iterator[Batch]:
        """This process's part of every step from ``step`` on, without an end.

        On a GPU they are computed on a separate stream, concurrently with the previous step, whose gaps they fill.
        """
        made, device = self._made(step), self._ranks.device
        if device.type != "cuda":
            yield from made
            return
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        while True:
            with torch.cuda.stream(stream):
                batch = next(made)
            current = torch.cuda.current_stream(device)
            current.wait_stream(stream)
            for tensor in batch:
                tensor.record_stream(current)  # its memory must not be reused before the step has read it
            yield batch

    def _made(self, step: int) -> Iterator[Batch]:
        share = self._config.batch // self._ranks.world
        begin = self._ranks.rank * share
        span = torch.arange(SIDE, device=self._ranks.device)
        epoch, place = divmod(step, self.steps)
        while True:
            numbers, rows, columns, flips = self._epoch(epoch)
            when = torch.tensor(epoch, device=self._ranks.device)  # a new int would compile AugMix again
            for i in range(place, self.steps):
                part = slice(i * self._config.batch + begin, i * self._config.batch + begin + share)
                index = numbers[part]
                y, x = rows[part, None] + span, columns[part, None] + span
                crops = self._images[index[:, None, None], y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)
                yield self._finished(crops, index, when, flips[part], epoch * self.steps + i)
            epoch, place = epoch + 1, 0

    def _finished(
        self, crops: torch.Tensor, index: torch.Tensor, epoch: torch.Tensor, flip: torch.Tensor | None, step: int
    ) -> Batch:
        """A step's crops, uint8 ``[N, 3, 32, 32]``, resized, augmented and mixed, with their labels."""
        side = self._config.side(run_epoch := self._config.epoch_at(step, self.steps))
        if side != SIDE:
            crops = resize(crops, [side, side], antialias=True)
        if self._mixing.first and flip is not None:  # each image is mirrored by itself, before it is mixed
            crops, flip = mirrored(crops, flip), None
        images, labels = self._mixing.before(crops, self._labels[index], step)
        follow_alpha(self.augment, self._config, run_epoch)
        return self._mixing.after(self.augment(images, index, epoch, flip=flip), labels, step)

    def _epoch(self, epoch: int) -> list[torch.Tensor]:
        seed, count = self._config.seed, len(self._images)
        numbers = sampling.permutation(seed, epoch, count)
        corners = sampling.random_shifts(numbers, epoch, seed, PADDING)
        flips = sampling.random_flips(numbers, epoch, seed, 0.5).astype(bool)
        device = self._ranks.device
        return [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (numbers, *corners.T, flips)]

    def validation(self) -> Iterator[Batch]:
        """This process's part of the test set, every image once over all processes."""
        images, labels = (both[self._ranks.rank :: self._ranks.world] for both in self._test)
        for pixels, classes in zip(images.split(VALIDATION_BATCH), labels.split(VALIDATION_BATCH), strict=True):
            yield self._plain(pixels.to(self._ranks.device).permute(0, 3, 1, 2), None), classes.to(self._ranks.device)

    def start(self) -> None:
        """Nothing is to be prepared for the first batch."""

    def state(self) -> Any:
        """None: the number of the step is sufficient."""
        return None

    def restore(self, state: Any) -> None:
        """See :meth:`state`."""


class FolderData:
    """Photographs in class folders or shards, decoded, cropped and augmented by a DALI pipeline.

    Attributes:
        validation_images: Their number, of all processes.
        identity: A hash of the images' names, or of their places in shards, which determine indices and labels; a run
            resumes only with the same ones.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, out_dtype: torch.dtype) -> None:
        _require_dali(config.recipe)
        train = opened(config, config.data, None if config.val else "train")
        extra = [opened(config, folder, None, "deepaugment") for folder in config.deepaugment]
        val = opened(config, config.val or config.data, None if config.val else "val", "val" if config.val else "data")
        self.classes = train.classes or numbered(count_classes(train))
        extra = [matched(name, part, train) for name, part in zip(("EDSR", "CAE"), extra, strict=False)]
        self.augment: Any = None if config.augments_files else augmentation(config, out_dtype).to(ranks.device)
        self._mixing = Mixing(config, len(self.classes), ranks.rank)
        self._config, self._ranks, self._records = config, ranks, joined([train, *extra])
        _check_batch(config, len(self._records))
        self._kind = self._kind_of(0)
        self._train = _training_loader(config, ranks, self._records, 0)
        val = matched("val", val, train)
        if config.limit_steps:
            keep = _validated(config, len(val))
            val = val.select(keep, val.labels[keep], val.classes)
        self.validation_images = len(val)
        self._val = _validation_loader(config, ranks, val)
        self.identity = hashlib.sha256(b"".join(part.identity() for part in (train, *extra))).hexdigest()
        self.steps = len(self._train)
        self._dtype = out_dtype

    def batches(self, step: int) -> Iterator[Batch]:
        """This process's part of every step from ``step`` on, that of :meth:`restore`, without an end."""
        while True:
            self._continue_in(self._config.epoch_at(step, self.steps))
            epoch = self._train.epoch
            for images, labels, index in self._train:
                if self.augment is not None:
                    assert isinstance(images, torch.Tensor)
                    images, labels = self._mixing.before(images, labels, step)
                    follow_alpha(self.augment, self._config, self._config.epoch_at(step, self.steps))
                    images = self.augment(images, index, epoch)
                else:
                    images = (torch.cat(images) if isinstance(images, tuple) else images).to(self._dtype)
                yield self._mixing.after(images, labels, step)
                step += 1
                if self._kind_of(self._config.epoch_at(step, self.steps)) != self._kind:
                    break

    def _kind_of(self, epoch: int) -> tuple[int, float]:
        """What of the loader changes with the epoch: its images' side, pixels, and PRIME's alpha if that is in it."""
        return self._config.side(epoch), self._config.alpha_at(epoch) if self.augment is None else 0.0

    def _continue_in(self, epoch: int) -> None:
        """Continue with the images of this epoch of the run, at the same place."""
        if self._kind_of(epoch) == self._kind:
            return
        place = self._train.state_dict()
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)  # the loader's last batches are released with it
        self._train = _training_loader(self._config, self._ranks, self._records, epoch)
        self._kind = self._kind_of(epoch)
        self._train.load_state_dict(place, strict=False)

    def validation(self) -> Iterator[Batch]:
        """This process's part of the validation set, every image once over all processes."""
        for images, labels, _ in self._val:
            assert isinstance(images, torch.Tensor)
            yield images.to(self._dtype), labels

    def start(self) -> None:
        """Make the first batch in a thread, while the network is created; not before :meth:`restore`."""
        self._train.start()

    def state(self) -> Any:
        """The position of the next training batch."""
        return self._train.state_dict()

    def restore(self, state: Any) -> None:
        """Resume from a :meth:`state`; the loader's arguments change with the epoch of the run."""
        self._train.load_state_dict(state, strict=False)


def _require_dali(recipe: str) -> None:
    """ImportError, with the command that installs it, unless NVIDIA DALI is installed."""
    try:
        from .. import dali  # noqa: F401 -- only whether it is installed
    except ImportError as error:
        raise ImportError(
            f"recipe {recipe}: expected NVIDIA DALI, got none ({error}); {_extras.install('dali-cuda13')}"
        ) from error


def _training_loader(config: TrainConfig, ranks: Ranks, train: Records, epoch: int) -> Loader:
    """This process's training batches as in an epoch of the run; raw pixels if they are augmented later."""
    from .. import dali

    augments = config.method == "prime" and config.augments_files
    pipeline = dali.train_pipeline(
        dali.Reader(train, shard_id=ranks.rank, num_shards=ranks.world),
        dali.Augmentation(config.prime(epoch), views=config.views) if augments else None,
        batch_size=config.batch // ranks.world, seed=config.seed,
        crop=dali.RandomCrop(config.side(epoch), area=(config.crop_area, 1.0)), execution=_execution(config, ranks),
        output=_normalized_output(config, ranks) if config.augments_files else _raw_output(),
    )  # fmt: skip
    return dali.Loader(pipeline, on_error="skip")


def _validation_loader(config: TrainConfig, ranks: Ranks, val: Records) -> Loader:
    """This process's validation batches."""
    from .. import dali

    pipeline = dali.val_pipeline(
        dali.Reader(val, shard_id=ranks.rank, num_shards=ranks.world),
        batch_size=min(config.batch // ranks.world, 250),
        execution=_execution(config, ranks),
        crop=dali.CenterCrop((config.size, config.size), resize=config.resize or config.size),
        output=_normalized_output(config, ranks),
    )
    return dali.Loader(pipeline)


def _execution(config: TrainConfig, ranks: Ranks) -> Execution:
    from .. import dali

    cuda = ranks.device.type == "cuda"
    return dali.Execution(
        "gpu" if cuda else "cpu", device_id=ranks.device.index if cuda else None, num_threads=config.workers or None
    )


def _normalized_output(config: TrainConfig, ranks: Ranks) -> Output:
    """Normalized images."""
    from .. import dali
    from ..dali.operator import types

    mean, std = config.statistics
    dtype = types.FLOAT16 if ranks.device.type == "cuda" else types.FLOAT
    return dali.Output(mean=mean, std=std, dtype=dtype, layout="HWC")


def _raw_output() -> Output:
    """Pixels from 0 to 255."""
    from .. import dali
    from ..dali.operator import types

    return dali.Output(mean=None, std=None, dtype=types.UINT8, layout="HWC")


def _check_batch(config: TrainConfig, images: int) -> None:
    """ValueError if so many training images are less than a batch."""
    if images < config.batch:
        raise ValueError(f"batch: expected at most the {images} training images, got {config.batch}")


def _validated(config: TrainConfig, images: int) -> NDArray[np.int64]:
    """Indices of the validation images that a run uses: all of them, or in a trial as many as are in its steps of an
    epoch, evenly spaced, as images are sorted by class."""
    count = min(images, config.limit_steps * config.batch or images)
    return np.arange(count) * images // count
