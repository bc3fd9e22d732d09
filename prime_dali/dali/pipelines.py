"""Pipelines for training and validating an image classifier, from a data set or any other source of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvidia.dali import Pipeline, math
from nvidia.dali.data_node import DataNode

from .. import _findings
from ..config import PrimeConfig, as_config
from ..data.sampling import random_crops, random_flips
from . import dataset, inputs, native, operator, settings, sources
from .operator import fn, types
from .settings import Augmentation, CenterCrop, Execution, Output, RandomCrop
from .sources import Reader, Source


@dataclass(frozen=True)
class Definition:
    """Everything that defines a pipeline, except the batch that it starts with.

    Attributes:
        data: The images and their order, or None with a custom source.
        batches: Batches per epoch.
        views: 1, 2 or 3.
        layout: ``"CHW"`` or ``"HWC"``.
        settings: The arguments that determine the content of the batches, by name, as plain data; of paths only the
            number of images, and not how and where the pipeline runs.
        nodes: From the batch that a pipeline starts with, counted from the start of epoch 0, to its outputs.
        options: Arguments of ``nvidia.dali.Pipeline``.
    """

    data: dataset.Images | None
    batches: int
    views: int
    layout: str
    settings: dict[str, Any]
    nodes: Callable[[int], Sequence[DataNode]]
    options: dict[str, Any]


class ImagePipeline(Pipeline):
    """A DALI pipeline that can be recreated to start at any batch; its outputs are views, labels and image indices.

    Attributes:
        batches: Batches per epoch. Epochs follow one another without a stop.
        views: 1, 2 or 3.
        out_layout: ``"CHW"`` or ``"HWC"``.
        data: The images and their order, or None with a custom source.
        classes: Names of the classes, by label; empty if the data set does not name them.
        settings: The arguments that determine the content of the batches, by name, as plain data.
        taken: Whether it is not a new one for a :class:`Loader`: another has it, it was run, or it is a copy.

    Examples:
        >>> from prime_dali.dali import Execution, train_pipeline
        >>> pipeline = train_pipeline("train", "imagenet", batch_size=2, execution=Execution("cpu"))
        >>> pipeline.batches, pipeline.views, pipeline.out_layout
        (2, 1, 'CHW')
        >>> pipeline.classes
        ('cat', 'dog')
    """

    def __init__(self, definition: Definition, start: int = 0, checkpoint: bytes | None = None) -> None:
        super().__init__(**definition.options, enable_checkpointing=True, checkpoint=checkpoint)
        self.data, self.batches = definition.data, definition.batches
        self.views, self.out_layout = definition.views, definition.layout
        self.settings = definition.settings
        self.classes = () if definition.data is None else definition.data.records.classes
        self._definition, self.taken = definition, False
        with self:
            self.set_outputs(*definition.nodes(start))

    def schedule_run(self) -> None:
        """As of ``nvidia.dali.Pipeline``, whose ``run`` and DALI's iterators call it."""
        self.taken = True
        super().schedule_run()

    def restarted(self, start: int = 0, checkpoint: bytes | None = None) -> ImagePipeline:
        """A new copy: from batch ``start`` on (a data set), or resumed from ``checkpoint`` (a source). It is taken: a
        new :class:`Loader` would count its batches from 0."""
        copy = ImagePipeline(self._definition, start, checkpoint)
        copy.taken = True
        return copy


@settings.moved(data=(Source, Reader), prime=Augmentation, crop=RandomCrop, output=Output, execution=Execution)
def train_pipeline(
    data: str | os.PathLike[str] | Reader | Source,
    prime: PrimeConfig | str | Augmentation | None = "imagenet",
    *,
    batch_size: int,
    seed: int = 0,
    crop: RandomCrop = RandomCrop(),
    output: Output = Output(),
    execution: Execution = Execution(),
) -> ImagePipeline:
    """A training pipeline: shuffle, read, decode the window of a random resized crop, resize, and PRIME with flip and
    normalization in one kernel.

    Except with a :class:`Source`, order, crops, flips and PRIME depend only on the seed, the epoch and each image's
    index (its position in the whole data set): the result is the same for any format, batch size and number of shards,
    and differs between epochs.

    Args:
        data: A data set: a folder with one subfolder of images per class; or shards of WebDataset, TFRecord, Parquet or
            Hugging Face's ``save_to_disk``, as their folder, a file, or a pattern such as ``train-{0000..0099}.tar``.
            Or a :class:`Reader`, for lists of files, parts of a data set, shards and the last batch; or a
            :class:`Source`, for images from other DALI operators.
        prime: The distributions of PRIME, or the name of a preset; or an :class:`Augmentation`, for three views. None:
            no PRIME; everything else is the same.
        batch_size: Images per batch.
        seed: The run's seed, the same on all shards.
        crop: Size of the result, and the random window and flip.
        output: Normalization, dtype and layout of the result.
        execution: Device, threads, and the number of prefetched batches.

    Returns:
        A pipeline of ``views`` batches of images, labels and image indices, all on its device: as :class:`Batch` says,
        but ``[N, H, W, 3]`` with layout HWC.

    Raises:
        TypeError, ValueError: An argument is invalid, a folder has no classes, a class has no images, or a shard is
            damaged, or lacks images or labels.
        OSError: A folder or shard is missing or cannot be read.
        RuntimeError: ``execution`` requests a GPU, but none is usable.

    Examples:
        >>> from prime_dali.dali import Augmentation, Execution, RandomCrop, train_pipeline
        >>> prime, crop, execution = Augmentation("cifar", views=3), RandomCrop(32), Execution("cpu")
        >>> pipeline = train_pipeline("train", prime, batch_size=2, seed=1, crop=crop, execution=execution)
        >>> clean, first, second, labels, numbers = pipeline.run()
        >>> first.as_tensor().shape()
        [2, 3, 32, 32]
    """
    data, augmentation = sources.reader(data), settings.augmentation(prime)
    crop = settings.group("crop", crop, RandomCrop)
    sampling = _sampling(data, batch_size, seed, training=True)
    frame = _Frame(data, sampling, output, execution, augmentation.config is not None)

    def nodes(start: int) -> list[DataNode]:
        given = frame.read(start, True)
        images, flips = _random_crop(frame, given, crop, sampling.seed)
        if augmentation.config is None:
            return frame.outputs([frame.normalized(images, flips)], given)
        out = operator.prime(
            images, augmentation.config, index=given.index, epoch=given.epoch, flip=flips, seed=sampling.seed,
            views=augmentation.views, mean=output.mean, std=output.std, out_dtype=output.dtype,
            out_layout=output.layout, mode=augmentation.mode,
        )  # fmt: skip
        return frame.outputs(list(out) if augmentation.views > 1 else [out], given)

    prime_settings = None if augmentation.config is None else settings.plain(as_config(augmentation.config))
    return frame.pipeline(augmentation.views, {"prime": prime_settings, "crop": settings.plain(crop)}, nodes)


@settings.moved(data=(Source, Reader), crop=CenterCrop, output=Output, execution=Execution)
def val_pipeline(
    data: str | os.PathLike[str] | Reader | Source,
    *,
    batch_size: int,
    crop: CenterCrop = CenterCrop(),
    output: Output = Output(),
    execution: Execution = Execution(),
) -> ImagePipeline:
    """A validation pipeline: decode, resize the shorter side, crop the center, normalize; in the order of the list.

    Resize and crop are one step that computes only the pixels in the crop. The window is exact to a fraction of a
    pixel; torchvision rounds the longer side and the corner to whole pixels of the resized image.

    Args:
        data, batch_size, output, execution: As for :func:`train_pipeline`.
        crop: Size of the result, and of the resized image whose center it is.

    Returns:
        A pipeline of images, int64 labels and int64 image indices.

    Raises:
        TypeError, ValueError, OSError, RuntimeError: As for :func:`train_pipeline`.

    Examples:
        >>> from prime_dali.dali import CenterCrop, Execution, val_pipeline
        >>> pipeline = val_pipeline("val", batch_size=2, crop=CenterCrop(32, resize=36), execution=Execution("cpu"))
        >>> images, labels, numbers = pipeline.run()
        >>> images.as_tensor().shape(), np.array(numbers.as_tensor()).ravel().tolist()
        ([2, 3, 32, 32], [0, 1])
    """
    data, crop = sources.reader(data), settings.group("crop", crop, CenterCrop)
    frame = _Frame(data, _sampling(data, batch_size, 0, training=False), output, execution, False)

    def nodes(start: int) -> list[DataNode]:
        given = frame.read(start, False)
        return frame.outputs([frame.normalized(_center_crop(frame, given.images, crop), None)], given)

    return frame.pipeline(1, {"crop": settings.plain(crop)}, nodes)


def _sampling(data: Reader | Source, batch_size: int, seed: int, *, training: bool) -> dataset.EpochSampling:
    """How batches are drawn, with defaults for what ``data`` leaves open."""
    shuffle = training
    if isinstance(data, Reader) and data.shuffle is not None:
        shuffle = data.shuffle
    if shuffle and not training:
        raise ValueError("shuffle: expected False or None in validation, which keeps the order of the list, got True")
    last_batch = "drop" if training else "partial" if isinstance(data, Reader) else "fill"
    return dataset.EpochSampling(seed, shuffle, batch_size, *data.shard(), data.last_batch or last_batch)


class _Frame:
    """What both pipelines share: inputs, outputs, and where they run."""

    def __init__(
        self, data: Reader | Source, sampling: dataset.EpochSampling, output: Output, execution: Execution, prime: bool
    ) -> None:
        self.output = settings.group("output", output, Output)
        settings.group("execution", execution, Execution)
        self._sampling, self._data, self._images = sampling, data, None
        if isinstance(data, Source):
            self.decoded, self.batches = data.decoded, sampling.batches(data.num_images)
            self._settings = sampling.plain(data.num_images)
        else:
            self._images = dataset.Images(dataset.listed(data), sampling)
            self.decoded, self.batches = False, self._images.batches
            self._settings = sampling.plain(len(self._images.records))
        self.device, _ = _findings.dali_device(execution.device, native.finding, prime)
        # By default a tenth of each batch is decoded by CUDA kernels, which round differently than the JPEG engine:
        # images would depend on their batch.
        self.decoder = {"device": "mixed", "hw_decoder_load": 1.0} if self.device == "gpu" else {"device": "cpu"}
        self._options = {
            "batch_size": sampling.batch_size, "num_threads": execution.threads(),
            "prefetch_queue_depth": execution.prefetch_queue_depth,
            "device_id": execution.gpu() if self.device == "gpu" else None,
            "seed": (sampling.seed + sampling.shard_id) & 0x7FFFFFFF, "exec_dynamic": True,
        }  # fmt: skip

    def read(self, start: int, numbered: bool) -> inputs.Inputs:
        """Images, labels, image indices and, if ``numbered``, epochs; with files from batch ``start`` on."""
        if isinstance(self._data, Source):
            return inputs.of_source(self._data, self._sampling.batch_size, self.batches, numbered)
        assert self._images is not None
        return inputs.of_images(self._images, start, numbered)

    def normalized(self, images: DataNode, flips: DataNode | None) -> DataNode:
        """Images without PRIME, with the same range and axes as with it."""
        output = self.output
        scale = 1.0 if output.dtype == types.UINT8 else 255.0
        # One number is for all channels, however many.
        mean = [0.0] if output.mean is None else [m * scale for m in output.mean]
        std = [scale] if output.std is None else [s * scale for s in output.std]
        options = {} if flips is None else {"mirror": flips}
        return fn.crop_mirror_normalize(
            images, dtype=output.dtype, output_layout=output.layout, mean=mean, std=std, **options
        )

    def outputs(self, views: list[DataNode], given: inputs.Inputs) -> list[DataNode]:
        """Views, labels and image indices, all on the pipeline's device."""
        if self.device == "gpu":
            return [*views, given.labels.gpu(), given.index.gpu()]
        return [*views, given.labels, given.index]

    def pipeline(self, views: int, groups: dict[str, Any], nodes: Callable[[int], list[DataNode]]) -> ImagePipeline:
        """The pipeline with these outputs; ``groups`` are the settings that only one of the pipelines has."""
        own = self._settings | {"views": views} | groups | {"output": settings.plain(self.output)}
        return ImagePipeline(
            Definition(self._images, self.batches, views, self.output.layout, own, nodes, self._options)
        )


def _random_crop(frame: _Frame, given: inputs.Inputs, crop: RandomCrop, seed: int) -> tuple[DataNode, DataNode]:
    """Random windows of training images, resized, and which of them to flip."""
    images = given.images
    seen = inputs.seen(images, frame.decoded)
    on_cpu = images.device == "cpu"

    def windows(
        index: list[Any], epoch: list[Any], shapes: list[Any], *seen: list[Any]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        inputs.check(frame.decoded, frame.output.mean, shapes, *seen)
        shape = np.stack(shapes).astype(np.int64)
        numbers, epochs = np.stack(index).reshape(-1), np.stack(epoch).reshape(-1)
        corner, window = random_crops(shape[:, 0], shape[:, 1], numbers, epochs, seed, crop.area, crop.ratio)
        return list(corner), list(window), list(random_flips(numbers, epochs, seed, crop.flip)[:, None])

    corner, window, flips = fn.python_function(
        given.index, given.epoch, *seen, function=windows, num_outputs=3, batch_processing=True
    )
    place = {"normalized_anchor": False, "normalized_shape": False, "axis_names": "HW"}
    if frame.decoded:
        images = fn.slice(images, corner, window, **place)
    else:
        images = fn.decoders.image_slice(images, corner, window, **frame.decoder, **place)
    if frame.decoded and on_cpu and frame.device == "gpu":
        images = images.gpu()
    return fn.resize(images, size=crop.size), flips


def _center_crop(frame: _Frame, images: DataNode, crop: CenterCrop) -> DataNode:
    """The center of validation images."""

    def checked(shapes: list[Any], *seen: list[Any]) -> list[Any]:
        inputs.check(frame.decoded, frame.output.mean, shapes, *seen)
        return [shape.astype(np.float32) for shape in shapes]

    shape = fn.python_function(*inputs.seen(images, frame.decoded), function=checked, batch_processing=True)
    if not frame.decoded:
        images = fn.decoders.image(images, **frame.decoder)
    images = images.gpu() if frame.device == "gpu" else images
    # In pixels of the original image.
    window = math.min(shape[0], shape[1]) / crop.resize * np.array(crop.size, np.float32)
    low = (shape[:2] - window) * 0.5
    kind = settings.INTERPOLATIONS[crop.interpolation]
    return fn.resize(images, size=crop.size, roi_start=low, roi_end=low + window, interp_type=kind)
