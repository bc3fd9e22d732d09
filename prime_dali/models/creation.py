"""Networks by name, of torchvision, of timm and for CIFAR, with random or published weights."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torchvision
from torch import nn

from .. import _arguments, _extras
from . import STEMS, cifar


def create(network: str, num_classes: int, stem: str = "imagenet", drop_path: float = 0.0) -> nn.Module:
    """Create a network with random weights.

    Args:
        network: A torchvision classifier, a network for CIFAR (``wrn_40_2``, ``wrn_28_10``, ``resnext29_4x32d``,
            ``resnext29_8x64d`` or ``resnet11_pooled``), or ``timm:NAME``, or with options of timm's model
            ``timm:NAME:OPTION=VALUE,...``, such as ``timm:vit_tiny_patch16_224:img_size=32,patch_size=4``. Plain names
            that torchvision does not have are looked up in timm if it is installed.
        num_classes: Number of logits.
        stem: ``"imagenet"``: the network as published. ``"cifar"``, for torchvision's ResNets: the first convolution is
            3 x 3 with stride 1, and there is no max pooling (the paper's ResNet-18 for 32 x 32 images). Networks for
            CIFAR have no other.
        drop_path: Stochastic depth (Huang et al., ECCV 2016): the probability with which training skips the last
            residual block, 0 to 1; that of earlier blocks rises linearly to it. 0: as the network is published.

    Raises:
        ValueError: The name (the message has the nearest one), an option, stem or number of classes is invalid, or the
            network has no stochastic depth.
        ImportError: ``timm:NAME`` needs timm.
    """
    _arguments.integer("num_classes", num_classes, 1, 10**6)
    _arguments.one_of("stem", stem, STEMS)
    if network in cifar.NETWORKS and stem != "cifar":
        raise ValueError(f"stem: expected 'cifar' for {network}, a network for images of 32 x 32, got {stem!r}")
    made = _with_drop_path(*_builder(network, num_classes), drop_path, network)
    if stem == "cifar" and network not in cifar.NETWORKS:
        if not isinstance(made, torchvision.models.ResNet):
            raise ValueError(
                f"stem: expected 'imagenet' for {network}, because only torchvision's ResNets have 'cifar'"
            )
        made.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(made.conv1.weight, mode="fan_out", nonlinearity="relu")  # as the other convolutions
        made.maxpool = nn.Identity()
    return made


def _builder(network: str, num_classes: int) -> tuple[Callable[..., nn.Module], str]:
    """What makes a network, and its option for the rate of stochastic depth."""
    if network in cifar.NETWORKS:
        return partial(cifar.NETWORKS[network], num_classes), "stochastic_depth_prob"
    if network in torchvision_names():
        build = partial(torchvision.models.get_model, network, weights=None, num_classes=num_classes)
        return build, "stochastic_depth_prob"
    return partial(timm_model, network, "network", pretrained=False, num_classes=num_classes), "drop_path_rate"


def _with_drop_path(build: Callable[..., nn.Module], option: str, rate: float, network: str) -> nn.Module:
    if not _arguments.amplitude("drop_path", rate, 1.0):
        return build()
    try:
        return build(**{option: rate})
    except TypeError as error:  # of the network's constructor
        if option not in str(error):
            raise
        raise ValueError(
            f"drop_path: expected 0 for {network}, which takes no rate of stochastic depth, got {rate}; "
            "ResNets, ConvNeXts and vision transformers of timm take one (timm:NAME)"
        ) from error


def check_logits(found: Any, images: int, network: str = "network") -> torch.Tensor:
    """What a network returned for so many images; ValueError, which names the network, unless it is a tensor of logits,
    ``[images, classes]``."""
    if isinstance(found, torch.Tensor) and found.dim() == 2 and len(found) == images and found.is_floating_point():
        return found
    got = f"{found.dtype} {list(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
    raise ValueError(
        f"{network}: expected a classifier that returns one tensor of logits, floating [{images}, classes], got {got}; "
        "take another one, or put it into a module that selects them"
    )


def check_sizes(network: nn.Module, name: str, sizes: dict[str, tuple[int, ...]]) -> None:
    """ValueError unless a network, on the CPU, takes square images of these sides, by the setting that has them, and
    returns logits."""
    training = network.training
    network.eval()
    for setting, sides in sizes.items():
        for side in sides:
            try:
                with torch.inference_mode():
                    found = network(torch.zeros(1, 3, side, side))
            except (AssertionError, RuntimeError, ValueError) as error:
                reason = str(error).strip().partition("\n")[0]
                if channels := re.search(r"to have (\d+) channels, but got 3", reason):
                    raise ValueError(
                        f"network: expected one of images of 3 channels, got {name}, of {channels[1]}"
                    ) from error
                raise ValueError(
                    f"{setting}: expected a size that {name} takes, got {side} ({reason}); timm's vision transformers "
                    "have the options img_size=SIDE and dynamic_img_size=True (timm:NAME:OPTION=VALUE,...)"
                ) from error
            check_logits(found, 1, f"network {name}")
    network.train(training)


def torchvision_names() -> list[str]:
    """The names of torchvision's classifiers."""
    return torchvision.models.list_models(module=torchvision.models)


def own_names() -> list[str]:
    """The names that need no timm: torchvision's, and those of networks for CIFAR."""
    return [*torchvision_names(), *cifar.NETWORKS]


def timm(part: str = "") -> Any:
    """The package timm, or a part of it, such as ``"optim"``; raises an ImportError that says how to install it."""
    if not _extras.there("timm"):
        raise ImportError(f"timm: expected for this run, got no such package; {_extras.install('train')}")
    return importlib.import_module(f"timm.{part}" if part else "timm")


def timm_model(name: str, argument: str, **options: Any) -> nn.Module:
    """A network of timm.

    Args:
        name: As for :func:`create`.
        argument: What named it, for messages.
        options: Of ``timm.create_model``, besides those in ``name``.

    Raises:
        ValueError: No such network, which the message compares with those of both libraries, or no such option of it,
            or an option that is given twice.
    """
    plain, _, text = name.removeprefix("timm:").partition(":")
    asked = name.startswith("timm:")
    if not asked and not _extras.there("timm"):
        raise ValueError(unknown_network(argument, name, own_names()))
    library = timm()
    if not library.is_model(plain):
        known = library.list_models()
        raise ValueError(unknown_network(argument, plain, known if asked else [*own_names(), *known]))
    given = _options(text, name, argument) if text else {}
    if given.keys() & options.keys():
        twice = ", ".join(sorted(given.keys() & options.keys()))
        raise ValueError(f"{argument}: expected a name without the options that other settings determine, got {twice}")
    try:
        made: nn.Module = library.create_model(plain, **options, **given)
    except (TypeError, AssertionError) as error:
        unknown = next((option for option in given if option in str(error)), None)
        if not given or (unknown is None and isinstance(error, TypeError)):
            raise
        raise ValueError(f"{argument}: expected options of timm's {plain}, got {text!r} ({error})") from error
    return made


def _options(text: str, name: str, argument: str) -> dict[str, Any]:
    """The options in the name of a network, such as ``img_size=32,patch_size=4``; each is a Python literal."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"{argument}: expected timm:NAME:OPTION=VALUE,... with numbers, texts in quotes, tuples, True or False, "
            f"got {name!r}"
        ) from error


def unknown_network(argument: str, name: str, known: list[str]) -> str:
    """The message about an unknown network, with the nearest name."""
    hint = _arguments.unknown("name", name, known).partition("; ")[2]  # without the list of hundreds of names
    return f"{argument}: expected a classifier of torchvision or timm, got {name!r}{'; ' + hint if hint else ''}"
