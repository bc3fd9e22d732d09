"""What each kernel of a call costs, as torch's profiler sees it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from common import Call, aligned

PROFILED_CALLS = 10


@dataclass(frozen=True)
class Kernel:
    """What one kernel (on the CPU: one operator) costs a batch of prime."""

    name: str
    size: int  # pixels a side
    batch: int
    calls: float  # a batch
    us_per_image: float  # microseconds, all its calls together


def alone(spans: Iterable[tuple[str, float, float]]) -> dict[str, tuple[int, float]]:
    """How often each name occurs in spans ``(name, start, end)``, and how long it took from the end of those before.

    A kernel that begins early waits for the one before; that wait is no time of its own.
    """
    totals: dict[str, tuple[int, float]] = {}
    done = -math.inf
    for name, start, end in sorted(spans, key=lambda span: span[1:]):
        calls, passed = totals.get(name, (0, 0.0))
        totals[name] = calls + 1, passed + max(end - max(start, done), 0.0)
        done = max(done, end)
    return totals


def profile(call: Call, images: torch.Tensor) -> list[Kernel]:
    """The kernels (on the CPU: the operators) of a candidate that has been called before, the longest first."""
    device = images.device.type
    activity = getattr(torch.profiler.ProfilerActivity, device.upper())
    with torch.profiler.profile(activities=[activity]) as profiler:
        for _ in range(PROFILED_CALLS):
            call()
        if images.is_cuda:
            torch.cuda.synchronize()
    if images.is_cuda:
        # The types of the arguments say nothing: void (anonymous namespace)::name<1>(int) -> name<1>
        totals = alone(
            (re.sub(r"\(anonymous namespace\)::|^void |(?<! )\(.*", "", e.name), e.time_range.start, e.time_range.end)
            for e in profiler.events()
            if e.device_type == torch.autograd.DeviceType.CUDA  # and not its launch on the host
        )
    else:
        totals = {event.key: (event.count, event.self_cpu_time_total) for event in profiler.key_averages()}
    batch, size = len(images), images.shape[-1]
    kernels = [
        Kernel(name, size, batch, calls / PROFILED_CALLS, passed / PROFILED_CALLS / batch)
        for name, (calls, passed) in totals.items()
    ]
    return sorted(kernels, key=lambda k: -k.us_per_image)


def kernel_table(kernels: list[Kernel]) -> str:
    """The kernels of one batch of prime, their sum last."""
    total = sum(k.us_per_image for k in kernels)
    rows = [["us / image", "share", "calls", "prime's kernel"]]
    rows += [[f"{k.us_per_image:.3f}", f"{k.us_per_image / total:.1%}", f"{k.calls:g}", k.name] for k in kernels]
    rows.append([f"{total:.3f}", "", f"{sum(k.calls for k in kernels):g}", "all together"])
    names = [row.pop() for row in rows]  # last, and to the left, because some are long
    return "\n".join(f"{line}  {name}" for line, name in zip(aligned(rows), names, strict=True))
