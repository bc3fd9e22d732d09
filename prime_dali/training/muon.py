"""Muon: momentum whose matrices are made orthogonal, for the weights of hidden layers."""

from __future__ import annotations

import math
from typing import Any

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al., https://kellerjordan.github.io/posts/muon/) for hidden weights, SGD for the rest.

    A weight ``w`` of a hidden layer is a matrix of its outputs, a convolution too. With the average ``m`` of its
    gradients ``g`` and the momentum ``mu``, a step is ``w -= lr |w0| / sqrt(r) U V^T``: ``U S V^T`` is the singular
    value decomposition of ``mu m + (1 - mu) g``, of rank ``r``, and ``|w0|`` the initial norm of ``w``, to which ``w``
    is then scaled back. So ``lr`` is the angle of a step whatever the scale of a layer, and no weight decay is needed.
    The quintic Newton-Schulz iteration of that page, in bfloat16 on a GPU, stands in for the decomposition. Other
    parameters have SGD with Nesterov momentum and weight decay.

    The Muon of torch and that of timm take one weight at a time. Here those of one shape are a stack, so that a step
    has a third of the kernels.

    Args:
        groups: Parameters, each with ``lr``, ``weight_decay`` and ``hidden``: whether they are weights of hidden
            layers, of two or more dimensions. ``lr`` may be a tensor on their device during a step.
        momentum: That of both, 0 to 1.

    Raises:
        ValueError: The weight of a hidden layer is zero, so that it has no norm to keep.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float) -> None:
        super().__init__(groups, {"momentum": momentum})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
                if group["hidden"]:
                    norm = self.state[parameter]["norm"] = parameter.detach().norm()
                    if not norm:
                        shape = list(parameter.shape)
                        raise ValueError(f"optimizer: expected hidden weights other than zero with muon, got {shape}")

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Updates all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                update = self._orthogonal_step if group["hidden"] else self._sgd_step
                update(group, parameters, [parameter.grad for parameter in parameters])

    def _sgd_step(self, group: dict[str, Any], parameters: list[Any], gradients: list[Any]) -> None:
        averages = self._kept("momentum_buffer", parameters)
        gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        torch._foreach_mul_(averages, group["momentum"])
        torch._foreach_add_(averages, gradients)
        updates = torch._foreach_add(gradients, averages, alpha=group["momentum"])
        torch._foreach_mul_(updates, -group["lr"])
        torch._foreach_add_(parameters, updates)

    def _orthogonal_step(self, group: dict[str, Any], parameters: list[Any], gradients: list[Any]) -> None:
        averages, norms = self._kept("momentum_buffer", parameters), self._kept("norm", parameters)
        torch._foreach_lerp_(averages, gradients, 1 - group["momentum"])
        directions = torch._foreach_lerp(gradients, averages, group["momentum"])
        alike: dict[torch.Size, list[int]] = {}
        for place, parameter in enumerate(parameters):
            alike.setdefault(parameter.shape, []).append(place)
        for shape, places in alike.items():
            # The last dimension is that of the channels, as they are in memory.
            matrices = torch.stack([directions[place].movedim(1, -1).flatten(1) for place in places])
            lengths = torch.stack([norms[place] for place in places]) / math.sqrt(min(matrices.shape[1:]))
            turns = orthogonal(matrices) * (lengths * group["lr"])[:, None, None]
            moved = [turn.reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1) for turn in turns.unbind()]
            torch._foreach_sub_([parameters[place] for place in places], moved)
        factors = torch.stack(norms) / torch.stack(torch._foreach_norm(parameters))
        torch._foreach_mul_(parameters, list(factors.unbind()))

    def _kept(self, name: str, parameters: list[Any]) -> list[torch.Tensor]:
        return [self.state[parameter][name] for parameter in parameters]


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices ``[B, M, N]`` with the same singular vectors and singular values near 1, about 0.7 to 1.2."""
    a, b, c = _COEFFICIENTS
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
