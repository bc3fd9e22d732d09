"""A training step as CUDA graphs: its forward and backward pass, and the update of the optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn

Gradients = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_WARM_UP = 3  # calls before the capture, for compilation and the allocations of libraries


class Replayed:
    """Computes a loss and its gradients by a captured CUDA graph: the host launches one graph instead of some hundred
    kernels.

    The GPU would otherwise wait for the host: with small images, or while DALI's threads launch work too. After the
    warm-up, batch-norm statistics and the state of the random generator are restored, so a resumed run is bit-identical
    to an uninterrupted one.

    Args:
        gradients: Computes the loss of ``(images, labels)``, replaces the gradients of the network's parameters, and
            returns the loss. It must not synchronize.
        network: The network, whose buffers it changes.
        images, labels: Examples; every later call has the same shapes.

    Raises:
        RuntimeError: The network does what no CUDA graph can contain, such as waiting for the GPU.
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
        network.zero_grad()  # so that the captured pass writes gradients instead of adding to them
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may allocate
                self._loss = gradients(self._images, self._labels)
        except RuntimeError as error:
            if "captur" not in str(error):
                raise
            raise RuntimeError(
                "network: expected one whose training step can be captured as a CUDA graph, got one that waits for the "
                f"GPU in it ({str(error).splitlines()[0]}); train it with --no-compile"
            ) from error
        torch.cuda.set_rng_state(random, images.device)
        for buffer, value in zip(network.buffers(), before, strict=True):
            buffer.copy_(value)

    def takes(self, images: torch.Tensor, labels: torch.Tensor) -> bool:
        """Whether they have the shapes and dtypes of the examples."""
        given, own = (images, labels), (self._images, self._labels)
        return [(t.shape, t.dtype) for t in given] == [(t.shape, t.dtype) for t in own]

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns the loss, a new tensor, and writes its gradients to the parameters."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._loss.clone()


class ReplayedUpdate:
    """An optimizer's step by a captured CUDA graph, for optimizers of hundreds of kernels.

    The learning rate of each group may change between steps, and is in device memory during each, so that the first
    step, which is not replayed, computes what the others do. Momentum and weight decay are constant.

    Args:
        optimizer: One that takes learning rates as tensors, and does not wait for the device.
        device: That of its parameters.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    def forget(self) -> None:
        """Capture again: the gradients are in other memory from now on."""
        self._graph = None

    def __call__(self) -> None:
        """Updates the parameters by their gradients."""
        for rate, group in zip(self._rates, self._optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        if self._graph is None:
            with self._rates_on_the_device():
                if not self._warm:  # libraries allocate and load kernels, which no graph can contain
                    self._optimizer.step()
                    self._warm = True
                    return
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    self._optimizer.step()
                self._graph = graph
        self._graph.replay()

    @contextlib.contextmanager
    def _rates_on_the_device(self) -> Iterator[None]:
        groups = self._optimizer.param_groups
        numbers = [group["lr"] for group in groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"] = rate
        try:
            yield
        finally:
            for group, number in zip(groups, numbers, strict=True):
                group["lr"] = number
