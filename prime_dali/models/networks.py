"""Classifiers: networks from checkpoints, published weights and plain state dicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import _extras

with _extras.importing(__name__, "train"):
    import torch
    import torchvision
    from torch import nn

from .. import _arguments
from .._states import Kind
from ..data.cifar import SIDE
from ..data.statistics import CIFAR_STATISTICS, IMAGENET_STATISTICS
from . import cifar
from .creation import create, timm, timm_model, torchvision_names, unknown_network

FORMAT, VERSION = "prime-dali", 1

_WRAPPERS = ("state_dict", "model", "net")
# Of averages: timm's scripts; torchvision's references and DeiT; others.
_AVERAGES = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
_PREFIXES = ("module.", "model.", "_orig_mod.")
_STATISTICS = {"mean": "mean", "mu": "mean", "std": "std", "sigma": "std"}  # by their names in files
_SHOWN = 3  # keys of each kind that an error lists
_AVERAGED, _RAW = " (EMA of the weights)", " (weights of the last step, not their EMA)"


@dataclass(frozen=True)
class Classifier:
    """A network, and everything needed to use it."""

    network: nn.Module
    """From normalized float images ``[N, 3, H, W]`` to logits ``[N, num_classes]``."""
    name: str
    """As for :func:`create`."""
    num_classes: int
    stem: str = "imagenet"
    classes: tuple[str, ...] | None = None
    """Class names of the logits, in order: those of the class folders (WordNet IDs for ImageNet). None: unknown."""
    mean: tuple[float, float, float] = IMAGENET_STATISTICS[0]
    """Images are normalized to ``(x - mean) / std``, per channel, x in [0, 1]."""
    std: tuple[float, float, float] = IMAGENET_STATISTICS[1]
    """See ``mean``."""
    size: int = 224
    """Side length of the images in pixels."""
    resize: int | None = 256
    """Shorter side in pixels to resize test images to before the center crop; None: neither resize nor crop. A network
    of 32 x 32 images without is one of CIFAR."""
    source: str = ""
    """Source of the weights."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Other entries of our checkpoints: config, epoch and so on."""

    @property
    def statistics(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Mean and standard deviation by which images are normalized."""
        return self.mean, self.std


_ADVICE = "take another file, or a copy of it that is whole"
_FILE = Kind({}, "a checkpoint or a state dict", _ADVICE)
_CHECKPOINT = Kind(
    {
        "network": {"name": str, "num_classes": int, "stem": str}, "model": dict, "classes": (None, [str], tuple),
        "mean": (list, tuple), "std": (list, tuple), "size": int, "resize": (None, int),
    },
    "a complete checkpoint of prime-dali", _ADVICE,
)  # fmt: skip


def checkpoint(classifier: Classifier, **more: Any) -> dict[str, Any]:
    """Convert ``classifier`` to the dictionary that ``torch.save`` writes and :func:`load` reads.

    Args:
        classifier: Its ``details`` are not included.
        more: Additional entries, such as ``config`` and ``epoch``: tensors, numbers, strings, lists and dictionaries.
    """
    return {
        "format": FORMAT, "version": VERSION,
        "network": {"name": classifier.name, "num_classes": classifier.num_classes, "stem": classifier.stem},
        "model": classifier.network.state_dict(),
        "classes": None if classifier.classes is None else list(classifier.classes),
        "mean": list(classifier.mean), "std": list(classifier.std),
        "size": classifier.size, "resize": classifier.resize,
        **more,
    }  # fmt: skip


def load(
    source: str | Path,
    *,
    network: str | None = None,
    num_classes: int | None = None,
    stem: str | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    raw: bool = False,
) -> Classifier:
    """Load a classifier, on the CPU, in evaluation mode.

    Args:
        source: One of
            - a checkpoint file of this package, which is self-contained; if it has averages of the weights (EMA), they
              are used;
            - any other file of a state dict, alone or as the entry ``state_dict`` or ``model`` of a dictionary, with or
              without the prefixes ``module.``, ``model.`` and ``_orig_mod.``; needs ``network`` and ``num_classes``. If
              it also has averages, as ``state_dict_ema`` (timm) or ``model_ema`` (torchvision's references), they are
              used. The layer names of the CIFAR ResNets of PRIME's authors are supported, and the mean and standard
              deviation in their files are used;
            - ``torchvision:NAME:WEIGHTS``, such as ``torchvision:resnet50:IMAGENET1K_V1``;
            - ``timm:NAME``, pretrained, such as ``timm:resnet50.tv_in1k``.
            Files are read with ``weights_only=True``, so they cannot run code.
        network, num_classes, stem: The network, as for :func:`create`. They must agree with a source that defines them.
            A plain state dict of a ResNet defines the stem.
        size: Side length of the images in pixels; must agree with the source. If neither defines it: 32 with the
            ``cifar`` stem, else 224.
        mean, std: Normalization constants that override those of the source. If neither defines them: those of CIFAR
            for 32 x 32 images of 10 or 100 classes, else those of ImageNet.
        raw: Use the weights of the last step of a checkpoint that also has their averages.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: Published weights cannot be downloaded.
        ValueError: The file is not a checkpoint, or belongs to another network, width or number of classes; the message
            has the first keys that are missing, unexpected or of another shape. Or an argument disagrees with the
            source, or ``raw`` is given for one without averages.
    """
    text = str(source)
    library, _, rest = text.partition(":")
    no_averages = f"raw: expected a checkpoint with averages of the weights (EMA), got {text}, which has none"
    if raw and library in ("torchvision", "timm"):  # before a download
        raise ValueError(no_averages)
    if library == "torchvision":
        classifier = _from_torchvision(rest, num_classes)
    elif library == "timm":
        classifier = _from_timm(text)
    else:
        content = _read(Path(source))
        if content.get("format") == FORMAT:
            classifier = _from_checkpoint(text, content, raw)
        else:
            state, label = _weights(content, raw)
            classifier = _from_state_dict(text, state, network, num_classes, stem, size)
            classifier = replace(classifier, source=text + label)
    if raw and not classifier.source.endswith(_RAW):
        raise ValueError(no_averages)
    for argument, given, own in (
        ("network", network, classifier.name), ("num_classes", num_classes, classifier.num_classes),
        ("stem", stem, classifier.stem), ("size", size, classifier.size),
    ):  # fmt: skip
        if given is not None and given != own:
            raise ValueError(f"{argument}: expected {own!r}, which {text} is of, got {given!r}")
    if mean is not None or std is not None:
        _arguments.channels(mean, std)
        classifier = replace(classifier, mean=_triple(mean), std=_triple(std))
    classifier.network.eval()
    return classifier


def _from_torchvision(rest: str, num_classes: int | None) -> Classifier:
    name, _, wanted = rest.partition(":")
    if name not in torchvision_names():
        raise ValueError(unknown_network(f"torchvision:{rest}", name, torchvision_names()))
    members = torchvision.models.get_model_weights(name).__members__
    _arguments.one_of(f"weights of {name} (torchvision:{name}:WEIGHTS)", wanted, members)
    weights = members[wanted]
    classes = len(weights.meta["categories"])
    if num_classes not in (None, classes):  # before a download
        raise ValueError(f"num_classes: expected {classes}, which torchvision:{rest} is of, got {num_classes}")
    try:
        network = torchvision.models.get_model(name, weights=weights)
    except OSError as error:  # of urllib, whose messages do not name the weights
        raise OSError(
            f"torchvision:{rest}: expected its published weights in the cache or from {weights.url}, got neither "
            f"({error}); connect to the network once, or copy the cache of another machine (TORCH_HOME)"
        ) from error
    seen = weights.transforms()
    return Classifier(
        network, name, classes, mean=_triple(seen.mean), std=_triple(seen.std),
        size=seen.crop_size[0], resize=seen.resize_size[0], source=f"torchvision:{name}:{weights.name}",
    )  # fmt: skip


def _from_timm(source: str) -> Classifier:
    try:
        network: Any = timm_model(source, source, pretrained=True)
    except OSError as error:  # of the Hugging Face hub, whose messages do not name the network
        reason = str(error).strip().partition("\n")[0]
        raise OSError(
            f"{source}: expected its published weights in the cache or from the network, got neither ({reason}); "
            "connect to the network once, or copy the cache of another machine (HF_HOME)"
        ) from error
    seen = timm("data").resolve_model_data_config(network)
    size = seen["input_size"][1]
    return Classifier(
        network, source, network.num_classes, mean=_triple(seen["mean"]), std=_triple(seen["std"]), size=size,
        resize=_resize(size, seen["crop_pct"]), source=source,
    )  # fmt: skip


def _resize(size: int, crop: float = 224 / 256) -> int | None:
    """The shorter side to resize test images to, if a crop of side ``size`` is this part of it; None: images of CIFAR's
    size are CIFAR's, which are not resized."""
    return None if size == SIDE else int(size / crop)


def _from_checkpoint(source: str, content: Mapping[str, Any], raw: bool) -> Classifier:
    if content.get("version") != VERSION:
        raise ValueError(f"{source}: expected a checkpoint of version {VERSION}, got {content.get('version')!r}")
    _CHECKPOINT.check(source, content)
    what, classes = content["network"], content["classes"]
    state, label = content["model"], ""
    if "ema" in content:
        state, label = (state, _RAW) if raw else (content["ema"], _AVERAGED)
        if not isinstance(state, dict):
            raise _CHECKPOINT.error(source, f"ema: expected a mapping, got {type(state).__name__}")
    try:
        network = create(what["name"], what["num_classes"], what["stem"])
        mean, std = _triple(content["mean"]), _triple(content["std"])
    except (TypeError, ValueError) as error:
        raise _CHECKPOINT.error(source, error) from error
    classifier = Classifier(
        network, what["name"], what["num_classes"], what["stem"], None if classes is None else tuple(classes),
        mean, std, content["size"], content["resize"], source + label,
    )  # fmt: skip
    if classifier.classes is not None and len(classifier.classes) != classifier.num_classes:
        raise ValueError(f"{source}: expected {classifier.num_classes} names of classes, got {len(classifier.classes)}")
    _fill(network, state, source)
    known = {"format", "version", "network", "model", "ema", "classes", "mean", "std", "size", "resize"}
    details = {key: value for key, value in content.items() if key not in known}
    return replace(classifier, details=details)


def _weights(content: Mapping[str, Any], raw: bool) -> tuple[Mapping[str, Any], str]:
    """The state dict in a file, its averages unless ``raw``, and which of the two they are if it has both."""
    kinds = (_WRAPPERS if raw else _AVERAGES), (_AVERAGES if raw else _WRAPPERS)
    found = [next((content[key] for key in keys if isinstance(content.get(key), Mapping)), None) for keys in kinds]
    first, other = found
    if first is None:
        return content if other is None else other, ""
    return first, "" if other is None else _RAW if raw else _AVERAGED


def _from_state_dict(
    source: str,
    content: Mapping[str, Any],
    name: str | None,
    num_classes: int | None,
    stem: str | None,
    size: int | None,
) -> Classifier:
    for argument, given in (("network", name), ("num_classes", num_classes)):
        if given is None:
            raise ValueError(f"{argument}: expected with {source}, a state dict that does not say it, got None")
    assert name is not None
    assert num_classes is not None
    # AveragedModel counts what it has averaged.
    state = {k: value for k, value in content.items() if isinstance(value, torch.Tensor) and k != "n_averaged"}
    if not state:
        inside = next(
            (f"; save its entry {key!r} alone" for key, part in content.items() if isinstance(part, Mapping)), ""
        )
        raise ValueError(
            f"{source}: expected a state dict, got a dictionary of {', '.join(map(repr, content))}{inside}"
        )
    stem = "cifar" if stem is None and name in cifar.NETWORKS else stem
    network = create(name, num_classes, stem or "imagenet")
    state, statistics = _renamed(state, network)
    if stem is None:
        first = state.get("conv1.weight") if isinstance(network, torchvision.models.ResNet) else None
        stem = "imagenet"
        if first is not None and first.shape[2:] == (3, 3):
            stem = "cifar"
            network = create(name, num_classes, stem)
    _fill(network, state, source)
    if size is None:
        size = SIDE if stem == "cifar" else 224
    mean, std = CIFAR_STATISTICS.get(num_classes, IMAGENET_STATISTICS) if size == SIDE else IMAGENET_STATISTICS
    return Classifier(
        network, name, num_classes, stem, mean=statistics.get("mean", mean), std=statistics.get("std", std),
        size=_arguments.side("size", size), resize=_resize(size), source=source,
    )  # fmt: skip


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        inside = path / "last.pt"
        got = (
            f"a folder, did you mean {inside}?" if inside.is_file() else "a folder" if path.is_dir() else "no such file"
        )
        raise FileNotFoundError(f"{path}: expected a checkpoint file, torchvision:NAME:WEIGHTS or timm:NAME; {got}")
    found: Mapping[str, Any] = _FILE.read_torch(path)
    return found


def _renamed(
    state: Mapping[str, torch.Tensor], network: nn.Module
) -> tuple[dict[str, torch.Tensor], dict[str, tuple[float, float, float]]]:
    """``state`` with the names of ``network``; and the mean and std that it holds beside the weights."""
    own = network.state_dict().keys()
    out: dict[str, torch.Tensor] = {}
    statistics = {}
    for given, value in state.items():
        key = given
        while key not in own and key.startswith(_PREFIXES):
            key = key.partition(".")[2]
        if isinstance(network, torchvision.models.ResNet):
            # The names of the widely used CIFAR ResNets, which PRIME's authors use too.
            key = re.sub(r"^linear\.", "fc.", re.sub(r"\.shortcut\.", ".downsample.", key))
        what = _STATISTICS.get(key.rpartition(".")[2])
        if key not in own and what is not None and value.numel() == 3:
            statistics[what] = _triple(value.flatten().tolist())
        elif key in out:
            raise ValueError(f"{given}: expected each weight once, got another for {key}")
        else:
            out[key] = value
    return out, statistics


def _fill(network: nn.Module, state: Mapping[str, torch.Tensor], source: str) -> None:
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


def _triple(values: Any) -> tuple[float, float, float]:
    return _arguments.triple("mean and std", values)
