"""Every primitive, and whole chains, against the float64 reference on one plan."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import count_beyond, kept, make_images

import prime_dali
from prime_dali import Plan, preset, reference

SIZES = [(8, 8), (9, 31), (32, 32), (33, 8), (57, 64), (224, 224), (131, 250)]
FLOAT = 1e-4  # tolerance in float32
EIGHT_BIT = 1 / 255
# On CUDA shifts are off by up to 1.5e-3 pixels (factors in half precision, 16-bit codes), seldom by more than 5e-4.
SHIFTED = {"cpu": FLOAT, "cuda": EIGHT_BIT / 2}
# Whole chains on CUDA: images are kept in steps of 1 / 32640 between passes, and slots amplify.
CHAIN = {"cpu": FLOAT, "cuda": EIGHT_BIT}
# What a slot, and what a spatial one, may be off in a chain: see test_whole_images.
DRIFT = {"cpu": (1e-6, 1e-6), "cuda": (3e-5, 1e-4)}

SLOTS = {
    "spectral weak": ("spectral", 0.2),
    "spectral strong": ("spectral", 4.0),
    "spatial smooth": ("spatial", 0.03, 3),
    "spatial many modes": ("spatial", 0.004, 60),
    "spatial folded": ("spatial", 0.002, 500),
    "spatial beyond the border": ("spatial", 5.0, 2),
    "color low": ("color", 0.1, 1, 10),
    "color band": ("color", 0.22, 430, 449),
    "color one frequency": ("color", 0.2, 500, 500),
    "color all": ("color", 0.02, 1, 500),
    "noise": ("noise", 0.3),
}

# One slot of each primitive, mild, so that what follows it amplifies its errors little: test_every_order.
MILD = {
    "spectral": ("spectral", 0.2),
    "spatial": ("spatial", 0.01, 3),
    "color": ("color", 0.1, 1, 5),
    "noise": ("noise", 0.1),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("slot", SLOTS)
def test_one_primitive(slot: str, size: tuple[int, int], device: str) -> None:
    """No exceptions: a single primitive on exact input has no floor or clamp that rounding could tip by 1e-4."""
    plan = Plan.build([[[SLOTS[slot]]], [[SLOTS[slot]]]], size=size, seed=5)
    images = make_images(2, *size)
    out = prime_dali.apply(images.to(device), plan.torch(device))
    expected = reference.apply(images, plan)
    assert np.abs(expected - images.numpy()).max() > 0.01  # something happened
    assert count_beyond(out, expected, SHIFTED[device] if slot.startswith("spatial") else FLOAT) == 0


@pytest.mark.parametrize("slot", [("color", 0.22, 430, 449), ("color", 0.02, 1, 500), ("color", 0.2, 1000, 1024)])
def test_color_of_high_frequencies_is_exact_on_the_cpu(slot: tuple) -> None:
    """To a few units in the last place: phases of hundreds of periods lose nothing."""
    plan = Plan.build([[[slot]]], size=(32, 40), seed=5)
    images = make_images(1, 32, 40)
    assert count_beyond(prime_dali.apply(images, plan.torch()), reference.apply(images, plan), 3e-6) == 0


@pytest.mark.parametrize("filter_size", [1, 3, 5, 7, 31])
def test_filter_sizes(filter_size: int, device: str) -> None:
    plan = Plan.build([[[("spectral", 1.0 / filter_size)]]], size=(20, 33), filter_size=filter_size)
    images = make_images(1, 20, 33)
    out = prime_dali.apply(images.to(device), plan.torch(device))
    assert count_beyond(out, reference.apply(images, plan), FLOAT) == 0
    # Strength 0: the filter is a delta in the center, and nothing moves.
    still = Plan.build([[[("spectral", 0.0)]]], size=(20, 33), filter_size=filter_size)
    assert torch.equal(prime_dali.apply(images.to(device), still.torch(device)).cpu(), images)


def test_filter_is_shared_by_channels(device: str) -> None:
    gray = make_images(1, 24, 24)[:, :1].expand(1, 3, 24, 24)
    out = prime_dali.apply(gray.to(device), Plan.build([[[("spectral", 0.3)]]], size=(24, 24)).torch(device))
    assert torch.equal(out[:, 0], out[:, 1])
    assert torch.equal(out[:, 0], out[:, 2])


@pytest.mark.parametrize("cut", [2, 40, 500])
def test_displacement_vanishes_on_the_border(cut: int, device: str) -> None:
    images = make_images(1, 40, 57)
    plan = Plan.build([[[("spatial", 0.02, cut)]]], size=(40, 57))
    out = prime_dali.apply(images.to(device), plan.torch(device)).cpu()
    for edge in (np.s_[..., 0, :], np.s_[..., -1, :], np.s_[..., 0], np.s_[..., -1]):
        assert (out[edge] - images[edge]).abs().max() <= (1e-6 if device == "cuda" else 0)
    assert (out - images).abs().max() > 1e-3
    field = reference.displacement(plan.materialize()[0], 40, 57)
    border = np.concatenate([field[:, 0].ravel(), field[:, -1].ravel(), field[..., 0].ravel(), field[..., -1].ravel()])
    assert np.abs(border).max() < 1e-9
    assert np.abs(field).max() > 0.1


@pytest.mark.parametrize(("first", "last"), [(1, 10), (481, 500), (1, 500), (7, 7)])
def test_color_fixes_black_and_white(first: int, last: int, device: str) -> None:
    images = (make_images(1, 16, 16) > 0.5).float()
    plan = Plan.build([[[("color", 0.2, first, last)]]], size=(16, 16))
    out = prime_dali.apply(images.to(device), plan.torch(device)).cpu()
    assert (out - images).abs().max() <= (1e-6 if device == "cuda" else 0)


def test_color_differs_between_channels(device: str) -> None:
    gray = make_images(1, 24, 24)[:, :1].expand(1, 3, 24, 24)
    out = prime_dali.apply(gray.to(device), Plan.build([[[("color", 0.2, 1, 10)]]], size=(24, 24)).torch(device))
    assert (out[:, 0] - out[:, 1]).abs().max() > 0.05


@pytest.mark.parametrize("mixing", ["paper", "official", "none"])
@pytest.mark.parametrize(
    ("name", "size"), [("imagenet", (224, 224)), ("imagenet", (97, 130)), ("cifar", (32, 32)), ("cifar", (8, 45))]
)
def test_each_slot_of_a_chain(name: str, size: tuple[int, int], mixing: str, device: str) -> None:
    """Slot j of the kernels, fed with the kernels' own image after slot j - 1: no exceptions here either."""
    config = preset(name).replace(mixing=mixing, primitives=("spectral", "spatial", "color", "noise"), noise_std=0.1)
    plan = prime_dali.sample(config, np.arange(2), size=size, seed=1)
    images = make_images(2, *size)

    def run(prefix: Plan) -> np.ndarray:
        return prime_dali.apply(images.to(device), prefix.torch(device)).double().cpu().numpy()

    check_each_slot(run, images, plan, device)


def check_each_slot(run: Callable[[Plan], np.ndarray], images: torch.Tensor, plan: Plan, kernels: str) -> None:
    """``run`` gives the augmented images for a plan of NumPy; ``kernels`` says whose they are, cpu or cuda."""
    slots = {(s.row, s.chain, s.slot): s for s in plan.materialize()}
    assert slots
    for chain in range(plan.chains):
        alone = dataclasses.replace(plan, rows=plan.rows.copy())
        alone.weights[:] = 0
        alone.weights[:, chain + 1] = 1
        before = images.double().numpy()
        for j in range(plan.depth):
            prefix = dataclasses.replace(alone, rows=alone.rows.copy())
            prefix.primitive[:, :, j + 1 :] = 0
            after = run(prefix)
            for row in range(plan.batch):
                slot = slots.get((row, chain, j))
                start, tolerance = before[row], FLOAT
                reads = slot is not None and slot.primitive in ("spectral", "spatial")
                if kernels == "cuda" and (reads or np.array_equal(start, images[row])):
                    start = kept(start)  # of the pass before, or the input; other slots go on in registers
                if kernels == "cuda" and reads:
                    tolerance = SHIFTED[kernels] if slot.primitive == "spatial" else FLOAT
                expected = start if slot is None else reference.apply_slot(start, slot)
                assert count_beyond(after[row], expected, tolerance) == 0, slot and slot.primitive
            before = after


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_order(dtype: torch.dtype, device: str) -> None:
    def run(images: torch.Tensor, plan: Plan) -> np.ndarray:
        out = prime_dali.apply(images.to(device), plan.torch(device), out_dtype=torch.float32)
        return out.double().cpu().numpy()

    check_every_order(run, dtype, device)


@functools.cache
def every_order() -> tuple[list[tuple[str, ...]], Plan, np.ndarray]:
    """Every pair and every triple of primitives, a chain and an image each; their plan; the augmented images."""
    chains = [chain for depth in (2, 3) for chain in itertools.product(MILD, repeat=depth)]
    plan = Plan.build([[[MILD[name] for name in chain]] for chain in chains], size=(16, 20), seed=3)
    images = make_images(len(chains), *plan.size)
    expected = reference.apply(images, plan)
    for j in range(plan.depth):  # without a slot it would be another image: a comparison with this says something
        fewer = dataclasses.replace(plan, rows=plan.rows.copy())
        fewer.primitive[:, :, j] = 0
        change = np.abs(prime_dali.apply(images, fewer.torch()).double().numpy() - expected).max((1, 2, 3))
        assert np.mean([c > 3 * EIGHT_BIT for c, chain in zip(change, chains, strict=True) if j < len(chain)]) > 0.9
    return chains, plan, expected


def check_every_order(run: Callable[[torch.Tensor, Plan], np.ndarray], dtype: torch.dtype, kernels: str) -> None:
    """On CUDA what a slot does depends on those before it: pointwise slots ride on a pass, and color maps that a chain
    of bytes begins with are one table."""
    chains, plan, expected = every_order()
    off = np.abs(run(make_images(len(chains), *plan.size, dtype), plan) - expected).max((1, 2, 3))
    assert {chain: o for chain, o in zip(chains, off, strict=True) if not o <= CHAIN[kernels]} == {}


def rounded_reference(images: torch.Tensor, plan: Plan, error: float, shift_error: float) -> np.ndarray:
    """The reference with every slot off by up to ``error``, spatial ones by ``shift_error``: how far a chain may drift
    for no fault of its own."""
    x, ends, rng = images.double().numpy(), {}, np.random.default_rng(0)
    for slot in plan.materialize():
        end = reference.apply_slot(ends.get((slot.row, slot.chain), x[slot.row]), slot)
        off = shift_error if slot.primitive == "spatial" else error
        ends[slot.row, slot.chain] = np.clip(end + rng.uniform(-off, off, end.shape), 0, 1)
    out = x.copy()
    for (row, chain), end in ends.items():
        out[row] += float(plan.weights[row, chain + 1]) * (end - x[row])
    return out


@pytest.mark.parametrize("mixing", ["paper", "official"])
@pytest.mark.parametrize(("name", "size"), [("imagenet", (224, 224)), ("cifar", (32, 32)), ("imagenet", (61, 90))])
def test_whole_images(name: str, size: tuple[int, int], mixing: str, device: str) -> None:
    """End to end on one plan. A slot amplifies the errors of the one before it (a color map of frequency 500 has slopes
    of hundreds), so some values leave the tolerances: no more of them than in the reference itself when each of its
    slots is off by 1e-6, eight units in the last place of float32 at 1. On CUDA a slot is off by a step of 1 / 32640, and
    a spatial one by what its shifts are off."""
    images = make_images(6, *size)
    for seed in (4, 5) if size != (224, 224) else (4,):  # the reference takes seconds for a large image
        plan = prime_dali.sample(preset(name).replace(mixing=mixing), np.arange(6), size=size, seed=seed)
        out = prime_dali.apply(images.to(device), plan.torch(device))
        expected = reference.apply(images, plan)
        drifted = rounded_reference(images, plan, *DRIFT[device])
        for tolerance in (FLOAT, EIGHT_BIT) if device == "cpu" else (EIGHT_BIT, 4 * EIGHT_BIT):
            assert count_beyond(out, expected, tolerance) <= count_beyond(drifted, expected, tolerance)
            # The bound itself says something.
            assert count_beyond(drifted, expected, tolerance) < {"cpu": 0.12, "cuda": 0.25}[device] * out.numel()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("out_dtype", [None, torch.uint8, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_dtypes_and_layouts(
    dtype: torch.dtype, out_dtype: torch.dtype | None, channels_last: bool, device: str
) -> None:
    size = (37, 50)
    images = make_images(3, *size, dtype=dtype)
    plan = prime_dali.sample("cifar", np.arange(3), size=size, seed=2)
    given = images.to(memory_format=torch.channels_last) if channels_last else images
    out = prime_dali.apply(given.to(device), plan.torch(device), out_dtype=out_dtype)
    wanted = out_dtype or dtype
    assert out.dtype == wanted
    assert out.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    expected = reference.apply(images, plan)
    # Half a unit in the last place of the output type, on [0, 1].
    rounding = {torch.uint8: 0.5 / 255, torch.float16: 2**-12, torch.bfloat16: 2**-9, torch.float32: 0}[wanted]
    values = out.double() / 255 if wanted == torch.uint8 else out
    assert count_beyond(values, expected, CHAIN[device] + rounding) == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32])
def test_strided_inputs(dtype: torch.dtype, device: str) -> None:
    whole = make_images(4, 40, 60, dtype=dtype).to(device)
    plan = prime_dali.sample("cifar", np.arange(2), size=(20, 30)).torch(device)
    for view in (whole[::2, :, 3:23, 10:40], whole[:2, :, ::2, ::2], whole[:2].flip(-1)[..., :20, :30],
                 whole[:2].transpose(2, 3)[..., :20, :30], whole[:1, :, :20, :30].expand(2, 3, 20, 30)):  # fmt: skip
        assert torch.equal(prime_dali.apply(view, plan), prime_dali.apply(view.contiguous(), plan).contiguous())


def test_normalization(device: str) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    images = make_images(3, 32, 32, dtype=torch.uint8)
    plan = prime_dali.sample("cifar", np.arange(3), size=(32, 32))
    out = prime_dali.apply(images.to(device), plan.torch(device), mean=mean, std=std)
    assert out.dtype == torch.float32
    expected = (reference.apply(images, plan) - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert count_beyond(out, expected, CHAIN[device] / 0.22) == 0
    half = prime_dali.apply(
        images.to(device), plan.torch(device), mean=mean, std=std, out_dtype=torch.float16, channels_last=True
    )
    assert half.is_contiguous(memory_format=torch.channels_last)
    # Values up to 2.7: half a unit in the last place is 2^-10.
    assert count_beyond(half, expected, 2**-10 + CHAIN[device] / 0.22) == 0


NOTHING: dict = {"primitives": (), "noise_std": None}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("change", [{"alpha": 0.0}, NOTHING, {**NOTHING, "mixing": "official"}])
@pytest.mark.parametrize("mixing", ["paper", "official", "none"])
def test_nothing_to_do_gives_back_the_input_exactly(mixing: str, change: dict, dtype: torch.dtype, device: str) -> None:
    everything = {"primitives": ("spectral", "spatial", "color", "noise"), "noise_std": 0.5, "mixing": mixing, **change}
    for size in ((32, 32), (45, 21)):
        images = make_images(5, *size, dtype=dtype).to(device)
        plan = prime_dali.sample(preset("imagenet").replace(**everything), torch.arange(5, device=device), size=size)
        assert torch.equal(prime_dali.apply(images, plan), images)


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (1, 8), (8, 1), (5, 4), (40, 2)])
def test_widths_and_depths(width: int, depth: int, device: str) -> None:
    config = preset("cifar").replace(width=width, depth=depth)
    images = make_images(2, 16, 20)
    plan = prime_dali.sample(config, np.arange(2), size=(16, 20))
    out = prime_dali.apply(images.to(device), plan.torch(device))
    assert count_beyond(out, reference.apply(images, plan), CHAIN[device]) == 0


@pytest.mark.parametrize("subset", [(), ("spectral",), ("spatial",), ("color",), ("spectral", "spatial"), ("spectral", "color"),
                                    ("spatial", "color"), ("spectral", "spatial", "color")])  # fmt: skip
def test_every_subset_of_primitives(subset: tuple[str, ...], device: str) -> None:
    images = make_images(4, 32, 32)
    plan = prime_dali.sample(preset("cifar").replace(primitives=subset), np.arange(4), size=(32, 32))
    out = prime_dali.apply(images.to(device), plan.torch(device))
    assert count_beyond(out, reference.apply(images, plan), CHAIN[device]) == 0


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("size", [(16, 20), (11, 13)])
def test_flip(size: tuple[int, int], channels_last: bool, device: str) -> None:
    images, flip = (
        make_images(4, *size, torch.uint8).to(device),
        torch.tensor([True, False, False, True], device=device),
    )
    index = torch.arange(4, device=device)
    for dtype in (torch.uint8, torch.float16, torch.float32):
        module = prime_dali.PRIME("cifar", views=3, out_dtype=dtype)
        given = images.to(memory_format=torch.channels_last) if channels_last else images
        straight, flipped = module(given, index), module(given, index, flip=flip)
        assert flipped.stride() == straight.stride()
        assert straight.is_contiguous(memory_format=torch.channels_last) == channels_last
        mirrored = flip.repeat(3)
        assert torch.equal(flipped[~mirrored], straight[~mirrored])
        assert torch.equal(flipped[mirrored], straight[mirrored].flip(-1))


def test_images_of_a_batch_are_augmented_independently(device: str) -> None:
    """The same photograph many times over: the changes are uncorrelated between images."""
    images = torch.full((64, 3, 32, 32), 0.5)
    config = preset("cifar").replace(
        primitives=("noise",), noise_std=0.05, mixing="none", depth=1, include_identity=False
    )
    plan = prime_dali.sample(config, torch.arange(64, device=device), size=(32, 32))
    change = (prime_dali.apply(images.to(device), plan).cpu() - 0.5).flatten(1).numpy()
    correlation = np.corrcoef(change)[np.triu_indices(64, 1)]
    # 2,016 correlations of 3,072 pairs each, N(0, 1 / 3072): the largest stays under 5.2 sigma but for 1 in 2,500 seeds.
    assert np.abs(correlation).max() < 5.2 / np.sqrt(3072)
    assert change.std() == pytest.approx(0.05, rel=0.01)


def test_largest_and_smallest_images(device: str) -> None:
    for size in ((8, 4096), (4096, 8)):
        images = make_images(1, *size)
        plan = Plan.build([[[("spatial", 0.002, 100), ("color", 0.1, 3, 9), ("noise", 0.02)]]], size=size)
        out = prime_dali.apply(images.to(device), plan.torch(device))
        assert count_beyond(out, reference.apply(images, plan), 2 * CHAIN[device]) <= 5


def test_edited_plans_that_no_draw_could_make_are_seen(device: str) -> None:
    """The CPU refuses them; from a GPU, which nobody waits for, come NaN and black, and ``validate`` tells why."""
    images = make_images(1, 16, 16).to(device)
    for slot, edits in (
        (("color", 0.1, 1, 5), {"last": 5000}),
        (("color", 0.1, 1, 5), {"last": 6}),
        (("color", 0.1, 1, 5), {"first": 0, "last": 4}),
        (("color", 0.1, 1, 5), {"first": 6}),
        (("color", 0.1, 1, 5), {"first": 1023, "last": 1025}),
        (("spatial", 0.1, 5), {"last": 4000}),
        (("spatial", 0.1, 5), {"last": 6}),
        (("spatial", 0.1, 5), {"last": 0}),
        *((("noise", 0.1), {"primitive": number}) for number in (9, -1)),
        (("spectral", 0.1), {"strength": np.nan}),
        (("spectral", 0.1), {"strength": -0.1}),
        (("spectral", 0.1), {"strength": 1e30}),
    ):
        plan = Plan.build([[[slot]]], size=(16, 16))
        for field, value in edits.items():
            getattr(plan, field)[:] = value
        with pytest.raises(ValueError, match="plan: row 0, chain 0, slot 0: expected a known primitive"):
            plan.torch(device).validate()
        if device == "cuda":
            assert prime_dali.apply(images, plan.torch(device)).isnan().all()
            assert (prime_dali.apply(images, plan.torch(device), out_dtype=torch.uint8) == 0).all()
            continue
        for pixels in (images, (images * 255).byte()):
            with pytest.raises(ValueError, match="plan: row 0, chain 0, slot 0: expected a known primitive"):
                prime_dali.apply(pixels, plan.torch())
            with pytest.raises(ValueError, match="plan: row 0, chain 0, slot 0: expected a known primitive"):
                prime_dali.arrays.apply(pixels.numpy(), plan)
        with pytest.raises(ValueError, match="plan: row 0, chain 0, slot 0: expected a known primitive"):
            reference.apply(images, plan)
    # The last slot of the last chain, and of the chain before.
    for at, chain, slot in (((1, 1, 2), 1, 2), ((1, 0, 2), 0, 2), ((1, 1, 0), 1, 0)):
        plan = Plan.build([[[("noise", 0.1)] * 3] * 2] * 2, size=(16, 16))
        plan.primitive[at] = 9
        with pytest.raises(ValueError, match=f"plan: row 1, chain {chain}, slot {slot}: expected a known primitive"):
            plan.torch(device).validate()


def test_weights_sum_to_one_but_for_half_a_step_of_8_bits(device: str) -> None:
    step = np.float32(1 / 512)
    for weights, fits in (
        ((0.5, 0.5 + step), True),
        ((0.5, 0.5 - step), True),
        ((0.5, 0.5 + 1.01 * step), False),
        ((0.5, 0.5 - 1.01 * step), False),
        ((1.25, -0.25), False),
        ((-0.25, 1.25), False),
    ):
        plan = Plan.build([[[("noise", 0.1)]]] * 2, size=(16, 16))
        plan.weights[1] = weights
        if fits:
            plan.torch(device).validate()
            continue
        with pytest.raises(ValueError, match="plan: row 1: expected weights >= 0 that sum to 1 within 1/512"):
            plan.torch(device).validate()
