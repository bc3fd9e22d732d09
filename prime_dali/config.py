"""The distributions that PRIME draws from: a frozen dataclass, and presets by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from . import _arguments

PRIMITIVES = ("spectral", "spatial", "color", "noise")
MIXINGS = ("paper", "official", "none")
SPATIAL_DISTRIBUTIONS = ("uniform", "arcsine")
BLENDS = ("dirichlet", "beta", "none")
DRAWS = ("image", "batch")
MAX_SPATIAL_CUT = 4094
MAX_COLOR_CUT = 1024
MAX_FILTER_SIZE = 31
MAX_CHAINS = MAX_DEPTH = 255
MAX_AMPLITUDE = 1e6  # csrc/core/plan.h says why

_RENAMED = {"spatial_law": "spatial_distribution"}
_OPTIONAL = ("spatial_cut", "color_cut", "color_band", "noise_std")  # numbers that may be None

# What each mixing implies where a field is None: (include_identity, random_depth, spatial_distribution, blend).
_VARIANTS: dict[str, tuple[bool, bool, str, str]] = {
    "paper": (True, False, "uniform", "dirichlet"),
    "official": (False, True, "arcsine", "beta"),
    "none": (True, False, "uniform", "none"),
}


class Distributions(NamedTuple):
    """A configuration and an image size as the numbers that the kernels draw from: the fields of ``Distributions`` in
    csrc/core/distributions.h, which says what each is, in its order."""

    height: float
    width: float
    chains: float
    depth: float
    spectral: float
    spatial: float
    color: float
    noise: float
    identity: float
    random_depth: float
    blend: float
    arcsine: float
    batch_draws: float
    alpha: float
    spectral_std_max: float
    spatial_cut: float
    spatial_cut_max: float
    color_variance_max: float
    color_cut: float
    color_cut_max: float
    color_band: float
    noise_std: float
    wave_strength: float


class PlanShape(NamedTuple):
    """The sizes of a plan that the kernels get besides its rows: the fields of ``PlanShape`` in
    csrc/core/distributions.h, which says what each is, in its order."""

    chains: int
    depth: int
    filter: int
    max_cut: int
    max_band: int
    waves: int


@dataclass(frozen=True)
class PrimeConfig:
    """The distributions of PRIME (Modas et al., ECCV 2022). The defaults are the ``imagenet`` preset.

    ``alpha``, standard deviations and variances are between 0 and 1e6, so that every strength is finite in float32.
    NumPy numbers are accepted and converted to Python numbers.

    Attributes:
        primitives: Any subset of ``("spectral", "spatial", "color", "noise")``; stored in that order. Empty: the
            chains change nothing.
        width: Chains per image, ``n`` of Algorithm 1; 1 to 255. With ``mixing="none"`` there is one chain for any
            width.
        depth: Slots per chain, ``m`` of Algorithm 1; 1 to 255.
        mixing: ``"paper"``: every slot draws from the primitives and the identity; weights Dirichlet(1, ..., 1) over
            the clean image and the chains. ``"official"``: what the published code and weights use: slots draw from the
            primitives alone, depth U{1..m} per chain, Dirichlet weights over the chains times ``b ~ Beta(1, 1)``,
            ``1 - b`` for the clean image, arcsine distributions. ``"none"``: one chain, no blend with the clean image.
        alpha: Scale of every amplitude: standard deviations, displacements and (squared) color variance. 0 returns
            the input exactly.
        spectral_size: Side of the random filter, odd, 1 to 31 pixels.
        spectral_std_max: The standard deviation of the filter's entries is U(0, spectral_std_max).
        spatial_cut_max: Largest cutoff frequency ``C``, 3 to 4094: ``c_max ~ U{3..C}``,
            ``c = floor(q (c_max - 1) + 2)``. The temperature lies between ``T1 = 1 / (pi n^2 ln c)`` and
            ``T2 = 4 / (pi^3 c^2 ln c)``, or T1 if that is larger; ``n^2`` is height x width, so that T1 means a
            shift of half a pixel for images of any shape.
        spatial_cut: A fixed cutoff frequency ``c``, 2 to 4094, instead of a random one.
        color_variance_max: The variance of the coefficients is U(0, color_variance_max).
        color_cut_max: The cutoff frequency is U{1..color_cut_max}; 1 to 1024.
        color_cut: A fixed cutoff frequency, 1 to 1024, instead of a random one.
        color_band: Number of consecutive frequencies, of which the first is U{1..cutoff}, truncated at the cutoff.
            None: all from 1 to the cutoff.
        noise_std: Standard deviation of additive noise, in units of the image range [0, 1]; must be given when, and
            only when, ``"noise"`` is among the primitives. Benchmarks of corruption robustness forbid training on
            noise.
        wave_strength: Mean strength of the planar waves that are added to the mixed image, one to every channel
            (docs/METHOD.md, "Planar waves"); a strength of 1 is a wave of amplitude ``sqrt(2) / 32``. 0: no waves. The
            published code gives 10 as its example. With ``primitives=()`` waves are all that is done.
        include_identity, random_depth, spatial_distribution, blend: Override one part of ``mixing``: the identity among
            the choices of a slot; depth U{1..m}; the distribution of ``q`` for cutoff and temperature, ``"uniform"`` or
            ``"arcsine"`` (Beta(1/2, 1/2)); the weights, ``"dirichlet"``, ``"beta"`` or ``"none"``. None: as implied by
            ``mixing``.
        draws: ``"image"``: everything is drawn anew for every image, chain and slot, so an image depends on the seed,
            its index and the epoch alone. ``"batch"``: as in the published code, the images of a batch, that is of one
            call, share all that a primitive draws but the filter's taps and the coefficients of color maps and noise:
            strength, cutoff frequencies, band and displacement fields are drawn once for a primitive and slot, for all
            images and chains (each view apart). The key of these draws is the batch's first image. So an image depends
            on the batch that it is in, also on how many processes share the images, and is not the same alone.

    Raises:
        TypeError, ValueError: A field has the wrong type or is out of range; the message names it.

    Examples:
        >>> config = prime_dali.PrimeConfig(primitives=("color", "spectral"), mixing="official", alpha=0.5)
        >>> config.primitives, config.chains
        (('spectral', 'color'), 3)
        >>> config.replace(mixing="none").chains
        1
        >>> prime_dali.PrimeConfig(alpha=-1)
        Traceback (most recent call last):
        ValueError: alpha: expected a finite number >= 0, got -1
    """

    primitives: tuple[str, ...] = ("spectral", "spatial", "color")
    width: int = 3
    depth: int = 3
    mixing: Literal["paper", "official", "none"] = "paper"
    alpha: float = 1.0
    spectral_size: int = 3
    spectral_std_max: float = 4.0
    spatial_cut_max: int = 500
    spatial_cut: int | None = None
    color_variance_max: float = 0.05
    color_cut_max: int = 500
    color_cut: int | None = None
    color_band: int | None = 20
    noise_std: float | None = None
    wave_strength: float = 0.0
    include_identity: bool | None = None
    random_depth: bool | None = None
    spatial_distribution: Literal["uniform", "arcsine"] | None = None
    blend: Literal["dirichlet", "beta", "none"] | None = None
    draws: Literal["image", "batch"] = "image"

    def __new__(cls, *_: Any, **given: Any) -> PrimeConfig:
        _refuse_old_names(given)
        return super().__new__(cls)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickle, also one from a version that called ``spatial_distribution`` ``spatial_law``."""
        fields = {name: value for name, value in state.items() if not name.startswith("_")}
        self.__init__(**with_new_names(fields))  # type: ignore[misc]

    def __post_init__(self) -> None:
        if isinstance(self.primitives, str) or not isinstance(self.primitives, (tuple, list, set, frozenset)):
            raise TypeError(f"primitives: expected a tuple of names, got {self.primitives!r}")
        for name in self.primitives:
            _arguments.one_of("primitives", name, PRIMITIVES)
        if len(set(self.primitives)) != len(self.primitives):
            raise ValueError(f"primitives: expected each name once, got {self.primitives!r}")
        object.__setattr__(self, "primitives", tuple(p for p in PRIMITIVES if p in self.primitives))
        _arguments.one_of("mixing", self.mixing, MIXINGS)
        _arguments.one_of("draws", self.draws, DRAWS)
        if self.spatial_distribution is not None:
            _arguments.one_of("spatial_distribution", self.spatial_distribution, SPATIAL_DISTRIBUTIONS)
        if self.blend is not None:
            _arguments.one_of("blend", self.blend, BLENDS)
        for name in ("include_identity", "random_depth"):
            if not isinstance(getattr(self, name), (bool, type(None))):
                raise TypeError(f"{name}: expected True, False or None, got {getattr(self, name)!r}")
        size = _arguments.odd("spectral_size", self.spectral_size, MAX_FILTER_SIZE)
        object.__setattr__(self, "spectral_size", size)
        for name, low, high in (
            ("width", 1, MAX_CHAINS), ("depth", 1, MAX_DEPTH), ("spatial_cut_max", 3, MAX_SPATIAL_CUT),
            ("color_cut_max", 1, MAX_COLOR_CUT), ("spatial_cut", 2, MAX_SPATIAL_CUT), ("color_cut", 1, MAX_COLOR_CUT),
            ("color_band", 1, MAX_COLOR_CUT),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, _arguments.integer(name, value, low, high))
        for name in ("alpha", "spectral_std_max", "color_variance_max", "noise_std", "wave_strength"):
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, _arguments.amplitude(name, value, MAX_AMPLITUDE))
        if self.noise_std is None and "noise" in self.primitives:
            raise ValueError("noise_std: expected a number when 'noise' is among the primitives, got None")
        if self.noise_std and "noise" not in self.primitives:
            raise ValueError(
                f"noise_std: expected None without 'noise' among the primitives, got {self.noise_std:g}; "
                f"primitives={(*self.primitives, 'noise')!r} adds it"
            )
        # Not a cached property: torch.compile cannot trace the lock that Python 3.10 and 3.11 have there.
        object.__setattr__(self, "_distributions", self._distributions_of_all_sizes())

    def replace(self, **changes: Any) -> PrimeConfig:
        """A copy with some fields changed. Primitives without ``"noise"`` take ``noise_std`` away.

        Raises:
            TypeError: A name is not a field; the message suggests the nearest one.
            TypeError, ValueError: As the constructor.
        """
        _refuse_old_names(changes)
        names = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise TypeError(_arguments.unknown("replace", name, names))
        chosen = changes.get("primitives")
        if isinstance(chosen, (tuple, list, set, frozenset)) and "noise" not in chosen:
            changes.setdefault("noise_std", None)
        return dataclasses.replace(self, **changes)

    @property
    def chains(self) -> int:
        """Number of chains that are computed: ``width``, or 1 without a blend."""
        return 1 if self._variant[3] == "none" else self.width

    @property
    def max_cut(self) -> int:
        """The largest spatial cutoff frequency that can be drawn; 0 without the spatial primitive."""
        if "spatial" not in self.primitives:
            return 0
        return self.spatial_cut_max if self.spatial_cut is None else self.spatial_cut

    @property
    def max_band(self) -> int:
        """The largest number of frequencies in a color band; 0 without the color primitive."""
        if "color" not in self.primitives:
            return 0
        cut = self.color_cut_max if self.color_cut is None else self.color_cut
        return cut if self.color_band is None else min(cut, self.color_band)

    @property
    def plan_shape(self) -> PlanShape:
        """The sizes of its plans that the kernels get."""
        waves = int(self.wave_strength > 0)
        return PlanShape(self.chains, self.depth, self.spectral_size, self.max_cut, self.max_band, waves)

    @property
    def _variant(self) -> tuple[bool, bool, str, str]:
        """Identity, random depth, spatial distribution and blend, from ``mixing`` where they are not set."""
        own = (self.include_identity, self.random_depth, self.spatial_distribution, self.blend)
        identity, random_depth, spatial, blend = (
            b if a is None else a for a, b in zip(own, _VARIANTS[self.mixing], strict=True)
        )
        return bool(identity), bool(random_depth), str(spatial), str(blend)

    def distributions(self, height: int = 0, width: int = 0) -> Distributions:
        """The numbers that the kernels draw from, for images of this size (pixels). The operators of torch and DALI
        take the size as separate arguments."""
        numbers: Distributions = self._distributions  # type: ignore[attr-defined]
        return Distributions(float(height), float(width), *numbers[2:])

    def _distributions_of_all_sizes(self) -> Distributions:
        """:meth:`distributions` without a size."""
        identity, random_depth, spatial_distribution, blend = self._variant
        return Distributions(
            height=0.0, width=0.0, chains=float(self.chains), depth=float(self.depth),
            **{name: float(name in self.primitives) for name in PRIMITIVES},
            identity=float(identity), random_depth=float(random_depth), blend=float(BLENDS.index(blend)),
            arcsine=float(spatial_distribution == "arcsine"), batch_draws=float(self.draws == "batch"),
            alpha=self.alpha, spectral_std_max=self.spectral_std_max,
            spatial_cut=float(self.spatial_cut or 0), spatial_cut_max=float(self.spatial_cut_max),
            color_variance_max=self.color_variance_max, color_cut=float(self.color_cut or 0),
            color_cut_max=float(self.color_cut_max), color_band=float(self.color_band or 0),
            noise_std=self.noise_std or 0.0, wave_strength=self.wave_strength,
        )  # fmt: skip


def with_new_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a configuration, perhaps saved by an earlier version, under their present names, and with what that
    version did where it had no field."""
    known = {_RENAMED.get(name, name): value for name, value in fields.items()}
    if "noise" not in known.get("primitives", ("noise",)):
        known["noise_std"] = None  # it was ignored
    return {"draws": "image", "wave_strength": 0.0, **known}


def require_image_draws(config: PrimeConfig, where: str) -> None:
    """Raise a ValueError if the images of a batch share draws; ``where``, in words, batches are arbitrary."""
    if config.draws != "image":
        raise ValueError(
            f"draws: expected 'image' {where}, where an image must not depend on the batch that it happens to be in, "
            f"got {config.draws!r}"
        )


def _refuse_old_names(given: Iterable[str]) -> None:
    for name in given:
        if name in _RENAMED:
            raise TypeError(_arguments.renamed(name, _RENAMED[name]))


_PRESETS = {
    "imagenet": PrimeConfig(),
    "cifar": PrimeConfig(spatial_cut_max=100, color_variance_max=0.01, color_cut_max=10, color_band=None),
}


takes_config = _arguments.elsewhere(
    {name: f"preset(NAME).replace({name}=...)" for name in PrimeConfig.__dataclass_fields__}
)
"""Decorates a function or a constructor with the argument ``config``, to which users might give a field of that."""


@takes_config
def preset(name: str) -> PrimeConfig:
    """The parameters of the paper's appendix for ``"imagenet"`` (224 x 224) or ``"cifar"`` (32 x 32).

    Raises:
        ValueError: Unknown name; the message suggests the nearest one.

    Examples:
        >>> prime_dali.preset("cifar").spatial_cut_max
        100
        >>> prime_dali.preset("cifr")
        Traceback (most recent call last):
        ValueError: preset: expected one of 'imagenet', 'cifar', got 'cifr'; did you mean 'cifar'?
    """
    _arguments.one_of("preset", name, _PRESETS)
    return _PRESETS[name]


def as_config(config: PrimeConfig | str) -> PrimeConfig:
    """``config`` itself if it is a PrimeConfig, or the preset with this name."""
    if isinstance(config, PrimeConfig):
        return config
    if isinstance(config, str):
        return preset(config)
    raise TypeError(f"config: expected a PrimeConfig or the name of a preset, got {type(config).__name__}")
