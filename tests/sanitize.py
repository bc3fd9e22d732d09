"""Runs every CUDA kernel in every variant on small images, for compute-sanitizer (``make sanitize``); not a test itself."""

from __future__ import annotations

import torch

import prime_dali

PRIMITIVES = ("spectral", "spatial", "color", "noise")


def main() -> None:
    """Draw and apply: sizes, dtypes, channels, layouts, filters, bands, depths, views, flips."""
    index, flip = torch.arange(3, device="cuda"), torch.tensor([True, False, True], device="cuda")
    calls = 0
    for size in ((40, 36), (33, 29)):
        for dtype in (torch.uint8, torch.float16, torch.bfloat16, torch.float32):
            images = torch.rand(3, 3, *size, device="cuda")
            images = (images * 255).to(dtype) if dtype == torch.uint8 else images.to(dtype)
            for name, changes in (
                ("imagenet", {"mixing": "official"}),
                ("cifar", {"width": 9, "depth": 4, "spectral_size": 5}),
                ("imagenet", {"mixing": "none", "depth": 1, "color_band": None, "alpha": 30.0}),
            ):
                config = prime_dali.preset(name).replace(primitives=PRIMITIVES, noise_std=0.1, **changes)
                plan = prime_dali.sample(config, index, size=size, seed=calls, view=("clean", 0))
                for layout in (torch.contiguous_format, torch.channels_last):
                    given = images.to(memory_format=layout)
                    prime_dali.apply(given, plan, flip=flip)
                    prime_dali.apply(given, plan, mean=(0.5,) * 3, std=(0.2,) * 3, out_dtype=torch.float16)
                    calls += 2
    for channels, dtype in (
        (1, torch.uint8),
        (1, torch.uint16),
        (2, torch.float32),
        (4, torch.uint8),
        (3, torch.uint16),
    ):
        for size, filter_size in (((40, 36), 3), ((33, 29), 5)):
            levels = torch.randint(0, 256, (3, channels, *size))
            images = (
                levels / 255 if dtype == torch.float32 else (levels * (257 if dtype == torch.uint16 else 1)).to(dtype)
            )
            config = prime_dali.preset("imagenet").replace(
                primitives=PRIMITIVES,
                noise_std=0.1,
                spectral_size=filter_size,
                color_band=None if channels == 1 else 20,
            )
            plan = prime_dali.sample(config, index, size=size, seed=calls, view=("clean", 0), channels=channels)
            for layout in (torch.contiguous_format, torch.channels_last):
                given = images.cuda().to(memory_format=layout)
                for out_dtype in (torch.uint16, torch.float16):
                    prime_dali.apply(given, plan, flip=flip, out_dtype=out_dtype)
                    calls += 1
    for size in ((8, 530), (8, 1100)):  # many modes
        images = torch.rand(2, 3, *size, device="cuda")
        for strength in (0.0003, 0.001, 0.05):  # small shifts and large ones
            plan = prime_dali.Plan.build([[[("spatial", strength, size[1])]]] * 2, size=size)
            prime_dali.apply(images, plan.torch("cuda"))
            calls += 1
    images = torch.rand(160, 3, 224, 224, device="cuda")  # more than there is room for at once
    plan = prime_dali.Plan.build([[[("spatial", 0.2, 3)] * 3] * 3] * 160, size=(224, 224))
    prime_dali.apply(images, plan.torch("cuda"))
    calls += 1
    torch.cuda.synchronize()
    print(f"{calls} calls")


if __name__ == "__main__":
    main()
