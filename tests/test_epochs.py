"""The epoch in other processes: it reaches workers of a DataLoader that live on, and no process that was forked."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from conftest import make_images
from forking import in_a_copy

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


def test_they_do_after_the_module_was_also_sent_to_a_process_that_was_not_forked() -> None:
    module = PRIME("cifar")
    loader = torch.utils.data.DataLoader(
        Samples(module), len(IMAGES), num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    list(loader)
    sent = pickle.loads(ForkingPickler.dumps(module))
    module.set_epoch(2)
    assert sent.epoch == 2
    assert torch.equal(next(iter(loader)), PRIME("cifar")(IMAGES, torch.arange(2), 2))
    sent.set_epoch(7)  # from then on it has an epoch of its own
    assert (sent.epoch, module.epoch) == (7, 2)


def test_they_do_after_the_module_was_copied() -> None:
    module = PRIME("cifar")
    loader = torch.utils.data.DataLoader(
        Samples(module), len(IMAGES), num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    list(loader)
    shallow, deep = copy.copy(module), copy.deepcopy(module)
    module.set_epoch(2)
    assert (shallow.epoch, deep.epoch) == (2, 0)
    assert torch.equal(next(iter(loader)), PRIME("cifar")(IMAGES, torch.arange(2), 2))


def test_a_forked_process_has_an_epoch_of_its_own() -> None:
    module = PRIME("cifar", seed=3)
    module.set_epoch(5)

    def another_run() -> None:
        assert module.epoch == 5
        module.set_epoch(7)
        assert torch.equal(persistent(module)[2], PRIME("cifar", seed=3)(IMAGES, torch.arange(2), 2))

    in_a_copy(another_run)
    assert module.epoch == 5


def test_what_a_forked_process_resets_or_loads_is_its_own() -> None:
    module, other = PRIME("cifar"), PRIME("cifar")
    module.set_epoch(5)
    other.set_epoch(7)
    changes = [module.reset_parameters, lambda: module.load_state_dict(other.state_dict())]
    for change in changes:
        in_a_copy(change)
        assert module.epoch == 5


def test_a_module_holds_no_file_and_needs_no_shared_memory_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers without /dev/shm, and where a process may open few files."""

    def refuse(tensor: torch.Tensor) -> None:
        raise RuntimeError("unable to open shared memory object")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    before = len(os.listdir("/proc/self/fd"))
    modules = [PRIME("cifar", seed=3), AugMix(seed=3)]
    modules += copy.deepcopy(modules)
    assert len(os.listdir("/proc/self/fd")) <= before  # fewer if files of earlier tests were closed meanwhile
    for epoch, images in enumerate(persistent(modules[-2])):
        assert torch.equal(images, PRIME("cifar", seed=3)(IMAGES, torch.arange(2), epoch))


def test_on_the_meta_device() -> None:
    v2 = pytest.importorskip("prime_dali.v2", reason="torchvision is not installed")
    with torch.device("meta"):
        assert v2.PRIME("cifar").epoch_number.is_meta
