"""The torch door: operator contracts, torch.compile, streams, CUDA graphs, devices."""

from __future__ import annotations

import pytest
import torch
from conftest import CUDA, make_images

import prime_dali
from prime_dali import PRIME, preset

SIZE = (24, 31)


def test_opcheck_sample(device: str) -> None:
    index = torch.arange(3, device=device)
    law = preset("cifar").law(*SIZE)
    for epoch in (torch.zeros((), dtype=torch.int64, device=device), index):
        for views in ([0], [-1, 0, 1]):
            torch.library.opcheck(torch.ops.prime_dali.sample.default, (index, epoch, 5, views, law))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_opcheck_apply(dtype: torch.dtype, channels_last: bool, device: str) -> None:
    images = make_images(3, *SIZE, dtype=dtype).to(device)
    plan = prime_dali.sample("cifar", torch.arange(3, device=device), size=SIZE, view=(0, 1))
    arguments = (images, plan.rows, plan.chains, plan.depth, plan.filter_size, plan.max_cut)
    torch.library.opcheck(
        torch.ops.prime_dali.apply.default, (*arguments, torch.float32, [0.5] * 3, [4.0] * 3, channels_last)
    )
    torch.library.opcheck(torch.ops.prime_dali.apply.default, (*arguments, dtype, [], [], channels_last))


@pytest.mark.parametrize("views", [1, 3])
def test_compile(views: int, device: str) -> None:
    """fullgraph: no break; the same images; a new epoch number does not compile again and again."""
    images, index = make_images(4, *SIZE).to(device), torch.arange(4, device=device)
    module = PRIME("cifar", seed=1, views=views, mean=(0.5,) * 3, std=(0.2,) * 3).to(device)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(module, fullgraph=True)
    for epoch in range(4):
        assert torch.equal(compiled(images, index, epoch), module(images, index, epoch))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    module.counter.zero_()
    counted = [compiled(images), compiled(images)]
    module.counter.zero_()
    for out in counted:
        assert torch.equal(out, module(images))


def test_compile_functions(device: str) -> None:
    @torch.compile(fullgraph=True)
    def augment(images: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        plan = prime_dali.sample("cifar", index, size=SIZE, seed=4)
        return prime_dali.apply(images, plan, out_dtype=torch.float16) * 2

    images, index = make_images(4, *SIZE).to(device), torch.arange(4, device=device)
    plan = prime_dali.sample("cifar", index, size=SIZE, seed=4)
    assert torch.equal(augment(images, index), prime_dali.apply(images, plan, out_dtype=torch.float16) * 2)


def test_direct_calls_of_the_operators_are_checked_too() -> None:
    plan = prime_dali.sample("cifar", torch.arange(2), size=SIZE)
    images = make_images(2, *SIZE)
    with pytest.raises(RuntimeError, match="whole number of rows"):
        torch.ops.prime_dali.apply(make_images(3, *SIZE), plan.rows, 3, 3, 3, 100, torch.float32, [], [], False)
    with pytest.raises(RuntimeError, match="filter size: odd"):
        torch.ops.prime_dali.apply(images, plan.rows, 3, 3, 4, 100, torch.float32, [], [], False)
    with pytest.raises(RuntimeError, match="words of a row"):
        torch.ops.prime_dali.apply(images, plan.rows, 2, 3, 3, 100, torch.float32, [], [], False)
    with pytest.raises(RuntimeError, match="law: as many numbers"):
        torch.ops.prime_dali.sample(torch.arange(2), torch.tensor(0), 0, [0], [1.0])


@pytest.mark.parametrize("device", [CUDA])
def test_no_host_synchronisation_and_current_stream(device: str) -> None:
    images, index = make_images(64, 224, 224, torch.uint8).to(device), torch.arange(64, device=device)
    module = PRIME("imagenet", views=3, mean=(0.5,) * 3, std=(0.2,) * 3, out_dtype=torch.float16).to(device)
    expected = module(images, index)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)  # the stream is busy while the host goes on
            out = module(images, index, 0)
            assert not stream.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("device", [CUDA])
def test_cuda_graph_with_new_draws_at_each_replay(device: str) -> None:
    images, index = make_images(6, 64, 48).to(device), torch.arange(6, device=device)
    epoch = torch.zeros((), dtype=torch.int64, device=device)
    module = PRIME("imagenet", seed=3, views=3).to(device)
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        module(images, index, epoch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(images, index, epoch)
    for number in (0, 5, 2, 5):
        epoch.fill_(number)
        graph.replay()
        assert torch.equal(out, module(images, index, number))


@pytest.mark.parametrize("device", [CUDA])
def test_batches_that_need_several_chunks(device: str) -> None:
    images, index = (
        make_images(8, 224, 224, torch.uint8).to(device).repeat(20, 1, 1, 1),
        torch.arange(160, device=device),
    )
    whole = PRIME("imagenet")(images, index)
    assert torch.equal(whole[77:79], PRIME("imagenet")(images[77:79], index[77:79]))


@pytest.mark.parametrize("device", [CUDA])
def test_pixels_outside_the_range_come_out_as_nan(device: str) -> None:
    images = make_images(2, *SIZE).to(device)
    for value in (float("nan"), float("inf"), -0.5, 1.5):
        bad = images.clone()
        bad[1, 2, 10, 7] = value
        out = PRIME("cifar")(bad, torch.arange(2, device=device))
        assert out[1, 2, 10, 7].isnan()
        assert not out[0].isnan().any()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_device_of_the_tensors_is_used() -> None:
    images = make_images(3, *SIZE)
    with torch.cuda.device(0):
        there = PRIME("cifar")(images.to("cuda:1"), torch.arange(3, device="cuda:1"))
        assert torch.cuda.current_device() == 0
    assert there.device.index == 1
    assert torch.equal(there.cpu(), PRIME("cifar")(images, torch.arange(3)))
