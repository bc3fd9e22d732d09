"""The array interface: NumPy, CuPy and arrays with DLPack or the CUDA array interface, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arguments, _arrays, _devices, _extras, _memory, _native
from .config import PrimeConfig
from .plan import Plan, row_words

__all__ = ["apply"]

LAYOUTS = ("NCHW", "NHWC", "NTCHW", "NTHWC")
_DTYPES = ("uint8", "uint16", "float16", "bfloat16", "float32")

_native.require_cpu()


def sample(
    config: PrimeConfig,
    index: Any,
    *,
    size: int | Sequence[int],
    seed: int,
    epoch: Any,
    view: Any,
    channels: int = 3,
) -> Plan:
    """:func:`prime_dali.sample` for arrays: the plan is NumPy or CuPy, like ``index``."""
    height, width = _arguments.image_size("size", size)
    index, xp = as_array("index", index)
    index = index.reshape(1) if index.ndim == 0 else index
    if index.dtype != np.int64 or index.ndim != 1:
        # Not index.astype, which in JAX gives int32 again.
        convert = f"; convert integers with {xp.__name__}.asarray(index, 'int64')" if index.ndim == 1 else ""
        raise TypeError(f"index: expected int64 [N], got {index.dtype} {list(index.shape)}{convert}")
    index = xp.ascontiguousarray(index)
    if not _is_array(epoch) or (isinstance(epoch, np.ndarray) and epoch.ndim == 0):
        epoch = xp.full(1, _arguments.epoch(epoch), np.int64)
    else:
        epoch, other = as_array("epoch", epoch)
        if epoch.dtype != np.int64 or epoch.shape not in ((), index.shape):
            got = f"{epoch.dtype} {list(epoch.shape)}"
            raise TypeError(f"epoch: expected an int, or int64 [] or {list(index.shape)}, got {got}")
        if other is not xp:
            raise ValueError(f"epoch: expected {xp.__name__} like index, got {other.__name__}")
        epoch = xp.ascontiguousarray(epoch).reshape(-1)
    views = _arguments.views(view)
    shape = config.plan_shape
    words = row_words(shape.chains, shape.depth, shape.waves)
    rows = xp.empty((len(views) * index.shape[0], words), np.int32)
    plan = Plan.of(config, rows, (height, width), len(views), channels)
    call = _arrays.Sample(config.distributions(height, width), views, _arguments.seed(seed), index, epoch, plan.rows)
    if xp is np:
        call.cpu()
    else:
        _require_cuda_build()
        with index.device:
            call.cuda(xp.cuda.get_current_stream().ptr)
    return plan


def apply(
    array: Any,
    plan: Plan,
    *,
    layout: str = "NCHW",
    out_layout: str | None = None,
    out_dtype: Any = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    flip: Any = None,
    threads: int | None = None,
) -> Any:
    """Augment NumPy or CuPy images according to ``plan``.

    Args:
        array: ``[N, C, H, W]`` or ``[N, H, W, C]`` according to ``layout``, any strides, 1 to 16 channels; or clips of
            T frames, all augmented in the same way by the plan's row of the clip. uint8 in 0..255, uint16 in 0..65535,
            or float16, bfloat16 (of ml_dtypes) or float32 in [0, 1]. Values up to 1/512 outside are clamped. NumPy,
            CuPy, or an object with ``__cuda_array_interface__`` or ``__dlpack__`` (JAX, torch), read without a copy.
            Unaligned elements (a field of a packed record) are copied first.
        plan: From :func:`prime_dali.sample` with an index on the same device, for N images (or clips) of so many
            channels and this size.
        layout: Axes of ``array``: ``"NCHW"``, ``"NHWC"``, or of clips ``"NTCHW"``, ``"NTHWC"``.
        out_layout: Axes of the result, in another order. None: ``layout``.
        out_dtype: One of the input dtypes, or its name. None: that of ``array``, or float32 if integers are normalized.
        mean, std: Per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Both or neither.
        flip: bool ``[N]``, NumPy or CuPy like ``array``: True mirrors all outputs of the image (or clip)
            left to right.
        threads: CPU threads. None: all that this process may use.

    Returns:
        A new NumPy or CuPy array of ``views * N`` images (or clips); for CuPy, computed on its current stream.

    Raises:
        TypeError, ValueError: Wrong type, dtype, shape, size, device or range; the message names the argument. A plan
            on the CPU is always validated (:meth:`Plan.validate`). Float pixels further outside [0, 1], or NaN, raise
            a ValueError with their number and range. On CUDA, where calls do not synchronize, their outputs are NaN (0
            in integers), and a later call on that device, or :func:`prime_dali.check_pixels`, raises the error.
        ImportError: A CUDA array, but CuPy is not installed or this build has no CUDA.

    Examples:
        >>> images = np.random.default_rng(0).random((4, 32, 32, 3), np.float32)
        >>> plan = prime_dali.sample("cifar", np.arange(4), size=32, seed=1)
        >>> out = prime_dali.arrays.apply(images, plan, layout="NHWC", out_layout="NCHW")
        >>> out.shape, out.dtype
        ((4, 3, 32, 32), dtype('float32'))
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
    array, xp = as_array("array", array)
    out_layout = _arguments.layouts(layout, out_layout, LAYOUTS)
    check_dtype("array", array.dtype)
    sides = dict(zip(layout, array.shape, strict=False))
    if array.ndim != len(layout) or not 1 <= sides["C"] <= _arguments.MAX_CHANNELS:
        wanted = f"[{', '.join(layout)}] of 1 to {_arguments.MAX_CHANNELS} channels for this layout"
        hint = _arguments.layout_hint(array.shape, layout, LAYOUTS)
        raise ValueError(f"array: expected {wanted}, got {list(array.shape)}{hint}")
    batch, frames, channels, height, width = (sides.get(axis, 1) for axis in "NTCHW")
    plan.check_images(batch, channels, _arguments.image_size("array", (height, width)))
    if type(plan.rows) is not xp.ndarray:
        got = type(plan.rows).__name__
        raise ValueError(f"plan: expected a plan of {xp.__name__} arrays like the images, got {got}")
    dtype, means, scales = _output_format(array.dtype, out_dtype, mean, std, channels)
    flip = None if flip is None else _flips(flip, batch, xp)

    sides["N"] = plan.views * batch
    out = xp.empty([sides[axis] for axis in out_layout], dtype)
    if "T" in sides:
        plan, flip = plan.of_frames(frames), None if flip is None else flip.repeat(frames)
    rows = xp.ascontiguousarray(_memory.aligned(plan.rows, xp))
    images, made = _images(array, layout), _images(out, out_layout)
    call = _arrays.Apply(images, rows, plan.shape, made, flip, means, scales)
    if xp is np:
        call.cpu(_devices.cores() if threads is None else _arguments.integer("threads", threads, 1, 4096))
        return out
    _require_cuda_build()
    with array.device:
        call.cuda(xp.empty(call.workspace_bytes(), np.uint8), xp.cuda.get_current_stream().ptr)
    return out


def _output_format(
    dtype: np.dtype, out_dtype: Any, mean: Sequence[float] | None, std: Sequence[float] | None, channels: int
) -> tuple[np.dtype, list[float], list[float]]:
    """``(dtype, mean, 1 / std)`` of the output, checked; empty lists if nothing is normalized."""
    means, scales = _arguments.normalization(mean, std, channels)
    if out_dtype is None:
        out_dtype = np.float32 if means and dtype.kind == "u" else dtype
    try:
        if isinstance(out_dtype, str) and out_dtype == "bfloat16":  # a name that NumPy has only after this import
            out_dtype = _memory.bfloat16("out_dtype")
        made = np.dtype(out_dtype)
    except TypeError:
        raise TypeError(f"out_dtype: expected one of {', '.join(_DTYPES)}, got {out_dtype!r}") from None
    check_dtype("out_dtype", made)
    if means and made.kind == "u":
        raise ValueError(f"out_dtype: expected a floating dtype for normalized images, got {made}")
    return made, means, scales


def _flips(flip: Any, batch: int, xp: Any) -> Any:
    """``flip`` as bool ``[batch]`` of ``xp``; TypeError or ValueError otherwise."""
    flips, other = as_array("flip", flip)
    if flips.dtype != np.bool_ or flips.shape != (batch,):
        raise TypeError(f"flip: expected bool [{batch}], got {flips.dtype} {list(flips.shape)}")
    if other is not xp:
        raise ValueError(f"flip: expected {xp.__name__} like array, got {other.__name__}")
    return xp.ascontiguousarray(flips)


def check_pixels(device: int) -> None:
    """:func:`prime_dali.check_pixels` for CuPy arrays; -1: all devices in use."""
    if _arrays.cuda is not None:
        _arrays.check_pixels(device)


def require_cuda(argument: str) -> None:
    """ImportError, with what to install, unless CUDA arrays can be processed here."""
    _cupy(argument)
    _require_cuda_build()


def as_array(argument: str, array: Any) -> tuple[Any, Any]:
    """``array`` as NumPy or CuPy, and that module; without a copy unless :func:`_memory.aligned` makes one."""
    if isinstance(array, np.ndarray):
        return _memory.aligned(_memory.numpy_array(argument, array), np), np
    if _memory.is_tensor(array):
        array = _memory.lendable(argument, array)
        if array.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{argument}: expected CPU or CUDA memory, got a tensor on {array.device}")
    if hasattr(array, "__cuda_array_interface__"):
        xp = _cupy(argument)
        return _memory.aligned(xp.asarray(array), xp), xp
    if hasattr(array, "__dlpack_device__"):
        kind = array.__dlpack_device__()[0]
        if kind == 1:  # kDLCPU
            return _memory.aligned(_memory.from_dlpack(argument, array), np), np
        if kind == 2:  # kDLCUDA
            xp = _cupy(argument)
            return _memory.aligned(xp.from_dlpack(array), xp), xp
        raise ValueError(f"{argument}: expected CPU or CUDA memory, got DLPack device type {kind}")
    convertible = isinstance(array, (list, tuple, range)) or hasattr(array, "__array_interface__")  # a PIL image
    raise TypeError(
        f"{argument}: expected a NumPy or CuPy array, or an object with DLPack or the CUDA array interface, "
        f"got {type(array).__name__}{'; numpy.asarray makes one of it' if convertible else ''}"
    )


def _is_array(value: Any) -> bool:
    return hasattr(value, "__dlpack_device__") or hasattr(value, "__cuda_array_interface__")


def _cupy(argument: str) -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"{argument} is in CUDA memory and CuPy is not installed: {_extras.install('cupy-cuda13')}"
        ) from error
    return cupy


def _require_cuda_build() -> None:
    if _arrays.cuda is None:
        raise ImportError("prime_dali was built without CUDA; see prime-dali doctor")


def _images(array: Any, layout: str) -> Any:
    """``array`` as ``[N, C, H, W]``, frames of clips as images; a view, unless no strides describe the frames of all
    clips."""
    ordered = array.transpose([layout.index(axis) for axis in "NTCHW" if axis in layout])
    return ordered.reshape(-1, *ordered.shape[2:]) if "T" in layout else ordered


def check_dtype(argument: str, dtype: Any) -> None:
    """TypeError unless the kernels can read elements of this dtype."""
    if dtype.name not in _DTYPES or dtype.byteorder == ">":
        expected = f"{', '.join(_DTYPES)} in native byte order"
        swap = "swap the bytes with .astype(array.dtype.newbyteorder('='))"
        convert = "" if argument == "out_dtype" else f"; {swap if dtype.name in _DTYPES else _arguments.CONVERT}"
        raise TypeError(f"{argument}: expected {expected}, got {dtype.str} ({dtype.name}){convert}")
