"""Pipelines to train and validate an image classifier, from files or from any source of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import Pipeline, math
from nvidia.dali import fn as dali_fn
from nvidia.dali.data_node import DataNode

from .. import _arguments, _devices
from ..config import PrimeConfig, as_config
from ..data import sampling as order
from ..data.statistics import IMAGENET_STATISTICS
from . import dataset, inputs, native
from .operator import prime, types

fn: Any = dali_fn  # its annotations know no **options, and not all modules

IMAGENET_MEAN, IMAGENET_STD = IMAGENET_STATISTICS

Source = Callable[[], "tuple[DataNode, DataNode, DataNode | None]"]
_LAYOUTS = ("CHW", "HWC")


class ImagePipeline(Pipeline):
    """A DALI pipeline that can be made again from any batch on; its outputs are views, labels and image numbers.

    Attributes:
        batches: Batches an epoch. Epochs follow one another without a stop.
        views: 1 or 3.
        out_layout: ``"CHW"`` or ``"HWC"``.
        data: The files and their order, or None with a source of one's own.
    """

    def __init__(
        self,
        data: dataset.Files | None,
        batches: int,
        views: int,
        out_layout: str,
        definition: Callable[[int], Sequence[DataNode]],
        options: dict[str, Any],
        start: int = 0,
        checkpoint: bytes | None = None,
    ) -> None:
        super().__init__(**options, enable_checkpointing=True, checkpoint=checkpoint)
        self.data, self.batches, self.views, self.out_layout = data, batches, views, out_layout
        self._definition, self._own_options = definition, options
        with self:
            self.set_outputs(*definition(start))

    def restarted(self, start: int = 0, checkpoint: bytes | None = None) -> ImagePipeline:
        """The same pipeline anew: from batch ``start`` on (of files), or as ``checkpoint`` says (of a source)."""
        return ImagePipeline(
            self.data, self.batches, self.views, self.out_layout, self._definition, self._own_options, start, checkpoint
        )


def train_pipeline(
    folder: str | os.PathLike[str] | None = None,
    config: PrimeConfig | str | None = "imagenet",
    *,
    batch_size: int,
    files: Sequence[str | os.PathLike[str]] | None = None,
    labels: Sequence[int] | None = None,
    source: Source | None = None,
    num_images: int | None = None,
    decoded: bool = False,
    seed: int = 0,
    views: int = 1,
    size: int | Sequence[int] = (224, 224),
    area: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
    mean: Sequence[float] | None = IMAGENET_MEAN,
    std: Sequence[float] | None = IMAGENET_STD,
    out_dtype: Any = types.FLOAT,
    out_layout: str = "CHW",
    shuffle: bool = True,
    last_batch: str = "drop",
    shard_id: int | None = None,
    num_shards: int | None = None,
    device: str = "auto",
    device_id: int | None = None,
    num_threads: int | None = None,
    prefetch_queue_depth: int = 2,
    mode: str = "auto",
) -> ImagePipeline:
    """Training: shuffle, read, decode the window of a random resized crop, resize, and PRIME with flip and
    normalisation in one kernel.

    With files, order, crops, flips and PRIME follow from the seed, the epoch and each image's number (its place in
    the sorted list of the whole data set) alone: the same image comes out whatever the batch size and the number of
    shards, and another one in each epoch.

    Args:
        folder: A folder with one folder of images a class, as for ``torchvision.datasets.ImageFolder``.
        config: The distributions of PRIME, or the name of a preset. None: without PRIME, all else the same.
        batch_size: Images a batch.
        files, labels: Paths, and one int each, in place of ``folder``.
        source: In place of both: called in the pipeline definition, returns DataNodes of images, labels (integers)
            and image numbers (integers), or None for numbers of DALI's generator, which then name crop, flip and
            PRIME. Labels and numbers of type uint8 and one dimension are text, as WebDataset's ``cls``: of decimal
            digits. Every batch it gives must have ``batch_size`` images, without an end, as DALI's readers do. It
            shuffles and shards by itself.
        num_images: Images an epoch of ``source``, on this shard.
        decoded: ``source`` gives uint8 HWC images; False: encoded ones, on the CPU.
        seed: The run's seed, the same on all shards.
        views: 1, or 3 of one decode: clean, augmented, augmented.
        size: Height and width of the result, 8 to 4096 pixels each, or an int for squares.
        area, ratio: Bounds of the crop's part of the area (0 to 1), and of its width / height.
        flip: Probability to mirror left to right; all views of an image together.
        mean, std: Per channel, on the [0, 1] scale. None, both: pixels in [0, 1], or 0 to 255 for ``types.UINT8``.
        out_dtype: ``types.FLOAT``, ``FLOAT16``, or ``UINT8`` without mean and std.
        out_layout: Axes of the result, ``"CHW"`` or ``"HWC"``.
        shuffle: False: always the order of the list.
        last_batch: What to do where ``batch_size`` and the shards do not divide the images. ``"drop"``: leave out the
            rest of the epoch's order; ``"fill"``: go on with images of its beginning; both give every shard the same
            number of full batches. ``"partial"``: a smaller last batch, every image exactly once over all shards,
            some of which may then have one batch more than others. With ``source``, ``"drop"`` or ``"fill"``.
        shard_id, num_shards: Of this process. None: rank and world size of torch.distributed if that is initialised.
        device: ``"gpu"`` decodes and augments there, ``"cpu"`` does not, ``"auto"`` takes the GPU if it can be used.
        device_id: Number of the GPU. None: torch's current one, else 0.
        num_threads: Of DALI. None: as many as this process may use.
        prefetch_queue_depth: Batches that are made ahead.
        mode: How PRIME runs, see :func:`prime`.

    Returns:
        A pipeline of ``views`` batches of images, int64 labels and int64 image numbers, on ``device``.

    Raises:
        TypeError, ValueError: A wrong argument, a folder without classes or a class without images.
        RuntimeError: ``device="gpu"`` and no GPU can be used.
    """
    if config is None:
        if views != 1:
            raise ValueError(f"views: expected 1 without PRIME (config=None), got {views!r}")
    else:
        config = as_config(config)
    views, seed = _arguments.training_views(views), _arguments.seed(seed)
    area = _arguments.interval("area", area, 1.0)
    ratio = _arguments.interval("ratio", ratio, float("inf"))
    size = _arguments.image_size("size", size)
    flip = _arguments.amplitude("flip", flip)
    if flip > 1:
        raise ValueError(f"flip: expected a probability, 0 to 1, got {flip}")
    common = _Common(
        prime=config is not None, folder=folder, files=files, labels=labels, source=source, num_images=num_images,
        decoded=decoded, batch_size=batch_size, size=size, mean=mean, std=std, out_dtype=out_dtype,
        out_layout=out_layout,
        shuffle=shuffle, last_batch=last_batch, seed=seed, shard_id=shard_id, num_shards=num_shards, device=device,
        device_id=device_id, num_threads=num_threads, prefetch_queue_depth=prefetch_queue_depth,
    )  # fmt: skip

    def definition(start: int) -> list[DataNode]:
        images, label, index, epoch = common.inputs(start, True)
        on_cpu = images.device == "cpu"
        seen = (images.shape(),) if decoded else (fn.peek_image_shape(images), images)

        def windows(
            index: list[Any], epoch: list[Any], shapes: list[Any], *encoded: list[Any]
        ) -> tuple[list[Any], list[Any], list[Any]]:
            inputs.check_depths(*encoded)
            shape = np.stack(shapes).astype(np.int64)
            numbers, epochs = np.stack(index).reshape(-1), np.stack(epoch).reshape(-1)
            corner, window = order.random_crops(shape[:, 0], shape[:, 1], numbers, epochs, seed, area, ratio)
            return list(corner), list(window), list(order.random_flips(numbers, epochs, seed, flip)[:, None])

        corner, window, flips = fn.python_function(
            index, epoch, *seen, function=windows, num_outputs=3, batch_processing=True
        )
        place = {"normalized_anchor": False, "normalized_shape": False, "axis_names": "HW"}
        if decoded:
            images = fn.slice(images, corner, window, **place)
        else:
            images = fn.decoders.image_slice(images, corner, window, **common.decoder, **place)
        if decoded and on_cpu and common.device == "gpu":
            images = images.gpu()
        images = fn.resize(images, size=size)
        if config is None:
            return common.outputs([common.normalized(images, flips)], label, index)
        out = prime(
            images, config, index=index, epoch=epoch, flip=flips, seed=seed, views=views, mean=mean, std=std,
            out_dtype=out_dtype, out_layout=out_layout, mode=mode,
        )  # fmt: skip
        return common.outputs(list(out) if views == 3 else [out], label, index)

    return common.pipeline(views, definition)


def val_pipeline(
    folder: str | os.PathLike[str] | None = None,
    *,
    batch_size: int,
    files: Sequence[str | os.PathLike[str]] | None = None,
    labels: Sequence[int] | None = None,
    source: Source | None = None,
    num_images: int | None = None,
    decoded: bool = False,
    size: int | Sequence[int] = (224, 224),
    resize: int = 256,
    mean: Sequence[float] | None = IMAGENET_MEAN,
    std: Sequence[float] | None = IMAGENET_STD,
    out_dtype: Any = types.FLOAT,
    out_layout: str = "CHW",
    last_batch: str | None = None,
    shard_id: int | None = None,
    num_shards: int | None = None,
    device: str = "auto",
    device_id: int | None = None,
    num_threads: int | None = None,
    prefetch_queue_depth: int = 2,
) -> ImagePipeline:
    """Validation: decode, resize the shorter side, crop the centre, normalise; in the order of the list.

    Resize and crop are one step that makes only the pixels that stay. The window is exact to a fraction of a pixel,
    where torchvision rounds the longer side and the corner to whole pixels of the resized image.

    Args:
        resize: The shorter side after resizing, pixels; at least both sides of ``size``.
        folder, batch_size, files, labels, source, num_images, decoded, size, mean, std, out_dtype, out_layout: As for
            :func:`train_pipeline`.
        last_batch: As for :func:`train_pipeline`. None: ``"partial"``, or ``"fill"`` with ``source``.
        shard_id, num_shards, device, device_id, num_threads, prefetch_queue_depth: As for :func:`train_pipeline`.

    Returns:
        A pipeline of images, int64 labels and int64 image numbers.

    Raises:
        TypeError, ValueError, RuntimeError: As for :func:`train_pipeline`.
    """
    if last_batch is None:
        last_batch = "partial" if source is None else "fill"
    size = _arguments.image_size("size", size)
    common = _Common(
        prime=False, folder=folder, files=files, labels=labels, source=source, num_images=num_images, decoded=decoded,
        batch_size=batch_size, size=size, mean=mean, std=std, out_dtype=out_dtype, out_layout=out_layout,
        shuffle=False, last_batch=last_batch, seed=0, shard_id=shard_id, num_shards=num_shards, device=device,
        device_id=device_id, num_threads=num_threads, prefetch_queue_depth=prefetch_queue_depth,
    )  # fmt: skip
    _arguments.integer("resize", resize, max(size), _arguments.MAX_SIDE)

    def checked(encoded: list[Any], shapes: list[Any]) -> list[Any]:
        inputs.check_depths(encoded)
        return shapes

    def definition(start: int) -> list[DataNode]:
        images, label, index, _ = common.inputs(start, False)
        if decoded:
            shape = images.shape(dtype=types.FLOAT)
        else:
            shape = fn.peek_image_shape(images, dtype=types.FLOAT)
            shape = fn.python_function(images, shape, function=checked, batch_processing=True)
            images = fn.decoders.image(images, **common.decoder)
        images = images.gpu() if common.device == "gpu" else images
        window = math.min(shape[0], shape[1]) / resize * np.array(size, np.float32)  # as seen in the whole image
        low = (shape[:2] - window) * 0.5
        images = fn.resize(images, size=size, roi_start=low, roi_end=low + window)
        return common.outputs([common.normalized(images, None)], label, index)

    return common.pipeline(1, definition)


class _Common:
    """What both pipelines share: checked arguments, inputs, outputs."""

    def __init__(
        self, *, prime: bool, folder: Any, files: Any, labels: Any, source: Any, num_images: Any, decoded: Any,
        batch_size: Any, size: Any, mean: Any, std: Any, out_dtype: Any, out_layout: Any, shuffle: bool,
        last_batch: Any, seed: Any, shard_id: Any, num_shards: Any, device: Any, device_id: Any, num_threads: Any,
        prefetch_queue_depth: Any,
    ) -> None:  # fmt: skip
        # Other kinds of ints than Python's would get into states, which are to be kept in any format.
        batch_size = _arguments.integer("batch_size", batch_size, 1, 2**20)
        seed = _arguments.seed(seed)
        _arguments.layouts("CHW", out_layout, _LAYOUTS)
        mean, std = _arguments.channels(mean, std)
        if out_dtype not in (types.UINT8, types.FLOAT16, types.FLOAT):
            raise TypeError(f"out_dtype: expected types.UINT8, FLOAT16 or FLOAT, got {out_dtype!r}")
        if out_dtype == types.UINT8 and mean is not None:
            raise ValueError("out_dtype: expected FLOAT or FLOAT16 with mean and std, got UINT8")
        for name, value, known in (("last_batch", last_batch, dataset.LAST_BATCH),
                                   ("device", device, ("auto", "cpu", "gpu"))):  # fmt: skip
            if value not in known:
                raise ValueError(_arguments.unknown(name, value, known))
        if num_threads is None:
            num_threads = max(len(os.sched_getaffinity(0)), 1)
        num_threads = _arguments.integer("num_threads", num_threads, 1, 4096)
        prefetch_queue_depth = _arguments.integer("prefetch_queue_depth", prefetch_queue_depth, 1, 64)
        shard = dataset.shard(shard_id, num_shards)
        self.data: dataset.Files | None = None
        if source is None:
            if num_images is not None:
                raise ValueError("num_images: expected None without source; the list of files says it")
            if decoded:
                raise ValueError("decoded: expected False without source; files are encoded")
            paths, numbers = dataset.listed(folder, files, labels)
            self.data = dataset.Files(
                paths, numbers, batch_size=batch_size, shard_id=shard[0], num_shards=shard[1],
                last_batch=str(last_batch), shuffle=bool(shuffle), seed=seed,
            )  # fmt: skip
            self.batches = self.data.batches
        else:
            if not callable(source):
                raise TypeError(f"source: expected a function without arguments, got {type(source).__name__}")
            for name, value in (("folder", folder), ("files", files), ("labels", labels)):
                if value is not None:
                    raise ValueError(f"{name}: expected None with source, got {type(value).__name__}")
            if num_images is None:
                raise ValueError("num_images: expected the images an epoch of source, got None")
            num_images = _arguments.integer("num_images", num_images, 1, 2**62)
            if last_batch == "partial":
                raise ValueError("last_batch: expected 'drop' or 'fill' with source, got 'partial'")
            if batch_size > num_images:
                raise ValueError(f"batch_size: expected at most num_images, {num_images}, got {batch_size}")
            self.batches = num_images // batch_size if last_batch == "drop" else -(-num_images // batch_size)
        self.source, self.batch_size = source, batch_size
        self.mean, self.std, self.out_dtype, self.out_layout = mean, std, out_dtype, out_layout
        if device == "cpu" and device_id is not None:
            raise ValueError(f"device_id: expected None with device='cpu', got {device_id!r}")
        self.device, _ = _devices.dali_device(device, native.finding, prime)
        # By default a tenth of each batch leaves the JPEG engine for CUDA kernels, which round otherwise: images
        # would depend on their batch.
        self.decoder = {"device": "mixed", "hw_decoder_load": 1.0} if self.device == "gpu" else {"device": "cpu"}
        self.options = {
            "batch_size": batch_size, "num_threads": num_threads, "prefetch_queue_depth": prefetch_queue_depth,
            "device_id": _device_id(device_id) if self.device == "gpu" else None,
            "seed": (seed + shard[0]) & 0x7FFFFFFF, "exec_dynamic": True,
        }  # fmt: skip

    def inputs(self, start: int, numbered: bool) -> tuple[Any, Any, Any, Any]:
        """Images (encoded or not), labels, image numbers and, if ``numbered``, epochs; from batch ``start`` on."""
        data = self.data
        if data is not None:
            count = 4 if numbered else 3
            # Stateless: DALI keeps the number of the batch in its checkpoints.
            paths, label, index, *epoch = fn.external_source(
                lambda info: data.feed(start + info.iteration)[:count], num_outputs=count, batch=True, batch_info=True,
                dtype=[types.UINT8, types.INT64, types.INT64, types.INT64][:count], ndim=[1, 0, 0, 0][:count],
            )  # fmt: skip
            # Mapping a file that is read once costs more than reading it: 16,000 against 36,000 photographs a second.
            return fn.io.file.read(paths, dont_use_mmap=True), label, index, epoch[0] if numbered else None
        given = self.source()
        nodes = isinstance(given, tuple) and len(given) == 3 and all(isinstance(node, DataNode) for node in given[:2])
        if not nodes or not isinstance(given[2], (DataNode, type(None))):
            raise TypeError(f"source: expected DataNodes (images, labels, image numbers or None), got {given!r}")
        images, label, index = given
        if index is None:
            index = fn.random.uniform(range=[-(2.0**62), 2.0**62], dtype=types.INT64)
        epochs = None
        if numbered:
            epochs = fn.external_source(
                lambda info: np.full(self.batch_size, info.iteration // self.batches, np.int64),
                batch=True, batch_info=True, dtype=types.INT64, ndim=0,
            )  # fmt: skip
        return images, inputs.numbers("labels", label), inputs.numbers("image numbers", index), epochs

    def normalized(self, images: DataNode, flips: DataNode | None) -> DataNode:
        """Images without PRIME, of the same values and axes as with it."""
        scale = 1.0 if self.out_dtype == types.UINT8 else 255.0
        mean = [0.0] * 3 if self.mean is None else [m * scale for m in self.mean]
        std = [scale] * 3 if self.std is None else [s * scale for s in self.std]
        options = {} if flips is None else {"mirror": flips}
        return fn.crop_mirror_normalize(
            images, dtype=self.out_dtype, output_layout=self.out_layout, mean=mean, std=std, **options
        )

    def outputs(self, views: list[DataNode], label: DataNode, index: DataNode) -> list[DataNode]:
        """All on the pipeline's device."""
        return [*views, label.gpu(), index.gpu()] if self.device == "gpu" else [*views, label, index]

    def pipeline(self, views: int, definition: Callable[[int], list[DataNode]]) -> ImagePipeline:
        return ImagePipeline(self.data, self.batches, views, self.out_layout, definition, self.options)


def _device_id(device_id: int | None) -> int:
    if device_id is not None:
        return _arguments.integer("device_id", device_id, 0, 1023)
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.current_device() if torch.cuda.is_available() else 0
