"""Classifiers: networks from checkpoints, published weights and plain state dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import _extras

with _extras.importing(__name__, "train"):
    import torch
    import torchvision
    from torch import nn
    from torchvision.transforms import InterpolationMode

from .. import _arguments
from .._states import Kind
from ..data.cifar import SIDE
from ..data.statistics import CIFAR_STATISTICS, IMAGENET_STATISTICS
from . import cifar, state_dicts
from .creation import create, timm, timm_model, torchvision_names, unknown_network

FORMAT, VERSION = "prime-dali", 1

INTERPOLATIONS = tuple(mode.value for mode in InterpolationMode)
"""Of the resize of test images."""


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
    interpolation: str = "bilinear"
    """Of the resize of test images: bilinear, bicubic or another of torchvision's modes."""

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
        "size": classifier.size, "resize": classifier.resize, "interpolation": classifier.interpolation,
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
            ``cifar`` stem, that of timm for a network of timm, else 224.
        mean, std: Normalization constants that override those of the source. If neither defines them: those of CIFAR
            for 32 x 32 images of 10 or 100 classes, those of timm for a network of timm, else those of ImageNet.
        raw: Use the weights of the last step of a checkpoint that also has their averages.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: Published weights cannot be downloaded.
        ValueError: The file is not a checkpoint, or belongs to another network, width or number of classes; the message
            has the first keys that are missing, unexpected or of another shape. Or an argument disagrees with the
            source, or ``raw`` is given for one without averages. Or the normalization is not on the [0, 1] scale.
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
            state, label = state_dicts.weights(content, raw)
            overridden = mean is not None and std is not None
            constants = None if overridden else state_dicts.normalized_by(content)
            classifier = _from_state_dict(text, state, network, num_classes, stem, size, constants)
            classifier = replace(classifier, source=text + label)
    if raw and not classifier.source.endswith(state_dicts.RAW):
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
    try:
        _arguments.channels(classifier.mean, classifier.std)
    except ValueError as error:  # of what the source has
        raise ValueError(f"{text}: {error}; give mean and std to replace those of this file") from error
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
        size=seen.crop_size[0], resize=seen.resize_size[0], interpolation=seen.interpolation.value,
        source=f"torchvision:{name}:{weights.name}",
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
    classifier = Classifier(network, source, network.num_classes, source=source)
    return replace(classifier, **_timm_validation(network, None))


def _timm_validation(network: nn.Module, size: int | None) -> dict[str, Any]:
    """How timm validates a network of its own, by the names of :class:`Classifier`, with images of this size or its."""
    seen = timm("data").resolve_model_data_config(network)
    if size is None:  # that of the option img_size, of networks whose images are divided into patches
        size = (getattr(getattr(network, "patch_embed", None), "img_size", None) or seen["input_size"][1:])[0]
    return {
        "mean": _triple(seen["mean"]), "std": _triple(seen["std"]), "size": size,
        "resize": _resize(size, seen["crop_pct"]), "interpolation": seen["interpolation"],
    }  # fmt: skip


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
    interpolation = content.get("interpolation", Classifier.interpolation)  # earlier versions have none
    if "ema" in content:
        state, label = (state, state_dicts.RAW) if raw else (content["ema"], state_dicts.AVERAGED)
        if not isinstance(state, dict):
            raise _CHECKPOINT.error(source, f"ema: expected a mapping, got {type(state).__name__}")
    try:
        network = create(what["name"], what["num_classes"], what["stem"])
        mean, std = _triple(content["mean"]), _triple(content["std"])
        _arguments.one_of("interpolation", interpolation, INTERPOLATIONS)
    except (TypeError, ValueError) as error:
        raise _CHECKPOINT.error(source, error) from error
    classifier = Classifier(
        network, what["name"], what["num_classes"], what["stem"], None if classes is None else tuple(classes),
        mean, std, content["size"], content["resize"], source + label,
        interpolation=interpolation,
    )  # fmt: skip
    if classifier.classes is not None and len(classifier.classes) != classifier.num_classes:
        raise ValueError(f"{source}: expected {classifier.num_classes} names of classes, got {len(classifier.classes)}")
    if len(set(classes or ())) != len(classes or ()):
        raise _CHECKPOINT.error(source, "classes: expected each name once")
    state_dicts.fill(network, state, source)
    known = {
        "format", "version", "network", "model", "ema", "classes", "mean", "std", "size", "resize", "interpolation",
    }  # fmt: skip
    details = {key: value for key, value in content.items() if key not in known}
    return replace(classifier, details=details)


def _from_state_dict(
    source: str,
    content: Mapping[str, Any],
    name: str | None,
    num_classes: int | None,
    stem: str | None,
    size: int | None,
    statistics: Mapping[str, tuple[float, float, float]] | None,
) -> Classifier:
    """The network of a plain state dict.

    Args:
        statistics: Mean and std as far as the file has them elsewhere; None: the caller overrides all that it has.
    """
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
    state, beside = state_dicts.renamed(state, network)
    statistics = {} if statistics is None else {**statistics, **beside}
    if stem is None:
        first = state.get("conv1.weight") if isinstance(network, torchvision.models.ResNet) else None
        stem = "imagenet"
        if first is not None and first.shape[2:] == (3, 3):
            stem = "cifar"
            network = create(name, num_classes, stem)
    state_dicts.fill(network, state, source)
    if size is not None:
        _arguments.side("size", size)
    if hasattr(network, "pretrained_cfg"):  # of timm
        seen = _timm_validation(network, size)
    else:
        size = size or (SIDE if stem == "cifar" else 224)
        seen = {"size": size, "resize": _resize(size)}
    if seen["size"] == SIDE and num_classes in CIFAR_STATISTICS:
        seen |= dict(zip(("mean", "std"), CIFAR_STATISTICS[num_classes], strict=True))
    if len(statistics) == 1:
        raise ValueError(
            f"{source}: expected both mean and std of the normalization beside the weights, or neither, got "
            f"{next(iter(statistics))} alone; give mean and std"
        )
    return Classifier(network, name, num_classes, stem, source=source, **{**seen, **statistics})


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        inside = path / "last.pt"
        got = (
            f"a folder, did you mean {inside}?" if inside.is_file() else "a folder" if path.is_dir() else "no such file"
        )
        raise FileNotFoundError(f"{path}: expected a checkpoint file, torchvision:NAME:WEIGHTS or timm:NAME; {got}")
    found: Mapping[str, Any] = _FILE.read_torch(path)
    return found


def _triple(values: Any) -> tuple[float, float, float]:
    return _arguments.triple("mean and std", values)
