"""Images without an index, the epoch, and every way in which torch calls a module otherwise than once a batch."""

from __future__ import annotations

import concurrent.futures
import copy
import io
import os
import pickle
from collections.abc import Callable

import pytest
import torch
from conftest import CUDA, make_images
from torch.utils.checkpoint import checkpoint

from prime_dali import PRIME, _counting
from prime_dali.training.augmix import AugMix

SIZE = (8, 9)
ASKS = "index: expected each image's index, got None"


def different(images: torch.Tensor) -> int:
    return len(images.flatten(1).unique(dim=0))


def test_threads_get_each_number_once(device: str) -> None:
    """On a GPU each thread has a stream of its own."""
    image = make_images(1, *SIZE).to(device).expand(2, 3, *SIZE)
    module = PRIME("cifar").to(device)

    def work(_: int) -> torch.Tensor:
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):
            numbers = torch.cat([_counting.next_indices(module.counter, image, _counting.forks()) for _ in range(100)])
            augmented = module(image)
            if stream is not None:
                stream.synchronize()
        assert different(augmented) == 2
        return numbers

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        numbers = torch.cat(list(pool.map(work, range(8))))
    assert len(numbers.unique()) == len(numbers) == 1600
    assert module.counter == 1616


class Augmented(torch.utils.data.Dataset):
    """Photographs that are augmented where the loader reads them."""

    def __init__(self, indexed: bool) -> None:
        self.indexed, self.augment = indexed, PRIME("cifar")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.augment(make_images(1, *SIZE)[0], torch.tensor([i]) if self.indexed else None)


def test_workers_of_a_loader_must_be_told_the_index() -> None:
    loader = {"num_workers": 2, "multiprocessing_context": "fork", "batch_size": 2}
    with pytest.raises(ValueError, match=ASKS + " in a worker of a DataLoader"):
        next(iter(torch.utils.data.DataLoader(Augmented(False), **loader)))
    out = torch.cat(list(torch.utils.data.DataLoader(Augmented(True), **loader)))
    assert torch.equal(out, PRIME("cifar")(make_images(1, *SIZE).expand(4, 3, *SIZE), torch.arange(4)))
    assert different(out) == 4


def test_forked_processes_must_be_told_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    images, module = make_images(2, *SIZE), PRIME("cifar")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # errors must not reach pytest here
        said = "nothing"
        try:
            PRIME("cifar")(images)  # made on this side of the fork
            module(images, torch.arange(2))
            module(images)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read().startswith(f"ValueError: {ASKS} in a process forked")
    os.waitpid(child, 0)
    module(images)

    monkeypatch.setattr(_counting, "_forks", 1)
    pickle.loads(pickle.dumps(module))(images)  # one that was sent is of this process

    # Ranks that were forked count apart.
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    expected = module(images, torch.tensor([2 * 3 + 1, 3 * 3 + 1]))
    assert torch.equal(module(images), expected)


def test_ranks_that_join_after_a_compilation_count_apart() -> None:
    """The rank is asked for when the compiled graph runs, and is no constant in it."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg", reason="torch has no fake process group")
    images, module = make_images(2, *SIZE), PRIME("cifar")
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    assert torch.equal(compiled(images), module(images, torch.arange(2)))
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=1, world_size=3)
    try:
        assert torch.equal(compiled(images), module(images, torch.tensor([2 * 3 + 1, 3 * 3 + 1])))
    finally:
        torch.distributed.destroy_process_group()


def checkpointed(call: Callable, images: torch.Tensor, reentrant: bool) -> torch.Tensor:
    """The gradient of a convolution after ``call``, both in a checkpoint."""
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 2, 3).to(images.device)
    scale = torch.ones((), requires_grad=True)  # reentrant checkpoints want an argument with a gradient
    checkpoint(lambda x, s: convolution(call(x)) * s, images, scale, use_reentrant=reentrant).square().sum().backward()
    assert convolution.weight.grad is not None
    return convolution.weight.grad


@pytest.mark.parametrize(("compiled", "reentrant"), [(False, False), (False, True), (True, False)])
def test_checkpointing_must_be_told_the_index(compiled: bool, reentrant: bool, device: str) -> None:
    if torch.cuda.is_available():
        torch.cuda.init()  # which the compiler does too, and not within a checkpoint
    images, index = make_images(2, *SIZE).to(device), torch.arange(2, device=device)
    module = PRIME("cifar").to(device)
    torch._dynamo.reset()
    call = torch.compile(module, fullgraph=True, backend="eager") if compiled else module
    with pytest.raises(ValueError, match=ASKS + " in a backward pass"):
        checkpointed(call, images, reentrant)
    augmented = module(images, index)
    expected = checkpointed(lambda x: augmented, images, reentrant)
    assert torch.allclose(checkpointed(lambda x: call(x, index), images, reentrant), expected, rtol=1e-4)


def test_a_checkpoint_in_a_compiled_step_must_be_told_the_index() -> None:
    module, images = PRIME("cifar"), make_images(2, *SIZE)
    torch._dynamo.reset()
    step = torch.compile(
        lambda x, w: checkpoint(lambda x: (module(x) * w).sin(), x, use_reentrant=False).sum(),
        fullgraph=True,
        backend="aot_eager",
    )
    with pytest.raises(ValueError, match=ASKS + " in a backward pass"):
        step(images, torch.ones((), requires_grad=True)).backward()


def test_gradient_accumulation_and_gradients_of_parameters_may_count() -> None:
    module, images = PRIME("cifar"), make_images(2, *SIZE)
    weight = torch.ones((), requires_grad=True)
    for _ in range(2):
        (module(images) * weight).sum().backward()
    torch.func.grad(lambda w: (module(images) * w).sum())(weight.detach())
    with torch.inference_mode():
        module(images)
    assert module.counter == 8


def test_replicas_and_transforms_must_be_told_the_index() -> None:
    images, index = make_images(3, *SIZE), torch.arange(3)
    module = PRIME("cifar")
    with pytest.raises(ValueError, match=ASKS + " in DataParallel"):
        module._replicate_for_data_parallel()(images)
    with pytest.raises(ValueError, match=ASKS + r" under torch\.vmap"):
        torch.vmap(module)(images)
    with pytest.raises(ValueError, match=ASKS + r" under torch\.func\.functionalize"):
        torch.func.functionalize(module)(images)
    assert module.counter == 0
    expected = module(images, index)
    assert torch.equal(torch.vmap(module)(images, index[:, None]), expected)
    assert torch.equal(torch.func.functionalize(module)(images, index), expected)
    buffers = {"counter": torch.tensor(7), "epoch_number": torch.tensor(2)}
    assert torch.equal(torch.func.functional_call(module, buffers, images), module(images, index + 7, 2))
    assert buffers["counter"] == 10


@pytest.mark.parametrize("device", [CUDA])
def test_a_graph_holds_the_counter_and_the_epoch_or_refuses(device: str) -> None:
    images, index = make_images(2, *SIZE).to(device), torch.arange(2, device=device)
    module = PRIME("cifar").to(device)
    with torch.cuda.stream(torch.cuda.Stream()):
        module(images)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(images)
    module.counter.zero_()
    for epoch in (0, 0, 4):
        module.set_epoch(epoch)
        expected = module(images, index + module.counter, epoch)
        graph.replay()
        assert torch.equal(out, expected)
    assert module.counter == 6

    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, mode="reduce-overhead")
    for step in range(6):
        module.set_epoch(step // 3)
        expected = module(images, index + module.counter, step // 3)
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(images), expected)
    assert module.counter == 18

    on_cpu = PRIME("cifar")
    assert torch.equal(on_cpu(images, index), module(images, index, 0))
    assert torch.equal(on_cpu(images), module(images, index, 0))
    assert on_cpu.counter == 2
    for arguments in ((), (index,)):
        with pytest.raises(ValueError, match="PRIME: expected its counter and epoch on cuda:0 like images"):  # noqa: SIM117
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                on_cpu(images, *arguments)


def test_epochs_that_are_not_named_are_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    images = make_images(2, *SIZE)
    for module, arguments in ((PRIME("cifar"), (3,)), (PRIME("cifar"), ()), (AugMix(), (3,)), (AugMix(), ())):
        recwarn.clear()
        for _ in range(2):
            assert not recwarn
            for first in (0, 2):
                module(images, torch.arange(first, first + 2), *arguments)
        name = type(module).__name__
        expected = [] if arguments else [f"{name}: index 0 came again, without an epoch"]
        assert [str(each.message)[: len(name) + 38] for each in recwarn] == expected


@pytest.mark.parametrize("make", [PRIME, AugMix])
def test_epochs(make: Callable, device: str) -> None:
    images, index = make_images(3, *SIZE).to(device), torch.arange(3, device=device)
    module = make().to(device)
    first = module(images, index)
    assert module.epoch == 0
    assert torch.equal(first, module(images, index, 0))
    module.set_epoch(1)
    second = module(images, index)
    assert module.epoch == 1
    assert not torch.equal(first, second)
    assert torch.equal(second, module(images, index, 1))
    assert torch.equal(first, module(images, index, epoch=0))
    module.epoch = 2**32 - 1
    assert torch.equal(module(images, index), module(images, index, 2**32 - 1))
    for bad in (-1, 2**32, 1.5, None):
        with pytest.raises((TypeError, ValueError), match="epoch: expected"):
            module.set_epoch(bad)
    assert torch.equal(make()(images, index), first)  # on the CPU, the images where they are


def test_the_epoch_is_part_of_the_state() -> None:
    images, index = make_images(3, *SIZE), torch.arange(3)
    module = torch.nn.Sequential(PRIME("cifar", seed=3))
    module(images)
    module[0].set_epoch(5)
    state = copy.deepcopy(module.state_dict())
    expected = module[0](images)
    resumed = torch.nn.Sequential(PRIME("cifar", seed=3))
    resumed.load_state_dict(state)
    assert resumed[0].epoch == 5
    assert torch.equal(resumed[0](images), expected)

    del state["0.epoch_number"]  # saved before there was one
    old = torch.nn.Sequential(PRIME("cifar", seed=3))
    old.load_state_dict(state)
    assert (old[0].epoch, old[0].counter) == (0, 3)
    assert torch.equal(old[0](images, index, 5), resumed[0](images, index))

    for copied in (copy.deepcopy(resumed[0]), pickle.loads(pickle.dumps(resumed[0]))):
        assert torch.equal(copied(images), module[0](images, index + 6))
    file = io.BytesIO()
    torch.save(resumed[0], file)
    file.seek(0)
    assert torch.load(file, weights_only=False).epoch == 5
    pickled = copy.deepcopy(resumed[0].__dict__)  # of a version without epochs
    for name in ("_named", "_noticed"):
        del pickled[name]
    del pickled["_buffers"]["epoch_number"]
    unpickled = PRIME.__new__(PRIME)
    unpickled.__setstate__(pickled)
    assert unpickled.epoch == 0
    assert torch.equal(unpickled(images, index), module[0](images, index, 0))


def test_a_new_epoch_does_not_compile_again(device: str) -> None:
    images, index = make_images(3, *SIZE).to(device), torch.arange(3, device=device)
    module = PRIME("cifar").to(device)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for epoch in range(10):
        module.set_epoch(epoch)
        assert torch.equal(compiled(images, index), module(images, index, epoch))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_module_made_on_the_meta_device() -> None:
    with torch.device("meta"):
        augment = PRIME("cifar", seed=1)
    images = make_images(2, 16, 16)
    for arguments in ((images,), (images, None, 3), (images, torch.arange(2))):
        with pytest.raises(
            ValueError, match=r"got them on meta, .*; call to_empty\(device=\.\.\.\) and reset_parameters"
        ):
            augment(*arguments)
    augment.to_empty(device="cpu")
    augment.counter.fill_(94904220465632)  # what was in the memory
    augment.epoch_number.fill_(-7)
    augment.reset_parameters()
    assert torch.equal(augment(images), PRIME("cifar", seed=1)(images))
