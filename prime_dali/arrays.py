"""The array door: NumPy, CuPy and whatever speaks DLPack or the CUDA array interface, without torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arguments, _arrays, _memory, _native
from ._memory import address
from .config import PrimeConfig
from .plan import Plan

LAYOUTS = ("NCHW", "NHWC")
_DTYPES = ("uint8", "float16", "bfloat16", "float32")  # in the order of csrc/core/image.h

_native.require_cpu()


def sample(config: PrimeConfig, index: Any, *, size: int | Sequence[int], seed: int, epoch: Any, view: Any) -> Plan:
    """:func:`prime_dali.sample` for arrays: the plan is NumPy or CuPy, as ``index`` is."""
    height, width = _arguments.image_size("size", size)
    index, xp = as_array("index", index)
    if index.dtype != np.int64 or index.ndim != 1:
        raise TypeError(f"index: expected int64 [N], got {index.dtype} {list(index.shape)}")
    index = xp.ascontiguousarray(index)
    if not _is_array(epoch) or (isinstance(epoch, np.ndarray) and epoch.ndim == 0):
        step, epoch = 0, xp.full(1, _arguments.epoch(epoch), np.int64)
    else:
        epoch, other = as_array("epoch", epoch)
        if epoch.dtype != np.int64 or epoch.shape not in ((), index.shape):
            got = f"{epoch.dtype} {list(epoch.shape)}"
            raise TypeError(f"epoch: expected an int, or int64 [] or {list(index.shape)}, got {got}")
        if other is not xp:
            raise ValueError(f"epoch: expected {xp.__name__} like index, got {other.__name__}")
        step, epoch = epoch.ndim, xp.ascontiguousarray(epoch)  # which makes [1] of []
    views = _arguments.views(view)
    plan = Plan.empty(config, (height, width), index.shape[0], len(views), xp)
    arguments = {
        "law": config.law(height, width), "views": views, "seed": _arguments.seed(seed), "images": index.shape[0],
        "index": address(index), "epoch": address(epoch), "epoch_step": step, "plan": address(plan.rows),
    }  # fmt: skip
    if xp is np:
        _arrays.sample(arguments)
    else:
        with index.device:
            _cuda().sample({**arguments, "stream": xp.cuda.get_current_stream().ptr})
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
    """Augment NumPy or CuPy images as ``plan`` says.

    Args:
        array: ``[N, 3, H, W]`` or ``[N, H, W, 3]`` as ``layout`` says, any strides; uint8 in 0..255, or float16,
            bfloat16 (of ml_dtypes) or float32 in [0, 1], to which values up to 1/512 outside are clamped. NumPy, CuPy,
            or an object with ``__cuda_array_interface__`` or ``__dlpack__`` (JAX, torch), read without a copy; elements
            that do not lie at multiples of their size (a field of a packed record) are copied first.
        plan: From :func:`prime_dali.sample` with an index on the same device, for N images of this size.
        layout: Axes of ``array``: ``"NCHW"`` or ``"NHWC"``.
        out_layout: Axes of the result. None: ``layout``.
        out_dtype: One of the input dtypes. None: that of ``array``, or float32 where uint8 images are normalised.
        mean, std: Per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Both or none.
        flip: bool ``[N]``, NumPy or CuPy like ``array``: True mirrors all outputs of this image left to right.
        threads: CPU threads. None: as many as this process may use.

    Returns:
        A new NumPy or CuPy array of ``views * N`` images; with CuPy, on its current stream.

    Raises:
        TypeError, ValueError: Wrong type, dtype, shape, size, device or range; the message names the argument. A plan
            on the CPU is always validated (:meth:`Plan.validate`). Float pixels further outside of [0, 1], NaN too,
            are a ValueError with their number and range. On CUDA, where no call waits for the device, they come out as
            NaN (0 in uint8), and the error is raised by a later call on that device, once the kernel has run, or by
            :func:`prime_dali.check_pixels`.
        ImportError: A CUDA array without CuPy, or without CUDA in this build.
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
    array, xp = as_array("array", array)
    out_layout = _arguments.layouts(layout, out_layout, LAYOUTS)
    in_type = _dtype_number("array", array.dtype)
    axes = _image_axes(layout)
    if array.ndim != 4 or array.shape[axes[1]] != 3:
        wanted = {"NCHW": "[N, 3, H, W]", "NHWC": "[N, H, W, 3]"}[layout]
        raise ValueError(f"array: expected {wanted} as layout says, got {list(array.shape)}")
    batch, _, height, width = (array.shape[a] for a in axes)
    plan.check_images(batch, _arguments.image_size("array", (height, width)))
    if type(plan.rows) is not xp.ndarray:
        got = type(plan.rows).__name__
        raise ValueError(f"plan: expected a plan of {xp.__name__} arrays like the images, got {got}")
    means, scales = _arguments.normalization(mean, std)
    if out_dtype is None:
        out_dtype = np.float32 if means and in_type == 0 else array.dtype
    try:
        out_dtype = np.dtype(out_dtype)
    except TypeError:
        raise TypeError(f"out_dtype: expected one of {', '.join(_DTYPES)}, got {out_dtype!r}") from None
    out_type = _dtype_number("out_dtype", out_dtype)
    if means and out_type == 0:
        raise ValueError("out_dtype: expected a floating dtype for normalised images, got uint8")
    if flip is not None:
        flip, other = as_array("flip", flip)
        if flip.dtype != np.bool_ or flip.shape != (batch,):
            raise TypeError(f"flip: expected bool [{batch}], got {flip.dtype} {list(flip.shape)}")
        if other is not xp:
            raise ValueError(f"flip: expected {xp.__name__} like array, got {other.__name__}")
        flip = xp.ascontiguousarray(flip)

    shape = [plan.views * batch, 0, 0, 0]
    for axis, side in zip(_image_axes(out_layout)[1:], (3, height, width), strict=True):
        shape[axis] = side
    rows = xp.ascontiguousarray(_memory.aligned(plan.rows, xp))
    out = xp.empty(shape, out_dtype)
    arguments = _apply_arguments(array, layout, out, out_layout, plan, rows, flip, means, scales)
    if xp is np:
        count = len(os.sched_getaffinity(0)) if threads is None else _arguments.integer("threads", threads, 1, 4096)
        _arrays.apply({**arguments, "threads": count})
        return out
    with array.device:
        need = _cuda().workspace_bytes(arguments)
        workspace = xp.empty(need, np.uint8)
        stream = xp.cuda.get_current_stream().ptr
        _cuda().apply({**arguments, "workspace": address(workspace), "workspace_bytes": need, "stream": stream})
    return out


def check_pixels(device: int) -> None:
    """:func:`prime_dali.check_pixels` for CuPy arrays; -1: all devices in use."""
    loaded = sys.modules.get(f"{__package__}._arrays_cuda")
    if loaded is not None:
        loaded.check_pixels(device)


def _apply_arguments(
    array: Any, layout: str, out: Any, out_layout: str, plan: Plan, rows: Any, flip: Any,
    mean: Sequence[float], scale: Sequence[float],
) -> dict[str, Any]:  # fmt: skip
    """What csrc/arrays/arguments.h reads; ``rows`` are the plan's, contiguous. The caller keeps the arrays alive."""
    return {
        "in": address(array), "in_type": _dtype_number("array", array.dtype), "in_strides": _strides(array, layout),
        "out": address(out), "out_type": _dtype_number("out", out.dtype), "out_strides": _strides(out, out_layout),
        "plan": address(rows), "rows": rows.shape[0], "images": plan.batch, "height": plan.size[0],
        "width": plan.size[1], "flip": 0 if flip is None else address(flip), "shape": plan.shape, "mean": mean,
        "scale": scale,
    }  # fmt: skip


def require_cuda(argument: str) -> None:
    """ImportError, with what to install, unless CUDA arrays can be processed here."""
    _cupy(argument)
    _cuda()


def as_array(argument: str, array: Any) -> tuple[Any, Any]:
    """``array`` as NumPy or CuPy, and that module; without a copy where :func:`_memory.aligned` makes none."""
    if isinstance(array, np.ndarray):
        return _memory.aligned(_memory.numpy_array(argument, array), np), np
    if _memory.is_tensor(array):
        array = _memory.lendable(argument, array)
        if array.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{argument}: expected memory of the CPU or of CUDA, got a tensor on {array.device}")
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
        raise ValueError(f"{argument}: expected memory of the CPU or of CUDA, got DLPack device type {kind}")
    raise TypeError(
        f"{argument}: expected NumPy, CuPy, or an object with DLPack or the CUDA array interface, "
        f"got {type(array).__name__}"
    )


def _is_array(value: Any) -> bool:
    return hasattr(value, "__dlpack_device__") or hasattr(value, "__cuda_array_interface__")


def _cupy(argument: str) -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"{argument} is in CUDA memory and CuPy is not installed: "
            "pip install 'prime-dali[cupy-cuda13]' (or cupy-cuda12)"
        ) from error
    return cupy


def _cuda() -> Any:
    try:
        from . import _arrays_cuda
    except ImportError as error:
        raise ImportError("prime_dali was built without CUDA; see prime-dali doctor") from error
    return _arrays_cuda


def _image_axes(layout: str) -> list[int]:
    """Where N, C, H and W are among the axes."""
    return [layout.index(axis) for axis in "NCHW"]


def _strides(array: Any, layout: str) -> list[int]:
    return [array.strides[axis] // array.itemsize for axis in _image_axes(layout)]


def _dtype_number(argument: str, dtype: Any) -> int:
    if dtype.name not in _DTYPES or dtype.byteorder == ">":
        expected = f"{', '.join(_DTYPES)} in native byte order"
        raise TypeError(f"{argument}: expected {expected}, got {dtype.str} ({dtype.name})")
    return _DTYPES.index(dtype.name)
