"""Batches that are computed while the GPU is still at work on the step before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch

Batch = TypeVar("Batch", bound=torch.Tensor | Sequence[torch.Tensor])


def ahead(batches: Iterable[Batch], device: str | torch.device) -> Iterator[Batch]:
    """Take batches from an iterator whose GPU work goes to a stream of its own, beside the previous training step.

    The host is ahead of the GPU: it asks for a batch when it has launched the last step, long before the GPU has done
    it. On the stream of the steps the work on the new batch would wait for that; on its own it fills the gaps that the
    network's kernels leave. What comes out is bit-identical. It helps if the iterator launches work on the GPU, such as
    copies and PRIME, and if the loop does not wait for the GPU in every step, as ``loss.item()`` does.

    Args:
        batches: Each batch is a tensor, or a tuple or list whose tensors on the GPU are safe to use in the step. The
            iterator's work goes to torch's current stream, as is usual, and does not depend on that of the steps.
        device: The GPU. On a CPU the batches are passed on as they are.

    Returns:
        An iterator over the batches, each to be used on the stream that is current when it is taken.

    Raises:
        ValueError: ``device`` is neither a CPU nor a GPU that torch has.

    Examples:
        >>> augment = prime_dali.PRIME("cifar", seed=1)
        >>> loader = [torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.ones(2, 3, 32, 32, dtype=torch.uint8)]
        >>> for images in prime_dali.ahead((augment(images) for images in loader), "cpu"):
        ...     print(images.shape)
        torch.Size([2, 3, 32, 32])
        torch.Size([2, 3, 32, 32])
    """
    place = torch.device(device)
    if place.type == "cpu":
        return iter(batches)
    if place.type != "cuda" or (place.index or 0) >= torch.cuda.device_count():
        gpus = torch.cuda.device_count()
        raise ValueError(f"device: expected 'cpu', or 'cuda' where torch has a GPU, got {str(place)!r} and {gpus} GPUs")
    return _on_own_stream(iter(batches), place)


def _on_own_stream(iterator: Iterator[Batch], place: torch.device) -> Iterator[Batch]:
    stream = torch.cuda.Stream(place)
    stream.wait_stream(torch.cuda.current_stream(place))
    while True:
        with torch.cuda.stream(stream):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        current = torch.cuda.current_stream(place)
        current.wait_stream(stream)
        for tensor in [batch] if isinstance(batch, torch.Tensor) else batch:
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                tensor.record_stream(current)  # its memory must not be reused before the step has read it
        yield batch
