"""Reading benchmarks of robustness: CIFAR-C and its like, ImageNet and its kin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluating import (
    CPU,
    STATISTICS,
    WNIDS,
    Gray,
    classifier,
    gray,
    save_cifar_c,
    save_cifar_pictures,
    save_imagenet_c,
    save_picture,
)
from PIL import Image
from torchvision.transforms.v2 import functional

from prime_dali import _distributed
from prime_dali.data.records import Records
from prime_dali.evaluation import benchmarks, evaluate, image_sets, names, report_tables
from prime_dali.evaluation.benchmarks import Reading
from prime_dali.evaluation.image_sets import Decoding


def test_cifar_c_is_five_blocks_in_order_of_severity(tmp_path: Path) -> None:
    folder = save_cifar_c(tmp_path, (*names.CORRUPTIONS, "saturate"))
    what = benchmarks.cifar_corrupted(folder, 10)
    assert what.counted == names.CORRUPTIONS
    assert what.extra == ("saturate",)
    assert what.manifest is None
    part = what.read("fog", 3)
    assert isinstance(part.images.base, np.memmap)  # of 50,000 images only a block is ever read
    counts = evaluate.run(classifier(), {"cifar-c": what}, device=CPU, batch=3)["cifar-c"]
    assert list(counts) == [*names.CORRUPTIONS, "saturate"]
    for corruption, row in counts.items():
        right = [8] * 5 if corruption == "brightness" else [7, 6, 5, 4, 3]
        assert [(row[s].correct, row[s].images) for s in names.SEVERITIES] == [(r, 8) for r in right]


def test_labels_are_those_of_the_block(tmp_path: Path) -> None:
    labels = np.arange(40) % 10
    np.save(save_cifar_c(tmp_path, ["fog"]) / "labels.npy", labels)
    with pytest.raises(ValueError, match=r"labels.npy: expected the same labels 5 times.*manifest.json says which"):
        benchmarks.cifar_corrupted(tmp_path, 10)  # as if 40 images of one severity were 8 of each of five
    (tmp_path / "manifest.json").write_text('{"severities": [3]}')
    assert benchmarks.cifar_corrupted(tmp_path, 10).read("fog", 3).labels.tolist() == labels.tolist()
    (tmp_path / "manifest.json").write_text('{"severities": [1, 2, 3, 4, 5]}')
    assert benchmarks.cifar_corrupted(tmp_path, 10).read("fog", 2).labels.tolist() == labels[8:16].tolist()
    some = benchmarks.cifar_corrupted(tmp_path, 10).read("fog", 2).subset(np.array([5, 0]))
    assert some.labels.tolist() == labels[[13, 8]].tolist()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("loader", names.LOADERS)
def test_images_are_resized_as_the_network_wants(loader: str, interpolation: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    records = Records([str(tmp_path / "noise.png")], np.zeros(1, np.int64), ("a",))
    decoding = image_sets.Decoding(loader, 0, interpolation)
    ((found, _),) = image_sets.Pictures(records, 48, 60, decoding).batches(1, CPU)
    apart = {}
    for kind in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC):
        image = Image.fromarray(noise).resize((80, 60), kind)
        wanted = functional.center_crop(functional.pil_to_tensor(image), [48, 48])
        apart[kind.name.lower()] = (found[0].float() - wanted).abs().mean().item()
    assert apart.pop(interpolation) <= (0 if loader == "pillow" else 0.7)  # DALI rounds otherwise
    assert min(apart.values()) > 2


def test_rows_and_columns_of_arrays_stay() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    batches = list(image_sets.Arrays(pixels, np.arange(3)).batches(2, CPU))
    assert [labels.tolist() for _, labels in batches] == [[0, 1], [2]]
    for channel in range(3):
        np.testing.assert_array_equal(torch.cat([images for images, _ in batches])[:, channel], pixels[..., channel])


def test_the_clean_set_is_the_test_part(tmp_path: Path) -> None:
    for label in range(10):
        save_picture(tmp_path / "train" / f"class_{label}" / "a.png", 200, (32, 32))
        save_picture(tmp_path / "test" / f"class_{label}" / "a.png", label, (32, 32))
    assert benchmarks.cifar_clean(tmp_path, 10).images[:, 0, 0, 0].tolist() == list(range(10))


def test_cifar_c_bar_has_its_own_names(tmp_path: Path) -> None:
    ten = [f"corruption_{i}" for i in range(10)]
    what = benchmarks.cifar_corrupted(save_cifar_c(tmp_path, ten), 10, c_bar=True)
    assert what.counted == tuple(ten)
    assert not what.lacking
    (tmp_path / "corruption_4.npy").unlink()
    assert benchmarks.cifar_corrupted(tmp_path, 10, c_bar=True).lacking == ("ten corruptions, got 9",)


@pytest.mark.parametrize(("change", "message"), [
    (lambda f: np.save(f / "fog.npy", gray(range(9))), "fog.npy: expected uint8 [40, 32, 32, 3], as many as labels, got uint8 [9, 32, 32, 3]"),
    (lambda f: np.save(f / "fog.npy", np.zeros((40, 32, 32, 3))), "got float64 [40, 32, 32, 3]"),
    (lambda f: np.save(f / "labels.npy", np.arange(41)), "labels.npy: expected integers [5 n], n images of each severity, got int64 [41]"),
    (lambda f: np.save(f / "labels.npy", np.arange(0)), "labels.npy: expected integers [5 n], n images of each severity, got int64 [0]"),
    (lambda f: np.save(f / "labels.npy", np.zeros(40)), "labels.npy: expected integers [5 n], n images of each severity, got float64 [40]"),
    (lambda f: np.save(f / "labels.npy", np.full(40, 10)), "labels.npy: expected 0 to 9 for a network of 10 classes, got 10 to 10"),
    (lambda f: np.save(f / "labels.npy", np.full(40, -1)), "got -1 to -1"),
    (lambda f: (f / "fog.npy").write_text("no array"), "fog.npy: not a NumPy array"),
    (lambda f: np.savez((f / "fog.npy").open("wb"), gray(range(40))), "fog.npy: expected one NumPy array (.npy), got an archive (.npz)"),
    (lambda f: (f / "fog.npy").write_bytes(b""), "fog.npy: not a NumPy array"),
    (lambda f: np.save(f / "fogg.npy", gray(range(40))), "got 'fogg'; did you mean 'fog'?"),
    (lambda f: (f / "labels.npy").unlink(), "labels.npy: no such file"),
    (lambda f: (f / "manifest.json").write_text("["), "manifest.json: not a manifest of a benchmark (not JSON"),
    (lambda f: (f / "manifest.json").write_text("[1]"), "manifest.json: not a manifest of a benchmark (expected a mapping, got list"),
    (lambda f: (f / "manifest.json").write_text('{"benchmark": "CIFAR-100-C"}'), "manifest.json: expected CIFAR-10-C, got CIFAR-100-C"),
    *((lambda f, bad=bad: (f / "manifest.json").write_text(f'{{"severities": {bad}}}'), "manifest.json: expected severities, some of 1 to 5 in order, got")
      for bad in ('[]', '[2, 1]', '[1, 6]', '"12"', '3', '[[1]]')),
    (lambda f: (f / "manifest.json").write_text('{"severities": [1, 3, 5]}'), "labels.npy: expected integers [3 n], n images of each severity, got uint8 [40]"),
])  # fmt: skip
def test_bad_cifar_c(change: Any, message: str, tmp_path: Path) -> None:
    change(save_cifar_c(tmp_path))
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)):
        benchmarks.cifar_corrupted(tmp_path, 10)


def test_a_manifest_says_which_severities_there_are(tmp_path: Path) -> None:
    """Twenty images would also be five blocks of four."""
    labels = np.tile(np.arange(10), 2)
    np.save(tmp_path / "labels.npy", labels)
    np.save(tmp_path / "fog.npy", gray(np.where(np.arange(20) < 10, labels, 9 - labels)))
    (tmp_path / "manifest.json").write_text('{"benchmark": "CIFAR-10-C", "severities": [2, 5]}')
    what = benchmarks.cifar_corrupted(tmp_path, 10)
    assert what.parts() == [("fog", 2), ("fog", 5)]
    counts = evaluate.run(classifier(), {"cifar-c": what}, device=CPU)["cifar-c"]
    assert counts == {"fog": {2: evaluate.Count(10, 10), 5: evaluate.Count(0, 10)}}


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing: no such folder"):
        benchmarks.cifar_corrupted(tmp_path / "nothing", 10)
    with pytest.raises(FileNotFoundError, match=r"expected <corruption>\.npy, found none"):
        benchmarks.cifar_corrupted(tmp_path, 10)
    with pytest.raises(FileNotFoundError, match="nothing: no such folder"):
        benchmarks.imagenet_corrupted(tmp_path / "nothing", WNIDS)


def test_clean_cifar(tmp_path: Path) -> None:
    save_cifar_pictures(tmp_path)
    classes = tuple(f"class_{i}" for i in range(10))
    part = benchmarks.cifar_clean(tmp_path, 10, classes)
    assert evaluate.run(classifier(), {"clean": part}, device=CPU)["clean"] == evaluate.Count(10, 10)
    assert len(benchmarks.cifar_clean(tmp_path, 10, tuple(str(i) for i in range(10))).labels) == 10  # no names there
    with pytest.raises(ValueError, match="expected the network's classes in its order, got 'class_0' for 'class_1'"):
        benchmarks.cifar_clean(tmp_path, 10, (classes[1], classes[0], *classes[2:]))


@pytest.fixture
def imagenet_c(tmp_path: Path) -> Path:
    return save_imagenet_c(tmp_path / "c")


def test_class_folders_are_mapped_by_name(tmp_path: Path) -> None:
    """The folders of a part of the classes would have other numbers by position."""
    for place in (1, 3):
        save_picture(tmp_path / WNIDS[place] / "a.png", 20 * place, (300, 260))
        save_picture(tmp_path / WNIDS[place] / "deep" / "b.JPEG", 20 * place, (240, 500))
    part = benchmarks.imagenet_pictures(tmp_path, WNIDS)
    assert part.labels.tolist() == [1, 1, 3, 3]
    assert [images.shape for images, _ in part.batches(3, CPU)] == [(3, 3, 224, 224), (1, 3, 224, 224)]
    assert evaluate.count(Gray(4), part, STATISTICS, device=CPU, batch=3).correct == 4
    some = part.subset(np.array([3, 0]))
    assert some.labels.tolist() == [3, 1]
    assert [pixels.float().mean() for pixels in next(some.batches(2, CPU))[0]] == [60, 20]
    reverse = benchmarks.imagenet_pictures(tmp_path, WNIDS[::-1])
    assert reverse.labels.tolist() == [2, 2, 0, 0]


def test_unknown_class_folders(tmp_path: Path) -> None:
    save_picture(tmp_path / WNIDS[0] / "a.png", 0)
    save_picture(tmp_path / "n99999999" / "a.png", 0)
    message = f"expected the network's 4 classes ({WNIDS[0]} to {WNIDS[3]}), got 1 other: n99999999"
    with pytest.raises(ValueError, match=re.escape(message)):
        benchmarks.imagenet_pictures(tmp_path, WNIDS)
    assert benchmarks.imagenet_pictures(tmp_path, WNIDS, Reading(subset=True)).labels.tolist() == [0]
    with pytest.raises(ValueError, match="got 2 others"):  # a subset of nothing
        benchmarks.imagenet_pictures(tmp_path, ("a", "b"), Reading(subset=True))
    for part in ("train", "val"):
        (tmp_path / "whole" / part).mkdir(parents=True)
    with pytest.raises(ValueError, match=f"got 2 others: train, val; did you mean {tmp_path}/whole/val"):
        benchmarks.imagenet_pictures(tmp_path / "whole", WNIDS)
    (tmp_path / "whole" / "fog" / "1").mkdir(parents=True)
    (tmp_path / "whole" / "manifest.json").write_text('{"benchmark": "ImageNet-C"}')
    message = "manifest.json: expected Tiny-ImageNet-C for a network whose size is 64, got ImageNet-C"
    with pytest.raises(ValueError, match=message):
        benchmarks.imagenet_corrupted(tmp_path / "whole", WNIDS, size=64)
    (tmp_path / "whole").rename(tmp_path / ".whole")
    (tmp_path / WNIDS[1]).mkdir()
    with pytest.raises(FileNotFoundError, match=f"{WNIDS[1]}: expected photographs .*, found none"):
        benchmarks.imagenet_pictures(tmp_path, WNIDS, Reading(subset=True))


def test_the_center_of_a_photograph_is_what_is_seen(tmp_path: Path) -> None:
    pixels = np.zeros((512, 768, 3), np.uint8)  # resized by half to 256 x 384: the crop is rows 16:240, columns 80:304
    pixels[32:480, 160:608] = 255
    (tmp_path / WNIDS[0]).mkdir()
    Image.fromarray(pixels).save(tmp_path / WNIDS[0] / "a.png")
    ((images, _),) = benchmarks.imagenet_pictures(tmp_path, WNIDS).batches(1, CPU)
    assert images[..., 1:-1, 1:-1].min() == 255
    ((images, _),) = benchmarks.imagenet_pictures(tmp_path, WNIDS, size=226).batches(1, CPU)
    assert images[..., 0, :].max() < 128  # a pixel more, and the rim is seen


def test_imagenet_c(imagenet_c: Path) -> None:
    what = benchmarks.imagenet_corrupted(imagenet_c, WNIDS)
    assert what.counted == names.CORRUPTIONS
    assert len(what.parts()) == 9
    counts = evaluate.run(classifier(4, 224), {"imagenet-c": what}, device=CPU, batch=3)["imagenet-c"]
    assert {c: [count.correct for count in row.values()] for c, row in counts.items()} == {
        "snow": [2, 2, 0, 0, 0],
        "fog": [2, 2, 0, 0],
    }


def test_images_of_tiny_imagenet_c_have_64_pixels(tmp_path: Path) -> None:
    save_picture(tmp_path / "fog" / "1" / WNIDS[1] / "a.png", 20, (64, 64))
    ((images, _),) = benchmarks.imagenet_corrupted(tmp_path, WNIDS, size=64).read("fog", 1).batches(1, CPU)
    assert images.shape == (1, 3, 64, 64)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_of_imagenet_c_are_not_resized(imagenet_c: Path, workers: int) -> None:
    save_picture(imagenet_c / "fog" / "2" / WNIDS[3] / "big.png", 0, (256, 224))
    part = benchmarks.imagenet_corrupted(imagenet_c, WNIDS, Reading(decoding=Decoding(workers=workers))).read("fog", 2)
    message = rf"^{imagenet_c}/fog/2/{WNIDS[3]}/big\.png: expected 224 x 224 pixels, as this benchmark is not resized, got 256 x 224$"
    with pytest.raises(ValueError, match=message):
        list(part.batches(8, CPU))


def test_bad_imagenet_c(imagenet_c: Path) -> None:
    broken = imagenet_c / "fog" / "1" / WNIDS[1] / "broken.JPEG"
    broken.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.JPEG: not a readable image"):
        list(benchmarks.imagenet_corrupted(imagenet_c, WNIDS).read("fog", 1).batches(8, CPU))
    (imagenet_c / "fog" / "5" / "n99999999").mkdir()
    with pytest.raises(ValueError, match=r"fog/5: expected the network's 4 classes .*: n99999999"):
        benchmarks.imagenet_corrupted(imagenet_c, WNIDS)
    (imagenet_c / "fog" / "5" / "n99999999").rmdir()
    (imagenet_c / "fog" / "6").mkdir()
    with pytest.raises(ValueError, match="fog: expected folders 1 to 5, the severities, got '6'"):
        benchmarks.imagenet_corrupted(imagenet_c, WNIDS)
    (imagenet_c / "fogg").mkdir()
    with pytest.raises(ValueError, match="got 'fogg'; did you mean 'fog'"):
        benchmarks.imagenet_corrupted(imagenet_c, WNIDS)
    with pytest.raises(
        ValueError, match="loader: expected one of 'pillow', 'dali', got 'pilow'; did you mean 'pillow'"
    ):
        Decoding("pilow")


def test_dali_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in one of several ranks, each of which evaluates alone."""
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    monkeypatch.setattr(_distributed, "process_group", lambda: (1, 2))
    rng = np.random.default_rng(0)
    for number in range(5):
        (tmp_path / WNIDS[number % 2]).mkdir(exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (28, 28, 3), np.uint8)).resize(
            (224, 224), Image.Resampling.BICUBIC
        )
        noise.save(tmp_path / WNIDS[number % 2] / f"{number}.png")
    for resize, differs in ((None, 0), (256, 2)):
        read = {}
        for loader in image_sets.LOADERS:
            part = benchmarks.imagenet_pictures(tmp_path, WNIDS, Reading(decoding=Decoding(loader, 1)), resize=resize)
            batches = list(part.batches(2, CPU))
            assert [len(images) for images, _ in batches] == [2, 2, 1]
            assert torch.cat([labels for _, labels in batches]).tolist() == [0, 0, 0, 1, 1]
            read[loader] = torch.cat([images for images, _ in batches]).int()
        assert (read["pillow"] - read["dali"]).abs().max() <= differs
    exif = Image.Exif()
    exif[0x112] = 6
    noise.save(tmp_path / WNIDS[0] / "turned.jpg", exif=exif, quality=95)
    seen = []
    for loader in image_sets.LOADERS:
        part = benchmarks.imagenet_pictures(tmp_path, WNIDS, Reading(decoding=Decoding(loader)), resize=None).subset(
            np.array([3])
        )
        seen += [images.int() for images, _ in part.batches(1, CPU)]
    assert (seen[0] - seen[1]).abs().max() <= 3
    assert (seen[0].float().mean((0, 1)) - torch.tensor(np.asarray(noise).mean(2)).rot90(-1)).abs().mean() < 6
    save_picture(tmp_path / WNIDS[0] / "big.png", 0, (225, 224))
    part = benchmarks.imagenet_pictures(tmp_path, WNIDS, Reading(decoding=Decoding("dali", 1)), resize=None)
    with pytest.raises(ValueError, match=r"big\.png: expected 224 x 224 pixels"):
        list(part.batches(2, CPU))


def test_folders_one_level_off_are_pointed_at(imagenet_c: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"got '1'; did you mean {imagenet_c}, which has the corruptions\?$"):
        benchmarks.imagenet_corrupted(imagenet_c / "fog", WNIDS)
    (tmp_path / "top" / "weather").mkdir(parents=True)
    (tmp_path / "top" / "weather" / "fog").mkdir()
    message = (
        rf"got 'weather', which has some of them; move its folders into {tmp_path}/top, or give {tmp_path}/top/weather"
    )
    with pytest.raises(ValueError, match=message):
        benchmarks.imagenet_corrupted(tmp_path / "top", WNIDS)


def test_wnids_of_networks_that_do_not_say_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("timm", reason="timm, which has the wnids, is not installed")
    thousand = benchmarks.imagenet_classes(1000, None)
    assert len(set(thousand)) == 1000
    assert thousand[:4] == WNIDS
    assert list(thousand) == sorted(thousand)
    assert benchmarks.imagenet_classes(100, None) == thousand[::10]
    with pytest.raises(ValueError, match="got 12 without names; --classes"):
        benchmarks.imagenet_classes(12, None)
    (tmp_path / thousand[0]).mkdir()
    with pytest.raises(ValueError, match=rf"got 12 without names, and 1 folder in {tmp_path}; --classes"):
        benchmarks.imagenet_classes(12, tmp_path)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="expected timm or a clean set of all classes"):
        benchmarks.imagenet_classes(1000, None)
    for wnid in thousand[1:-1]:
        (tmp_path / wnid).mkdir()
    with pytest.raises(ValueError, match="expected all 1,000 class folders, which then number the classes, got 999"):
        benchmarks.imagenet_classes(1000, tmp_path)
    (tmp_path / thousand[-1]).mkdir()
    assert benchmarks.imagenet_classes(1000, tmp_path) == thousand


def test_fingerprints_tell_other_images_of_the_same_number(tmp_path: Path) -> None:
    """Not by where the files lie, and earlier results have none."""
    images = np.arange(3 * 3 * 32 * 32, dtype=np.uint8).reshape(3, 32, 32, 3)
    found = [image_sets.Arrays(some, np.zeros(3, np.int64)).fingerprint() for some in (images, images.copy(), ~images)]
    assert found[0] == found[1] != found[2]
    for folder, value in (("a", 1), ("b", 1), ("c", 2)):
        for name in ("0.png", "1.png"):
            save_picture(tmp_path / folder / WNIDS[0] / name, value)
    sets = [benchmarks.imagenet_pictures(tmp_path / folder, WNIDS[:1]) for folder in "abc"]
    assert sets[0].fingerprint() == sets[1].fingerprint() != sets[2].fingerprint()
    some = sets[0].subset(np.array([1]))
    assert evaluate.run(classifier(1, 224), {"clean": some}, device=CPU)["clean"].fingerprint == some.fingerprint()
    assert report_tables._unlike({"images": {}}, {"images": {}, "fingerprints": {"fog": {1: "0"}}}) == ""
