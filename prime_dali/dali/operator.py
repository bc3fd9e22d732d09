"""PRIME as one line of a pipeline definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali import types as dali_types
from nvidia.dali.data_node import DataNode

from .. import _arguments, arrays
from ..config import PrimeConfig, as_config

types: Any = dali_types  # its members are made at run time

_LAYOUTS = {"HWC": "NHWC", "CHW": "NCHW"}


def prime(
    images: DataNode,
    config: PrimeConfig | str = "imagenet",
    *,
    index: DataNode | None = None,
    epoch: DataNode | int = 0,
    flip: DataNode | None = None,
    seed: int = 0,
    views: int = 1,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    out_dtype: Any = None,
    layout: str = "HWC",
    out_layout: str | None = None,
) -> Any:
    """Augment the images of a pipeline with PRIME, one kernel call a batch.

    CPU images are processed as NumPy arrays, GPU images as CuPy arrays on DALI's own stream.

    Args:
        images: uint8, float16 or float32 (floats in [0, 1]), ``layout``, all of one size, H and W from 8 to 4096.
        config: The distributions, or the name of a preset.
        index: int64 scalars, each image's own number in the data set. The result then depends on it, the seed and
            the epoch alone. None: random numbers of DALI's own generator, seeded with the low 31 bits of ``seed``;
            it is part of DALI's checkpoints. Then give every rank a seed of its own.
        epoch: An int from 0, or int64 scalars.
        flip: Scalars of any integer type or bool, as of ``fn.random.coin_flip``: not 0 mirrors all outputs of this
            image left to right. None: none is mirrored.
        seed: The run's seed.
        views: 1, or 3: clean, augmented, augmented.
        mean, std: Per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Both or none.
        out_dtype: ``types.UINT8``, ``FLOAT16`` or ``FLOAT``. None: that of the images, or FLOAT where uint8 images are
            normalised.
        layout: Axes of the images, ``"HWC"`` or ``"CHW"``.
        out_layout: Axes of the result. None: ``layout``.

    Returns:
        One DataNode, or with ``views=3`` a tuple of three.

    Raises:
        TypeError, ValueError: A wrong argument, when the pipeline is built. Images of several sizes, a wrong dtype or
            (on the CPU) pixels outside [0, 1]: from DALI as a RuntimeError with our message, when such a batch runs.
        ImportError: GPU images without CuPy, or without CUDA in this build.
    """
    if not isinstance(images, DataNode):
        raise TypeError(f"images: expected a DataNode of a pipeline definition, got {type(images).__name__}")
    settings = as_config(config)
    seed = _arguments.seed(seed)
    view = _arguments.training_views(views)
    out_layout = _arguments.layouts(layout, out_layout, _LAYOUTS)
    _arguments.normalization(mean, std)
    dtype = None if out_dtype is None else _numpy_dtype(out_dtype)
    if index is None:
        index = fn.random.uniform(range=[-(2.0**62), 2.0**62], dtype=types.INT64, seed=seed & 0x7FFFFFFF)
    elif not isinstance(index, DataNode):
        raise TypeError(f"index: expected a DataNode of int64 scalars, got {type(index).__name__}")
    inputs: dict[str, DataNode] = {"images": images, "index": index}
    if isinstance(epoch, DataNode):
        inputs["epoch"] = epoch
    else:
        _arguments.epoch(epoch)
    if flip is not None:
        if not isinstance(flip, DataNode):
            raise TypeError(f"flip: expected a DataNode of scalars, got {type(flip).__name__}")
        inputs["flip"] = flip
    device = images.device
    if device == "gpu":
        arrays.require_cuda("images")
        inputs = {name: node if name == "images" else node.gpu() for name, node in inputs.items()}

    def run(*batches: list[Any]) -> Any:
        given = dict(zip(inputs, batches, strict=True))
        batch = given["images"]
        _, xp = arrays.as_array("images", batch[0])
        shapes = {image.shape for image in batch}
        if len(shapes) != 1:
            raise ValueError(f"images: expected one size in a batch, got shapes {sorted(shapes)}")
        shape = shapes.pop()
        if len(shape) != 3 or shape[layout.index("C")] != 3:
            raise ValueError(f"images: expected {layout} with 3 channels as layout says, got shape {list(shape)}")
        height, width = (shape[layout.index(axis)] for axis in "HW")
        numbers = {name: xp.stack(values).reshape(-1) for name, values in given.items() if name != "images"}
        plan = arrays.sample(
            settings, numbers["index"], size=(height, width), seed=seed, epoch=numbers.get("epoch", epoch), view=view
        )
        out = arrays.apply(
            xp.stack(batch), plan, layout=_LAYOUTS[layout], out_layout=_LAYOUTS[out_layout], out_dtype=dtype,
            mean=mean, std=std, flip=numbers["flip"] != 0 if "flip" in numbers else None,
        )  # fmt: skip
        split = [list(view) for view in out.reshape(views, -1, *out.shape[1:])]
        return split[0] if views == 1 else tuple(split)

    function = _leaving_streams_alone(run) if device == "gpu" else run
    out: Any = fn.python_function(
        *inputs.values(), function=function, device=device, batch_processing=True, num_outputs=views,
        output_layouts=[out_layout] * views,
    )  # fmt: skip
    return out if views == 1 else tuple(out)


def _leaving_streams_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, safe to raise in a GPU python_function.

    DALI (2.4) lends its stream to CuPy and takes it back only when the function returns. After an exception CuPy would
    destroy DALI's stream, and the process dies of it before anybody reads the message.
    """

    def guarded(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException:
            import cupy

            cupy.cuda.get_current_stream().ptr = 0
            raise

    return guarded


def _numpy_dtype(dtype: Any) -> np.dtype:
    known = {types.UINT8: np.uint8, types.FLOAT16: np.float16, types.FLOAT: np.float32}
    if dtype not in known:
        raise TypeError(f"out_dtype: expected types.UINT8, FLOAT16 or FLOAT, got {dtype!r}")
    return np.dtype(known[dtype])
