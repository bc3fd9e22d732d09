"""Requirements of the compiled code: the processor's instruction sets, and torch for the torch interface."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from . import _extras


def _why_not_loaded(error: ImportError) -> str:
    """What is wrong with the compiled module ``_arrays``, which comes first, and what to do."""
    folder = Path(__file__).parent
    made = sorted(path.name for path in folder.glob("_arrays.*.so"))
    if any((folder / f"_arrays{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return f"the compiled code in {folder} cannot be loaded ({error}); install prime-dali again"
    if made:
        python = f"{sys.implementation.cache_tag} ({sys.executable})"
        return f"{folder} was compiled for another Python ({made[0]}) than {python}; install prime-dali with this one"
    if (folder.parent / "csrc").exists():
        return (
            f"{folder} is a checkout that has not been compiled; start Python in another folder to use the package "
            f"that is installed, or compile this one: pip install --editable {folder.parent}"
        )
    return f"no compiled code in {folder}, and an archive cannot contain any; install prime-dali in a folder"


try:
    from . import _arrays
except ImportError as error:
    raise ImportError(f"prime_dali: {_why_not_loaded(error)}", name="prime_dali._arrays") from None


def require_cpu() -> None:
    """ImportError unless this processor supports the instruction sets that the CPU back end was compiled for."""
    missing = _arrays.missing_instructions()
    if missing:
        raise ImportError(
            f"prime_dali: this processor lacks {missing}, which this build of the CPU back end needs; by default it is "
            "compiled for x86-64-v3 (AVX2, FMA, F16C); on an older processor build with PRIME_DALI_MARCH=native"
        )


def require_torch(what: str) -> None:
    """ImportError, with the command that installs it, unless torch is installed; ``what`` needs it."""
    try:
        import torch  # noqa: F401 -- only whether it can be imported

        if not _extras.there("torch"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
    except ImportError as error:
        raise ImportError(f"{what} needs torch ({error}): {_extras.install('torch')}") from error
