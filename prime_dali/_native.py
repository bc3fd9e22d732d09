"""What the compiled code needs: a processor that has what it was compiled for, and torch for torch's interface."""

from __future__ import annotations

from . import _arrays


def require_cpu() -> None:
    """ImportError unless this processor has the instructions that the CPU back end, of any interface, consists of."""
    missing = _arrays.missing_instructions()
    if missing:
        raise ImportError(
            f"prime_dali: this processor lacks {missing}, which this build of the CPU back end needs; by default it is "
            "compiled for x86-64-v3 (AVX2, FMA, F16C), and PRIME_DALI_MARCH at build time names another instruction set"
        )


def require_torch(what: str) -> None:
    """ImportError, with what to install, unless torch is there, which ``what`` needs."""
    try:
        import torch  # noqa: F401 -- only whether it is there
    except ImportError as error:
        raise ImportError(f"{what} needs torch ({error}): pip install 'prime-dali[torch]'") from error
