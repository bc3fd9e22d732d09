"""The settings of a training run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from .. import _arguments
from .._wording import plural
from ..config import MAX_AMPLITUDE, PrimeConfig, preset
from ..data.statistics import CIFAR_STATISTICS, IMAGENET_STATISTICS
from .recipes import RECIPES

METHODS = Literal["standard", "augmix", "prime"]
NAMES = Literal[
    "cifar10", "cifar100", "in100", "imagenet", "tinyimagenet", "cifar10-fast", "cifar10-vit", "cifar10-convnext",
    "cifar100-vit", "cifar100-convnext", "imagenet-vit", "imagenet-convnext", "tinyimagenet-vit",
    "tinyimagenet-convnext",
]  # fmt: skip
MOST_SIZES = 8  # torch.compile compiles a function for so many shapes, and then runs it uncompiled


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
    recipe: Annotated[NAMES, "recipe with the defaults"] = "cifar10"
    method: Annotated[METHODS, "augmentation in addition to crops and flips"] = "prime"
    jsd: Annotated[bool, "Jensen-Shannon loss on the clean image and its augmented views"] = False
    jsd_views: Annotated[
        int, "views that the Jensen-Shannon loss compares: 3, or 2 without the second augmented one"
    ] = 3
    deepaugment: Annotated[
        tuple[str, ...], "two additional training folders with the same classes: EDSR and CAE (ImageNet)"
    ] = ()

    network: Annotated[
        str,
        "a torchvision classifier, wrn_40_2 or resnext29_4x32d for CIFAR, or timm:NAME, or timm:NAME:OPTION=VALUE,...",
    ] = "resnet18"
    stem: Annotated[Literal["cifar", "imagenet"], "cifar: 3 x 3 first convolution, no max pooling"] = "cifar"
    weights: Annotated[str, "initial weights: a file, or torchvision:NAME:WEIGHTS; empty: random"] = ""

    drop_path: Annotated[
        float, "stochastic depth: rate of the last block, 0 to 1, for networks that have it; 0: as published"
    ] = 0.0

    epochs: Annotated[int, "passes over the training set"] = 100
    batch: Annotated[int, "images per step over all processes; the learning rate scales with it"] = 128
    accumulate: Annotated[int, "parts of a batch that go through the network one after the other, to save memory"] = 1
    optimizer: Annotated[
        Literal["sgd", "adamw", "muon"], "sgd: with Nesterov momentum; muon: orthogonalized momentum for hidden layers"
    ] = "sgd"
    muon_sgd_lr_scale: Annotated[
        float, "Muon: scale of lr for biases, norm layers, the first and the last layer, which SGD trains"
    ] = 2.5
    schedule: Annotated[
        Literal["onecycle", "cosine", "linear"],
        "cosine: linear warm-up, then half a cosine to 0; linear: then linearly to 0; onecycle: a cosine up and down",
    ] = "onecycle"
    lr: Annotated[float, "peak learning rate at the recipe's batch size"] = 0.2
    warmup: Annotated[
        float, "warm-up fraction: part of all steps in which the learning rate rises; 0: it begins at the peak"
    ] = 0.25
    momentum: Annotated[
        tuple[float, ...],
        "minimum and maximum of momentum, or of AdamW's beta 1; onecycle cycles it inversely to the learning rate, "
        "the others keep the maximum",
    ] = (0.85, 0.95)
    beta2: Annotated[float, "AdamW: decay of the mean squared gradient"] = 0.999
    weight_decay: Annotated[float, "weight decay of all parameters; with Muon of those that SGD trains"] = 5e-4
    exclude_1d: Annotated[bool, "no weight decay of biases, norm layers and what timm's network excludes"] = False
    layer_decay: Annotated[
        float, "layer-wise decay: factor of the learning rate from each layer to the one before; networks of timm"
    ] = 1.0
    clip: Annotated[float, "maximum gradient norm; 0: no clipping"] = 0.5
    jsd_weight: Annotated[float, "weight of the Jensen-Shannon term"] = 12.0
    label_smoothing: Annotated[float, "part of each label that is spread over all classes, 0 to 1"] = 0.0
    ema_decay: Annotated[
        float, "decay of the average of the weights (EMA), which is validated and saved beside them; 0: no average"
    ] = 0.0
    seed: Annotated[int, "seed of all random numbers"] = 1
    limit_steps: Annotated[
        int, "for trials: maximum number of steps per epoch; a validation has at most as many images; 0: all"
    ] = 0

    mixing: Annotated[Literal["paper", "official", "none"], "PRIME: chains and weights"] = "paper"
    draws: Annotated[
        Literal["image", "batch"], "PRIME: what primitives draw, anew for each image, or once for each process's batch"
    ] = "image"
    spatial_distribution: Annotated[
        Literal["mixing", "uniform", "arcsine"], "PRIME: distribution of spatial strengths; mixing: what that implies"
    ] = "mixing"
    color_cut_max: Annotated[
        int, "PRIME: largest cutoff frequency of color maps, 1 to 1024; 0: that of the preset, 10 (CIFAR) or 500"
    ] = 0
    alpha: Annotated[float, "PRIME: scales every amplitude"] = 1.0
    alpha_start: Annotated[
        float, "PRIME: part of alpha in the first epoch, from which it goes linearly to all of it in the last one"
    ] = 1.0
    width: Annotated[int, "PRIME and AugMix: number of chains"] = 3
    depth: Annotated[int, "PRIME: slots per chain (AugMix draws 1 to 3)"] = 3
    primitives: Annotated[tuple[str, ...], "PRIME: primitives in use"] = ("spectral", "spatial", "color")
    wave_strength: Annotated[float, "PRIME: mean strength of the planar waves added after the mix; 0: none"] = 0.0
    severity: Annotated[int, "AugMix: severity, 3 for CIFAR, 1 for ImageNet"] = 3

    mixup: Annotated[float, "mixup: alpha of its Beta distribution; 0: none; with cutmix, one of both per step"] = 0.0
    cutmix: Annotated[float, "CutMix: alpha of its Beta distribution; 0: none"] = 0.0
    mix_order: Annotated[Literal["after", "before"], "mixup and CutMix after or before PRIME or AugMix"] = "after"

    size: Annotated[int, "side length of the network's input, pixels"] = 32
    sizes: Annotated[
        tuple[int, ...],
        "progressive resizing: sides of training images, each for an equal part of the epochs; none: size",
    ] = ()
    crop_area: Annotated[float, "minimum part of the area in random resized crops, of image files"] = 0.08
    resize: Annotated[int, "validation: shorter side before the center crop, pixels; 0: neither resize nor crop"] = 0

    device: Annotated[Literal["auto", "cpu", "cuda"], "where to train"] = "auto"
    precision: Annotated[Literal["auto", "float32", "bfloat16"], "auto: bfloat16 on a GPU"] = "auto"
    compile: Annotated[bool, "compile the network and the loss with torch.compile"] = True
    deterministic: Annotated[bool, "bit-identical results in every run on the same machine"] = True
    workers: Annotated[int, "decoding threads per process; 0: its part of the cores"] = 0
    save_minutes: Annotated[float, "minutes between checkpoints; there is always one at the end"] = 5.0
    validate_every: Annotated[int, "epochs between validations; there is always one at the end"] = 1
    log_every: Annotated[int, "steps between log lines"] = 50
    tensorboard: Annotated[bool, "also write curves for TensorBoard"] = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("epochs", 1, 10**6), ("batch", 1, 2**24), ("workers", 0, 4096),
            ("limit_steps", 0, 10**9), ("validate_every", 1, 10**6), ("log_every", 1, 10**9), ("severity", 1, 10),
            ("accumulate", 1, 2**24), ("jsd_views", 2, 3),
        ):  # fmt: skip
            _arguments.integer(name, getattr(self, name), low, high)
        _arguments.side("size", self.size)
        _arguments.seed(self.seed)
        for name in (
            "weight_decay", "clip", "jsd_weight", "save_minutes", "mixup", "cutmix", "alpha_start",
        ):  # fmt: skip
            _arguments.amplitude(name, getattr(self, name))
        for name in ("lr", "muon_sgd_lr_scale"):
            if not _arguments.amplitude(name, getattr(self, name)):
                raise ValueError(
                    f"{name}: expected more than 0, as nothing is learned with 0, got {getattr(self, name)}"
                )
        for name in ("drop_path", "label_smoothing", "ema_decay", "beta2"):
            if _arguments.amplitude(name, getattr(self, name)) >= 1:
                raise ValueError(f"{name}: expected at least 0 and less than 1, got {getattr(self, name)}")
        for name in ("layer_decay", "crop_area"):
            if not 0 < _arguments.amplitude(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name}: expected more than 0 and at most 1, got {getattr(self, name)}")
        self._check_unused()
        self._check_schedule()
        self._check_augmentation()
        self._check_images()
        for epoch in (0, self.epochs - 1):
            self.prime(epoch)

    def unread(self) -> dict[str, str]:
        """The settings that the run does not read, and what is wrong with giving them to it: the end of a message."""
        method, optimizer = f"--method {self.method}", f"--optimizer {self.optimizer}"
        prime = self.method == "prime"
        drawn = f"--primitives {' '.join(map(str, self.primitives))}".rstrip()
        return _arguments.unread(
            (self.jsd, "--jsd", "--no-jsd", "jsd_views jsd_weight"),
            (self.optimizer == "muon", "--optimizer muon", optimizer, "muon_sgd_lr_scale"),
            (self.optimizer == "adamw", "--optimizer adamw", optimizer, "beta2"),
            (self.mixes, "--mixup or --cutmix", "neither of them", "mix_order"),
            (not self.is_cifar, "a recipe of image files", f"--recipe {self.recipe}", "resize crop_area"),
            ("spatial" in self.primitives, "--primitives spatial", drawn, "spatial_distribution"),
            ("color" in self.primitives, "--primitives color", drawn, "color_cut_max"),
            (not prime or self.mixing != "none", "--mixing paper or official", f"--mixing {self.mixing}", "width"),
            (self.method == "augmix", "--method augmix", method, "severity"),
            (self.method != "standard", "--method prime or augmix", method, "width"),
            (prime, "--method prime", method, "mixing draws alpha alpha_start depth primitives wave_strength "
             "spatial_distribution color_cut_max"),
        )  # fmt: skip

    def _check_unused(self) -> None:
        """Settings that the recipe does not have keep their defaults where they are not read. With PRIME, the runs of a
        grid over ``primitives`` may share those of single primitives."""
        names = ["draws", "wave_strength", "alpha_start", "muon_sgd_lr_scale", "resize", "crop_area"]
        names += [] if self.method == "prime" else ["spatial_distribution", "color_cut_max"]
        unread = self.unread()
        for name in names:
            if name in unread and getattr(self, name) != getattr(TrainConfig, name):
                raise ValueError(f"{name}: {unread[name]}")

    def _check_schedule(self) -> None:
        if self.optimizer == "muon" and self.schedule == "onecycle":
            raise ValueError("schedule: expected cosine or linear with muon, whose momentum is constant, got onecycle")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup: expected a fraction of all steps, at least 0 and less than 1, got {self.warmup}")
        if len(self.momentum) != 2 or not 0 <= self.momentum[0] <= self.momentum[1] < 1:
            raise ValueError(f"momentum: expected two numbers, 0 <= minimum <= maximum < 1, got {list(self.momentum)}")
        if self.batch % self.accumulate:
            raise ValueError(
                f"accumulate: expected a divisor of batch, {self.batch}, so that all parts are equal, "
                f"got {self.accumulate}"
            )

    def _check_augmentation(self) -> None:
        if self.jsd and self.method == "standard":
            raise ValueError("jsd: expected method augmix or prime, whose views it compares, got standard")
        if self.alpha_start != 1 and self.epochs == 1:
            raise ValueError(f"alpha_start: expected 1 with a single epoch, got {self.alpha_start}; use alpha")
        if self.alpha <= MAX_AMPLITUDE < self.alpha_at(0):
            limit = f"{MAX_AMPLITUDE / self.alpha:g} with alpha {self.alpha:g}"
            raise ValueError(f"alpha_start: expected at most {limit}, got {self.alpha_start:g}")
        if self.mix_order == "before" and (self.method == "standard" or not self.mixes):
            got = "method standard" if self.mixes else "neither mixup nor cutmix"
            raise ValueError(f"mix_order: expected mixup or cutmix, and method prime or augmix, with before, got {got}")

    def _check_images(self) -> None:
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
        for side in self.sizes:
            _arguments.side("sizes", side)
        most = min(MOST_SIZES, self.epochs)
        if len(self.sizes) > most:
            raise ValueError(
                f"sizes: expected at most {most} (one per epoch, and {MOST_SIZES} in all), got {len(self.sizes)}"
            )

    @property
    def dataset(self) -> str:
        """The data set of the recipe: its name up to a hyphen."""
        return self.recipe.partition("-")[0]

    @property
    def mixes(self) -> bool:
        """Whether images are mixed, by mixup or CutMix; labels are then soft."""
        return self.mixup > 0 or self.cutmix > 0

    @property
    def augments_files(self) -> bool:
        """Whether the pipeline of image files also augments them; otherwise that is done on its batches."""
        return self.method != "augmix" and not (self.mixes and self.mix_order == "before")

    def share(self, world: int) -> int:
        """Images of a step per process; ValueError unless that is a number, of equal parts that can be mixed."""
        if self.batch % world:
            raise ValueError(f"batch: expected a multiple of the {world} processes, got {self.batch}")
        share = self.batch // world
        if share % self.accumulate:
            raise ValueError(
                f"accumulate: expected a divisor of the {plural(share, 'image')} of each process, got {self.accumulate}"
            )
        if self.mixes and share < 2:
            raise ValueError("batch: expected two images or more per process with mixup or CutMix, got 1")
        return share

    def also(self) -> str:
        """What a run does besides its method, in words for its user, after a comma; empty: nothing."""
        found = {
            "JSD loss": self.jsd, "two views": self.views == 2,
            f"mixup {self.mixup:g}": self.mixup, f"CutMix {self.cutmix:g}": self.cutmix,
            f"{self.spatial_distribution} spatial strengths": self.spatial_distribution != "mixing",
            f"color cutoffs up to {self.color_cut_max}": self.color_cut_max, "draws per batch": self.draws == "batch",
            f"alpha from {self.alpha_at(0):g}": self.alpha_at(0) != self.alpha,
            f"waves of strength {self.wave_strength:g}": self.wave_strength,
            "mixed before augmentation": self.mix_order == "before",
            f"label smoothing {self.label_smoothing:g}": self.label_smoothing,
            f"stochastic depth {self.drop_path:g}": self.drop_path, "AdamW": self.optimizer == "adamw",
            "Muon": self.optimizer == "muon",
            f"layer decay {self.layer_decay:g}": self.layer_decay < 1, f"EMA {self.ema_decay:g}": self.ema_decay,
            f"batches in {self.accumulate} parts": self.accumulate > 1,
            f"sizes {' '.join(map(str, self.sizes))}": self.sizes,
        }  # fmt: skip
        return "".join(f", {words}" for words, true in found.items() if true)

    def epoch_at(self, step: int, steps: int) -> int:
        """The epoch of a step, up to the last one, if an epoch has ``steps`` steps, or fewer in a trial."""
        return min(step // min(steps, self.limit_steps or steps), self.epochs - 1)

    def side(self, epoch: int) -> int:
        """Side of the training images in an epoch, pixels."""
        return self.sizes[epoch * len(self.sizes) // self.epochs] if self.sizes else self.size

    @property
    def is_cifar(self) -> bool:
        """Whether the data set is CIFAR, which is kept in device memory."""
        return self.recipe.startswith("cifar")

    @property
    def cifar_classes(self) -> int:
        """CIFAR's number of classes, 10 or 100."""
        return 100 if self.dataset == "cifar100" else 10

    @property
    def views(self) -> int:
        """Views per image: ``jsd_views`` with the Jensen-Shannon loss, otherwise 1."""
        return self.jsd_views if self.jsd else 1

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

    def alpha_at(self, epoch: int) -> float:
        """PRIME's alpha in an epoch."""
        done = epoch / (self.epochs - 1) if self.epochs > 1 else 1.0
        return self.alpha * (self.alpha_start + (1 - self.alpha_start) * done)

    def prime(self, epoch: int) -> PrimeConfig:
        """The distributions of PRIME in an epoch."""
        distribution = None if self.spatial_distribution == "mixing" else self.spatial_distribution
        base = preset("cifar" if self.is_cifar else "imagenet")
        return base.replace(
            color_cut_max=self.color_cut_max or base.color_cut_max,
            mixing=self.mixing, spatial_distribution=distribution, draws=self.draws, alpha=self.alpha_at(epoch),
            width=self.width, depth=self.depth, primitives=tuple(self.primitives), wave_strength=self.wave_strength,
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """All settings as numbers, strings and lists."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


# Settings that may change when a run resumes: they affect where and how fast it runs, but not its result.
FREE = frozenset(
    {"data", "val", "out", "device", "workers", "save_minutes", "validate_every", "log_every", "tensorboard"}
)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Changes that prevent a run from resuming, in words; both from :meth:`TrainConfig.plain`.

    A run of an earlier version lacks settings that it did not have: their defaults are what it did.
    """
    old = {**_DEFAULTS, **old}
    return [f"{name}: {old.get(name)!r}, now {value!r}" for name, value in new.items()
            if name not in FREE and old.get(name) != value]  # fmt: skip


_DEFAULTS = TrainConfig().plain()


def defaults(recipe: str, method: str, network: str | None = None) -> dict[str, Any]:
    """The settings that a recipe implies for a method; no recipe has a JSD loss in standard training. Its initial
    weights are those of its network, and of no other ``network`` that is given.

    Raises:
        ValueError: The recipe is unknown.
    """
    _arguments.one_of("recipe", recipe, RECIPES)
    own = RECIPES[recipe]
    implied = {**own, "recipe": recipe, "method": method, "jsd": method != "standard" and own.get("jsd", True)}
    if network not in (None, own.get("network")):
        implied.pop("weights", None)
    return implied
