"""What is read as an array: odd strides, subclasses, layouts that are no plain memory, bfloat16 through DLPack."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CUDA, make_images

import prime_dali
from prime_dali import Plan, arrays, preset

SIZE = (16, 20)
PIXELS = make_images(3, *SIZE)
INDEX = np.arange(3)


def drawn(**arguments: Any) -> Plan:
    return prime_dali.sample("cifar", INDEX, size=SIZE, **arguments)


def packed(array: np.ndarray) -> np.ndarray:
    """The same values as a field of a packed record, whose size is no multiple of that of the elements."""
    records = np.zeros(len(array), dtype=[("label", "u1"), ("value", array.dtype, array.shape[1:])])
    records["value"] = array
    assert records["value"].strides[0] % array.itemsize
    return records["value"]


def followed(array: np.ndarray) -> np.ndarray:
    """As :func:`packed`, but the first element lies at a multiple of its size."""
    records = np.zeros(len(array), dtype=[("value", array.dtype, array.shape[1:]), ("label", "u1")])
    records["value"] = array
    assert records["value"].ctypes.data % array.itemsize == 0
    return records["value"]


def shifted(array: np.ndarray) -> np.ndarray:
    """The same values at an address that is no multiple of their size."""
    values = np.frombuffer(b"\0" + array.tobytes(), array.dtype, offset=1, count=array.size).reshape(array.shape)
    assert not values.flags.aligned
    return values


def test_a_field_of_one_record() -> None:
    """A step from it to the next would be no whole number of elements, but there is no next."""
    images = make_images(1, 12, 12).numpy()
    records = np.zeros(1, dtype=[("value", images.dtype, images.shape[1:]), ("label", "u1")])
    records["value"] = images
    assert records["value"].strides[0] % images.itemsize
    plan = prime_dali.sample("cifar", np.arange(1), size=(12, 12))
    assert np.array_equal(arrays.apply(records["value"], plan), arrays.apply(images, plan))


@pytest.mark.parametrize("odd", [packed, followed, shifted])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_elements_that_do_not_lie_at_multiples_of_their_size(dtype: type, odd: Callable) -> None:
    images = PIXELS.numpy().astype(dtype)
    plan = drawn()
    expected = arrays.apply(images, plan)
    assert np.array_equal(arrays.apply(odd(images), plan), expected)
    channels_last = images.transpose(0, 2, 3, 1).copy()
    assert np.array_equal(arrays.apply(odd(channels_last), plan, layout="NHWC", out_layout="NCHW"), expected)
    assert np.array_equal(arrays.apply(images, dataclasses.replace(plan, rows=odd(plan.rows))), expected)


@pytest.mark.parametrize("odd", [packed, followed, shifted])
def test_numbers_that_do_not_lie_at_multiples_of_their_size(odd: Callable) -> None:
    plan = prime_dali.sample("cifar", odd(INDEX), size=SIZE, epoch=odd(INDEX))
    assert np.array_equal(plan.rows, drawn(epoch=INDEX).rows)


@pytest.mark.parametrize("device", [CUDA])
def test_elements_between_addresses_on_a_gpu(device: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    images = cupy.asarray(PIXELS.numpy())
    plan = prime_dali.sample("cifar", cupy.arange(3), size=SIZE)
    memory = cupy.zeros(3 * (images[0].nbytes + 1), np.uint8)
    odd = cupy.ndarray(images.shape, images.dtype, memory.data + 1, (images[0].nbytes + 1, *images.strides[1:]))
    for image in range(3):
        start = 1 + image * (images[0].nbytes + 1)
        memory[start : start + images[0].nbytes] = images[image].ravel().view(np.uint8)
    assert cupy.array_equal(arrays.apply(odd, plan), arrays.apply(images, plan))


def test_subclasses_of_arrays(tmp_path: Any) -> None:
    images, plan = PIXELS.numpy(), drawn()
    expected = arrays.apply(images, plan)
    mapped = np.memmap(tmp_path / "images", images.dtype, "w+", shape=images.shape)
    mapped[:] = images
    out = arrays.apply(mapped, plan)
    assert type(out) is np.ndarray
    assert np.array_equal(out, expected)
    rows = np.memmap(tmp_path / "rows", np.int32, "w+", shape=plan.rows.shape)
    rows[:] = plan.rows
    assert np.array_equal(arrays.apply(images, dataclasses.replace(plan, rows=rows)), expected)

    class Photographs(torch.Tensor):
        pass

    own = prime_dali.apply(PIXELS.as_subclass(Photographs), plan.torch())
    assert np.array_equal(own.as_subclass(torch.Tensor).numpy(), expected)


def test_plans_of_json_and_pickle() -> None:
    plan = drawn(view=(0, 1))
    stored = json.loads(json.dumps({**dataclasses.asdict(plan), "rows": plan.rows.tolist()}))
    assert isinstance(stored["size"], list)
    with pytest.raises(TypeError, match=re.escape("rows: expected int32 [2 * batch, 44], got int64 [6, 44]")):
        Plan(**{**stored, "rows": np.array(stored["rows"])})
    again = Plan(**{**stored, "rows": np.array(stored["rows"], np.int32)})
    assert again.size == SIZE
    for kept in (again, pickle.loads(pickle.dumps(plan))):
        assert np.array_equal(arrays.apply(PIXELS.numpy(), kept), arrays.apply(PIXELS.numpy(), plan))


ODD_TENSORS: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "sparse": (lambda: PIXELS.to_sparse(), "got layout torch.sparse_coo; call .to_dense()"),
    "mkldnn": (lambda: PIXELS.to_mkldnn(), "got layout torch._mkldnn; call .to_dense()"),
    "nested": (lambda: torch.nested.nested_tensor(list(PIXELS)), "got a nested one; pad it"),
    "jagged": (lambda: torch.nested.nested_tensor(list(PIXELS), layout=torch.jagged), "got a nested one; pad it"),
    "quantized": (lambda: torch.quantize_per_tensor(PIXELS, 0.01, 0, torch.quint8), "got the quantized torch.quint8; call .dequantize()"),
    "masked": (lambda: torch.masked.masked_tensor(PIXELS, PIXELS > 0.5), "got a MaskedTensor; pass the tensor inside it"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_tensors_that_are_no_plain_memory_are_refused_by_name(kind: str) -> None:
    make, message = ODD_TENSORS[kind]
    tensor = make()
    for argument, call in (
        ("images", lambda: prime_dali.apply(tensor, drawn().torch())),
        ("array", lambda: arrays.apply(tensor, drawn())),
        ("index", lambda: prime_dali.sample("cifar", tensor, size=SIZE)),
    ):
        with pytest.raises(TypeError, match=re.escape(f"{argument}: expected a dense torch.Tensor, {message}")):
            call()


def test_inside_vmap() -> None:
    """torch's operators take one example after another; memory that is lent to NumPy would be that of all of them."""
    images = PIXELS[None]
    plan = drawn().torch()
    assert torch.equal(
        torch.func.vmap(lambda x: prime_dali.apply(x, plan))(images), prime_dali.apply(PIXELS, plan)[None]
    )
    with pytest.raises(TypeError, match=r"got one inside torch\.vmap; call it outside"):
        torch.func.vmap(lambda x: torch.from_numpy(arrays.apply(x, drawn())))(images)


def test_distributed_tensors(tmp_path: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

        tensor = distribute_tensor(PIXELS, init_device_mesh("cpu", (1,)), [Replicate()])
        for call in (lambda: prime_dali.apply(tensor, drawn().torch()), lambda: arrays.apply(tensor, drawn())):
            with pytest.raises(TypeError, match="got a DTensor; pass the tensor inside it"):
                call()
        assert np.array_equal(arrays.apply(tensor.to_local(), drawn()), arrays.apply(PIXELS, drawn()))
    finally:
        torch.distributed.destroy_process_group()


def test_tensors_whose_memory_is_not_their_values() -> None:
    """A negative bit, and zeros without memory: through DLPack their memory alone would come."""
    negative = torch.complex(torch.zeros_like(PIXELS), -PIXELS).conj().imag
    zeros = torch._efficientzerotensor(3, 3, *SIZE)
    assert negative.is_neg()
    for tensor, values in ((negative, PIXELS), (zeros, torch.zeros(3, 3, *SIZE))):
        expected = prime_dali.apply(values, drawn().torch())
        assert torch.equal(prime_dali.apply(tensor, drawn().torch()), expected)
        assert np.array_equal(arrays.apply(tensor, drawn()), expected.numpy())


def test_bfloat16_through_dlpack() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without the package ml_dtypes")
    images, plan = PIXELS.bfloat16().permute(0, 2, 3, 1), drawn()
    expected = prime_dali.apply(PIXELS.bfloat16(), plan.torch())
    out = arrays.apply(images, plan, layout="NHWC", out_layout="NCHW")
    assert out.dtype == ml_dtypes.bfloat16
    assert np.array_equal(out.view(np.int16), expected.view(torch.int16).numpy())

    class Foreign:  # as JAX has them: NumPy's reader of DLPack knows no bfloat16
        dtype = "bfloat16"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **options: Any) -> Any:
            return PIXELS.bfloat16().__dlpack__()

        def __array__(self, *options: Any, **more: Any) -> np.ndarray:
            return PIXELS.numpy().astype(ml_dtypes.bfloat16)

    assert np.array_equal(arrays.apply(Foreign(), plan).view(np.int16), out.view(np.int16))
    with pytest.raises(TypeError, match=r"array: NumPy cannot read this Tensor of torch.float8_e4m3fn through DLPack"):
        arrays.apply(PIXELS.to(torch.float8_e4m3fn), plan)


SQUARE = {
    "int": 16, "tuple": (16, 16), "list": [16, 16], "torch.Size": torch.Size((16, 16)), "array": np.array([16, 16]),
    "numpy ints": (np.int64(16), np.uint8(16)), "numpy int": np.int32(16), "array []": np.array(16),
}  # fmt: skip


@pytest.mark.parametrize("kind", SQUARE)
def test_sizes(kind: str) -> None:
    images, size = make_images(2, 16, 16), SQUARE[kind]
    expected = prime_dali.sample("cifar", torch.arange(2), size=(16, 16))
    for index in (torch.arange(2), np.arange(2)):
        plan = prime_dali.sample("cifar", index, size=size)
        assert plan.size == (16, 16)
        assert all(type(side) is int for side in plan.size)
        assert np.array_equal(plan.numpy().rows, expected.numpy().rows)
    assert torch.equal(
        prime_dali.apply(images, dataclasses.replace(expected, size=size)), prime_dali.apply(images, expected)
    )
    assert Plan.build([[[]]], size=size).size == (16, 16)


@pytest.mark.parametrize("three", [np.int64(3), np.uint8(3), np.array(3), np.array(3, np.int16), torch.tensor(3)])
def test_ints_of_numpy_and_of_shape_nothing(three: Any) -> None:
    """Accepted alike by both interfaces; the epoch as an array too, which was once read past its end."""
    expected = drawn(epoch=3, seed=3, view=3)
    for index in (INDEX, torch.from_numpy(INDEX)):
        plan = prime_dali.sample("cifar", index, size=SIZE, epoch=three, seed=three, view=three)
        assert np.array_equal(plan.numpy().rows, expected.rows)
    assert prime_dali.PRIME("cifar", views=three).views == 3
    config = preset("cifar").replace(width=three, depth=three, alpha=np.float32(2))
    assert config == preset("cifar").replace(width=3, depth=3, alpha=2)
    assert (type(config.width), type(config.alpha)) == (int, float)
    assert dataclasses.replace(expected, chains=three).shape == expected.shape
    np.testing.assert_array_equal(drawn(view=np.arange(2)).rows, drawn(view=(0, 1)).rows)


@pytest.mark.parametrize("name", ["alpha", "spectral_std_max", "color_variance_max", "noise_std"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_largest_amplitudes_give_images(name: str, dtype: type) -> None:
    images = PIXELS.numpy() if dtype == np.float32 else (PIXELS * 255).byte().numpy()
    config = preset("cifar").replace(primitives=("spectral", "spatial", "color", "noise"), noise_std=0.1, depth=6)
    plan = prime_dali.sample(config.replace(**{name: 1e6}), INDEX, size=SIZE)
    plan.validate()
    out = arrays.apply(images, plan)
    assert np.isfinite(out.astype(np.float32)).all()
    assert not np.array_equal(out, images)
