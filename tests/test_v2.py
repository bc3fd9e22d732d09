"""The transform of torchvision v2: what it takes and keeps, and which images get which draws."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_images
from forking import in_a_copy
from torch.utils.data import DataLoader

import prime_dali
from prime_dali import _epochs

pytest.importorskip("torchvision", reason="torchvision is not installed")
import PIL.Image
from torchvision import tv_tensors
from torchvision.transforms import v2

ROOT = Path(__file__).parent.parent
HEIGHT, WIDTH = 12, 16
IMAGES = make_images(4, HEIGHT, WIDTH, torch.uint8)
PRIME = prime_dali.v2.PRIME


def pil(image: torch.Tensor) -> PIL.Image.Image:
    return PIL.Image.fromarray(image.permute(1, 2, 0).numpy())


def drawn(image: Any, transform: Any = None, seed: int = 1) -> Any:
    """The image of the ``seed`` of torch."""
    torch.manual_seed(seed)
    return (transform or PRIME("cifar"))(image)


def test_every_type_is_kept_and_one_number_gives_one_draw() -> None:
    image = IMAGES[0]
    expected = drawn(image)
    assert expected.dtype == torch.uint8
    assert not torch.equal(expected, image)
    for given in (pil(image), tv_tensors.Image(image)):
        out = drawn(given)
        assert type(out) is (PIL.Image.Image if isinstance(given, PIL.Image.Image) else tv_tensors.Image)
        assert torch.equal(v2.functional.to_image(out), expected)
    floats = drawn(image / 255)
    assert floats.dtype == torch.float32
    assert (floats - expected / 255).abs().max() < 1 / 255

    video = tv_tensors.Video(image.expand(3, 3, HEIGHT, WIDTH))
    out = drawn(video)
    assert isinstance(out, tv_tensors.Video)
    assert all(torch.equal(frame, expected) for frame in out)
    batch, videos = drawn(image.expand(2, 3, HEIGHT, WIDTH)), drawn(tv_tensors.Video(video.expand(2, *video.shape)))
    assert torch.equal(batch[0], expected)
    assert not torch.equal(batch[1], expected)
    assert torch.equal(videos, batch[:, None].expand_as(videos))


def test_a_structure_keeps_all_but_its_images() -> None:
    box = tv_tensors.BoundingBoxes([[1, 2, 8, 9]], format="XYXY", canvas_size=(HEIGHT, WIDTH))
    mask, plain = tv_tensors.Mask(IMAGES[0, 0]), torch.tensor([1.0, 2.0])
    sample = {"pair": (tv_tensors.Image(IMAGES[0]), pil(IMAGES[1])), "target": {"boxes": box, "mask": mask}, "x": plain}
    out, label = v2.Compose([PRIME("cifar")])(sample, 3)
    assert label == 3
    assert not torch.equal(out["pair"][0], IMAGES[0])
    for kept, before in ((out["target"]["boxes"], box), (out["target"]["mask"], mask), (out["x"], plain)):
        assert type(kept) is type(before)
        assert torch.equal(kept, before)
    same = drawn((tv_tensors.Image(IMAGES[0]), tv_tensors.Image(IMAGES[0])))
    assert torch.equal(*same)  # images of one sample share their draw
    assert torch.equal(drawn({"image": IMAGES[0], "label": torch.tensor(1)})["image"], drawn(IMAGES[0]))


class Samples(torch.utils.data.Dataset):
    """One photograph, many times, so that only draws can differ."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return self.transform({"image": IMAGES[0], "index": i})["image"]


def epochs(transform: Any, seed: int, count: int = 2, **options: Any) -> list[torch.Tensor]:
    """The images of ``count`` epochs that two workers made."""
    torch.manual_seed(seed)
    loader = DataLoader(Samples(transform), 1, num_workers=2, multiprocessing_context="fork", **options)
    out = []
    for epoch in range(count):
        transform.set_epoch(epoch)
        out.append(torch.cat(list(loader)))
    return out


def different(images: torch.Tensor) -> int:
    return len(images.flatten(1).unique(dim=0))


def test_draws_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ over samples, workers, epochs and ranks, and repeat with torch's seed."""
    first = torch.cat(epochs(PRIME("cifar"), seed=1))
    monkeypatch.setenv("RANK", "1")  # as torchrun's launcher; the ranks have one seed
    [other] = epochs(PRIME("cifar"), seed=1, count=1)
    assert different(torch.cat([first, other])) == 12
    monkeypatch.delenv("RANK")
    [again] = epochs(PRIME("cifar"), seed=1, count=1)
    assert torch.equal(again, first[:4])


def test_workers_that_the_user_seeds() -> None:
    """As many scripts do, the first with the seed of the run, which is that of the process it was forked from."""
    [images] = epochs(PRIME("cifar"), 5, count=1, worker_init_fn=lambda number: torch.manual_seed(5 + number))
    assert different(images) == 4


def test_numbers_of_the_generator_seldom_meet() -> None:
    """They are of 62 bits: of 20 or 32 bits, images of one epoch would often have the same draw."""
    torch.manual_seed(0)
    first = [PRIME("cifar").make_params([IMAGES[0]])["first"] for _ in range(100)]
    assert 2**60 < max(first) < 2**62
    assert len({number % 2**20 for number in first}) == 100


def test_indices_that_come_again_without_an_epoch_are_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    """Once, by whichever worker of the second epoch has the first index again."""
    transform = PRIME("cifar", index_key="index")
    given = [transform({"image": IMAGES[0], "index": i}) for i in (2, 2, 3)]
    assert len(given) == 3
    assert not recwarn
    for _ in range(2):
        transform({"image": IMAGES, "index": torch.arange(4)})
    assert [str(each.message)[:38] for each in recwarn] == ["PRIME: index 2 came again, without an "]

    named = PRIME("cifar", index_key="index")
    for epoch in (0, 1, 0):
        named.set_epoch(epoch)
        for first in (0, 4):
            named({"image": IMAGES, "index": torch.arange(first, first + 4)})
    resumed = PRIME("cifar", index_key="index")
    resumed.load_state_dict(named.state_dict() | {"epoch_number": torch.tensor(1)})
    for first in (0, 4, 0):
        resumed({"image": IMAGES, "index": torch.arange(first, first + 4)})
    assert len(recwarn) == 1
    in_workers = PRIME("cifar", index_key="index")
    for _ in range(2):
        list(DataLoader(Samples(in_workers), 1, num_workers=1, multiprocessing_context="fork"))
    assert in_workers._noticed[0] == _epochs._WARNED  # the warning is the worker's
    assert len(recwarn) == 1


def test_indices_that_come_again_within_an_epoch_are_meant(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of samplers that repeat: whichever worker has the index, they are of one loader until its next epoch."""
    transform = PRIME("cifar", index_key="index")
    warnings.simplefilter("always")
    for worker, seed in ((0, 7), (1, 7), (0, 9), (0, 11)):
        assert len(recwarn) == (seed > 9)
        info = SimpleNamespace(id=worker, seed=seed + worker)
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda info=info: info)
        transform({"image": IMAGES[0], "index": 2})
    assert len(recwarn) == 1


def test_with_an_index_workers_do_not_matter() -> None:
    """Persistent workers are told the epoch too."""
    made = epochs(PRIME("cifar", seed=7, index_key="index"), seed=1, persistent_workers=True)
    for epoch, images in enumerate(made):
        many = IMAGES[:1].expand(4, 3, HEIGHT, WIDTH)
        assert torch.equal(images, prime_dali.PRIME("cifar", seed=7)(many, torch.arange(4), epoch))


def test_an_index_may_stand_anywhere_and_gives_a_batch_the_same_images(device: str) -> None:
    expected = prime_dali.PRIME("cifar", seed=3)(IMAGES, torch.arange(4), epoch=2)
    by_name, by_place = (PRIME("cifar", seed=3, index_key=key) for key in ("index", 1))
    by_name.set_epoch(2)
    by_place.set_epoch(2)
    for i, number in enumerate((0, np.int64(1), torch.tensor(2), 3)):
        assert torch.equal(by_name({"index": number, "image": IMAGES[i]})["image"], expected[i])
        assert torch.equal(by_place(IMAGES[i], number)[0], expected[i])
    batch = by_name({"index": torch.arange(4, device=device), "image": IMAGES.to(device)})
    on_device = prime_dali.PRIME("cifar", seed=3)(IMAGES.to(device), torch.arange(4, device=device), epoch=2)
    assert torch.equal(batch["image"], on_device)
    assert batch["index"].tolist() == [0, 1, 2, 3]
    below = prime_dali.PRIME("cifar", seed=3)(IMAGES[0], -4, epoch=2)
    assert torch.equal(by_place(IMAGES[0], -4)[0], below)


def test_a_rank_has_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a worker that was not forked, where the transform arrives by pickle."""
    zero, transform = drawn(IMAGES[0]), PRIME("cifar")
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_rank", lambda: 3)
        patch.setattr(torch.distributed, "get_world_size", lambda: 4)
        third, sent = drawn(IMAGES[0], transform), pickle.dumps(transform)
    assert not torch.equal(third, zero)
    assert torch.equal(drawn(IMAGES[0], pickle.loads(sent)), third)
    assert torch.equal(drawn(IMAGES[0], transform), zero)


def test_a_forked_process_must_be_told_the_index_or_seeded() -> None:
    """Whether the transform came with the fork, was sent later or is made there: its generator is that of the others."""
    torch.manual_seed(1)
    before, indexed = PRIME("cifar"), PRIME("cifar", index_key="index")
    sent = pickle.dumps(before)

    def in_a_pool() -> None:
        for transform in (before, pickle.loads(sent), PRIME("cifar")):
            with pytest.raises(ValueError, match=r"index: .*, got None in a forked process, .* or seed torch in each"):
                transform(IMAGES[0])
        indexed({"image": IMAGES[0], "index": 0})
        torch.manual_seed(2)
        before(IMAGES[0])

    in_a_copy(in_a_pool)
    before(IMAGES[0])


NAMED = {"index_key": "index"}
BAD: dict[str, tuple[dict[str, Any], Any, str]] = {
    "no image": ({}, {"image": np.zeros((8, 8, 3), np.uint8), "label": 1}, "expected an image .* got none; v2.ToImage"),
    "channels last": ({}, torch.zeros(8, 8, 3), r"expected .* got \[8, 8, 3\], which looks like HWC"),
    "label first": ({}, (torch.tensor(1), IMAGES[0]), "Tensor: expected .* got .*; of plain tensors the first"),
    "plain video": ({}, IMAGES[None], r"expected \[C, H, W\] or \[N, C, H, W\], .*; a video is a tv_tensors.Video"),
    "frame": ({}, tv_tensors.Video(IMAGES[0][None, None, None]), r"Video: expected \[T, C, H, W\] or \[N, T, C, H, W\]"),
    "single and batch": (
        {}, (tv_tensors.Image(IMAGES), tv_tensors.Image(IMAGES[0])), "got a batch of 4, a single one"),
    "palette": ({}, pil(IMAGES[0]).convert("P"), r"expected a PIL image of mode RGB, .*, got P; if it is a mask, .*tv_tensors.Mask"),
    "16 bits": ({}, PIL.Image.new("I;16", (8, 8)), r"expected a PIL image of mode RGB, .*, got I;16; v2.ToImage\(\) makes"),
    "normalized": ({}, IMAGES[0] / 64, r"\[0, 1\]"),
    "integers": ({}, IMAGES[0].int(), "images: expected uint8, .* got torch.int32"),
    "no index": (NAMED, {"image": IMAGES[0]}, r"index_key: expected a sample with the entry 'index', got one with"),
    "no dict": (NAMED, (IMAGES[0], 1), "index_key: expected a sample with the entry 'index', got one with 2 entries"),
    "index of a batch": (NAMED, {"image": IMAGES, "index": 3}, r"index: expected int64 \[4\], got 3"),
    "batch of indices": (NAMED, {"image": IMAGES[0], "index": torch.arange(4)}, "expected one number for a single image"),
    "too few": (NAMED, {"image": IMAGES, "index": torch.arange(3)}, "one number for each of 4 images, got 3"),
    "floats": (NAMED, {"image": IMAGES, "index": torch.zeros(4)}, r"index: expected int64 \[4\], got torch.float32"),
    "a word": (NAMED, {"image": IMAGES[0], "index": "a"}, "index: expected an int, got str"),
    "a bool as key": ({"index_key": True}, None, "index_key: expected the key or the position"),
    "a config": ({"config": 3}, None, "config: expected"),
    "a field": ({"depth": 2}, None, r"depth: expected as preset\(NAME\).replace\(depth=...\), got a keyword of PRIME"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    arguments, sample, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=message):
        PRIME(**{"config": "cifar", **arguments})(sample)


def test_no_input() -> None:
    with pytest.raises(TypeError, match=r"sample: expected an image .*, got none"):
        PRIME("cifar")()


def shifts() -> Iterator[tuple[str, str, int, float, float]]:
    """By preset and mixing: median and 95 % quantile of the typical shift of a spatial slot, in pixels."""
    for name, size in (("imagenet", 224), ("cifar", 32)):
        for mixing in ("paper", "official"):
            config = prime_dali.preset(name).replace(mixing=mixing)
            plan = prime_dali.sample(config, np.arange(20000), size=size)
            spatial = plan.primitive == 2
            # docs/METHOD.md, "Spatial": n sqrt(pi T ln c) / 2; a plan has sqrt(T).
            typical = plan.strength[spatial] * size * np.sqrt(np.pi * np.log(plan.last[spatial])) / 2
            yield name, mixing, size, float(np.median(typical)), float(np.quantile(typical, 0.95))


def test_the_docs_say_how_far_pixels_move() -> None:
    page = (ROOT / "docs/loops.md").read_text()
    for name, mixing, size, median, most in shifts():
        row = re.search(rf"\| `{name}`, {size} x {size} \| `{mixing}` \| ([\d.]+) \| ([\d.]+) \|", page)
        assert row is not None, (name, mixing)
        assert float(row[1]) == pytest.approx(median, abs=0.06)
        assert float(row[2]) == pytest.approx(most, rel=0.05)


def test_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.delitem(sys.modules, "prime_dali.v2")
    with pytest.raises(ImportError, match=r"prime_dali.v2 needs .*: pip install 'prime-dali\[torchvision\]'"):
        importlib.import_module("prime_dali.v2")


def test_modes_of_pillow_with_other_channels() -> None:
    """Gray images, and images with an alpha channel, which stays; the colors of RGBA are those of RGB."""
    pixels = make_images(1, 40, 48, torch.uint8)[0].permute(1, 2, 0).numpy()
    rgb = PIL.Image.fromarray(pixels)
    transform = prime_dali.v2.PRIME("cifar", seed=3, index_key=1)
    found = {}
    for mode in ("RGB", "RGBA", "L", "LA"):
        found[mode], _ = transform((rgb.convert(mode), 5))
        assert (found[mode].mode, found[mode].size) == (mode, rgb.size)
        assert found[mode].tobytes() != rgb.convert(mode).tobytes()
    assert found["RGBA"].convert("RGB").tobytes() == found["RGB"].tobytes()
    for mode in ("CMYK", "HSV", "YCbCr", "LAB"):  # colors that must not be mixed by channel
        image = PIL.Image.new(mode, rgb.size)
        with pytest.raises(ValueError, match=rf"RGB, L, RGBA, LA, got {mode}; use v2\.RGB\(\) before PRIME"):
            transform((image, 5))
    alpha = PIL.Image.fromarray(pixels[..., 0])
    for mode in ("RGBA", "LA"):
        image = rgb.convert(mode)
        image.putalpha(alpha)
        assert transform((image, 5))[0].getchannel("A").tobytes() == alpha.tobytes()


def test_a_single_image_shares_no_draws() -> None:
    transform = PRIME(prime_dali.preset("cifar").replace(draws="batch"))
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    assert transform(images).shape == images.shape
    with pytest.raises(ValueError, match="draws: expected 'image' for a single image or video, got 'batch'"):
        transform(images[0])
