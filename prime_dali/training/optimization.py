"""The optimizer of a run, its parameter groups, and the schedule of its learning rate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from .._wording import plural
from ..models.creation import timm
from .checkpoint import check_alike
from .config import TrainConfig
from .muon import Muon

_AVERAGES = {"sgd": ("momentum_buffer",), "adamw": ("exp_avg", "exp_avg_sq"), "muon": ("momentum_buffer",)}
"""By optimizer: what it keeps of each parameter, in its shape."""
_FALL = 25 * 1e4
"""The peak learning rate of torch's ``OneCycleLR`` over its last one, with its default divisors."""


def optimizer(network: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of a network's parameters, at the peak learning rate of each.

    Raises:
        ValueError: ``layer_decay`` is given, but the network has no groups of layers.
        ImportError: A setting needs timm.
    """
    groups, momentum = _groups(network, config), config.momentum[1]
    if config.optimizer == "muon":
        return Muon(_split(groups, network, config.muon_sgd_lr_scale), momentum)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, betas=(momentum, config.beta2), fused=True)
    return torch.optim.SGD(groups, momentum=momentum, nesterov=True, fused=True)


def _groups(network: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Parameters with their learning rate and weight decay; timm knows the layers, and what has no weight decay."""
    lr, weight_decay = config.max_lr, config.weight_decay
    own: Any = getattr(network, "no_weight_decay", None)
    excluded = own() if own is not None and config.exclude_1d else ()
    if config.layer_decay < 1:
        if not hasattr(network, "group_matcher"):
            raise ValueError(
                f"layer_decay: expected 1 for {config.network}, which has no groups of layers, got "
                f"{config.layer_decay}; networks of timm have them (timm:NAME)"
            )
        groups = timm("optim").param_groups_layer_decay(network, weight_decay, excluded, layer_decay=config.layer_decay)
    elif config.exclude_1d:
        groups = timm("optim").param_groups_weight_decay(network, weight_decay, no_weight_decay_list=excluded)
    else:
        groups = [{"params": list(network.parameters())}]
    return [
        {
            "params": group["params"],
            "lr": lr * group.get("lr_scale", 1.0),
            "weight_decay": group.get("weight_decay", weight_decay) if config.exclude_1d else weight_decay,
        }
        for group in groups
    ]


def _split(groups: list[dict[str, Any]], network: nn.Module, scale: float) -> list[dict[str, Any]]:
    """Groups for Muon: weights of hidden layers, and the rest, whose learning rate is ``scale`` times as large."""
    hidden = {id(weight) for weight in _matrices(network)[1:-1]}
    found = []
    for group in groups:
        for is_hidden in (True, False):
            own = [parameter for parameter in group["params"] if (id(parameter) in hidden) == is_hidden]
            if own:
                lr = group["lr"] * (1.0 if is_hidden else scale)
                found.append({**group, "params": own, "hidden": is_hidden, "lr": lr})
    return found


def _matrices(network: nn.Module) -> list[torch.Tensor]:
    """Weights that map all inputs of a layer to its outputs, in the order of the modules. Those of grouped convolutions
    are many small maps; embeddings, scales and tokens are none."""
    found = []
    for module in network.modules():
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1):
            found.append(module.weight)
        elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            found.append(module.in_proj_weight)
    return found


def learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """The largest of the groups, without those whose rate is scaled because SGD trains them beside Muon."""
    return max(group["lr"] for group in optimizer.param_groups if group.get("hidden", True))


def schedule(optimizer: torch.optim.Optimizer, config: TrainConfig, total: int) -> LRScheduler:
    """The learning rate of each of ``total`` steps; without warm-up, that of the first step is the peak.

    ``onecycle``: torch's, as in the paper; without warm-up, :class:`Fall`. ``cosine``: with W warm-up steps it is
    ``peak (k + 1) / (W + 1)`` in step k < W, counted from 0, and ``peak (1 + cos(pi (k - W) / (total - W))) / 2`` from
    step W on (Loshchilov and Hutter, ICLR 2017). ``linear``: the same warm-up, then ``peak (total - k) / (total - W)``.

    Raises:
        ValueError: The warm-up of ``onecycle`` has at most one step.
    """
    if config.schedule == "onecycle":
        if not config.warmup:
            return Fall(optimizer, total, config.momentum)
        if config.warmup * total <= 1:
            raise ValueError(
                f"warmup: expected a part of the run's {plural(total, 'step')} that is more than one step, got "
                f"{config.warmup}; train for longer, raise it, or leave the warm-up out with 0"
            )
        return OneCycleLR(
            optimizer, max_lr=[group["lr"] for group in optimizer.param_groups], total_steps=total,
            pct_start=config.warmup, base_momentum=config.momentum[0], max_momentum=config.momentum[1],
        )  # fmt: skip
    warmup = int(config.warmup * total)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / (total - warmup)
        return 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2

    return LambdaLR(optimizer, factor)


class Fall(LRScheduler):
    """The second phase of torch's ``OneCycleLR`` alone: with ``pct_start=0``, torch's begins below the peak.

    In step k, counted from 0, with ``c = (1 + cos(pi k / (total - 1))) / 2``, the learning rate goes from the peak, the
    optimizer's, to the 250,000th part of it: ``peak (c + (1 - c) / 250000)``. The momentum, or AdamW's beta 1, goes
    from ``momentum[0]`` to ``momentum[1]`` likewise.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, total: int, momentum: tuple[float, ...]) -> None:
        self.total, self.momentum = total, list(momentum)
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        """The learning rates of this step; sets its momentum, as ``OneCycleLR.get_lr`` does."""
        part = (1 + math.cos(math.pi * self.last_epoch / max(self.total - 1, 1))) / 2
        least, most = self.momentum
        momentum = most + (least - most) * part
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum
        return [peak * (part + (1 - part) / _FALL) for peak in self.base_lrs]


def restore_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any], config: TrainConfig) -> None:
    """Resume from a state of the same optimizer; raises an error of torch, or a ValueError, for another one."""
    check_alike(state, optimizer.state_dict())
    optimizer.load_state_dict(state)
    for parameter, kept in optimizer.state.items():
        for name in _AVERAGES[config.optimizer]:
            if kept[name].shape != parameter.shape:
                raise ValueError(f"{name} of {list(kept[name].shape)} for {list(parameter.shape)}")


def restore_schedule(schedule: LRScheduler, state: dict[str, Any], step: int, total: int) -> None:
    """Resume from a state of the same schedule after ``step`` of ``total`` steps; errors as
    :func:`restore_optimizer`."""
    check_alike(state, schedule.state_dict())
    schedule.load_state_dict(state)
    at = min(step, total - 1)
    if schedule.last_epoch != at:
        raise ValueError(f"last_epoch: expected {at}, got {schedule.last_epoch}")
