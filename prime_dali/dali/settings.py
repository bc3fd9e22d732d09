"""The settings of whole pipelines, in groups; each group checks its fields when it is created."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ParamSpec, TypeVar

from .. import _arguments, _devices
from ..config import PrimeConfig, as_config, takes_config
from ..data.statistics import IMAGENET_STATISTICS
from .operator import MODES, dtype_of, types

IMAGENET_MEAN, IMAGENET_STD = IMAGENET_STATISTICS
LAYOUTS = ("CHW", "HWC")
DEVICES = ("auto", "cpu", "gpu")
INTERPOLATIONS = {"bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC, "lanczos": types.INTERP_LANCZOS3}

P = ParamSpec("P")
R = TypeVar("R")
Group = TypeVar("Group")


@dataclass(frozen=True)
class Augmentation:
    """What PRIME does to the images.

    Attributes:
        config: The distributions, or the name of a preset. None: no PRIME; everything else is the same.
        views: 1, or 3 from one decoding: the clean image and two augmented views; or 2: the clean image and one.
        mode: The implementation, see :func:`prime_dali.dali.prime`.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> prime_dali.dali.Augmentation("cifar", views=3).config.spatial_cut_max
        100
    """

    config: PrimeConfig | str | None = "imagenet"
    _: KW_ONLY
    views: int = 1
    mode: str = "auto"

    def __post_init__(self) -> None:
        if self.config is None and self.views != 1:
            raise ValueError(f"views: expected 1 without PRIME (config=None), got {self.views!r}")
        _arguments.one_of("mode", self.mode, MODES)
        config = None if self.config is None else as_config(self.config)
        assign(self, config=config, views=_arguments.training_views(self.views))


Augmentation.__init__ = takes_config(Augmentation.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True)
class RandomCrop:
    """The random window of a training image, which is resized, and its flip, as in
    ``torchvision.transforms.RandomResizedCrop``.

    Attributes:
        size: Height and width of the result, 8 to 4096 pixels each, or an int for squares.
        area, ratio: Minimum and maximum of the window's fraction of the area (0 to 1), and of its width / height.
        flip: Probability of mirroring left to right; the same for all views of an image.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> prime_dali.dali.RandomCrop(176, area=(0.35, 1))
        RandomCrop(size=(176, 176), area=(0.35, 1.0), ratio=(0.75, 1.3333333333333333), flip=0.5)
    """

    size: int | Sequence[int] = (224, 224)
    _: KW_ONLY
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __post_init__(self) -> None:
        area = _arguments.interval("area", self.area, 1.0)
        ratio = _arguments.interval("ratio", self.ratio, float("inf"))
        flip = _arguments.amplitude("flip", self.flip)
        if flip > 1:
            raise ValueError(f"flip: expected a probability, 0 to 1, got {flip}")
        assign(self, size=_arguments.image_size("size", self.size), area=area, ratio=ratio, flip=flip)


@dataclass(frozen=True)
class CenterCrop:
    """The center of a validation image, after its shorter side was resized.

    Attributes:
        size: As for :class:`RandomCrop`.
        resize: The shorter side after resizing, pixels; at least both sides of ``size``.
        interpolation: Of that resize: ``"bilinear"``, ``"bicubic"``, or ``"lanczos"``; antialiased.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> prime_dali.dali.CenterCrop(224, resize=232)
        CenterCrop(size=(224, 224), resize=232, interpolation='bilinear')
        >>> prime_dali.dali.CenterCrop(224, resize=200)
        Traceback (most recent call last):
        ValueError: resize: expected 224 to 4096, got 200
    """

    size: int | Sequence[int] = (224, 224)
    _: KW_ONLY
    resize: int = 256
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        _arguments.one_of("interpolation", self.interpolation, INTERPOLATIONS)
        size = _arguments.image_size("size", self.size)
        assign(self, size=size, resize=_arguments.integer("resize", self.resize, max(size), _arguments.MAX_SIDE))


@dataclass(frozen=True, kw_only=True)
class Output:
    """The format of a pipeline's images.

    Attributes:
        mean, std: Per channel, on the [0, 1] scale. Both None: pixels in [0, 1], or 0 to 255 for ``types.UINT8``.
        dtype: ``types.FLOAT``, ``FLOAT16``, or ``UINT8`` without mean and std; or that dtype of torch or NumPy, or its
            name, as ``torch.float16`` or ``"float16"``.
        layout: ``"CHW"`` or ``"HWC"``.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> from nvidia.dali import types
        >>> prime_dali.dali.Output(mean=None, std=None, dtype=types.UINT8, layout="HWC").layout
        'HWC'
        >>> prime_dali.dali.Output(dtype=types.UINT8)
        Traceback (most recent call last):
        ValueError: dtype: expected FLOAT or FLOAT16 with mean and std, got UINT8
    """

    mean: Sequence[float] | None = IMAGENET_MEAN
    std: Sequence[float] | None = IMAGENET_STD
    dtype: Any = types.FLOAT
    layout: str = "CHW"

    def __post_init__(self) -> None:
        _arguments.one_of("layout", self.layout, LAYOUTS)
        mean, std = _arguments.channels(self.mean, self.std)
        assign(self, dtype=dtype_of(self.dtype))
        if self.dtype not in (types.UINT8, types.FLOAT16, types.FLOAT):
            raise TypeError(f"dtype: expected types.UINT8, FLOAT16 or FLOAT, got {self.dtype!r}")
        if self.dtype == types.UINT8 and mean is not None:
            raise ValueError("dtype: expected FLOAT or FLOAT16 with mean and std, got UINT8")
        assign(self, mean=mean, std=std)


@dataclass(frozen=True)
class Execution:
    """Where a pipeline runs, and with which resources.

    Attributes:
        device: Where to decode and augment: ``"gpu"``, ``"cpu"``, or ``"auto"``, the GPU if it is usable.
        device_id: Number of the GPU. None: torch's current one, otherwise 0.
        num_threads: Threads of DALI. None: one for each core that this process may use, or for its part of them if
            ``torchrun`` has started several processes on this machine.
        prefetch_queue_depth: Number of batches that are prefetched.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> prime_dali.dali.Execution("cpu", num_threads=4).threads()
        4
    """

    device: str = "auto"
    _: KW_ONLY
    device_id: int | None = None
    num_threads: int | None = None
    prefetch_queue_depth: int = 2

    def __post_init__(self) -> None:
        _arguments.one_of("device", self.device, DEVICES)
        assign(self, prefetch_queue_depth=_arguments.integer("prefetch_queue_depth", self.prefetch_queue_depth, 1, 64))
        if self.num_threads is not None:
            assign(self, num_threads=_arguments.integer("num_threads", self.num_threads, 1, 4096))
        if self.device_id is not None:
            if self.device == "cpu":
                raise ValueError(f"device_id: expected None with device='cpu', got {self.device_id!r}")
            assign(self, device_id=_arguments.integer("device_id", self.device_id, 0, 1023))

    def threads(self) -> int:
        """Number of DALI's threads."""
        if self.num_threads:
            return self.num_threads
        beside = os.environ.get("LOCAL_WORLD_SIZE", "1")  # torchrun gives all of them the same cores
        if not beside.isdecimal() or not int(beside):
            raise ValueError(f"LOCAL_WORLD_SIZE: expected a number of processes, as torchrun sets it, got {beside!r}")
        return max(_devices.cores() // int(beside), 1)

    def gpu(self) -> int:
        """Number of the GPU, if there is one."""
        if self.device_id is not None:
            return self.device_id
        try:
            import torch
        except ImportError:
            return 0
        return torch.cuda.current_device() if torch.cuda.is_available() else 0


def plain(group: PrimeConfig | RandomCrop | CenterCrop | Output) -> dict[str, Any]:
    """The fields of a group by name, for a state: JSON has no tuples and no dtypes."""
    fields = dataclasses.asdict(group)
    if isinstance(group, Output):
        fields["dtype"] = group.dtype.name
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def augmentation(prime: Any) -> Augmentation:
    """The argument ``prime`` of a pipeline as a group."""
    return prime if isinstance(prime, Augmentation) else Augmentation(prime)


def group(argument: str, value: Any, kind: type[Group]) -> Group:
    """``value`` if it is a group of this kind; TypeError otherwise."""
    if not isinstance(value, kind):
        raise TypeError(f"{argument}: expected {kind.__name__}(...), got {type(value).__name__} ({value!r})")
    return value


_RENAMED = {
    "folder": "the first argument", "source": "data=Source(function, num_images=...)", "config": "prime=...",
    "out_dtype": "output=Output(dtype=...)", "out_layout": "output=Output(layout=...)",
}  # fmt: skip


def moved(**groups: type | tuple[type, ...]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise an error for a field of a group, or of PRIME's configuration, that names its place.

    Args:
        groups: The group of each argument. Of two groups with the same field the later one is named.
    """
    fields = PrimeConfig.__dataclass_fields__ if "prime" in groups else ()
    where = (
        {name: f"prime=preset(NAME).replace({name}=...)" for name in fields}
        | {
            field.name: f"{argument}={kind.__name__}({field.name}=...)"
            for argument, kinds in groups.items()
            for kind in (kinds if isinstance(kinds, tuple) else (kinds,))
            for field in dataclasses.fields(kind)
        }
        | _RENAMED
    )
    return _arguments.elsewhere(where)


def assign(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass, to Python's own types, because states must be serializable in any format."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
