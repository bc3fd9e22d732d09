"""The torch interface: typed wrappers of the operators in csrc/bindings/torch, with their fake (shape) kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import _arguments, _arrays, _memory, _native, _vmap
from ._wording import plural
from .config import Distributions, PlanShape, PrimeConfig
from .plan import Plan, row_words

_FOLDER = Path(__file__).parent
INTEGERS = (torch.uint8, torch.uint16)
DTYPES = (*INTEGERS, torch.float16, torch.bfloat16, torch.float32)
_NAMED = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def _load() -> bool:
    """Load the operators; True if those for CUDA are available too."""
    if not (_FOLDER / "_torch.abi3.so").exists():
        raise ImportError("prime_dali was built without torch; install torch >= 2.10 and build it again (see README)")
    _native.require_cpu()
    torch.ops.load_library(str(_FOLDER / "_torch.abi3.so"))
    cuda = _FOLDER / "_torch_cuda.abi3.so"
    if torch.version.cuda is None or _arrays.cuda is None or not cuda.exists():
        return False
    torch.ops.load_library(str(cuda))
    return True


HAS_CUDA = _load()
_vmap.register()


# The requirements of the operators (csrc/bindings/torch/ops.h, csrc/core/check.h), for the fake kernels, which know
# shapes and dtypes only.
def _expect(condition: Any, what: str) -> None:
    torch._check(condition, lambda: what)


def _expect_size(height: int, width: int) -> None:
    for name, side in (("height", height), ("width", width)):
        for condition in (side >= _arguments.MIN_SIDE, side <= _arguments.MAX_SIDE):
            _expect(condition, f"{name}: expected {_arguments.MIN_SIDE} to {_arguments.MAX_SIDE}")


@torch.library.register_fake("prime_dali::sample")
def _sample_fake(
    index: torch.Tensor,
    epoch: torch.Tensor,
    height: int,
    width: int,
    seed: int,
    views: list[int],
    distributions: list[float],
) -> torch.Tensor:
    _expect(index.dtype == torch.int64 and index.dim() == 1, "prime_dali: expected index: int64 [N]")
    _expect(
        epoch.dtype == torch.int64 and (epoch.dim() == 0 or (epoch.dim() == 1 and epoch.shape == index.shape)),
        "prime_dali: expected epoch: int64 [] or [N]",
    )
    _expect_size(height, width)
    _expect(1 <= len(views) <= _arguments.MAX_VIEWS, "views: expected 1 to 16")
    expected = len(Distributions._fields)
    _expect(len(distributions) == expected, f"distributions: expected {expected} numbers")
    drawn = Distributions(*distributions)
    words = row_words(int(drawn.chains), int(drawn.depth), int(drawn.wave_strength > 0))
    return index.new_empty((len(views) * index.shape[0], words), dtype=torch.int32)


@torch.library.register_fake("prime_dali::reserve")
def _reserve_fake(counter: torch.Tensor, images: int) -> torch.Tensor:
    _expect(counter.dtype == torch.int64 and counter.dim() == 0, "prime_dali: expected counter: int64 []")
    return torch.empty_like(counter)


@torch.library.register_fake("prime_dali::apply")
def _apply_fake(
    images: torch.Tensor, plan: torch.Tensor, flip: torch.Tensor | None, plan_shape: list[int],
    out_dtype: torch.dtype, mean: list[float], scale: list[float], channels_last: bool,
) -> torch.Tensor:  # fmt: skip
    _expect(images.dim() == 4, "prime_dali: expected images: [N, C, H, W]")
    channels = images.shape[1]
    for condition in (channels >= 1, channels <= _arguments.MAX_CHANNELS):
        _expect(condition, f"channels: expected 1 to {_arguments.MAX_CHANNELS}")
    expected = len(PlanShape._fields)
    _expect(len(plan_shape) == expected, f"plan_shape: expected {expected} numbers")
    shape = PlanShape(*plan_shape)
    words = row_words(shape.chains, shape.depth, shape.waves)
    _expect(
        plan.dtype == torch.int32 and plan.dim() == 2 and plan.shape[1] == words,
        "prime_dali: expected plan: int32 [R, words of a row]",
    )
    rows, (batch, _, height, width) = plan.shape[0], images.shape
    _expect(rows == 0 if batch == 0 else rows % batch == 0, "plan: expected 1 to 16 rows for each of the images")
    _expect(
        flip is None or (flip.dtype == torch.bool and flip.shape == images.shape[:1]),
        "prime_dali: expected flip: bool [N]",
    )
    _expect_size(height, width)
    _expect(
        images.dtype in DTYPES and out_dtype in DTYPES,
        "prime_dali: expected dtype uint8, uint16, float16, bfloat16 or float32",
    )
    _expect(
        len(mean) == len(scale) and (len(mean) == 0 or len(mean) == channels),
        f"mean, std: expected {channels} numbers each, one per channel, or none",
    )
    if channels_last:
        return images.new_empty((rows, height, width, channels), dtype=out_dtype).permute(0, 3, 1, 2)
    return images.new_empty((rows, channels, height, width), dtype=out_dtype)


def _check_tensor(argument: str, tensor: torch.Tensor) -> None:
    """TypeError or ValueError unless the kernels can read ``tensor``: dense, on a device that this build supports."""
    _memory.check_tensor(argument, tensor)
    if tensor.device.type == "cpu" or (tensor.device.type == "cuda" and HAS_CUDA):
        return
    if tensor.device.type == "cuda":
        raise ValueError(
            f"{argument}: expected a CPU tensor, because this build has no CUDA, got one on {tensor.device}; "
            "see prime-dali doctor"
        )
    raise ValueError(f"{argument}: expected a CPU or CUDA tensor, got one on {tensor.device}")


def refuse_derivatives(images: torch.Tensor, method: str) -> None:
    """ValueError if a derivative is requested, in any mode: the operators have none, and it would silently be 0. Under
    ``torch.no_grad()`` no gradient is."""
    compiling, recording = torch.compiler.is_compiling(), torch.is_grad_enabled()
    while True:  # each active transform (vmap, grad, jvp, ...) wraps the tensor in another
        # In tracing, requires_grad is False for the argument of torch.func.grad, and True for results computed from it.
        if recording and (images.requires_grad or (compiling and images.view_as(images).requires_grad)):
            raise ValueError(f"images: expected no gradient ({method} is not differentiable), got requires_grad=True")
        batched = not compiling and torch._C._functorch.is_batchedtensor(images)
        if not batched and torch.autograd.forward_ad.unpack_dual(images).tangent is not None:
            raise ValueError(f"images: expected no tangent ({method} is not differentiable), got one of forward mode")
        if compiling or not torch._C._functorch.is_functorch_wrapped_tensor(images):
            return
        images = torch._C._functorch.get_unwrapped(images)


def sample(
    config: PrimeConfig,
    index: torch.Tensor,
    *,
    size: int | Sequence[int],
    seed: int,
    epoch: Any,
    view: Any,
    channels: int = 3,
) -> Plan:
    """:func:`prime_dali.sample` for torch."""
    height, width = _arguments.image_size("size", size)
    _check_tensor("index", index)
    index = index.reshape(1) if index.dim() == 0 else index
    if index.dtype != torch.int64 or index.dim() != 1:
        convert = "; convert integers with index.long()" if index.ndim == 1 else ""
        raise TypeError(f"index: expected int64 [N], got {index.dtype} {list(index.shape)}{convert}")
    if isinstance(epoch, torch.Tensor):
        _memory.check_tensor("epoch", epoch)
        if epoch.dtype != torch.int64 or epoch.dim() > 1 or (epoch.dim() == 1 and epoch.shape != index.shape):
            raise TypeError(
                f"epoch: expected an int, or int64 [] or [{index.shape[0]}], got {epoch.dtype} {list(epoch.shape)}"
            )
        if epoch.device != index.device:
            raise ValueError(f"epoch: expected a tensor on {index.device} like index, got one on {epoch.device}")
    else:
        epoch = torch.full((), _arguments.epoch(epoch), dtype=torch.int64, device=index.device)
    views = _arguments.views(view)
    rows = torch.ops.prime_dali.sample(
        index.contiguous(),
        epoch.contiguous(),
        height,
        width,
        _arguments.seed(seed),
        views,
        list(config.distributions()),
    )
    return Plan.of(config, rows, (height, width), len(views), channels)


def apply(
    images: torch.Tensor,
    plan: Plan,
    *,
    out_dtype: torch.dtype | str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    channels_last: bool | None = None,
    flip: torch.Tensor | None = None,
) -> torch.Tensor:
    """Augment torch images according to ``plan``.

    Args:
        images: ``[N, C, H, W]`` (any strides) or ``[C, H, W]`` for a plan of one image; or clips ``[N, T, C, H, W]``,
            of which all T frames are augmented in the same way, by the plan's row of the clip. C from 1 to 16, H and W
            from 8 to 4096. uint8 in 0..255, uint16 in 0..65535, or float16, bfloat16 or float32 in [0, 1]; values up to
            1/512 outside are clamped.
        plan: From :func:`prime_dali.sample`, on the same device, for N images (or clips) of so many channels and this
            size.
        out_dtype: One of the input dtypes, or its name. None: the dtype of ``images``, or float32 if integers are
            normalized. uint8 and uint16 are rounded to nearest.
        mean, std: Per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Both or neither.
        channels_last: Memory format of the output. None: that of ``images``.
        flip: bool ``[N]`` on the same device: True mirrors all outputs of the image (or clip) left to right.
            PRIME's distributions are symmetric, so this has the same distribution as flipping before.

    Returns:
        ``[views * N, C, H, W]`` (or ``[C, H, W]``, or ``[views * N, T, C, H, W]``) on the same device; for CUDA,
        computed on the current stream.

    Raises:
        TypeError, ValueError: Wrong type, dtype, shape, size, device or range; the message names the argument. A plan
            on the CPU is always validated (:meth:`Plan.validate`). Float pixels further outside [0, 1], or NaN, raise
            a ValueError with their number and range. On CUDA, where calls do not synchronize, their outputs are NaN (0
            in integers), and a later call on that device, or :func:`prime_dali.check_pixels`, raises the error.
            Compiled code raises the same errors. The replay of a CUDA graph raises none; bad pixels in it are reported
            in these two ways.

    Examples:
        >>> images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> plan = prime_dali.sample("cifar", torch.arange(4), size=32, seed=1, view=("clean", 0))
        >>> out = prime_dali.apply(images, plan)
        >>> out.shape, out.dtype, torch.equal(out[:4], images)
        (torch.Size([8, 3, 32, 32]), torch.uint8, True)
    """
    batch, size = as_batch(images)
    single = images.dim() == 3
    if single and isinstance(plan, Plan) and plan.views != 1:
        raise ValueError(f"plan: expected one view for a [C, H, W] image, got {plan.views}")
    out = apply_batch(
        batch, size, plan, out_dtype=out_dtype, mean=mean, std=std, channels_last=channels_last, flip=flip
    )
    return out[0] if single else out


def apply_batch(
    batch: torch.Tensor,
    size: tuple[int, int],
    plan: Plan,
    *,
    out_dtype: torch.dtype | str | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    channels_last: bool | None,
    flip: torch.Tensor | None,
) -> torch.Tensor:
    """:func:`apply` for images that :func:`as_batch` has checked."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
    if not isinstance(plan.rows, torch.Tensor):
        got = type(plan.rows).__name__
        raise TypeError(f"plan: expected a plan of torch tensors, got {got}; use plan.torch(device)")
    plan.check_images(batch.shape[0], batch.shape[-3], size)
    if plan.rows.device != batch.device:
        devices = f"expected on {batch.device} like images, got {plan.rows.device}"
        raise ValueError(f"plan: {devices}; use plan.torch(device)")
    dtype, means, scales = output_format(batch.dtype, out_dtype, mean, std, batch.shape[-3])
    if channels_last is None:
        strides = batch.stride()
        channels_last = not batch.is_contiguous() and strides[-3] < strides[-1]
    elif not isinstance(channels_last, bool):
        raise TypeError(f"channels_last: expected True, False or None, got {channels_last!r}")
    if flip is not None:
        _check_flip(flip, batch)
    clips = (plan.rows.shape[0], batch.shape[1]) if batch.dim() == 5 else None
    if clips:
        frames = batch.shape[1]
        batch, plan = batch.flatten(0, 1), plan.of_frames(frames)
        flip = None if flip is None else flip[:, None].expand(-1, frames).flatten()
    try:
        out = torch.ops.prime_dali.apply(
            batch, plan.rows.contiguous(), None if flip is None else flip.contiguous(), list(plan.shape), dtype, means,
            scales, channels_last,
        )  # fmt: skip
    except RuntimeError as error:  # the stable ABI does not preserve exception types
        if "prime_dali: out of memory" not in str(error):
            raise
        raise torch.OutOfMemoryError(
            f"prime_dali: out of memory for {plural(plan.rows.shape[0], 'image')} on {batch.device}; "
            "use smaller batches"
        ) from None
    return out.unflatten(0, clips) if clips else out


def check_index(index: torch.Tensor, batch: torch.Tensor) -> None:
    """ValueError unless ``index`` is on the device of the images or clips, and has one number for each of them if it is
    ``[N]``; :func:`sample` checks its dtype and refuses other shapes."""
    if index.device != batch.device:
        raise ValueError(f"index: expected on {batch.device} like images, got {index.device}")
    if index.dim() == 1 and index.shape[0] != batch.shape[0]:
        raise ValueError(
            f"index: expected one number for each of {plural(batch.shape[0], 'image')}, got {index.shape[0]}"
        )


def _check_flip(flip: Any, batch: torch.Tensor) -> None:
    """TypeError or ValueError unless ``flip`` has a bool for each image or clip, on their device."""
    if not isinstance(flip, torch.Tensor):
        raise TypeError(f"flip: expected a bool torch.Tensor, got {type(flip).__name__}")
    _memory.check_tensor("flip", flip)
    if flip.dtype != torch.bool or flip.shape != batch.shape[:1]:
        raise TypeError(f"flip: expected bool [{batch.shape[0]}], got {flip.dtype} {list(flip.shape)}")
    if flip.device != batch.device:
        raise ValueError(f"flip: expected on {batch.device} like images, got {flip.device}")


def as_batch(images: Any, method: str = "PRIME") -> tuple[torch.Tensor, tuple[int, int]]:
    """``images`` as ``[N, C, H, W]`` or clips ``[N, T, C, H, W]``, and their height and width; checked, except for the
    pixel values."""
    if not isinstance(images, torch.Tensor):
        raise TypeError(f"images: expected a torch.Tensor, got {type(images).__name__}")
    _check_tensor("images", images)
    image_dtype("images", images.dtype)
    batch = images.unsqueeze(0) if images.dim() == 3 else images
    shape = tuple(images.shape)
    # A width that no image has, behind two sides that one may have, is a number of channels.
    looks_last = 3 <= len(shape) <= 5 and shape[-1] < _arguments.MIN_SIDE <= min(shape[-3], shape[-2])
    if not 4 <= batch.dim() <= 5 or looks_last or not 1 <= shape[-3] <= _arguments.MAX_CHANNELS:
        name, axes = {3: ("HWC", (2, 0, 1)), 4: ("NHWC", (0, 3, 1, 2))}.get(len(shape), ("NTHWC", (0, 1, 4, 2, 3)))
        hint = f", which looks like {name}: use .permute{axes}" if looks_last else ""
        expected = f"[N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to {_arguments.MAX_CHANNELS} channels"
        raise ValueError(f"images: expected {expected}, got {list(shape)}{hint}")
    refuse_derivatives(images, method)
    return batch, _arguments.image_size("images", shape[-2:])


def check_pixels(device: int) -> None:
    """:func:`prime_dali.check_pixels` for torch; -1: all devices in use."""
    if HAS_CUDA:
        torch.ops.prime_dali.check_pixels(device)


def image_dtype(argument: str, dtype: Any) -> torch.dtype:
    """``dtype``, a dtype or its name, as a dtype; TypeError unless it is supported for images."""
    found = _NAMED.get(dtype) if isinstance(dtype, str) else dtype
    if found not in DTYPES:
        convert = f"; {_arguments.CONVERT}" if argument == "images" else ""
        got = repr(dtype) if isinstance(dtype, str) else dtype
        raise TypeError(f"{argument}: expected uint8, uint16, float16, bfloat16 or float32, got {got}{convert}")
    return found


def output_format(
    dtype: torch.dtype,
    out_dtype: torch.dtype | str | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    channels: int,
) -> tuple[torch.dtype, list[float], list[float]]:
    """``(dtype, mean, 1 / std)`` of the output, checked; empty lists if nothing is normalized."""
    means, scales = _arguments.normalization(mean, std, channels)
    if out_dtype is None:
        out_dtype = torch.float32 if means and dtype in INTEGERS else dtype
    out_dtype = image_dtype("out_dtype", out_dtype)
    if means and out_dtype in INTEGERS:
        raise ValueError(f"out_dtype: expected a floating dtype for normalized images, got {out_dtype}")
    return out_dtype, means, scales
