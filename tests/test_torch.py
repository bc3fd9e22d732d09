"""The torch interface: operator contracts, torch.compile, streams, CUDA graphs, devices."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CUDA, make_images
from torch._subclasses.fake_tensor import FakeTensorMode

import prime_dali
from prime_dali import PRIME, preset
from prime_dali.config import Distributions
from prime_dali.training.augmix import AugMix

SIZE = (24, 31)


def test_opcheck_sample(device: str) -> None:
    index = torch.arange(3, device=device)
    distributions = list(preset("cifar").distributions())
    for epoch in (torch.zeros((), dtype=torch.int64, device=device), index):
        for views in ([0], [-1, 0, 1]):
            torch.library.opcheck(torch.ops.prime_dali.sample.default, (index, epoch, *SIZE, 5, views, distributions))


def test_opcheck_count(device: str) -> None:
    counter = torch.zeros((), dtype=torch.int64, device=device)
    torch.library.opcheck(torch.ops.prime_dali.reserve.default, (counter, 3))
    torch.library.opcheck(torch.ops.prime_dali.count.default, (counter, make_images(2, *SIZE).to(device), 0))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_opcheck_apply(dtype: torch.dtype, channels_last: bool, device: str) -> None:
    images = make_images(3, *SIZE, dtype=dtype).to(device)
    plan = prime_dali.sample("cifar", torch.arange(3, device=device), size=SIZE, view=(0, 1))
    flip = torch.tensor([True, False, True], device=device)
    torch.library.opcheck(
        torch.ops.prime_dali.apply.default,
        (images, plan.rows, flip, plan.shape, torch.float32, [0.5] * 3, [4.0] * 3, channels_last),
    )
    torch.library.opcheck(
        torch.ops.prime_dali.apply.default, (images, plan.rows, None, plan.shape, dtype, [], [], channels_last)
    )


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
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # each number once, also in compiled code
        same = images[:1].repeat(4, 1, 1, 1)
        outs = torch.cat(list(pool.map(lambda _: compiled(same)[-4:], range(40))))
    assert len(outs.flatten(1).unique(dim=0)) == 160


@pytest.mark.parametrize(("dynamic", "counted"), [(True, False), (None, True)])
def test_sizes_do_not_compile_again_and_again(dynamic: bool | None, counted: bool, device: str) -> None:
    """Progressive resizing, with batches that change too: more sizes than dynamo would compile for."""
    module, expected = PRIME("cifar", views=3).to(device), PRIME("cifar", views=3).to(device)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for step in range(12):
        images = make_images(2 + step, 16 + step, 20 + 2 * step).to(device)
        index = () if counted else (torch.arange(len(images), device=device),)
        assert torch.equal(compiled(images, *index), expected(images, *index))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    with pytest.raises(Exception, match="height: expected 8 to 4096, got 7"):
        compiled(torch.zeros(3, 3, 7, 20, device=device), *(() if counted else (torch.arange(3, device=device),)))


def test_dimensions_marked_as_dynamic() -> None:
    """Nothing fixes them, or compiling would fail."""
    images, index = make_images(4, 16, 20), torch.arange(4)
    for dimension in (0, 2, 3):
        torch._dynamo.mark_dynamic(images, dimension)
    torch._dynamo.mark_dynamic(index, 0)
    torch._dynamo.reset()
    compiled = torch.compile(PRIME("cifar"), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(images, index), PRIME("cifar")(images, index))


@pytest.mark.parametrize("strict", [False, True])
def test_export_with_dynamic_batch_and_size(strict: bool, device: str) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    height, width = (torch.export.Dim(name, min=8, max=96) for name in ("height", "width"))
    module = PRIME("cifar", seed=2, mean=(0.5,) * 3, std=(0.2,) * 3).to(device)
    given = make_images(4, 32, 32).to(device), torch.arange(4, device=device)
    shapes = ({0: batch, 2: height, 3: width}, {0: batch})
    exported = torch.export.export(module, given, dynamic_shapes=shapes, strict=strict).module()
    images, index = make_images(3, *SIZE).to(device), torch.arange(5, 8, device=device)
    assert torch.equal(exported(images, index), module(images, index))
    counted = torch.export.export(module, given[:1], dynamic_shapes=shapes[:1], strict=strict).module()
    assert torch.equal(
        torch.cat([counted(images), counted(images)]), torch.cat([module(images, index - 5), module(images, index - 2)])
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("view", [0, (0, 1)])
def test_vmap_is_one_call(view: int | tuple[int, ...]) -> None:
    """Of what each example has and what all share, in any dimension, nested, and of no images; without torch's warning
    that it calls the operators example by example."""

    def augment(x: torch.Tensor, index: torch.Tensor, epoch: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
        plan = prime_dali.sample("cifar", index, size=SIZE, epoch=epoch, view=view)
        return prime_dali.apply(x, plan, flip=flip)

    own = make_images(6, *SIZE).reshape(3, 2, 3, *SIZE), torch.arange(6).reshape(3, 2)
    own += torch.tensor([0, 5, 2]), torch.tensor([[True, False], [False, False], [True, True]])
    expected = torch.stack([augment(*one) for one in zip(*own, strict=True)])
    with torch.autograd.profiler.profile() as profile:
        assert torch.equal(torch.vmap(augment)(*own), expected)
    called = [event.name for event in profile.function_events if event.name.startswith("prime_dali::")]
    assert sorted(called) == ["prime_dali::apply"] * 2 + ["prime_dali::sample"] * 2  # in vmap, and by its rule
    assert torch.equal(torch.vmap(augment, in_dims=(2, 0, 0, 1))(own[0].movedim(0, 2), *own[1:3], own[3].T), expected)
    for number, each in enumerate(own):  # one argument is each example's own
        given = [each if at == number else one[0] for at, one in enumerate(own)]
        expected = torch.stack(
            [augment(*(part if at == number else one for at, one in enumerate(given))) for part in each]
        )
        assert torch.equal(
            torch.vmap(augment, in_dims=tuple(0 if at == number else None for at in range(4)))(*given), expected
        )
    nested = torch.vmap(torch.vmap(lambda x, index: augment(x[None], index[None], own[2][0], own[3][0, :1])))
    flat = [
        augment(x[None], index[None], own[2][0], own[3][0, :1])
        for x, index in zip(own[0].flatten(0, 1), own[1].flatten(), strict=True)
    ]
    assert torch.equal(nested(*own[:2]).flatten(0, 1), torch.stack(flat))
    assert torch.vmap(augment)(own[0][:, :0], own[1][:, :0], own[2], own[3][:, :0]).shape == (3, 0, 3, *SIZE)


@pytest.mark.parametrize("make", [PRIME, AugMix])
def test_derivatives_are_refused_in_every_mode(make: Callable) -> None:
    images, index = make_images(2, *SIZE), torch.arange(2)
    module = make()

    def augment(x: torch.Tensor) -> torch.Tensor:
        return module(x, index).sum()

    def augment_each(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(module)(x[:, None], index[:, None]).sum()

    func = torch.func
    modes: dict[str, tuple[Callable, ...]] = {
        "gradient": (
            lambda: augment(images.clone().requires_grad_()),
            lambda: func.grad(augment)(images),
            lambda: func.vjp(augment, images),
            lambda: func.vmap(func.grad(augment))(images[None]),
            lambda: func.grad(augment_each)(images),
        ),
        "tangent": (
            lambda: func.jvp(augment, (images,), (images,)),
            lambda: func.jvp(augment_each, (images,), (images,)),
            lambda: func.jacfwd(augment)(images),
        ),
    }
    if make is PRIME:
        torch._dynamo.reset()
        modes["gradient"] += (lambda: torch.compile(func.grad(augment), backend="eager")(images),)
        modes["tangent"] += (lambda: torch.compile(lambda x: func.jvp(augment, (x,), (x,)), backend="eager")(images),)
    with torch.no_grad():  # nobody asks for a gradient
        assert torch.equal(module(images.clone().requires_grad_(), index), module(images, index))
    for what, calls in modes.items():
        for call in calls:
            with pytest.raises(
                Exception, match=rf"images: expected no {what} \({make.__name__} is not differentiable\)"
            ):
                call()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ValueError, match="images: expected no tangent"):
        module(torch.autograd.forward_ad.make_dual(images, images), index)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_fake_tensors(dtype: torch.dtype) -> None:
    images, index = make_images(2, *SIZE, dtype=dtype), torch.arange(2)
    with FakeTensorMode() as mode:
        for make in (lambda: PRIME("cifar", views=3), lambda: AugMix(views=3)):
            out = make()(mode.from_tensor(images), mode.from_tensor(index))
            assert (out.shape, out.dtype) == ((6, 3, *SIZE), dtype)
        assert PRIME("cifar", views=3)(mode.from_tensor(images)).shape == (6, 3, *SIZE)


def test_fake_kernels_refuse_what_the_real_ones_refuse() -> None:
    plan = prime_dali.sample("cifar", torch.arange(2), size=SIZE)
    images, flip = make_images(2, *SIZE), torch.zeros(2, dtype=torch.bool)
    good = (images, plan.rows, flip, plan.shape, torch.float32, [], [], False)
    unflipped = (*good[:2], None, *good[3:])
    numbers = (torch.arange(2), torch.tensor(0), *SIZE, 0, [0], list(preset("cifar").distributions()))
    bad: list[tuple[Any, tuple, int, Any, str]] = [
        (torch.ops.prime_dali.apply, good, 0, torch.rand(2, 17, *SIZE), "channels: expected 1 to 16"),
        (torch.ops.prime_dali.apply, good, 0, images[0], "images: "),
        (torch.ops.prime_dali.apply, good, 0, images.double(), "dtype uint8"),
        (torch.ops.prime_dali.apply, unflipped, 0, make_images(3, *SIZE), "plan: expected 1 to 16 rows for each of"),
        (torch.ops.prime_dali.apply, unflipped, 0, images[:0], "plan: expected 1 to 16 rows for each of"),
        (torch.ops.prime_dali.apply, good, 0, torch.zeros(2, 3, 7, 9), "height: expected 8 to 4096"),
        (torch.ops.prime_dali.apply, good, 1, plan.rows.float(), "plan: "),
        (torch.ops.prime_dali.apply, good, 1, plan.rows[:, :-1].contiguous(), "plan: "),
        (torch.ops.prime_dali.apply, good, 2, flip[:1], "flip: "),
        (torch.ops.prime_dali.apply, good, 3, plan.shape[:2], "plan_shape: expected 6 numbers"),
        (torch.ops.prime_dali.apply, good, 4, torch.float64, "dtype uint8"),
        (torch.ops.prime_dali.apply, good, 5, [0.5] * 3, "mean, std: expected 3 numbers each"),
        (torch.ops.prime_dali.sample, numbers, 0, torch.arange(2)[:, None], "index: "),
        (torch.ops.prime_dali.sample, numbers, 0, torch.arange(2).int(), "index: "),
        (torch.ops.prime_dali.sample, numbers, 1, torch.arange(3), "epoch: "),
        (torch.ops.prime_dali.sample, numbers, 2, 5000, "height: expected 8 to 4096"),
        (torch.ops.prime_dali.sample, numbers, 5, [0] * 17, "views: expected 1 to 16"),
    ]
    for operator, arguments, place, value, message in bad:
        given = list(arguments)
        given[place] = value
        with pytest.raises((RuntimeError, ValueError), match=message):
            operator(*given)
        with FakeTensorMode() as mode, pytest.raises(RuntimeError, match=message):
            operator(*(mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in given))


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
    apply = torch.ops.prime_dali.apply
    with pytest.raises(ValueError, match="plan: expected 1 to 16 rows for each of 3 images, got 2 rows"):
        apply(make_images(3, *SIZE), plan.rows, None, plan.shape, torch.float32, [], [], False)
    with pytest.raises(ValueError, match="filter_size: expected an odd number, got 4"):
        apply(images, plan.rows, None, [3, 3, 4, 100, 10, 0], torch.float32, [], [], False)
    with pytest.raises(RuntimeError, match="words of a row"):
        apply(images, plan.rows, None, [2, 3, 3, 100, 10, 0], torch.float32, [], [], False)
    with pytest.raises(ValueError, match="plan_shape: expected 6 numbers, got 2"):
        apply(images, plan.rows, None, [3, 3], torch.float32, [], [], False)
    with pytest.raises(RuntimeError, match="flip: contiguous bool"):
        apply(images, plan.rows, torch.zeros(3, dtype=torch.bool), plan.shape, torch.float32, [], [], False)
    with pytest.raises(ValueError, match=f"distributions: expected {len(Distributions._fields)} numbers, got 1"):
        torch.ops.prime_dali.sample(torch.arange(2), torch.tensor(0), *SIZE, 0, [0], [1.0])
    with pytest.raises(ValueError, match="height: expected 8 to 4096, got 7"):
        torch.ops.prime_dali.sample(torch.arange(2), torch.tensor(0), 7, 9, 0, [0], preset("cifar").distributions())
    with pytest.raises(RuntimeError, match=r"counter: int64 \[\]"):
        torch.ops.prime_dali.reserve(torch.zeros(1, dtype=torch.int64), 3)


@pytest.mark.parametrize("device", [CUDA])
def test_no_host_synchronization_and_current_stream(device: str) -> None:
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
    """A chunk holds at most 65,535 chains, the most blocks that CUDA takes along y (csrc/cuda/workspace.cu): here those of
    218 images, and a batch of 700 is four chunks of 175. The workspace is that of a chunk."""
    from prime_dali import _arrays

    config = preset("cifar").replace(width=100, primitives=("spectral", "color"))

    def workspace(count: int) -> int:
        plan = prime_dali.sample(config, np.arange(count), size=(8, 12), view=("clean", 0, 1))
        given, out = np.empty((count, 3, 8, 12), np.uint8), np.empty((3 * count, 3, 8, 12), np.float32)
        return _arrays.Apply(given, plan.rows, plan.shape, out, None, (), ()).workspace_bytes()

    assert workspace(100) < workspace(175) == workspace(700)
    images, index = make_images(700, 8, 12, torch.uint8).to(device), torch.arange(700, device=device)
    module = PRIME(config, views=3, out_dtype=torch.float32)
    whole = module(images, index).unflatten(0, (3, 700))
    for part in (slice(0, 3), slice(174, 176), slice(349, 352), slice(520, 530), slice(699, 700)):
        alone = module(images[part], index[part]).unflatten(0, (3, -1))
        assert torch.equal(whole[:, part], alone)


@pytest.mark.parametrize("device", [CUDA])
def test_batches_that_need_all_that_they_could(device: str) -> None:
    """More than there is room for at once: half of the images are done in a second round."""
    images = make_images(8, 224, 224, torch.uint8).to(device).repeat(20, 1, 1, 1)
    plan = prime_dali.Plan.build([[[("spatial", 0.2, 3)] * 3] * 3] * 160, size=(224, 224)).torch(device)
    whole = prime_dali.apply(images, plan)
    for part in (slice(0, 8), slice(77, 88), slice(150, 160)):
        assert torch.equal(whole[part], prime_dali.apply(images[part], plan[part]))


@pytest.mark.parametrize("device", [CUDA])
def test_streams_and_threads_at_once(device: str) -> None:
    images, index = make_images(24, 96, 96, torch.uint8).to(device), torch.arange(24, device=device)
    module = PRIME("imagenet", views=3, out_dtype=torch.float16)
    expected = [module(images, index, epoch).clone() for epoch in range(8)]
    torch.cuda.synchronize()

    def work(first: int) -> list[torch.Tensor]:
        with torch.cuda.stream(torch.cuda.Stream()):
            outs = [module(images, index, epoch) for epoch in range(first, 8, 2)]
            torch.cuda.current_stream().synchronize()
            return outs

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        even, odd = pool.map(work, (0, 1))
    for epoch, out in enumerate(expected):
        assert torch.equal((odd if epoch % 2 else even)[epoch // 2], out)


@pytest.mark.parametrize("device", [CUDA])
def test_a_batch_larger_than_memory(device: str) -> None:
    images, index = make_images(1, 64, 64, torch.uint8).to(device), torch.arange(2, device=device)
    module = PRIME("cifar", out_dtype=torch.float32)
    before = module(images.expand(2, 3, 64, 64), index)
    count = 2 * torch.cuda.get_device_properties(0).total_memory // (3 * 64 * 64 * 4)
    with pytest.raises(torch.OutOfMemoryError, match="prime_dali: out of memory for"):
        module(images.expand(count, 3, 64, 64), torch.arange(count, device=device))
    assert torch.equal(module(images.expand(2, 3, 64, 64), index), before)


@pytest.mark.parametrize("device", [CUDA])
def test_compiled_training_step(device: str) -> None:
    """A step that holds PRIME, in one graph, in bfloat16 and channels last: the loss is that of the eager step."""
    images, index = make_images(6, *SIZE, torch.uint8).to(device), torch.arange(6, device=device)
    config = preset("imagenet").replace(depth=2)  # never used before: nothing of it has been computed yet
    augment = PRIME(config, mean=(0.5,) * 3, std=(0.2,) * 3, out_dtype=torch.bfloat16)
    model = torch.nn.Conv2d(3, 4, 3).to(device, torch.bfloat16, memory_format=torch.channels_last)

    def loss(images: torch.Tensor, epoch: torch.Tensor) -> torch.Tensor:
        return model(augment(images, index, epoch)).square().mean()

    epoch = torch.zeros((), dtype=torch.int64, device=device)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True)(images, epoch)
    compiled.backward()
    assert compiled.item() == pytest.approx(loss(images, epoch).item(), rel=2e-2)
    assert model.weight.grad is not None


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_device_of_the_tensors_is_used() -> None:
    images = make_images(3, *SIZE)
    with torch.cuda.device(0):
        there = PRIME("cifar")(images.to("cuda:1"), torch.arange(3, device="cuda:1"))
        assert torch.cuda.current_device() == 0
        here = PRIME("cifar")(images.to("cuda:0"), torch.arange(3, device="cuda:0"))
    assert there.device.index == 1
    assert torch.equal(there.cpu(), here.cpu())
