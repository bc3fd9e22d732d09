"""PRIME as one line of a pipeline definition."""

from __future__ import annotations

import contextlib
import math
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvidia.dali import fn as dali_fn
from nvidia.dali import ops as dali_ops
from nvidia.dali import types as dali_types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline, do_not_convert

from .. import _arguments, _distributed, arrays
from .._native import require_torch
from ..config import PrimeConfig, as_config
from . import native

fn: Any = dali_fn  # their members are created at run time
ops: Any = dali_ops
types: Any = dali_types

MODES = ("auto", "native", "cupy", "dlpack", "torch")
_LAYOUTS = {"HWC": "NHWC", "CHW": "NCHW", "FHWC": "NTHWC", "FCHW": "NTCHW"}


@do_not_convert  # a pipeline with conditionals would convert the if and for statements in here to DALI's
def prime(
    images: DataNode,
    config: PrimeConfig | str = "imagenet",
    *,
    index: DataNode | None = None,
    epoch: DataNode | int | None = None,
    flip: DataNode | None = None,
    seed: int = 0,
    views: int = 1,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    out_dtype: Any = None,
    layout: str = "HWC",
    out_layout: str | None = None,
    mode: str = "auto",
) -> Any:
    """Augment the images of a pipeline with PRIME. All modes return bit-identical images.

    ==========  ====================================================================================================
    mode        implementation
    ==========  ====================================================================================================
    ``native``  the operator ``fn.prime.augment``, compiled for the installed DALI at first use (ten seconds, then
                cached; ``prime-dali build-dali-plugin`` compiles it in advance). No Python while the pipeline runs, so
                no contention for Python's lock with the training loop; mixed image sizes in a batch
    ``cupy``    ``fn.python_function``: no compilation; CuPy arrays on DALI's own stream, NumPy arrays on the CPU
    ``dlpack``  ``fn.dl_tensor_python_function``: the same through torch, without CuPy
    ``torch``   ``fn.torch_python_function``: for comparison; DALI synchronizes twice per call. Needs a GPU
    ``auto``    ``native`` if it is loaded or compiled and index, epoch and flip are on the CPU, as it requires; else
                ``cupy``
    ==========  ====================================================================================================

    Args:
        images: uint8, uint16, float16 or float32 (floats in [0, 1]; values up to 1/512 outside are clamped), with axes
            ``layout``, all of one size (``native``: of any size), H and W from 8 to 4096, of 1 to 16 channels; or
            sequences of F frames, which are all augmented in the same way.
        config: The distributions, or the name of a preset.
        index: Scalars of an integer type that fits int64, each image's index in the data set. The result then depends
            only on seed, index and epoch. None: random numbers from DALI's generator, whose state is part of DALI's
            checkpoints. It is seeded with ``seed``, the pipeline's own seed, the rank (of ``torch.distributed``, or of
            the launcher, in ``RANK``), and the number of such calls before this one in the pipeline, so all of these
            differ. Where neither is known and pipelines have the same seed, give each rank another one.
        epoch: Scalars of an integer type that fits int64, or an int from 0 to 4294967295 for the whole life of the
            pipeline. In the Python modes on a GPU they are not read back: only their low 32 bits are used. None: 0;
            with ``index`` a warning says that an image is then augmented in the same way in every epoch.
        flip: Scalars of such a type or bool, as from ``fn.random.coin_flip``: nonzero mirrors all outputs of the
            image (or sequence) left to right. None: no image is mirrored.
        seed: The run's seed.
        views: 1, or 3: the clean image and two augmented views; or 2: the clean image and one.
        mean, std: Per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Both or neither.
        out_dtype: ``types.UINT8``, ``UINT16``, ``FLOAT16`` or ``FLOAT``, or that dtype of torch or NumPy, or its name,
            as ``torch.float16`` or ``"float16"``. None: that of the images, or FLOAT if integers are normalized.
        layout: Axes of the images, ``"HWC"`` or ``"CHW"``, or of sequences ``"FHWC"`` or ``"FCHW"``. Mode ``native``
            refuses images that DALI knows to have others.
        out_layout: Axes of the result, in another order. None: ``layout``.
        mode: See above.

    Returns:
        One DataNode, or with several views a tuple of them.

    Raises:
        TypeError, ValueError: An argument is invalid; raised when the pipeline is built. Mixed sizes, mixed numbers of
            channels, a wrong dtype or number of channels, or pixels outside [0, 1] are a RuntimeError of DALI with this
            package's message, raised when such a batch runs. On a GPU, where nothing synchronizes, bad pixels become
            NaN (0 in integers), and one of the next batches raises the error.
        ImportError: GPU images, but CuPy is not installed (``cupy``), or this build has no CUDA.
        RuntimeError: The plugin does not compile (``native``).

    Examples:
        >>> from nvidia.dali import fn, pipeline_def
        >>> @pipeline_def(batch_size=4, num_threads=1, device_id=None)
        ... def augmented():
        ...     jpegs, labels = fn.readers.file(file_root="train")
        ...     images = fn.resize(fn.decoders.image(jpegs), size=(32, 32))
        ...     return prime_dali.dali.prime(images, "cifar", seed=1, out_layout="CHW"), labels
        >>> images, labels = augmented().run()
        >>> images.as_tensor().shape()
        [4, 3, 32, 32]
    """
    if index is not None and epoch is None:
        warnings.warn(
            "epoch: expected with index=, as an image is augmented in the same way in every epoch without it; give a "
            "node of each image's epoch, or epoch=0 if that is meant",
            stacklevel=2,
        )
    epoch = 0 if epoch is None else epoch
    seed = _arguments.seed(seed)
    nodes = _nodes(images, index, epoch, flip, seed)
    means, stds = _arguments.channels(mean, std, None)
    augment = _Augment(
        config=as_config(config), seed=seed,
        view=_arguments.TRAINING_VIEWS[_arguments.training_views(views)],
        epoch=None if "epoch" in nodes else _arguments.epoch(epoch), mean=means, std=stds,
        dtype=None if out_dtype is None else _numpy_dtype(dtype_of(out_dtype)), layout=layout,
        out_layout=_arguments.layouts(layout, out_layout, _LAYOUTS), names=tuple(nodes),
    )  # fmt: skip
    mode = _mode(mode, nodes)
    made = _native(augment, nodes) if mode == "native" else _in_python(mode, augment, nodes)
    return made[0] if len(made) == 1 else made


def _nodes(images: Any, index: Any, epoch: Any, flip: Any, seed: int) -> dict[str, DataNode]:
    """The inputs of PRIME by name, without an epoch that is an int; TypeError for anything else than nodes."""
    if not isinstance(images, DataNode):
        dynamic = "; in DALI's dynamic mode call its operator, ndd.prime.augment, after prime_dali.dali.load_plugin()"
        hint = dynamic if type(images).__module__.startswith("nvidia.dali.experimental.dynamic") else ""
        raise TypeError(f"images: expected a DataNode of a pipeline definition, got {type(images).__name__}{hint}")
    if index is None:
        index = fn.random.uniform(range=[-(2.0**62), 2.0**62], dtype=types.INT64, seed=_stream(seed))
    elif not isinstance(index, DataNode):
        raise TypeError(f"index: expected a DataNode of int64 scalars, got {type(index).__name__}")
    nodes: dict[str, DataNode] = {"images": images, "index": index}
    if isinstance(epoch, DataNode):
        nodes["epoch"] = epoch
    if flip is not None:
        if not isinstance(flip, DataNode):
            raise TypeError(f"flip: expected a DataNode of scalars, got {type(flip).__name__}")
        nodes["flip"] = flip
    return nodes


# Calls without an index, and the number of operators before the last one.
_unkeyed: weakref.WeakKeyDictionary[Pipeline, tuple[int, int]] = weakref.WeakKeyDictionary()


def _stream(seed: int) -> int:
    """The seed of DALI's generator for a call without an index, from 0 to 2^31 - 1: ``seed`` in the first call of a
    process that is no rank, in a pipeline without a seed."""
    pipeline = Pipeline.current()
    before = own = 0
    if pipeline is not None:
        before, last = _unkeyed.get(pipeline, (0, -1))
        operators = getattr(pipeline, "_cur_operator_id", last + 1)  # DALI counts them in debug mode,
        if operators <= last:  # which runs the definition for every batch, and wants the same arguments each time
            before = 0
        _unkeyed[pipeline] = before + 1, operators
        own = pipeline.seed or 0
    # Odd numbers, so that small seeds, ranks and counts do not add up to the same sum.
    return (seed + 0x9E3779B1 * _distributed.rank() + 0x85EBCA77 * before + 0xC2B2AE3D * own) & 0x7FFFFFFF


def _mode(mode: str, nodes: dict[str, DataNode]) -> str:
    """The mode, with ``"auto"`` resolved; ValueError for an unknown one."""
    _arguments.one_of("mode", mode, MODES)
    if mode != "auto":
        return mode
    on_cpu = all(node.device == "cpu" for name, node in nodes.items() if name != "images")
    return "native" if on_cpu and native.is_ready() else "cupy"


@dataclass(frozen=True)
class _Augment:
    """What is done to a batch, in every mode; the Python modes call it."""

    config: PrimeConfig
    seed: int
    view: Any
    epoch: Any
    mean: Sequence[float] | None
    std: Sequence[float] | None
    dtype: np.dtype | None
    layout: str
    out_layout: str
    names: tuple[str, ...]  # of the inputs

    def __call__(self, interface: Any, xp: Any, batches: Sequence[Sequence[Any]]) -> Any:
        """From lists of samples, arrays of ``xp``, to one such list; the views of an image are along the first axis.

        Args:
            interface: ``prime_dali.arrays`` for NumPy and CuPy, ``prime_dali.torch_ops`` for torch.
        """
        given = dict(zip(self.names, batches, strict=True))
        images = given.pop("images")
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) != 1:
            raise ValueError(
                f"images: expected one size in a batch, got shapes {sorted(shapes)}; make them equal, as with "
                "fn.resize, or use mode='native', which takes different ones"
            )
        dtypes = {str(image.dtype) for image in images}
        if len(dtypes) != 1:
            raise TypeError(f"images: expected one dtype in a batch, got {sorted(dtypes)}")
        shape = shapes.pop()
        sides = dict(zip(self.layout, shape, strict=False))
        if len(shape) != len(self.layout) or not 1 <= sides["C"] <= _arguments.MAX_CHANNELS:
            expected = f"{self.layout} with 1 to {_arguments.MAX_CHANNELS} channels for this layout"
            hint = _arguments.layout_hint(shape, self.layout, _LAYOUTS)
            raise ValueError(f"images: expected {expected}, got shape {list(shape)}{hint}")
        numbers = {name: _integers(name, xp, values) for name, values in given.items()}
        plan = interface.sample(
            self.config, numbers["index"], size=(sides["H"], sides["W"]), seed=self.seed,
            epoch=numbers.get("epoch", self.epoch), view=self.view, channels=sides["C"],
        )  # fmt: skip
        flip = numbers["flip"] != 0 if "flip" in numbers else None
        out = self._apply(interface, _stacked(xp, images), plan, flip)
        return list(out if plan.views == 1 else out.reshape(plan.views, -1, *out.shape[1:]).swapaxes(0, 1))

    def _apply(self, interface: Any, images: Any, plan: Any, flip: Any) -> Any:
        if interface is arrays:
            return arrays.apply(
                images, plan, layout=_LAYOUTS[self.layout], out_layout=_LAYOUTS[self.out_layout],
                out_dtype=self.dtype, mean=self.mean, std=self.std, flip=flip,
            )  # fmt: skip
        import torch

        out = interface.apply(
            images.movedim(-1, -3) if self.layout.endswith("HWC") else images, plan,
            out_dtype=None if self.dtype is None else getattr(torch, self.dtype.name), mean=self.mean, std=self.std,
            flip=flip, channels_last=self.out_layout.endswith("HWC"),
        )  # fmt: skip
        return out.movedim(-3, -1) if self.out_layout.endswith("HWC") else out


def _integers(name: str, xp: Any, samples: Sequence[Any]) -> Any:
    """One integer or bool per image, as int64 ``[N]``; TypeError or ValueError otherwise, as in mode native."""
    for sample in samples:
        if math.prod(sample.shape) != 1:
            raise ValueError(f"{name}: expected one number per image, got shape {list(sample.shape)}")
    numbers = _stacked(xp, [sample.reshape(()) for sample in samples])
    kind = str(numbers.dtype).removeprefix("torch.")
    if kind == "int64" or (kind == "bool" and name == "flip"):
        return numbers
    if kind not in ("int8", "int16", "int32", "uint8", "uint16", "uint32"):
        raise TypeError(f"{name}: expected integers that fit int64, got {kind}; cast them to INT64")
    return numbers.astype(np.int64) if hasattr(numbers, "astype") else numbers.long()


def _stacked(xp: Any, samples: Sequence[Any]) -> Any:
    """Samples of one shape as one array; no copy if CuPy samples are contiguous in memory, as is usual in DALI."""
    first = samples[0]
    if xp.__name__ == "cupy" and first.flags.c_contiguous:
        start, step = first.data.ptr, first.nbytes
        if all(sample.data.ptr == start + i * step for i, sample in enumerate(samples)):
            return xp.ndarray((len(samples), *first.shape), first.dtype, first.data)
    return xp.stack(samples)


def _native(augment: _Augment, nodes: dict[str, DataNode]) -> tuple[DataNode, ...]:
    """The views that ``fn.prime.augment`` makes."""
    native.load_plugin()
    named: dict[str, Any] = {name: node for name, node in nodes.items() if name != "images"}
    for name, node in named.items():
        if node.device != "cpu":
            raise ValueError(f"{name}: expected a CPU node in mode native, got a {node.device.upper()} one")
    named.setdefault("epoch", augment.epoch)
    dtype = None if augment.dtype is None else _DTYPES[augment.dtype.name]
    optional = {"mean": augment.mean, "std": augment.std, "dtype": dtype}
    made = fn.prime.augment(
        nodes["images"], seed=augment.seed, view=_arguments.views(augment.view), layout=augment.layout,
        output_layout=augment.out_layout, **native.arguments(augment.config), **named,
        **{name: value for name, value in optional.items() if value is not None},
    )  # fmt: skip
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def _in_python(mode: str, augment: _Augment, nodes: dict[str, DataNode]) -> tuple[DataNode, ...]:
    """The views that a Python operator of DALI makes."""
    images = nodes["images"]
    if images.device == "gpu":
        if mode == "cupy":
            arrays.require_cuda("images")
        nodes = {name: node if name == "images" else node.gpu() for name, node in nodes.items()}
    views = len(_arguments.views(augment.view))
    # DALI takes every array that Python returns by itself: the views of an image come as one, and it parts them.
    made = {"cupy": _cupy, "dlpack": _dlpack, "torch": _torch}[mode](
        augment, list(nodes.values()), device=images.device, batch_processing=True, num_outputs=1,
        output_layouts=augment.out_layout if views == 1 else _of_views(augment.out_layout),
    )  # fmt: skip
    return (made,) if views == 1 else tuple(made[view] for view in range(views))


def _of_views(layout: str) -> str:
    """The layout of the views of an image, or of a sequence, as one array."""
    return f"F{layout}" if layout[0] != "F" else f"D{layout}"


def _cupy(augment: _Augment, inputs: list[DataNode], **told: Any) -> Any:
    @do_not_convert
    def function(*batches: list[Any]) -> Any:
        return augment(arrays, arrays.as_array("images", batches[0][0])[1], batches)

    guarded = _leaving_streams_alone(function) if told["device"] == "gpu" else function
    return fn.python_function(*inputs, function=guarded, **told)


def _dlpack(augment: _Augment, inputs: list[DataNode], **told: Any) -> Any:
    require_torch("mode dlpack")
    import torch
    from torch.utils.dlpack import from_dlpack, to_dlpack

    from .. import torch_ops

    @do_not_convert
    def function(*batches: list[Any]) -> Any:
        on_stream: Any = contextlib.nullcontext()
        if told["device"] == "gpu":
            on_stream = torch.cuda.stream(torch.cuda.ExternalStream(ops.PythonFunction.current_stream().ptr))
        with on_stream:
            out = augment(torch_ops, torch, [[from_dlpack(sample) for sample in batch] for batch in batches])
            return [to_dlpack(sample) for sample in out]

    return fn.dl_tensor_python_function(*inputs, function=function, synchronize_stream=False, **told)


def _torch(augment: _Augment, inputs: list[DataNode], **told: Any) -> Any:
    require_torch("mode torch")
    import torch
    from nvidia.dali.plugin.pytorch.fn import torch_python_function

    from .. import torch_ops

    if not torch.cuda.is_available():
        raise RuntimeError("mode: torch needs a GPU, also for CPU images, because DALI creates a CUDA stream for it")

    @do_not_convert
    def function(*batches: list[Any]) -> Any:
        return augment(torch_ops, torch, batches)

    return torch_python_function(*inputs, function=function, **told)


def _leaving_streams_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` safe to raise exceptions in a GPU python_function.

    DALI (2.4) lends its stream to CuPy and takes it back only if the function returns. After an exception CuPy would
    destroy DALI's stream, and the process would crash before the message is shown.
    """

    @do_not_convert
    def guarded(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException:
            import cupy

            cupy.cuda.get_current_stream().ptr = 0
            raise

    return guarded


_DTYPES = {"uint8": types.UINT8, "uint16": types.UINT16, "float16": types.FLOAT16, "float32": types.FLOAT}


def dtype_of(dtype: Any) -> Any:
    """DALI's dtype for one of torch or NumPy, or its name; anything else as it is."""
    name = np.dtype(dtype).name if isinstance(dtype, (type, np.dtype)) else str(dtype).removeprefix("torch.")
    return _DTYPES.get(name, dtype)


def _numpy_dtype(dtype: Any) -> np.dtype:
    for name, known in _DTYPES.items():
        if dtype == known:
            return np.dtype(name)
    raise TypeError(f"out_dtype: expected types.UINT8, UINT16, FLOAT16 or FLOAT, got {dtype!r}")
