"""Plans: all that was drawn for a batch of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _arrays, _memory, _slots, random
from ._slots import COLOR, IDENTITY, NAMES, SPATIAL
from ._wording import plural
from .config import MAX_CHAINS, MAX_COLOR_CUT, MAX_DEPTH, MAX_FILTER_SIZE, MAX_SPATIAL_CUT, PlanShape, PrimeConfig

_MAX_WEIGHT = 1 + 1 / 512  # with the tolerance of csrc/core/plan.h
_LIMITS = {
    "chains": (1, MAX_CHAINS), "depth": (1, MAX_DEPTH), "filter_size": (1, MAX_FILTER_SIZE),
    "max_cut": (0, MAX_SPATIAL_CUT), "max_band": (0, MAX_COLOR_CUT), "views": (1, _arguments.MAX_VIEWS),
    "channels": (1, _arguments.MAX_CHANNELS),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Plan:
    """All that was drawn for a batch: the augmented images depend only on the images and the plan.

    Row ``r`` of the plan makes output ``r`` from image ``r % batch``. A plan of several views contains the rows of the
    first view, then those of the second, and so on. The properties below are views of ``rows`` (torch, NumPy or CuPy,
    like ``rows``), so they can be read and edited in place. Applying an invalid plan on the CPU raises an error, see
    :meth:`validate`. On a GPU the plan is not read back: an image with an invalid slot becomes NaN (black in uint8),
    and weights are not checked.

    Attributes:
        rows: int32 ``[views * batch, words]``; layout in csrc/core/plan.h.
        size: ``(height, width)`` of the images, pixels, 8 to 4096 each; an int for squares.
        chains: Chains per image, 1 to 255.
        depth: Slots per chain, 1 to 255.
        filter_size: Side of the spectral filter, odd, 1 to 31.
        max_cut: The largest spatial cutoff frequency, 0 to 4094; 0: no spatial slot. Determines the workspace's size.
        max_band: The most frequencies in a color band, 0 to 1024; 0: no color slot. Determines the workspace's size.
        views: Augmented images per input image, 1 to 16.
        channels: Of the images, 1 to 16. Rows do not depend on it.
        waves: Whether planar waves are added after the mix; then each row has a :attr:`wave_strength`.

    Raises:
        TypeError, ValueError: A field has the wrong type, dtype, shape or range; the message names it.

    Examples:
        >>> plan = prime_dali.sample("cifar", np.arange(2), size=32, seed=1, view=("clean", 0))
        >>> plan.batch, plan.weights.shape, plan.strength.shape
        (2, (4, 4), (4, 3, 3))
        >>> plan.strength[plan.batch :] *= 0.5  # the second view half as strong
        >>> plan.validate()
    """

    rows: Any
    size: tuple[int, int]
    chains: int
    depth: int
    filter_size: int
    max_cut: int
    max_band: int
    views: int = 1
    channels: int = 3
    waves: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _arguments.image_size("size", self.size))
        for name, limits in _LIMITS.items():
            object.__setattr__(self, name, _arguments.integer(name, getattr(self, name), *limits))
        if isinstance(self.rows, np.ndarray):
            object.__setattr__(self, "rows", _memory.numpy_array("rows", self.rows))
        self.check()

    def check(self) -> None:
        """Check the fields as the constructor does: unpickling and assignments bypass it.

        Every interface calls this before it passes an address to the kernels. The numbers in ``rows`` are not read;
        :meth:`validate` does that.
        """
        _arguments.image_size("size", self.size)
        for name, limits in _LIMITS.items():
            _arguments.integer(name, getattr(self, name), *limits)
        if not isinstance(self.waves, bool):
            raise TypeError(f"waves: expected True or False, got {self.waves!r}")
        _arguments.odd("filter_size", self.filter_size, MAX_FILTER_SIZE)
        rows, words = self.rows, row_words(self.chains, self.depth, self.waves)
        wanted = f"rows: expected int32 [{self.views} * batch, {words}]"
        if hasattr(rows, "detach"):
            import torch

            _memory.check_tensor("rows", rows)
            int32: Any = torch.int32
        elif isinstance(rows, np.ndarray) or hasattr(rows, "__cuda_array_interface__"):
            int32 = np.dtype(np.int32)
        else:
            raise TypeError(f"{wanted} of NumPy, CuPy or torch, got {type(rows).__name__}")
        shape = list(rows.shape)
        if rows.dtype != int32:
            raise TypeError(f"{wanted}, got {rows.dtype} {shape}; convert it to int32 first")
        if len(shape) != 2 or shape[1] != words or shape[0] % self.views:
            waves = " and waves" if self.waves else ""
            shaped = f"{plural(self.chains, 'chain')} of depth {self.depth}{waves}"
            raise ValueError(f"{wanted} for {shaped}, got int32 {shape}")

    def validate(self) -> None:
        """Raise an error unless every row is valid. A plan on a GPU is copied to the host first, which synchronizes.

        Weights are >= 0 and sum to 1 within 1/512, half a step of 8 bits; primitives are known; strengths, also those
        of waves, are 0 to 1e20; spatial cutoffs at most ``max_cut``; color bands lie within 1 to 1024 and have at most
        ``max_band`` frequencies.
        Every plan that is applied on the CPU is validated, also under ``torch.compile``.

        Raises:
            ValueError: A row is invalid; the message names the row, the slot and its values.
        """
        self.check()
        rows = np.ascontiguousarray(self.numpy().rows)
        _arrays.validate(rows, self.shape)

    @classmethod
    def of(cls, config: PrimeConfig, rows: Any, size: tuple[int, int], views: int, channels: int) -> Plan:
        """A plan with these rows, which are (or will be) drawn from ``config``."""
        return cls(rows, size, *config.plan_shape[:-1], views, channels, waves=config.wave_strength > 0)

    @classmethod
    def build(
        cls,
        slots: Sequence[Sequence[Sequence[tuple[str, float] | tuple[str, float, int] | tuple[str, float, int, int]]]],
        *,
        size: int | Sequence[int],
        weights: Sequence[Sequence[float]] | None = None,
        filter_size: int = 3,
        channels: int = 3,
        seed: int = 0,
        waves: Sequence[float] | None = None,
    ) -> Plan:
        """A plan written by hand, as NumPy: for tests, figures and experiments.

        Args:
            slots: ``slots[image][chain]`` lists ``(primitive, strength)`` for spectral, noise and identity,
                ``("spatial", strength, cut)`` and ``("color", strength, first, last)``. Shorter chains are padded
                with the identity. Strengths are those of :attr:`strength`.
            size: ``(height, width)`` of the images, or an int.
            weights: Per image, ``lambda_0 .. lambda_n``, each >= 0, with a sum of 1 within 1/512; default: equal
                weights for the chains, 0 for the clean image.
            filter_size: Side of the spectral filter.
            channels: Of the images, 1 to 16.
            seed: Seed of the Philox keys: image ``i`` uses index ``i``. An int of 64 bits.
            waves: Per image, the mean strength of its planar waves (:attr:`wave_strength`). None: no waves.

        Raises:
            TypeError, ValueError: An unknown primitive; a strength, cutoff, band or weight out of range; or
                inconsistent sizes.

        Examples:
            >>> plan = prime_dali.Plan.build([[[("noise", 0.25), ("color", 0.5, 2, 9)]]], size=(32, 48))
            >>> print(plan.describe(0))
            noise σ=0.25, color T=0.25 f=2..9
        """
        seed = _arguments.seed(seed)
        chains = max((len(image) for image in slots), default=1) or 1
        depth = max((len(chain) for image in slots for chain in image), default=1) or 1
        rows = np.zeros((len(slots), row_words(chains, depth, int(waves is not None))), np.int32)
        height_width = _arguments.image_size("size", size)
        sizes = (height_width, chains, depth, filter_size, 0, 0)
        plan = cls(rows, *sizes, channels=channels, waves=waves is not None)
        for r, image in enumerate(slots):
            plan.stream[r] = random.stream(seed, r, 0, 0).view(np.int32)
            for i, chain in enumerate(image):
                for j, slot in enumerate(chain):
                    drawn = _slots.checked(f"slots[{r}][{i}][{j}]", slot)
                    plan.primitive[r, i, j], plan.strength[r, i, j], plan.first[r, i, j], plan.last[r, i, j] = drawn
        given = [[0.0] + [1.0 / chains] * chains] * len(slots) if weights is None else weights
        if len(given) != len(slots):
            raise ValueError(f"weights: expected those of {plural(len(slots), 'image')}, got {len(given)}")
        for r, numbers in enumerate(given):
            if len(numbers) != chains + 1:
                raise ValueError(f"weights[{r}]: expected {chains + 1} numbers, got {len(numbers)}")
            plan.weights[r] = [_arguments.amplitude(f"weights[{r}]", weight, _MAX_WEIGHT) for weight in numbers]
        if waves is not None:
            if np.shape(waves) != (len(slots),):
                raise ValueError(f"waves: expected a number for each of {plural(len(slots), 'image')}, got {waves!r}")
            limit = _slots.MAX_STRENGTH
            plan.wave_strength[:] = [_arguments.amplitude(f"waves[{r}]", wave, limit) for r, wave in enumerate(waves)]
        cuts = plan.last[plan.primitive == SPATIAL]
        bands = (plan.last - plan.first + 1)[plan.primitive == COLOR]
        built = dataclasses.replace(plan, max_cut=int(cuts.max(initial=0)), max_band=int(bands.max(initial=0)))
        built.validate()
        return built

    @property
    def shape(self) -> PlanShape:
        """The sizes that the kernels get besides the rows."""
        return PlanShape(self.chains, self.depth, self.filter_size, self.max_cut, self.max_band, int(self.waves))

    def check_images(self, batch: int, channels: int, size: tuple[int, int]) -> None:
        """:meth:`check`, and ValueError unless it was drawn for such images, or clips, and so many."""
        self.check()
        if channels != self.channels:
            drawn = f"plan: drawn for images of {plural(self.channels, 'channel')}, got {channels}"
            raise ValueError(f"{drawn}; sample it with channels={channels}")
        if size != self.size:
            raise ValueError(f"plan: drawn for images of {self.size[0]} x {self.size[1]}, got {size[0]} x {size[1]}")
        if self.batch != batch:
            raise ValueError(f"plan: drawn for {plural(self.batch, 'image')}, got {batch}")

    @property
    def batch(self) -> int:
        """Number of input images."""
        batch: int = self.rows.shape[0] // self.views  # int(...) would fix a size that torch.export keeps open
        return batch

    @property
    def stream(self) -> Any:
        """int32 ``[rows, 4]``: the Philox key of each augmented image, from seed, index, epoch and view."""
        return self.rows[:, :4]

    @property
    def weights(self) -> Any:
        """float32 ``[rows, chains + 1]``: lambda_0 (the clean image) to lambda_n; they sum to 1."""
        return _as_float32(self.rows[:, 4 : 5 + self.chains])

    def _slots(self) -> Any:
        words = self.rows[:, 5 + self.chains : row_words(self.chains, self.depth, 0)]
        return words.reshape(self.rows.shape[0], self.chains, self.depth, 4)

    @property
    def primitive(self) -> Any:
        """int32 ``[rows, chains, depth]``: 0 identity, 1 spectral, 2 spatial, 3 color, 4 noise."""
        return self._slots()[..., 0]

    @property
    def strength(self) -> Any:
        """float32 ``[rows, chains, depth]``, with alpha applied. Spectral and noise: standard deviation; spatial:
        ``sqrt(T)``, so that a displacement is this times the field times the side; color: standard deviation
        ``sqrt(T)`` of the coefficients."""
        return _as_float32(self._slots()[..., 1:2])[..., 0]

    @property
    def first(self) -> Any:
        """int32 ``[rows, chains, depth]``: first frequency of a color band; spatial: 0, or a shared field's number."""
        return self._slots()[..., 2]

    @property
    def last(self) -> Any:
        """int32 ``[rows, chains, depth]``: last frequency of a color band, or the cutoff of a spatial slot; else 0."""
        return self._slots()[..., 3]

    @property
    def wave_strength(self) -> Any:
        """float32 ``[rows]``, with alpha applied: the mean strength of each image's waves. None without ``waves``."""
        return _as_float32(self.rows[:, -1:])[:, 0] if self.waves else None

    def numpy(self) -> Plan:
        """The same plan as NumPy on the host; synchronizes if the plan is on a GPU."""
        rows = self.rows
        if hasattr(rows, "detach"):
            rows = rows.detach().cpu().numpy()
        elif hasattr(rows, "get"):
            rows = rows.get()
        return dataclasses.replace(self, rows=np.array(rows, copy=True))

    def torch(self, device: Any = "cpu") -> Plan:
        """The same plan as a torch tensor on ``device``."""
        import torch

        rows = self.rows if isinstance(self.rows, torch.Tensor) else torch.from_numpy(self.numpy().rows)
        return dataclasses.replace(self, rows=rows.to(device))

    def __eq__(self, other: object) -> bool:
        """Whether both plans are bit-identical, on any devices; synchronizes if one is on a GPU."""
        if not isinstance(other, Plan):
            return NotImplemented
        mine, its = self.numpy(), other.numpy()
        return all(
            getattr(mine, name) == getattr(its, name) for name in ("size", "shape", "views", "channels")
        ) and np.array_equal(mine.rows, its.rows)

    __hash__ = None  # type: ignore[assignment]  # rows can be edited

    def __getitem__(self, images: slice) -> Plan:
        """The plan of some of the images, all their views."""
        if not isinstance(images, slice):
            raise TypeError(f"plan[...]: expected a slice of images, got {type(images).__name__}")
        words = self.rows.shape[1]
        rows = self.rows.reshape(self.views, -1, words)
        # torch has no slices with negative steps.
        back = isinstance(images.step, int) and images.step < 0
        rows = rows[:, list(range(self.batch))[images] if back else images].reshape(-1, words)
        return dataclasses.replace(self, rows=rows)

    def of_frames(self, frames: int) -> Plan:
        """The plan of every frame of clips as an image by itself: each row ``frames`` times, in a row. So all frames of
        a clip get the same filters, displacements, color maps, noise and weights.

        Examples:
            >>> plan = prime_dali.sample("cifar", np.arange(2), size=32, view=(0, 1))
            >>> plan.of_frames(5).batch, bool((plan.of_frames(5).rows[::5] == plan.rows).all())
            (10, True)
        """
        frames = _arguments.integer("frames", frames, 0, 2**31 - 1)
        if hasattr(self.rows, "detach"):
            rows = self.rows[:, None].expand(-1, frames, -1).flatten(0, 1)  # repeat_interleave() may synchronize
        else:
            rows = self.rows.repeat(frames, 0)
        return dataclasses.replace(self, rows=rows)

    def materialize(self) -> list[Slot]:
        """Every slot except identities, with its random coefficients as float64 NumPy arrays.

        Raises:
            ValueError: As :meth:`validate`.

        Examples:
            >>> plan = prime_dali.Plan.build([[[("noise", 0.25)], [("color", 0.5, 2, 9)]]], size=(32, 48))
            >>> [(slot.primitive, slot.coefficients.shape) for slot in plan.materialize()]
            [('noise', (3, 32, 48)), ('color', (3, 8))]
        """
        plan = self.numpy()
        plan.validate()
        slots = []
        for row, chain, j in np.argwhere(plan.primitive != IDENTITY).tolist():
            name, strength = NAMES[plan.primitive[row, chain, j]], float(plan.strength[row, chain, j])
            band = int(plan.first[row, chain, j]), int(plan.last[row, chain, j])
            slot = Slot(row, chain, j, name, strength, *band, np.empty(0))
            slots.append(dataclasses.replace(slot, coefficients=_slots.coefficients(slot, plan)))
        return slots

    def describe(self, row: int | None = None, *, limit: int = 16) -> str:
        """A readable description of what was drawn for an augmented image: one line per chain, with its weight.

        Args:
            row: The row to describe, from 0 (ValueError if there is no such row). None: a table of all rows.
            limit: Rows of the table; a last line says how many more there are.

        Examples:
            >>> slots = [[[("noise", 0.25)], [("color", 0.5, 2, 9)]], [[("spectral", 2.0), ("spatial", 0.004, 20)]]]
            >>> plan = prime_dali.Plan.build(slots, size=32, weights=[[0.2, 0.3, 0.5], [0, 1, 0]])
            >>> print(plan.describe())
              row  image  view  weight  drawn
                0      0     0    0.20  clean
                                  0.30  noise σ=0.25
                                  0.50  color T=0.25 f=2..9
                1      1     0    1.00  spectral σ=2.00, spatial c=20 (0.2 px)
        """
        if row is None:
            return _slots.table(self.numpy(), _arguments.integer("limit", limit, 1, 2**31 - 1))
        return _slots.describe_row(self.numpy(), _arguments.integer("row", row, 0, self.rows.shape[0] - 1))

    def __repr__(self) -> str:
        """What the plan is for and where it is, without its numbers; :meth:`describe` has those."""
        module = type(self.rows).__module__.partition(".")[0]
        device = {"torch": str(getattr(self.rows, "device", "")), "numpy": "cpu"}.get(module, "cuda")
        waves = ", waves=True" if self.waves else ""
        return (
            f"Plan(rows={self.rows.shape[0]}, views={self.views}, size={self.size}, channels={self.channels}, "
            f"chains={self.chains}, depth={self.depth}{waves}, device={device!r}, array={module!r})"
        )


@dataclass(frozen=True, eq=False)
class Slot:
    """One slot of a plan with its random coefficients.

    ``coefficients``, float64. Spectral: ``[K, K]`` taps, the central 1 included. Spatial: ``[2, rows, columns]`` modes
    ``B_ab`` of the two fields u (rows) and v (columns) on the grid, aliases folded, without the factor sqrt(T) x side.
    Color: ``[C, frequencies]``. Noise: ``[C, H, W]``.
    """

    row: int
    chain: int
    slot: int
    primitive: str
    strength: float
    first: int
    last: int
    coefficients: NDArray[np.float64]


def row_words(chains: int, depth: int, waves: int) -> int:
    """Number of int32 words in a plan's row: Philox key, weights, slots, and with ``waves`` of 1 their strength."""
    return 5 + chains + 4 * chains * depth + waves


def _as_float32(words: Any) -> Any:
    if hasattr(words, "detach"):  # torch
        import torch

        return words.view(torch.float32)
    return words.view(np.float32)
