"""The same seed, index, epoch and view give the same image, whatever else happens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import CUDA, make_images

import prime_dali
from prime_dali import PRIME, preset

SIZE = (40, 33)


def augment(images: torch.Tensor, index: torch.Tensor, **names) -> torch.Tensor:
    return prime_dali.apply(images, prime_dali.sample("imagenet", index, size=SIZE, **names))


def test_batch_order_and_split_do_not_matter(device: str) -> None:
    images = make_images(12, *SIZE).to(device)
    index = torch.tensor([5, 2**40, 7, 0, 3, 10**12, -4, 8, 9, 1, 2, 6], device=device)
    whole = augment(images, index, seed=3)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0)).to(device)
    assert torch.equal(augment(images[order], index[order], seed=3), whole[order])
    for cuts in ([1] * 12, [5, 7], [0, 12]):
        parts = [augment(i, n, seed=3) for i, n in zip(images.split(cuts), index.split(cuts), strict=True)]
        assert torch.equal(torch.cat(parts), whole)


def test_every_part_of_the_name_matters(device: str) -> None:
    images, index = make_images(4, *SIZE).to(device), torch.arange(4, device=device)
    base = augment(images, index)
    for change in ({"seed": 1}, {"seed": 2**40}, {"seed": -1}, {"epoch": 1}, {"view": 1}):
        other = augment(images, index, **change)
        assert all(not torch.equal(a, b) for a, b in zip(base, other, strict=True)), change
    assert torch.equal(augment(images, index), base)


@pytest.mark.parametrize(("views", "view"), [(1, 0), (2, ("clean", 0)), (3, ("clean", 0, 1))])
def test_views_of_the_module(views: int, view: object) -> None:
    images, index, module = make_images(2, *SIZE), torch.arange(2), PRIME("imagenet", seed=3, views=views)
    out = module(images, index, epoch=2)
    assert torch.equal(module(images[1], 1, epoch=2), out[1] if views == 1 else out[1::2])
    assert torch.equal(out, augment(images, index, seed=3, epoch=2, view=view))
    assert len(torch.unique(out, dim=0)) == 2 * views


def test_epoch_as_a_tensor(device: str) -> None:
    images, index = make_images(3, *SIZE).to(device), torch.arange(3, device=device)
    one = augment(images, index, epoch=7)
    assert torch.equal(augment(images, index, epoch=torch.tensor(7, device=device)), one)
    each = augment(images, index, epoch=torch.tensor([7, 8, 7], device=device))
    assert torch.equal(each[::2], one[::2])
    assert not torch.equal(each[1], one[1])


def test_threads_do_not_matter() -> None:
    images, index = make_images(9, *SIZE), torch.arange(9)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(augment(images, index))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_arrays_and_torch_agree() -> None:
    images = make_images(3, *SIZE)
    plan = prime_dali.sample("imagenet", np.arange(3), size=SIZE, seed=8)
    assert np.array_equal(plan.rows, prime_dali.sample("imagenet", torch.arange(3), size=SIZE, seed=8).rows.numpy())
    assert np.array_equal(
        prime_dali.arrays.apply(images.numpy(), plan), augment(images, torch.arange(3), seed=8).numpy()
    )


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("mixing", ["paper", "official"])
@pytest.mark.parametrize(("name", "size"), [("imagenet", (224, 224)), ("cifar", (32, 32)), ("imagenet", (50, 71))])
def test_cpu_and_cuda_draw_the_same_plan_to_the_bit(name: str, size: tuple[int, int], mixing: str, device: str) -> None:
    config = preset(name).replace(mixing=mixing, primitives=("spectral", "spatial", "color", "noise"), noise_std=0.1)
    index = torch.arange(20_000)
    here = prime_dali.sample(config, index, size=size, seed=5, view=("clean", 0, 3))
    there = prime_dali.sample(config, index.to(device), size=size, seed=5, view=("clean", 0, 3))
    assert torch.equal(here.rows, there.rows.cpu())


def test_views(device: str) -> None:
    images, index = make_images(3, *SIZE).to(device), torch.arange(3, device=device)
    three = augment(images, index, view=("clean", 0, 1), seed=2)
    assert three.shape == (9, 3, *SIZE)
    assert torch.equal(three[:3], images)
    assert torch.equal(three[3:6], augment(images, index, view=0, seed=2))
    assert torch.equal(three[6:], augment(images, index, view=1, seed=2))
    module = PRIME("imagenet", seed=2, views=3)
    assert torch.equal(module(images, index), three)


def test_slices_of_plans() -> None:
    images, index = make_images(5, *SIZE), torch.arange(5)
    plan = prime_dali.sample("imagenet", index, size=SIZE, view=("clean", 0, 1))
    whole = prime_dali.apply(images, plan).reshape(3, 5, 3, *SIZE)
    for part in (slice(1, 4), slice(2, 3)):
        out = prime_dali.apply(images[part], plan[part])
        assert torch.equal(out.reshape(3, -1, 3, *SIZE), whole[:, part])


def test_module_counts_and_resumes(device: str) -> None:
    images = make_images(4, *SIZE).to(device)
    module = PRIME("cifar", seed=6).to(device)
    first, second = module(images), module(images)
    assert not torch.equal(first, second)
    assert torch.equal(first, module(images, torch.arange(4, device=device)))
    assert torch.equal(second, module(images, torch.arange(4, 8, device=device)))
    resumed = PRIME("cifar", seed=6).to(device)
    resumed.load_state_dict(module.state_dict())
    assert torch.equal(resumed(images), module(images))


def test_single_images() -> None:
    image = make_images(1, *SIZE)[0]
    module = PRIME("cifar", seed=6)
    batch = module(image[None], torch.tensor([3]))
    for index in (torch.tensor([3]), torch.tensor(3), 3, np.int64(3)):
        assert torch.equal(module(image, index), batch[0])
    plan = prime_dali.sample("cifar", torch.tensor([3]), size=SIZE, seed=6)
    assert torch.equal(prime_dali.apply(image, plan), batch[0])
    for index in (torch.tensor(3), np.array(3)):
        assert prime_dali.sample("cifar", index, size=SIZE, seed=6).numpy() == plan.numpy()
    half = PRIME("cifar", seed=6, out_dtype="float16")(image, 3)
    assert torch.equal(half, prime_dali.apply(image, plan, out_dtype=torch.float16))
    assert torch.equal(half, prime_dali.apply(image, plan, out_dtype="float16"))
    assert PRIME("cifar", views=3)(image).shape == (3, 3, *SIZE)


def test_data_loader_workers_give_the_same_images() -> None:
    """In ``transforms`` style, one image at a time, in forked workers, after threads ran in the parent."""
    images, module = make_images(8, *SIZE), PRIME("cifar", seed=1)
    expected = module(images, torch.arange(8))
    assert torch.get_num_threads() >= 1

    class Photos(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> torch.Tensor:
            return module(images[i], i)

    loader = torch.utils.data.DataLoader(Photos(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), expected)


@pytest.mark.parametrize("name", ["imagenet", "cifar"])
def test_empty_batches(name: str, device: str) -> None:
    images = torch.empty(0, 3, *SIZE, device=device)
    out = PRIME(name, views=3, mean=(0.5,) * 3, std=(0.2,) * 3)(images)
    assert out.shape == (0, 3, *SIZE)
    assert out.device == images.device
