"""How far pixels of CUDA and of the CPU are apart, beside what float32 on the CPU loses against the float64 reference.

::

    python benchmarks/agreement.py --device cuda --json benchmarks/results/agreement.json
    python benchmarks/agreement.py --preset cifar --depth 3 --images 4   # without a GPU

Plans must be bit-identical on both, or this fails. Without ``--device cuda`` the CUDA sources are compiled for the
CPU (tests/cuda_on_cpu), where they round as on a GPU. Images are uint8, or floats that no byte holds, as of a decoder
that resizes. A pixel is off where one of its channels differs by more than 2/255. Exit status: 0; 1 if plans differ; 2
for a bad argument.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import (
    SEED,
    SIZES,
    add_shared,
    aligned,
    circumstances,
    natural_images,
    number,
    parsed,
    print_head,
    write_json,
)

import prime_dali
from prime_dali import Plan, reference

DTYPES = {"uint8": torch.uint8, "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
OFF = 2 / 255
PAIRS = ("CUDA, CPU", "CPU, float64")
NOTES = {
    "CUDA": "the CUDA kernels, on a GPU or (--device cpu) compiled for the CPU; float32 out",
    "CPU": "the CPU kernels, float32 inside and out",
    "float64": "prime_dali/reference.py: the equations in float64, on the same pixels and the same plan",
}
Apply = Callable[[torch.Tensor, Plan], np.ndarray]  # images [N, 3, H, W] and a plan of NumPy to float64


@dataclass(frozen=True)
class Result:
    """Of images of one dtype, augmented by chains of one depth."""

    preset: str
    size: int
    depth: int
    dtype: str
    images: int
    off: dict[str, float]  # of PAIRS: the share of pixels that are off by more than 2/255
    mean: dict[str, float]  # of PAIRS: the mean difference of the values, of [0, 1]
    worst: dict[str, float]  # of PAIRS: that of the image where it is largest


def compare(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """``off``, ``mean`` and ``worst`` of a :class:`Result`, of images [N, 3, H, W]; NaN is off."""
    difference = np.abs(first - second)
    return (
        float(np.mean(~(difference <= OFF).all(1))),
        float(difference.mean()),
        float(difference.mean((1, 2, 3)).max()),
    )


def images_of(dtype: torch.dtype, count: int, size: int) -> torch.Tensor:
    """Images like photographs, [N, 3, H, W]; floats lie between the bytes, as after a resize."""
    levels = natural_images(count, size, "cpu")
    if dtype == torch.uint8:
        return levels
    noise = torch.rand(levels.shape, generator=torch.Generator().manual_seed(SEED)) - 0.5
    return ((levels + noise) / 255).clamp(0, 1).to(dtype)


def on_cpu(images: torch.Tensor, plan: Plan) -> np.ndarray:
    """By the CPU kernels."""
    return prime_dali.apply(images, plan.torch(), out_dtype=torch.float32).double().numpy()


def on_gpu(images: torch.Tensor, plan: Plan) -> np.ndarray:
    """By the CUDA kernels on a GPU."""
    out = prime_dali.apply(images.cuda(), plan.torch("cuda"), out_dtype=torch.float32)
    return out.double().cpu().numpy()


def emulated(folder: Path) -> tuple[Apply, Callable[..., np.ndarray]]:
    """The CUDA kernels compiled for the CPU: what applies a plan, and what draws its rows."""
    import ml_dtypes

    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import emulated_cuda

    cuda = emulated_cuda.load(folder)

    def apply(images: torch.Tensor, plan: Plan) -> np.ndarray:
        bfloat16 = images.dtype == torch.bfloat16
        array = images.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if bfloat16 else images.numpy()
        return emulated_cuda.apply(cuda, array, plan).astype(np.float64)

    return apply, lambda *arguments: emulated_cuda.sample(cuda, *arguments)


def rows_on_gpu(config: prime_dali.PrimeConfig, index: np.ndarray, size: tuple[int, int], seed: int) -> np.ndarray:
    """What the GPU draws."""
    return prime_dali.sample(config, torch.from_numpy(index).cuda(), size=size, seed=seed).numpy().rows


def measure(options: argparse.Namespace, apply: Apply, rows: Callable[..., np.ndarray]) -> list[Result]:
    """All presets, depths and dtypes; SystemExit where CUDA draws another plan than the CPU."""
    results = []
    for name in options.preset:
        size = options.size or SIZES[name]
        index = np.arange(options.images)
        for depth in options.depth:
            config = prime_dali.preset(name).replace(depth=depth)
            plan = prime_dali.sample(config, index, size=(size, size), seed=SEED)
            if not np.array_equal(plan.rows, rows(config, index, (size, size), SEED)):
                sys.exit(f"{name}, depth {depth}: expected the plan that the CPU draws, got another one from CUDA")
            for dtype in options.dtype:
                print(f"{name}, {size} x {size}, depth {depth}, {dtype} ...", file=sys.stderr, flush=True)
                images = images_of(DTYPES[dtype], options.images, size)
                made = {
                    "CUDA": apply(images, plan),
                    "CPU": on_cpu(images, plan),
                    "float64": reference.apply(images, plan),
                }
                found = [compare(*(made[side] for side in pair.split(", "))) for pair in PAIRS]
                off, mean, worst = (dict(zip(PAIRS, numbers, strict=True)) for numbers in zip(*found, strict=True))
                results.append(Result(name, size, depth, dtype, options.images, off, mean, worst))
    return results


def table(results: list[Result]) -> list[str]:
    """A line each, shares in percent and differences in steps of a byte, of pair after pair."""
    rows = [["", *(f"{pair}: {what}" for pair in PAIRS for what in ("off %", "mean", "worst"))]]
    for r in results:
        numbers = [
            n for p in PAIRS for n in (f"{100 * r.off[p]:.3f}", f"{255 * r.mean[p]:.3f}", f"{255 * r.worst[p]:.2f}")
        ]
        rows.append([f"{r.preset} {r.size}, depth {r.depth}, {r.dtype}", *numbers])
    return aligned(rows)


def markdown(results: list[dict[str, Any]]) -> str:
    """The table of docs/METHOD.md, from the ``results`` of a JSON file: the percentage of pixels that are off."""
    dtypes = list(dict.fromkeys(r["dtype"] for r in results))
    off = {(r["preset"], r["size"], r["depth"], r["dtype"]): r["off"] for r in results}
    lines = [
        "| pixels off by more than 2/255, % | " + " | ".join(f"{pair}: {d}" for pair in PAIRS for d in dtypes) + " |",
        "|---" * (1 + 2 * len(dtypes)) + "|",
    ]
    for preset, size, depth in dict.fromkeys(key[:3] for key in off):
        shares = [off[preset, size, depth, d][pair] for pair in PAIRS for d in dtypes]
        numbers = " | ".join(f"{100 * share:.2f}" for share in shares)
        lines.append(f"| `{preset}`, {size} x {size}, depth {depth} | {numbers} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = p.add_argument
    add("--preset", nargs="+", choices=SIZES, default=list(SIZES), help="(default: all)")
    add("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES), help="of the images (default: all)")
    depth = "slots of a chain (default: 1 2 3 4)"
    add("--depth", nargs="+", type=number(int, 1, 255), default=[1, 2, 3, 4], metavar="M", help=depth)
    add("--images", type=number(int, 1, 4096), default=16, metavar="N", help="of each kind (default: %(default)s)")
    size = "side of the images (default: 224 for imagenet, 32 for cifar)"
    add("--size", type=number(int, 8, 4096), metavar="PIXELS", help=size)
    add_shared(p, ())
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure; print, and write, what came out."""
    p = parser()
    options = parsed(p, argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    facts = circumstances(options, options.preset[0])
    print_head(facts, NOTES, set(NOTES))
    with tempfile.TemporaryDirectory() as folder:
        results = measure(options, *((on_gpu, rows_on_gpu) if options.device == "cuda" else emulated(Path(folder))))
    listed = [asdict(r) for r in results]
    print("", *table(results), "", markdown(listed), sep="\n", flush=True)
    if options.json:
        write_json(options.json, {**facts, "settings": vars(options), "results": listed})
    return 0


if __name__ == "__main__":
    sys.exit(main())
