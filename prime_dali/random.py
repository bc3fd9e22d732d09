"""The random numbers of a plan, implemented again in NumPy: Philox4x32-10 and normals from it, in float64.

The kernels (csrc/core/random.h) draw the same words and compute in float32. :mod:`prime_dali.reference` and
:meth:`Plan.materialize` use this module, so they share no code with what they check.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RUN = 1024  # counters between two runs of one purpose
PURPOSES = {
    "draw": 0, "filter": 1, "row_shift": 2, "column_shift": 3, "color": 4, "noise": 7, "weights": 8, "depth": 9,
    "wave": 10,
}  # fmt: skip

Words = NDArray[np.uint32]
Integers = int | NDArray[np.int64]


def philox(counter: NDArray[np.unsignedinteger], key: NDArray[np.unsignedinteger]) -> Words:
    """Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

    Args:
        counter: uint32 ``[..., 4]``.
        key: uint32 ``[..., 2]``, broadcast against the counters.

    Returns:
        uint32 ``[..., 4]``.
    """
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y, z, w = np.moveaxis(np.asarray(counter).astype(np.uint64), -1, 0)
    key0, key1 = np.moveaxis(np.asarray(key).astype(np.uint64), -1, 0)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * x, np.uint64(0xCD9E8D57) * z
        x, y, z, w = (second >> shift) ^ y ^ key0, second & mask, (first >> shift) ^ w ^ key1, first & mask
        key0, key1 = (key0 + np.uint64(0x9E3779B9)) & mask, (key1 + np.uint64(0xBB67AE85)) & mask
    return np.stack(np.broadcast_arrays(x, y, z, w), -1).astype(np.uint32)


def stream(seed: int, index: Integers, epoch: Integers, view: Integers) -> Words:
    """The four words that identify one augmented image: all its random numbers derive from them.

    Index, epoch and view are ints, or int64 arrays, broadcast against one another to ``[...]``: uint32 ``[..., 4]``.
    """
    low = 0xFFFFFFFF
    counter = np.stack(np.broadcast_arrays(index & low, index >> 32 & low, epoch & low, view & low), -1)
    return philox(counter.astype(np.uint32), np.array([seed & low, seed >> 32 & low], np.uint32))


def field_place(number: int, stream: Words, chain: int, slot: int) -> tuple[Words, int, int]:
    """Stream, chain and slot that the coefficients of a spatial slot derive from.

    They are its own if ``number`` is 0; a pair of fields with another number, which images share, derives from that
    alone (``PrimeConfig.draws``).
    """
    return (stream, chain, slot) if number == 0 else (np.array([number & 0xFFFFFFFF, 0, 0, 0], np.uint32), 0, 0)


def uniform(words: Words) -> NDArray[np.float64]:
    """Uniform in (0, 1): the midpoints of 2^23 equal cells."""
    return ((words >> np.uint32(9)).astype(np.float64) + 0.5) * 2.0**-23


def blocks(stream: Words, count: int, base: Integers, chain: int, slot: int, purpose: str, channel: int = 0) -> Words:
    """``count`` blocks of one run, from number ``base`` on; of a run for each one if ``base`` is an array ``[...]``.

    Returns:
        uint32 ``[..., count, 4]``.
    """
    run, channel = channel // 3 * RUN, channel % 3  # three purposes take the channels in turn
    counter = np.zeros((*np.shape(base), count, 4), np.uint32)
    counter[..., 0] = np.asarray(base)[..., None] + run + np.arange(count)
    counter[..., 1] = chain << 16 | slot << 8 | (PURPOSES[purpose] + channel)
    counter[..., 2], counter[..., 3] = stream[2], stream[3]
    return philox(counter, stream[:2])


def normals(
    stream: Words, count: int, base: Integers, chain: int, slot: int, purpose: str, channel: int = 0
) -> NDArray[np.float64]:
    """``count`` independent N(0, 1) of one run, or of a run for each number of ``base``, float64 ``[..., count]``.

    Number ``k`` is number ``k % 4`` of the Box-Muller transform of block ``base + k // 4``.
    """
    u = uniform(blocks(stream, -(-count // 4), base, chain, slot, purpose, channel))  # [..., blocks, 4]
    radius, angle = np.sqrt(-2 * np.log(u[..., 0::2])), 2 * np.pi * u[..., 1::2]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)  # [..., blocks, 2, 2]
    return pairs.reshape(*np.shape(base), u.shape[-2] * 4)[..., :count]
