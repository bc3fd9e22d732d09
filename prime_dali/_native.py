"""The compiled CPU back end, refused where the processor lacks what it was compiled for."""

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
