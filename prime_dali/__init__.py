"""PRIME data augmentation (Modas et al., ECCV 2022) as fused kernels for PyTorch, NumPy, CuPy and DALI.

::

    plan = prime_dali.sample(prime_dali.preset("imagenet"), index, size=(224, 224))
    augmented = prime_dali.apply(images, plan)

or, as a module, ``prime_dali.PRIME("imagenet", mean=..., std=...)(images)``. torch is optional
(``pip install 'prime-dali[torch]'``): the names that need it import it when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _arguments, _extras, _native, reference
from .config import PrimeConfig, as_config, preset, takes_config
from .plan import Plan

if TYPE_CHECKING:
    from . import arrays
    from . import dali as dali  # public too, but not of `import *`: it needs DALI
    from . import v2 as v2  # and this torchvision
    from .module import PRIME
    from .torch_ops import apply

__version__ = "0.1.0"
__all__ = ["PRIME", "Plan", "PrimeConfig", "apply", "arrays", "check_pixels", "preset", "reference", "sample"]


@takes_config
def sample(
    config: PrimeConfig | str,
    index: Any,
    *,
    size: int | Sequence[int],
    seed: int = 0,
    epoch: Any = 0,
    view: Any = 0,
    channels: int = 3,
) -> Plan:
    """Sample a plan for a batch of images.

    A pure function: the same seed, index, epoch and view give the same plan for an image in any batch, bit-identical on
    CPU and GPU. docs/METHOD.md has the distributions; every draw is per image, chain and slot, unless the configuration
    has ``draws="batch"``: then images share draws, and the plan of an image depends on the first one in ``index`` too.

    Args:
        config: The distributions, or the name of a preset.
        index: int64 ``[N]``, each image's index in the data set, or ``[]``, that of a single one: torch (CPU or CUDA),
            NumPy or CuPy. The plan is on the device of the index.
        size: ``(height, width)`` of the images, 8 to 4096 pixels: any pair of ints, or an int for squares.
        seed: The run's seed, an int from -2^63 to 2^63 - 1.
        epoch: An int from 0 to 4294967295, or int64 ``[]`` or ``[N]`` like ``index`` (so that a captured CUDA graph can
            change it). Arrays on a GPU are not read back: only their low 32 bits are used.
        view: A number from 0, or ``"clean"`` for the unchanged image, or several of these: one augmented image each,
            ``("clean", 0, 1)`` for the Jensen-Shannon loss.
        channels: Of the images, 1 to 16. The rows of a plan do not depend on it, and the first channels are augmented
            in the same way whatever the number.

    Returns:
        A :class:`Plan` for ``len(view) * N`` augmented images.

    Raises:
        TypeError, ValueError: An argument is invalid; the message names it, the expected value and the value given.
            NumPy's ints and arrays of shape [] count as ints; bools do not.

    Examples:
        >>> plan = prime_dali.sample("cifar", np.arange(4), size=32, seed=1, view=("clean", 0))
        >>> plan
        Plan(rows=8, views=2, size=(32, 32), channels=3, chains=3, depth=3, device='cpu', array='numpy')
        >>> plan[2:] == prime_dali.sample("cifar", np.array([2, 3]), size=32, seed=1, view=("clean", 0))
        True
    """
    config = as_config(config)
    torch = sys.modules.get("torch")
    interface: Any
    if torch is not None and isinstance(index, torch.Tensor):
        from . import torch_ops as interface
    else:
        from . import arrays as interface
    return interface.sample(config, index, size=size, seed=seed, epoch=epoch, view=view, channels=channels)


def check_pixels(device: int | None = None) -> None:
    """Wait for the GPUs, and raise if float images of an earlier call had pixels outside [0, 1].

    A call on a GPU does not synchronize: bad pixels raise an error in a later call of the same interface, torch or
    arrays, on the same device. Call this function if there is no later call: after the last batch of an epoch, or when
    a CUDA graph is replayed. On the CPU every call raises immediately. DALI's native operator raises in one of its next
    batches, and is not checked here.

    Args:
        device: Number of a GPU. None: all that have been used.

    Raises:
        TypeError, ValueError: ``device`` is not the number of a GPU.
        ValueError: There were such pixels; the message has their number and range over all calls on that device since
            the last such error. The counts are then reset.

    Examples:
        >>> prime_dali.check_pixels()  # at the end of an epoch; nothing was wrong
        >>> prime_dali.check_pixels(device=-1)
        Traceback (most recent call last):
        ValueError: device: expected 0 to 1023, got -1
    """
    number = _arguments.gpu_number("device", device)
    for name in ("torch_ops", "arrays"):
        interface = sys.modules.get(f"{__name__}.{name}")
        if interface is not None:
            interface.check_pixels(number)


_NEED_TORCH = {"apply": "torch_ops", "PRIME": "module"}


def __dir__() -> list[str]:
    """The public names that can be imported here: ``help(prime_dali)`` and completion import each of them."""
    torch = _extras.there("torch") and Path(__file__).with_name("_torch.abi3.so").exists()
    dali = _extras.there("nvidia.dali")
    torchvision = torch and _extras.there("torchvision") and _extras.there("PIL")
    names = [name for name in __all__ if torch or name not in _NEED_TORCH]
    return sorted([*names, *(["dali"] if dali else []), *(["v2"] if torchvision else []), "__version__"])


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name in _NEED_TORCH:
            _native.require_torch(f"prime_dali.{name}")
            return getattr(importlib.import_module(f".{_NEED_TORCH[name]}", __name__), name)
        if name in ("arrays", "dali", "v2"):
            return importlib.import_module(f".{name}", __name__)
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])  # Python suggests the nearest name
