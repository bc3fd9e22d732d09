"""AugMix against Pillow, operation by operation and whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_images, needs_gpu
from PIL import Image, ImageOps
from torch.utils._python_dispatch import TorchDispatchMode

from prime_dali.training.augmix import (
    AUTOCONTRAST,
    EQUALIZE,
    NONE,
    POSTERIZE,
    ROTATE,
    SHEAR_X,
    SHEAR_Y,
    SOLARIZE,
    TRANSLATE_X,
    TRANSLATE_Y,
    AugMix,
    affine_matrices,
    look_up,
    run_chains,
    warp,
)

SIZES = [(32, 32), (40, 57)]
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)


def affine(matrix: tuple[float, ...]) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


def by_pillow(operation: int, magnitude: float) -> Callable[[Image.Image], Image.Image]:
    """What the published code does with the magnitude that was drawn."""
    s = magnitude
    return {
        NONE: lambda image: image,
        AUTOCONTRAST: ImageOps.autocontrast,
        EQUALIZE: ImageOps.equalize,
        POSTERIZE: lambda image: ImageOps.posterize(image, int(s)),
        ROTATE: lambda image: image.rotate(int(s), resample=Image.Resampling.BILINEAR),
        SOLARIZE: lambda image: ImageOps.solarize(image, int(s)),
        SHEAR_X: affine((1, s, 0, 0, 1, 0)),
        SHEAR_Y: affine((1, 0, 0, s, 1, 0)),
        TRANSLATE_X: affine((1, 0, s, 0, 1, 0)),
        TRANSLATE_Y: affine((1, 0, 0, 0, 1, s)),
    }[operation]


def pictures(size: tuple[int, int]) -> torch.Tensor:
    """Smooth, noisy, flat, two-level, dull and nearly constant ones; uint8 ``[N, 3, H, W]``."""
    images = make_images(7, *size, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(1)
    images[1] = torch.randint(256, images[1].shape, generator=generator, dtype=torch.uint8)
    images[2] = torch.tensor([0, 100, 255], dtype=torch.uint8)[:, None, None]
    images[3] = (images[3] > 128) * torch.tensor([255, 1, 77], dtype=torch.uint8)[:, None, None]
    images[4] = images[4] // 8 + 90
    images[5] = 17
    images[5, :, 3, 4] = 18
    return images


def each(images: torch.Tensor, function: Callable[[Image.Image], Image.Image]) -> torch.Tensor:
    """``function`` of every image, as uint8 ``[N, 3, H, W]``."""
    made = [np.asarray(function(Image.fromarray(image.permute(1, 2, 0).numpy()))) for image in images]
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)


def operate(images: torch.Tensor, operation: int, magnitude: float) -> torch.Tensor:
    """One operation on all images."""
    operations = torch.full(images.shape[:1], operation, device=images.device)
    magnitudes = torch.full_like(operations, magnitude, dtype=torch.float64)
    matrices = affine_matrices(operations, magnitudes, (images.shape[2], images.shape[3]))
    return warp(look_up(images, operations, magnitudes), matrices)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("operation", "magnitudes"),
    [(NONE, [0]), (AUTOCONTRAST, [0]), (EQUALIZE, [0]), (POSTERIZE, [1, 2, 3, 4]), (SOLARIZE, [1, 128, 180, 255, 256])],
)
def test_tables_equal_pillow(operation: int, magnitudes: list[int], size: tuple[int, int], device: str) -> None:
    images = pictures(size)
    for magnitude in magnitudes:
        ours = operate(images.to(device), operation, magnitude).cpu()
        assert torch.equal(ours, each(images, by_pillow(operation, magnitude)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("operation", "magnitudes"), [
    (ROTATE, [0, 1, -2, 8, -8, 30]), (SHEAR_X, [0.0123, -0.0871, 0.2947]), (SHEAR_Y, [0.0123, -0.0871, 0.2947]),
    (TRANSLATE_X, [0, 1, -3, 10]), (TRANSLATE_Y, [0, 1, -3, 10]),
])  # fmt: skip
def test_maps_equal_pillow(operation: int, magnitudes: list[float], size: tuple[int, int], device: str) -> None:
    """But for a few levels, where Pillow's sum comes out a rounding error below a whole number and it rounds down."""
    images = pictures(size)
    for magnitude in magnitudes:
        ours = operate(images.to(device), operation, magnitude).cpu().int()
        differ = (ours - each(images, by_pillow(operation, magnitude)).int()).abs()
        assert differ.max() <= 1
        assert differ.count_nonzero() <= images.numel() // 10_000


def test_map_by_hand() -> None:
    """x' = x + 2 + y / 4 on pixel centers: of row 1, whose center is 1.5, a shift of 2.375."""
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    images[:, :, 1] = 10 * torch.arange(8, dtype=torch.uint8)
    # In coordinates from -1 to 1: x' = x + (y + 1) / 4 + 2 / 4.
    row = warp(images, torch.tensor([[[1, 0.25, 0.75], [0, 1, 0]]], dtype=torch.float64))[0, 0, 1]
    # 23.75 rounded down, and so on; half a pixel from the border 70; beyond it 0.
    assert row.tolist() == [23, 33, 43, 53, 63, 70, 0, 0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_whole_equals_pillow(dtype: torch.dtype, device: str) -> None:
    """The published code's order of work: normalize the chains, then mix them, then mix with the clean image."""
    images, index = make_images(6, 32, 40, dtype=torch.uint8), torch.arange(6)
    module = AugMix(3, seed=2, views=3, mean=MEAN, std=STD)
    given = images if dtype == torch.uint8 else images / 255
    out = module(given.to(device), index.to(device), 4).cpu()
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    draws, clean = module.draw(index, 4, (32, 40)), (images / 255 - mean) / std
    expected = [clean]
    for view in range(2):
        weights = draws.weights[view, :, :, None, None, None]
        mix = torch.zeros_like(clean)
        for chain in range(3):
            made = images
            for slot in range(3):
                operations, magnitudes = draws.operation[slot, view, chain], draws.magnitude[slot, view, chain]
                steps = zip(made, operations.tolist(), magnitudes.tolist(), strict=True)
                made = torch.cat([each(image[None], by_pillow(o, m)) for image, o, m in steps])
            mix += weights[1 + chain] * ((made / 255 - mean) / std)
        expected.append(weights[0] * clean + mix)
    differ = (out - torch.cat(expected)).abs() > 1e-5
    assert not differ[:6].any()
    assert differ.count_nonzero() <= out.numel() // 1000
    assert (out[6:12] - out[12:]).abs().mean() > 0.01  # the two augmentations are not one


def test_same_image_whatever_the_batch(device: str) -> None:
    images = make_images(6, 24, 24, dtype=torch.uint8).to(device)
    index = torch.tensor([5, 0, 2**33, 7, 7, 1], device=device)
    module = AugMix(3, seed=1, views=3)
    whole = module(images, index, 2).unflatten(0, (3, 6))
    for part in ([0, 1], [3], [5, 2, 4]):
        assert torch.equal(module(images[part], index[part], 2).unflatten(0, (3, -1)), whole[:, part])
    assert torch.equal(AugMix(3, seed=1)(images, index, 2), whole[1])  # the one view is the first of three
    assert torch.equal(AugMix(3, seed=1, views=2)(images, index, 2), whole[:2].flatten(0, 1))
    epochs = torch.full((6,), 2, device=device)
    assert torch.equal(module(images, index, epochs).unflatten(0, (3, 6)), whole)
    same = module(images[[0] * 6], index, 2)[6:12]
    assert torch.equal(same[3], same[4])  # of one image and index
    for other in (module(images, index), AugMix(3, seed=2, views=3)(images, index, 2), module(images, index + 1, 2)):
        changed = (other.unflatten(0, (3, 6)) != whole).flatten(2).any(2)
        assert not changed[0].any()
        assert changed[1:].all()


def test_severity_and_width_matter() -> None:
    images, index = make_images(16, 24, 24), torch.arange(16)
    far = [(AugMix(severity)(images, index) - images).abs().mean().item() for severity in (1, 3, 10)]
    assert far[0] < far[1] < far[2]
    one = AugMix(3, width=1, depth=1)
    draws, out = one.draw(index, None, (24, 24)), one(images, index)
    for n in range(16):
        made = operate((images[n : n + 1] * 255).round().byte(), *(part[0, 0, 0, n].item() for part in draws[:2])) / 255
        clean, chain = draws.weights[0, :, n]
        torch.testing.assert_close(out[n], clean * images[n] + chain * made[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_dtypes_layouts_and_normalization(dtype: torch.dtype, channels_last: bool, device: str) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    levels, index = make_images(4, 20, 24, dtype=torch.uint8), torch.arange(4)
    images = levels if dtype == torch.uint8 else (levels / 255).to(dtype)
    exact = AugMix(3, views=3, out_dtype=torch.float32)
    expected = exact(levels, index)
    images, index = images.to(device).contiguous(memory_format=layout), index.to(device)
    # Half a step, once of the input and once of the output; bytes come in exactly.
    coarse = {torch.uint8: 0.25 / 255, torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 0}[dtype]

    plain = AugMix(3, views=3)(images, index)
    assert plain.dtype == dtype
    assert plain.is_contiguous(memory_format=layout)
    assert torch.equal(plain[:4], images)  # the clean view is untouched
    values = plain.float() / 255 if dtype == torch.uint8 else plain.float()
    torch.testing.assert_close(values.cpu(), expected, rtol=0, atol=2 * coarse + 2e-6)

    for wanted in (None, torch.float16):
        normalized = AugMix(3, views=3, mean=MEAN, std=STD, out_dtype=wanted)(images, index)
        assert normalized.dtype == (wanted or (torch.float32 if dtype == torch.uint8 else dtype))
        mean, std = (torch.tensor(part, device=device)[:, None, None] for part in (MEAN, STD))
        scaled = (exact(images, index) - mean) / std
        torch.testing.assert_close(normalized.float(), scaled, rtol=2**-8, atol=2**-8)


def test_flip_comes_first() -> None:
    images, index = make_images(5, 20, 24, dtype=torch.uint8), torch.arange(5)
    flip = torch.tensor([True, False, False, True, True])
    module = AugMix(3, views=3)
    mirrored = torch.where(flip[:, None, None, None], images.flip(3), images)
    assert torch.equal(module(images, index, flip=flip), module(mirrored, index))


def test_no_images_and_no_gradient() -> None:
    module = AugMix(3, views=3, mean=MEAN, std=STD)
    assert module(torch.zeros(0, 3, 16, 16), torch.arange(0)).shape == (0, 3, 16, 16)
    assert not module(torch.zeros(1, 3, 16, 16), torch.arange(1)).requires_grad
    assert not list(module.parameters())
    assert module.state_dict() == {"epoch_number": 0}


class Count(TorchDispatchMode):
    """Counts the operators that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_number_of_operators_and_no_wait() -> None:
    """Launches are what a small batch costs on a GPU; reading a value back would wait for it."""
    images, index = make_images(2, 32, 32, dtype=torch.uint8), torch.arange(2)
    draws = AugMix(3, views=3).draw(index, None, (32, 32))
    parts = draws.operation.flatten(1)[0], draws.magnitude.flatten(1)[0]
    chains = images.repeat(6, 1, 1, 1)
    matrices = affine_matrices(*parts, (32, 32))
    with Count() as slot:
        warp(look_up(chains, *parts), matrices)
    assert len(slot.names) <= 60
    module = AugMix(3, views=3, mean=MEAN, std=STD)
    with Count() as rest:
        module(images, index, 0)
    assert "prime_dali::augmix_chains" in rest.names
    assert len(rest.names) <= 105
    waits = {"aten::_local_scalar_dense", "aten::nonzero", "aten::item", "aten::equal", "aten::masked_select"}
    assert waits.isdisjoint(slot.names + rest.names)


@needs_gpu
def test_no_wait_on_the_gpu() -> None:
    images, index = make_images(4, 32, 32, dtype=torch.uint8).cuda(), torch.arange(4).cuda()
    module = AugMix(3, views=3, mean=MEAN, std=STD)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        module(images, index, 1, flip=index > 1)
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("channels_last", [False, True])
def test_opcheck(channels_last: bool, device: str) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    images = make_images(2, 16, 20, dtype=torch.uint8).to(device).contiguous(memory_format=layout)
    for width in (1, 2):
        draws = AugMix(3, width=width).draw(torch.arange(2, device=device), None, (16, 20))
        torch.library.opcheck(run_chains, (images, draws.operation, draws.magnitude))


def test_compiles(device: str) -> None:
    """fullgraph: no break; the same images; pixels outside [0, 1] are refused, on a GPU NaN until a later call."""
    images, index = make_images(3, 16, 16).to(device), torch.arange(3, device=device)
    module = AugMix(3, views=3, mean=MEAN, std=STD)
    compiled = torch.compile(module, fullgraph=True)
    epoch = torch.tensor(3, device=device)
    torch.testing.assert_close(compiled(images, index, epoch), module(images, index, 3), rtol=0, atol=1e-5)
    images[1, 2, 4, 5], images[2, 0, 0, 0], images[0, 0, 0, 0] = 1.5, torch.nan, 1 + 2**-23
    if device == "cuda":
        bad = compiled(images, index, epoch).isnan().unflatten(0, (3, 3))
        for view in bad:
            assert view.nonzero().tolist() == [[1, 2, 4, 5], [2, 0, 0, 0]]
    with pytest.raises(ValueError, match=r"images: expected .* got 2 outside, 1.5 and NaN"):
        compiled(images, index, epoch)


def test_traces_uint8_and_flips() -> None:
    images, index = make_images(3, 16, 16, dtype=torch.uint8), torch.arange(3)
    module = AugMix(1)
    traced = torch.compile(module, fullgraph=True, backend="aot_eager")
    for epoch in range(3):
        expected = module(images, index, epoch, flip=index > 1)
        assert torch.equal(traced(images, index, epoch, flip=index > 1), expected)


IMAGES, INDEX = torch.zeros(2, 3, 16, 16), torch.arange(2)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"severity": 0}, ValueError, "severity: expected 1 to 10, got 0"),
    ({"severity": 2.5}, TypeError, r"severity: expected an int, got float \(2.5\)"),
    ({"width": 9}, ValueError, "width: expected 1 to 8, got 9"),
    ({"depth": 0}, ValueError, "depth: expected 1 to 5, or -1 for 1 to 3 at random, got 0"),
    ({"depth": -2}, ValueError, "depth: expected -1 to 5, got -2"),
    ({"views": 4}, ValueError, r"views: expected 1, 2 \(clean, augmented\) or 3 .*, got 4"),
    ({"seed": "1"}, TypeError, "seed: expected an int, got str"),
    ({"mean": MEAN}, ValueError, "std: expected three numbers because mean is given, got None"),
    ({"out_dtype": torch.float64}, TypeError, "out_dtype: expected uint8, uint16, float16, bfloat16 or float32, got torch.float64"),
])  # fmt: skip
def test_bad_settings(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AugMix(**arguments)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"images": IMAGES.numpy()}, TypeError, "images: expected a torch.Tensor, got ndarray"),
    ({"images": IMAGES[0]}, ValueError, r"images: expected \[N, 3, H, W\], got \[3, 16, 16\]"),
    ({"images": IMAGES.to_sparse()}, TypeError, "images: expected a dense torch.Tensor, got layout torch.sparse_coo"),
    ({"images": IMAGES.double()}, TypeError, "images: expected uint8, uint16, float16, bfloat16 or float32, got torch.float64"),
    ({"images": IMAGES[..., :7]}, ValueError, "images: width: expected 8 to 4096, got 7"),
    ({"images": IMAGES + 2}, ValueError, r"images: expected finite values in \[0, 1\] .*, got 1536 outside, 2;"),
    ({"images": IMAGES.clone().requires_grad_()}, ValueError, "images: expected no gradient"),
    ({"index": None}, TypeError, "index: expected a torch.Tensor, got NoneType"),
    ({"index": torch.tensor(3)}, TypeError, r"index: expected int64 \[2\], got torch.int64 \[\]"),
    ({"index": INDEX.int()}, TypeError, r"index: expected int64 \[N\], got torch.int32 \[2\]"),
    ({"index": INDEX[:1]}, ValueError, "index: expected one number for each of 2 images, got 1"),
    ({"index": INDEX.to("meta")}, ValueError, "index: expected on cpu like images, got meta"),
    ({"epoch": -1}, ValueError, "epoch: expected 0 to 4294967295, got -1"),
    ({"epoch": torch.zeros(2)}, TypeError, r"epoch: expected an int, or int64 \[\] or \[2\], got torch.float32"),
    ({"flip": [True, False]}, TypeError, "flip: expected a bool torch.Tensor, got list"),
    ({"flip": torch.ones(3, dtype=torch.bool)}, TypeError, r"flip: expected bool \[2\], got torch.bool \[3\]"),
])  # fmt: skip
def test_bad_input(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AugMix(3)(**{"images": IMAGES, "index": INDEX, **arguments})
