"""Hashes of plans, coefficients and images in many settings, to show that a change of the code changes none of them.

    python tools/fingerprint.py --device cpu --out before.json
    python tools/fingerprint.py --device cpu --against before.json     # names what differs; exit status 1 if any does

``cpu`` is the CPU back end, ``cuda`` the GPU, ``emulated`` the CUDA sources compiled for the CPU (tests/cuda_on_cpu).
Hashes of images hold for one machine and compiler; those of plans for every machine.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import prime_dali
from prime_dali import PrimeConfig, preset

ROOT = Path(__file__).resolve().parent.parent
SIZES = ((32, 32), (8, 8), (61, 40), (40, 61), (97, 130), (224, 224))
NOISY: dict[str, Any] = {"primitives": ("spectral", "spatial", "color", "noise"), "noise_std": 0.1}


def configs() -> dict[str, PrimeConfig]:
    """Presets, and what they do not reach."""
    out = {f"{name} {mixing}": preset(name).replace(mixing=mixing) for name in ("imagenet", "cifar")
           for mixing in ("paper", "official", "none")}  # fmt: skip
    base = preset("imagenet")
    out |= {
        "noisy": base.replace(**NOISY), "deep": base.replace(width=5, depth=6, **NOISY),
        "filter 5": base.replace(spectral_size=5), "filter 7": base.replace(spectral_size=7, width=1, depth=1),
        "strong": base.replace(alpha=20.0), "weak": base.replace(alpha=0.01), "wide": base.replace(color_band=None),
    }  # fmt: skip
    return out | {f"only {name}": base.replace(primitives=(name,)) for name in ("spectral", "spatial", "color")}


def images(count: int, height: int, width: int, channels: int = 3) -> torch.Tensor:
    """uint8 ``[count, channels, height, width]``: smooth parts, edges and noise."""
    random = np.random.default_rng(height * 10000 + width)
    y, x = np.mgrid[:height, :width]
    waves = [
        127 + 120 * np.sin(x * random.uniform(0, 0.3) + y * random.uniform(0, 0.3)) for _ in range(channels * count)
    ]
    pixels = np.stack(waves).reshape(count, channels, height, width)
    pixels[:, :, height // 2 :, : width // 3] = random.integers(0, 256, (count, channels, 1, 1))
    pixels += random.normal(0, 8, pixels.shape) * (x > width // 2)
    return torch.from_numpy(pixels.clip(0, 255).astype(np.uint8))


def cases(device: str, apply: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Names and arrays: plans, coefficients, then images of the dtypes, layouts and options."""
    for (name, config), size in itertools.product(configs().items(), SIZES):
        index = torch.arange(6) * 7919 + 2**33
        plan = prime_dali.sample(config, index.to(device), size=size, seed=11, epoch=3, view=("clean", 0, 1))
        yield f"plan, {name}, {size}", plan.rows
        if name in ("noisy", "strong") and max(size) < 200:
            slots = [slot.coefficients.ravel() for slot in plan.materialize()]
            yield f"coefficients, {name}, {size}", np.concatenate(slots) if slots else np.empty(0)
        pixels = images(6, *size)
        for dtype in (torch.uint8, torch.float32):
            given = pixels if dtype == torch.uint8 else (pixels / 255).to(dtype)
            yield f"image, {name}, {size}, {dtype}", apply(given.to(device), plan)
    size = (61, 40)
    plan = prime_dali.sample("imagenet", torch.arange(6).to(device), size=size, seed=2, view=("clean", 0))
    flip = (torch.arange(6) % 2).bool().to(device)
    statistics = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.25, 0.3)}
    dtypes = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
    formats = (torch.contiguous_format, torch.channels_last)
    for dtype, out_dtype, format in itertools.product(dtypes, dtypes, formats):
        given = images(6, *size).to(device)
        given = given if dtype == torch.uint8 else (given / 255).to(dtype)
        given = given.contiguous(memory_format=format)
        normalized = {} if out_dtype == torch.uint8 else statistics
        out = apply(given, plan, out_dtype=out_dtype, flip=flip, **normalized)
        yield f"image, {dtype} to {out_dtype}, {format}", out
    yield from of_other_channels(device, apply)


def of_other_channels(device: str, apply: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Names and images of other numbers of channels, and of uint16."""
    base = preset("cifar").replace(color_cut_max=30, **NOISY)
    settings = ((base, (61, 40)), (base, (37, 45)), (base.replace(spectral_size=5), (20, 24)))
    formats = (torch.contiguous_format, torch.channels_last)
    index = torch.arange(4).to(device)
    for (config, size), channels, format in itertools.product(settings, (1, 2, 3, 4, 5, 6, 7, 16), formats):
        plan = prime_dali.sample(config, index, size=size, seed=5, view=("clean", 0), channels=channels)
        levels = images(4, *size, channels).contiguous(memory_format=format)
        kinds = {torch.uint8: levels, torch.uint16: (levels.int() * 257).to(torch.uint16), torch.float32: levels / 255}
        steps = [0.02 * c for c in range(channels)]
        statistics = {"mean": [0.5 - step for step in steps], "std": [0.2 + step for step in steps]}
        for dtype, given in kinds.items():
            normalized = statistics if dtype == torch.float32 else {}
            out = apply(given.to(device), plan, flip=(index % 2).bool(), **normalized)
            yield f"image, {channels} channels, {size}, {dtype}, {format}", out


def emulated(folder: str) -> Callable[..., Any]:
    """``apply`` of the CUDA sources compiled for the CPU."""
    sys.path.insert(0, str(ROOT / "tests"))
    import emulated_cuda
    import ml_dtypes

    module = emulated_cuda.load(Path(folder))

    def apply(
        images: torch.Tensor, plan: Any, *, out_dtype: torch.dtype | None = None, flip: Any = None, mean: Any = (),
        std: Any = (),
    ) -> Any:  # fmt: skip
        name = str(out_dtype or images.dtype).removeprefix("torch.")
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        layout = "NCHW" if images.is_contiguous() else "NHWC"
        brain = images.dtype == torch.bfloat16
        pixels = images.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if brain else images.numpy()
        flips = None if flip is None else flip.numpy()
        scale = tuple(1 / s for s in std)
        return emulated_cuda.apply(module, pixels, plan.numpy(), dtype, flips, layout, mean, scale)

    return apply


def digest(array: Any) -> str:
    """The first digits of a SHA-256."""
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def main() -> int:
    """Write or compare; the number of differences is the exit status, up to 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda", "emulated"), default="cpu")
    parser.add_argument("--out", type=Path, help="write the hashes here")
    parser.add_argument("--against", type=Path, help="compare with the hashes written there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        apply = emulated(folder) if options.device == "emulated" else prime_dali.apply
        device = "cuda" if options.device == "cuda" else "cpu"
        found = {name: digest(array) for name, array in cases(device, apply)}
    print(f"{len(found)} hashes on {options.device}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    if not options.against:
        return 0
    before = json.loads(options.against.read_text())
    differ = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
    print(f"{len(differ)} differ", *sorted(differ), sep="\n")
    return bool(differ)


if __name__ == "__main__":
    raise SystemExit(main())
