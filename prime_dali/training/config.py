"""The settings of a training run, and the recipes of the paper's appendix C."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from .. import _arguments
from ..config import PrimeConfig, preset
from ..data.statistics import CIFAR_STATISTICS, IMAGENET_STATISTICS

METHODS = Literal["standard", "augmix", "prime"]


@dataclass(frozen=True)
class TrainConfig:
    """A training run. The defaults are those of the recipe ``cifar10``; :data:`RECIPES` has the others.

    Raises:
        TypeError, ValueError: A setting is out of range, or two contradict each other; the message names them.
    """

    data: Annotated[str, "data set: class folders, or shards of WebDataset, TFRecord, Parquet or Hugging Face"] = ""
    val: Annotated[str, "validation set, if data is the training set alone; empty: data has both, by name"] = ""
    label: Annotated[str, "column, feature, or field of the labels in shards; empty: the usual names"] = ""
    out: Annotated[str, "folder of the run: checkpoint, log, configuration"] = ""
    recipe: Annotated[Literal["cifar10", "cifar100", "in100", "imagenet"], "recipe with the defaults"] = "cifar10"
    method: Annotated[METHODS, "augmentation in addition to crops and flips"] = "prime"
    jsd: Annotated[bool, "Jensen-Shannon loss on the clean image and two augmented views"] = False
    deepaugment: Annotated[
        tuple[str, ...], "two additional training folders with the same classes: EDSR and CAE (ImageNet)"
    ] = ()

    network: Annotated[str, "a torchvision classifier, or timm:NAME"] = "resnet18"
    stem: Annotated[Literal["cifar", "imagenet"], "cifar: 3 x 3 first convolution, no max pooling"] = "cifar"
    weights: Annotated[str, "initial weights: a file, or torchvision:NAME:WEIGHTS; empty: random"] = ""

    epochs: Annotated[int, "passes over the training set"] = 100
    batch: Annotated[int, "images per step over all processes; the learning rate scales with it"] = 128
    lr: Annotated[float, "peak learning rate at the recipe's batch size"] = 0.2
    warmup: Annotated[float, "warm-up fraction: part of all steps in which the learning rate rises"] = 0.25
    momentum: Annotated[tuple[float, ...], "minimum and maximum; cycled inversely to the learning rate"] = (0.85, 0.95)
    weight_decay: Annotated[float, "weight decay of all parameters"] = 5e-4
    clip: Annotated[float, "maximum gradient norm; 0: no clipping"] = 0.5
    jsd_weight: Annotated[float, "weight of the Jensen-Shannon term"] = 12.0
    seed: Annotated[int, "seed of all random numbers"] = 1
    limit_steps: Annotated[int, "maximum number of steps per epoch, for trials; 0: all"] = 0

    mixing: Annotated[Literal["paper", "official", "none"], "PRIME: chains and weights"] = "paper"
    alpha: Annotated[float, "PRIME: scales every amplitude"] = 1.0
    width: Annotated[int, "PRIME and AugMix: number of chains"] = 3
    depth: Annotated[int, "PRIME: slots per chain (AugMix draws 1 to 3)"] = 3
    primitives: Annotated[tuple[str, ...], "PRIME: primitives in use"] = ("spectral", "spatial", "color")
    severity: Annotated[int, "AugMix: severity, 3 for CIFAR, 1 for ImageNet"] = 3

    size: Annotated[int, "side length of the network's input, pixels"] = 32
    resize: Annotated[int, "validation: shorter side before the center crop, pixels; 0: neither resize nor crop"] = 0

    device: Annotated[Literal["auto", "cpu", "cuda"], "where to train"] = "auto"
    precision: Annotated[Literal["auto", "float32", "bfloat16"], "auto: bfloat16 on a GPU"] = "auto"
    compile: Annotated[bool, "compile the network and the loss with torch.compile"] = True
    deterministic: Annotated[bool, "bit-identical results in every run on the same machine"] = True
    workers: Annotated[int, "decoding threads per process; 0: all that it may use"] = 0
    save_minutes: Annotated[float, "minutes between checkpoints; there is always one at the end"] = 5.0
    validate_every: Annotated[int, "epochs between validations; there is always one at the end"] = 1
    log_every: Annotated[int, "steps between log lines"] = 50
    tensorboard: Annotated[bool, "also write curves for TensorBoard"] = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("epochs", 1, 10**6), ("batch", 1, 2**24), ("size", 8, _arguments.MAX_SIDE), ("workers", 0, 4096),
            ("limit_steps", 0, 10**9), ("validate_every", 1, 10**6), ("log_every", 1, 10**9), ("severity", 1, 10),
        ):  # fmt: skip
            _arguments.integer(name, getattr(self, name), low, high)
        _arguments.seed(self.seed)
        for name in ("lr", "weight_decay", "clip", "jsd_weight", "save_minutes"):
            _arguments.amplitude(name, getattr(self, name))
        if not 0 < self.warmup < 1:
            raise ValueError(f"warmup: expected a fraction of all steps between 0 and 1, got {self.warmup}")
        if len(self.momentum) != 2 or not 0 <= self.momentum[0] <= self.momentum[1] < 1:
            raise ValueError(f"momentum: expected 0 <= minimum <= maximum < 1, got {list(self.momentum)}")
        if self.jsd and self.method == "standard":
            raise ValueError("jsd: expected method augmix or prime, whose views it compares, got standard")
        if self.resize and self.resize < self.size:
            raise ValueError(f"resize: expected at least size, {self.size}, got {self.resize}")
        if self.deepaugment and (len(self.deepaugment) != 2 or self.is_cifar):
            raise ValueError(
                f"deepaugment: expected the folders EDSR and CAE, with an ImageNet recipe, got {list(self.deepaugment)}"
                f" with recipe {self.recipe}"
            )
        if self.val and self.is_cifar:
            raise ValueError(
                f"val: expected none with recipe {self.recipe}, whose data has both parts, got {self.val!r}"
            )
        self.prime()

    @property
    def is_cifar(self) -> bool:
        """Whether the data set is CIFAR, which is kept in device memory."""
        return self.recipe.startswith("cifar")

    @property
    def cifar_classes(self) -> int:
        """CIFAR's number of classes, 10 or 100."""
        return 100 if self.recipe == "cifar100" else 10

    @property
    def views(self) -> int:
        """Views per image: 3 with the Jensen-Shannon loss, otherwise 1."""
        return 3 if self.jsd else 1

    @property
    def statistics(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Mean and standard deviation per channel of the data set, on the [0, 1] scale."""
        return CIFAR_STATISTICS[self.cifar_classes] if self.is_cifar else IMAGENET_STATISTICS

    @property
    def max_lr(self) -> float:
        """The peak learning rate: ``lr``, scaled linearly with the batch size (Goyal et al., 2017)."""
        return self.lr * self.batch / RECIPES[self.recipe].get("batch", 128)

    def low_precision(self, device: str) -> bool:
        """Whether the network runs in bfloat16 on a device of this kind, ``"cpu"`` or ``"cuda"``."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device == "cuda")

    def prime(self) -> PrimeConfig:
        """The distributions of PRIME."""
        return preset("cifar" if self.is_cifar else "imagenet").replace(
            mixing=self.mixing, alpha=self.alpha, width=self.width, depth=self.depth, primitives=tuple(self.primitives)
        )

    def plain(self) -> dict[str, Any]:
        """All settings as numbers, strings and lists."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


# Settings that may change when a run resumes: they affect where and how fast it runs, but not its result.
FREE = frozenset(
    {"data", "val", "out", "device", "workers", "save_minutes", "validate_every", "log_every", "tensorboard"}
)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Changes that prevent a run from resuming, in words; both from :meth:`TrainConfig.plain`.

    Earlier versions had fewer settings; their runs are those of the defaults of the others.
    """
    old = {**TrainConfig().plain(), **old}
    return [f"{name}: {old[name]!r}, now {value!r}" for name, value in new.items()
            if name not in FREE and old[name] != value]  # fmt: skip


_IMAGENET = {"stem": "imagenet", "size": 224, "resize": 256, "batch": 256, "weight_decay": 1e-4, "severity": 1}

RECIPES: dict[str, dict[str, Any]] = {
    "cifar10": {},
    "cifar100": {},
    "in100": {**_IMAGENET, "jsd": True},
    "imagenet": {
        **_IMAGENET, "network": "resnet50", "weights": "torchvision:resnet50:IMAGENET1K_V1", "lr": 0.01, "warmup": 0.1,
        "clip": 0.0,
    },
}  # fmt: skip
"""Differences from the defaults of :class:`TrainConfig` (the paper's appendix C; docs/METHOD.md, "Training")."""


def defaults(recipe: str, method: str) -> dict[str, Any]:
    """The settings that a recipe implies for a method: with PRIME or AugMix, all except ImageNet's use the JSD loss.

    Raises:
        ValueError: The recipe is unknown.
    """
    if recipe not in RECIPES:
        raise ValueError(_arguments.unknown("recipe", recipe, RECIPES))
    return {**RECIPES[recipe], "recipe": recipe, "method": method, "jsd": method != "standard" and recipe != "imagenet"}
