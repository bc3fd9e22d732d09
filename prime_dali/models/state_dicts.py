"""State dicts of other programs: which of a file's weights to take, their names, and whether they fit a network."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torchvision
from torch import nn

from .. import _arguments

_WRAPPERS = ("state_dict", "model", "net")
# Of averages: timm's scripts; torchvision's references and DeiT; others.
_AVERAGES = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
_PREFIXES = ("module.", "model.", "_orig_mod.")
_STATISTICS = {"mean": "mean", "mu": "mean", "std": "std", "sigma": "std"}  # names of the constants in files
_SHOWN = 3  # keys of each kind that an error lists
AVERAGED, RAW = " (EMA of the weights)", " (weights of the last step, not their EMA)"


def weights(content: Mapping[str, Any], raw: bool) -> tuple[Mapping[str, Any], str]:
    """The state dict in a file, its averages unless ``raw``, and which of the two they are if it has both."""
    kinds = (_WRAPPERS if raw else _AVERAGES), (_AVERAGES if raw else _WRAPPERS)
    found = [next((content[key] for key in keys if isinstance(content.get(key), Mapping)), None) for keys in kinds]
    first, other = found
    if first is None:
        return content if other is None else other, ""
    return first, "" if other is None else RAW if raw else AVERAGED


def renamed(
    state: Mapping[str, torch.Tensor], network: nn.Module
) -> tuple[dict[str, torch.Tensor], dict[str, tuple[float, float, float]]]:
    """``state`` with the names of ``network``; and the mean and std that it holds beside the weights."""
    own = network.state_dict().keys()
    out: dict[str, torch.Tensor] = {}
    statistics: dict[str, tuple[float, float, float]] = {}
    for given, value in state.items():
        key = given
        while key not in own and key.startswith(_PREFIXES):
            key = key.partition(".")[2]
        if isinstance(network, torchvision.models.ResNet):
            # The names of the widely used CIFAR ResNets, which PRIME's authors use too.
            key = re.sub(r"^linear\.", "fc.", re.sub(r"\.shortcut\.", ".downsample.", key))
        what = _STATISTICS.get(key.rpartition(".")[2])
        if key not in own and what is not None and value.numel() == 3:
            found = _arguments.triple(what, value.flatten().tolist())
            if statistics.setdefault(what, found) != found:
                raise ValueError(f"{given}: expected one {what} of the normalization, got another one before it")
        elif key in out:
            raise ValueError(f"{given}: expected each weight once, got another for {key}")
        else:
            out[key] = value
    return out, statistics


def normalized_by(content: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """The mean and std among the options that timm's script was given, which it keeps in its checkpoints. One number is
    that of all channels."""
    options = vars(content["args"]) if isinstance(content.get("args"), argparse.Namespace) else {}
    found = {what: options[what] for what in ("mean", "std") if options.get(what) is not None}
    alone = {what for what, own in found.items() if isinstance(own, Sequence) and len(own) == 1}
    return {what: _arguments.triple(what, own * 3 if what in alone else own) for what, own in found.items()}


def fill(network: nn.Module, state: Mapping[str, torch.Tensor], source: str) -> None:
    """Load a state dict, whose floating tensors may have any precision.

    Raises:
        ValueError: It has other keys or shapes than the network, or integers in place of floating weights; the message
            begins with ``source``.
    """
    own = network.state_dict()
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{source}: {key}: expected a tensor of weights, got {type(value).__name__}")
    counters = "num_batches_tracked"  # torch fills it in if an old file lacks it
    missing = [key for key in own if key not in state and not key.endswith(counters)]
    unexpected = [key for key in state if key not in own]
    shapes = [
        f"{key}: expected {list(own[key].shape)}, got {list(state[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    integers = [
        f"{key}: {state[key].dtype}"
        for key, value in own.items()
        if key in state and value.is_floating_point() and not state[key].is_floating_point()
    ]
    if integers and not missing and not unexpected and not shapes:
        raise ValueError(
            f"{source}: expected floating weights, got {len(integers)} of other types ({'; '.join(integers[:_SHOWN])}"
            f"{'; ...' if len(integers) > _SHOWN else ''}); convert a quantized network back to floats"
        )
    if missing or unexpected or shapes:
        kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        parts = [
            f"{len(keys)} {kind} ({'; '.join(keys[:_SHOWN])}{'; ...' if len(keys) > _SHOWN else ''})"
            for kind, keys in kinds
            if keys
        ]
        hint = _inside(state, [key for key in own if not key.endswith(counters)])
        raise ValueError(f"{source}: expected the weights of this network, got keys {', '.join(parts)}{hint}")
    network.load_state_dict(dict(state))


def _inside(state: Mapping[str, torch.Tensor], wanted: Sequence[str]) -> str:
    """What to do if all the keys that are wanted are there with a prefix, as in a checkpoint of Lightning."""
    for key in state:
        before = key.removesuffix(wanted[0])
        if before and before != key and all(before + name in state for name in wanted):
            return f"; all of them are there with {before!r} before their names: save those alone, without it"
    return ""
