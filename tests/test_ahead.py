"""prime_dali.ahead: the same batches, whatever stream makes them."""

from __future__ import annotations

import pytest
import torch
from conftest import make_images

import prime_dali


def test_batches_are_the_same(device: str) -> None:
    images = make_images(8, 64, 64, torch.uint8).to(device)
    augment = prime_dali.PRIME("imagenet", seed=1)
    expected = [augment(images, torch.arange(8, device=device), epoch) for epoch in range(20)]
    made = ((augment(images, torch.arange(8, device=device), epoch), epoch) for epoch in range(20))
    waits = torch.rand(2000, 2000, device=device)
    for epoch, (batch, number) in enumerate(prime_dali.ahead(made, device)):
        if device == "cuda":
            for _ in range(20):
                waits = waits @ waits / 1000  # a step that the next batch does not wait for
        assert number == epoch
        assert torch.equal(batch.clone(), expected[epoch])


def test_single_tensors_and_errors(device: str) -> None:
    batches = [torch.zeros(2, device=device), torch.ones(2, device=device)]
    assert [float(batch.sum()) for batch in prime_dali.ahead(batches, torch.device(device))] == [0, 2]

    def broken() -> object:
        yield batches[0]
        raise OSError("no such file")

    made = prime_dali.ahead(broken(), device)
    next(made)
    with pytest.raises(OSError, match="no such file"):
        next(made)


@pytest.mark.parametrize("device", ["meta", "cuda:99"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(ValueError, match=f"device: expected 'cpu', or 'cuda' where torch has a GPU, got '{device}'"):
        prime_dali.ahead([], device)
