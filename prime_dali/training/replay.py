"""A training step's forward and backward pass as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Gradients = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_WARM_UP = 3  # calls before the recording: compilers compile, libraries choose and allocate


class Replayed:
    """What computes a loss and its gradients, recorded once and replayed: the host launches one graph, not 200 kernels.

    Small images need so little of a GPU that it would wait for the host. Statistics of batch norm and random numbers
    are afterwards as if nothing had been warmed up, so a continued run computes what an uninterrupted one does.

    Args:
        gradients: Puts the gradients of the loss of ``(images, labels)`` into the network's parameters, in place of
            those that are there, and returns the loss. It must not wait for the GPU.
        network: Whose buffers it changes.
        images, labels: Of the shapes of every later call.
    """

    def __init__(self, gradients: Gradients, network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
        self._images, self._labels = images.clone(), labels.clone()
        before = [buffer.clone() for buffer in network.buffers()]
        random = torch.cuda.get_rng_state(images.device)
        stream = torch.cuda.Stream(images.device)
        stream.wait_stream(torch.cuda.current_stream(images.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                network.zero_grad()
                gradients(self._images, self._labels)
        torch.cuda.current_stream(images.device).wait_stream(stream)
        network.zero_grad()  # so that the recorded pass writes gradients and does not add to them
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may allocate
            self._loss = gradients(self._images, self._labels)
        torch.cuda.set_rng_state(random, images.device)
        for buffer, value in zip(network.buffers(), before, strict=True):
            buffer.copy_(value)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, a tensor of its own; the gradients are in the parameters."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._loss.clone()
