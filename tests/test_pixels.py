"""The range of pixels, one rule for every interface: [0, 1]; up to 1/512 outside is rounding, anything else an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import CUDA, DALI_GPU, make_images

import prime_dali
from prime_dali import PRIME, _arguments, arrays, reference

SIZE = (16, 20)
INDEX = torch.arange(2)
EDGE = np.float32(_arguments.PIXEL_TOLERANCE)  # and 1 + EDGE, both exact in float32
BEYOND = [(-0.25, "-0.25"), (1.5, "1.5"), (np.nextafter(1 + EDGE, np.float32(2)), "1.00195324"),
          (np.nextafter(-EDGE, np.float32(-1)), "-0.00195312523"), (np.inf, "inf"), (np.nan, "NaN")]  # fmt: skip


def torch_apply(images: torch.Tensor, **arguments) -> torch.Tensor:
    plan = prime_dali.sample("cifar", INDEX.to(images.device), size=SIZE)
    return prime_dali.apply(images, plan, **arguments)


def array_apply(images: torch.Tensor) -> torch.Tensor:
    plan = prime_dali.sample("cifar", INDEX.numpy(), size=SIZE)
    return torch.from_numpy(arrays.apply(images.numpy(), plan))


def reference_apply(images: torch.Tensor) -> torch.Tensor:
    plan = prime_dali.sample("cifar", INDEX.numpy(), size=SIZE)
    return torch.from_numpy(reference.apply(images, plan))


def spoiled(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    images = make_images(2, *SIZE)
    images[1, 2, 3, 4] = float(value)
    return images.to(dtype)


@pytest.mark.parametrize("apply", [torch_apply, array_apply, reference_apply])
@pytest.mark.parametrize("value", [-EDGE, -1e-9, 1 + np.float32(2.4e-7), 1 + EDGE])
def test_rounding_is_clamped(value: np.float32, apply: Callable) -> None:
    assert torch.equal(apply(spoiled(value)), apply(spoiled(value).clamp(0, 1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rounding_of_every_dtype_is_clamped(dtype: torch.dtype, device: str) -> None:
    for value in (-EDGE, 1 + 2.0**-10 if dtype == torch.float16 else 1.0):  # a bfloat16 above 1 is 1/128 above
        images = spoiled(value, dtype).to(device)
        assert torch.equal(torch_apply(images), torch_apply(images.clamp(0, 1)))
    prime_dali.check_pixels()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outputs_of_halves_are_rounded_to_nearest_and_ties_to_even(dtype: torch.dtype, device: str) -> None:
    words = np.random.default_rng(0).random((2, 3, *SIZE), np.float32).view(np.int32)
    low = 1 << (16 if dtype == torch.bfloat16 else 13)  # of the last bit that is kept
    words[..., ::2] = words[..., ::2] // low * low + low // 2  # ties
    images = torch.from_numpy(words.view(np.float32)).to(device)
    plan = prime_dali.sample("cifar", INDEX.to(device), size=SIZE, view="clean")
    assert torch.equal(prime_dali.apply(images, plan, out_dtype=dtype), images.to(dtype))


def test_white_after_an_antialiased_resize(device: str) -> None:
    white = torch.nn.functional.interpolate(torch.ones(1, 3, 257, 257), (224, 224), mode="bilinear", antialias=True)
    assert 1 < white.max() < 1 + 1e-6
    out = PRIME("imagenet")(white.to(device))
    assert not out.isnan().any()
    prime_dali.check_pixels()


@pytest.mark.parametrize("apply", [torch_apply, array_apply])
@pytest.mark.parametrize(("value", "text"), BEYOND)
def test_the_cpu_raises_with_the_true_numbers(value: float, text: str, apply: Callable) -> None:
    with pytest.raises(
        ValueError, match=rf"^(images|array): expected finite values in \[0, 1\] .*, got 1 outside, {text};"
    ):
        apply(spoiled(value))
    with pytest.raises(ValueError, match=r"^images: expected finite values in \[0, 1\]"):
        reference_apply(spoiled(value))


def test_all_that_is_wrong_is_counted() -> None:
    images = make_images(2, *SIZE)
    images[0, 0, 0], images[1, 1, 1, 1], images[1, 2, 3, 4], images[1, 2, 3, 5] = -3, 255, torch.nan, 1.5
    for given in (images, images.to(memory_format=torch.channels_last), images.to(torch.bfloat16)):
        with pytest.raises(ValueError, match="got 23 outside, -3 to 255 and NaN;"):
            torch_apply(given)


def test_compiled_code_raises_on_the_cpu_too() -> None:
    augment = torch.compile(PRIME("cifar"), fullgraph=True)
    assert torch.equal(augment(spoiled(1 + EDGE), INDEX), PRIME("cifar")(spoiled(1), INDEX))
    with pytest.raises(ValueError, match=r"images: expected .* got 1 outside, 1.5;"):
        augment(spoiled(1.5), INDEX)


def dali_outputs(images: np.ndarray, device: str, mode: str, batches: int = 1) -> list[np.ndarray]:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=len(images), num_threads=1, device_id=0 if device == "gpu" else None)
    def pipeline():
        given = fn.external_source(lambda: list(images), dtype=types.FLOAT, ndim=3, layout="HWC")
        given = given.gpu() if device == "gpu" else given
        return prime_dali.dali.prime(
            given, "cifar", epoch=0, index=fn.external_source(lambda: list(INDEX.numpy())), mode=mode
        )

    built = pipeline()
    built.build()
    return [np.stack([np.array(sample) for sample in built.run()[0].as_cpu()]) for _ in range(batches)]


@pytest.mark.parametrize("mode", ["native", "cupy"])
def test_dali_on_the_cpu(mode: str, plugin: object) -> None:
    def interleaved(value: float) -> np.ndarray:
        return spoiled(value).permute(0, 2, 3, 1).contiguous().numpy()

    [rounded], [white] = (dali_outputs(interleaved(value), "cpu", mode) for value in (1 + EDGE, 1))
    assert np.array_equal(rounded, white)
    where = r" \(first in image 1\)" if mode == "native" else ""
    for value, text in BEYOND:
        with pytest.raises(
            RuntimeError, match=rf": expected finite values in \[0, 1\] .*got 1 outside, {text}{where};"
        ):
            dali_outputs(interleaved(value), "cpu", mode)


def test_check_pixels_takes_the_number_of_a_gpu() -> None:
    prime_dali.check_pixels()
    prime_dali.check_pixels(0)
    with pytest.raises(TypeError, match="device: expected an int, got str"):
        prime_dali.check_pixels("cuda")
    with pytest.raises(ValueError, match="device: expected 0 to 1023, got -1"):
        prime_dali.check_pixels(-1)


# ------------------------------------------------------------------------- on a GPU; test_cuda_on_cpu.py has the kernels
EARLIER = r"images: expected .* got 1 outside, {}, in an earlier call on cuda:0"


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize(("value", "text"), BEYOND)
def test_a_gpu_marks_and_a_later_call_raises(value: float, text: str, device: str) -> None:
    bad, good = spoiled(value).to(device), spoiled(1).to(device)
    for out_dtype in (torch.float32, torch.uint8):
        out = torch_apply(bad, out_dtype=out_dtype)
        torch.cuda.synchronize()
        wrong = out.isnan() if out_dtype == torch.float32 else out == 0
        assert wrong[1, 2, 3, 4]
        assert out_dtype == torch.uint8 or wrong.sum() == 1
        with pytest.raises(ValueError, match=EARLIER.format(text)):
            torch_apply(good)
        torch_apply(good)
    torch_apply(bad)
    with pytest.raises(ValueError, match=EARLIER.format(text)):
        prime_dali.check_pixels()
    prime_dali.check_pixels()


@pytest.mark.parametrize("device", [CUDA])
def test_compiled_code_and_graphs_on_a_gpu(device: str) -> None:
    images, index = spoiled(1).to(device), INDEX.to(device)
    augment = torch.compile(PRIME("cifar"), fullgraph=True)
    augment(images, index)
    images[1, 2, 3, 4] = 1.5
    augment(images, index)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match=EARLIER.format("1.5")):
        augment(images, index)
    images[1, 2, 3, 4] = 1
    graph, module = torch.cuda.CUDAGraph(), PRIME("cifar").to(device)
    with torch.cuda.graph(graph):
        out = module(images, index)
    graph.replay()
    prime_dali.check_pixels(0)
    images[1, 2, 3, 4] = 1.5
    for _ in range(3):
        graph.replay()
    assert out.isnan().sum() == 1
    with pytest.raises(ValueError, match=r"got 3 outside, 1.5, in an earlier call"):
        prime_dali.check_pixels(0)


@pytest.mark.parametrize("device", [CUDA])
def test_the_first_call_may_be_captured(device: str) -> None:
    """In a process of its own: what a captured call needs of the host is made during the capture."""
    program = """if True:
        import torch, prime_dali
        images, index = torch.full((2, 3, 16, 20), 2.0, device="cuda"), torch.arange(2, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            prime_dali.apply(images, prime_dali.sample("cifar", index, size=(16, 20)))
        prime_dali.check_pixels()
        graph.replay()
        try:
            prime_dali.check_pixels()
        except ValueError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "got 1920 outside, 2, in an earlier call on cuda:0" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("device", [CUDA])
def test_interfaces_do_not_raise_for_each_other(device: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    bad, good = cupy.asarray(spoiled(1.5).numpy()), cupy.asarray(spoiled(1).numpy())
    plan = prime_dali.sample("cifar", cupy.arange(2), size=SIZE)
    arrays.apply(bad, plan)
    torch.cuda.synchronize()
    torch_apply(spoiled(1).to(device))
    with pytest.raises(ValueError, match=r"array: expected .* got 1 outside, 1.5, in an earlier call on cuda:0"):
        arrays.apply(good, plan)
    arrays.apply(good, plan)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_devices_do_not_raise_for_each_other() -> None:
    torch_apply(spoiled(1.5).to("cuda:1"))
    torch.cuda.synchronize("cuda:1")
    torch_apply(spoiled(1).to("cuda:0"))
    prime_dali.check_pixels(0)
    with pytest.raises(ValueError, match=r"got 1 outside, 1.5, in an earlier call on cuda:1"):
        torch_apply(spoiled(1).to("cuda:1"))


@pytest.mark.parametrize("device", [DALI_GPU])
def test_the_native_operator_of_dali_raises_in_a_later_batch(device: str, plugin: object) -> None:
    bad = spoiled(1.5).permute(0, 2, 3, 1).contiguous().numpy()
    with pytest.raises(RuntimeError, match=r"images: expected .* got \d+ outside, 1.5 in an earlier batch"):
        dali_outputs(bad, device, "native", batches=8)
    prime_dali.check_pixels()
    good = spoiled(1 + EDGE).permute(0, 2, 3, 1).contiguous().numpy()
    assert not np.isnan(dali_outputs(good, device, "native", batches=8)).any()
