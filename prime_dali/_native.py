"""Requirements of the compiled code: the processor's instruction sets, and torch for the torch interface."""

from __future__ import annotations

from . import _arrays, _extras


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
        import torch  # noqa: F401 -- only whether it is installed
    except ImportError as error:
        raise ImportError(f"{what} needs torch ({error}): {_extras.install('torch')}") from error
