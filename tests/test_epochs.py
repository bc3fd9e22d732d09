"""The epoch in other processes: it reaches workers of a DataLoader that live on, and no process that was forked."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable

import pytest
import torch
from conftest import make_images

from prime_dali import PRIME
from prime_dali.training.augmix import AugMix

IMAGES = make_images(2, 8, 9)


class Samples(torch.utils.data.Dataset):
    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.module(IMAGES[number : number + 1], torch.tensor([number]))[0]


def persistent(module: torch.nn.Module) -> list[torch.Tensor]:
    """The images of three epochs, each named when the workers are there already."""
    loader = torch.utils.data.DataLoader(
        Samples(module), len(IMAGES), num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    made = []
    for epoch in range(3):
        if epoch:
            module.set_epoch(epoch)
        made += list(loader)
    return made


def assigned(module: torch.nn.Module) -> torch.nn.Module:
    module.load_state_dict(copy.deepcopy(module.state_dict()), assign=True)
    module.set_epoch(0)
    return module


def emptied(module: torch.nn.Module) -> torch.nn.Module:
    with torch.device("meta"):
        module = type(module)("cifar", seed=module.seed)
    module.to_empty(device="cpu").reset_parameters()
    return module


@pytest.mark.parametrize("prepare", [None, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), assigned, emptied])  # fmt: skip
def test_workers_that_live_on_see_the_epoch(prepare: Callable | None) -> None:
    expected, module = PRIME("cifar", seed=3), PRIME("cifar", seed=3)
    made = persistent(module if prepare is None else prepare(module))
    for epoch, images in enumerate(made):
        assert torch.equal(images, expected(IMAGES, torch.arange(2), epoch))


def test_those_of_augmix_too() -> None:
    made = persistent(AugMix(seed=3))
    for epoch, images in enumerate(made):
        assert torch.equal(images, AugMix(seed=3)(IMAGES, torch.arange(2), epoch))


def test_a_forked_process_has_an_epoch_of_its_own() -> None:
    module = PRIME("cifar", seed=3)
    module.set_epoch(5)

    def another_run() -> None:
        assert module.epoch == 5
        module.set_epoch(7)
        assert torch.equal(persistent(module)[2], PRIME("cifar", seed=3)(IMAGES, torch.arange(2), 2))

    process = multiprocessing.get_context("fork").Process(target=another_run)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert module.epoch == 5


def test_where_nothing_can_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers without /dev/shm, and on the meta device."""
    v2 = pytest.importorskip("prime_dali.v2", reason="torchvision is not installed")
    with torch.device("meta"):
        v2.PRIME("cifar")

    def refuse(tensor: torch.Tensor) -> None:
        raise RuntimeError("unable to open shared memory object")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    for make in (PRIME, v2.PRIME):
        module = make("cifar")
        module.set_epoch(3)
        assert module.epoch == 3
