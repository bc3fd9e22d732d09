"""Reading benchmarks, counting, adapting batch norm, and ``prime-dali evaluate`` as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CUDA
from PIL import Image
from torch import nn

from prime_dali import cli
from prime_dali.evaluation import adaptation, benchmarks, evaluate, image_sets, names, report
from prime_dali.recipes import networks

CPU = torch.device("cpu")
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
WNIDS = ("n01440764", "n01443537", "n01484850", "n01491361")  # the first of ImageNet


class Gray(nn.Module):
    """Answers class k to an image whose mean is nearest to 20 k; CPU and GPU, float32 and bfloat16 agree on it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("levels", 20.0 * torch.arange(classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -(255 * x.mean((1, 2, 3))[:, None] - self.levels).abs()


def gray(labels: Any, side: int = 32) -> np.ndarray:
    """Images that :class:`Gray` answers ``labels`` to, uint8 [N, side, side, 3]."""
    values = 20 * np.asarray(labels, np.uint8)
    return np.broadcast_to(values[:, None, None, None], (len(values), side, side, 3)).copy()


def classifier(classes: int = 10, size: int = 32, **options: Any) -> networks.Classifier:
    return networks.Classifier(Gray(classes), "gray", classes, size=size, **PLAIN, **options)


def save_cifar_c(folder: Path, corruptions: Any = names.CORRUPTIONS, images: int = 8) -> Path:
    """Severity s has s wrong images of 8, and brightness none."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.tile(np.arange(images) % 10, 5)
    seen = labels.copy()
    for severity in range(1, 6):
        first = (severity - 1) * images
        seen[first : first + severity] += 1
    np.save(folder / "labels.npy", labels.astype(np.uint8))
    for corruption in corruptions:
        np.save(folder / f"{corruption}.npy", gray(labels if corruption == "brightness" else seen))
    return folder


def save_picture(path: Path, value: int, size: tuple[int, int] = (224, 224)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


# Counting


@pytest.mark.parametrize("batch", [1, 3, 7, 8, 100])
@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_accuracy_does_not_depend_on_the_batch(batch: int, device: str) -> None:
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    images = gray([0, 1, 2, 3, 4, 0, 0, 7])  # 6 of 8, and the last one counts
    found = evaluate.accuracy(Gray(10).to(device), images, labels, **PLAIN, device=device, batch=batch)
    assert found == 6 / 8


def test_images_are_normalised() -> None:
    """(x - mean) / std with mean 20 / 255 makes each image look one class lower."""
    images, labels = gray([1, 2, 3]), np.array([0, 1, 2])
    assert evaluate.accuracy(Gray(10), images, labels, [20 / 255] * 3, [1.0] * 3, CPU) == 1
    assert evaluate.accuracy(Gray(10), gray([2, 4, 6]), np.array([1, 2, 3]), [0.0] * 3, [2.0] * 3, CPU) == 1


def test_every_module_keeps_its_mode() -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), Gray(10)).train()
    network[0].eval()
    evaluate.accuracy(network, gray([1, 2]), np.array([1, 2]), **PLAIN, device=CPU)
    assert [m.training for m in network.modules()] == [True, False, True, True]
    assert network[0].num_batches_tracked == 0


def test_a_masked_set_has_only_its_own_answers() -> None:
    images, labels = gray([1, 3, 6]), np.array([0, 4, 6])  # without a mask the first two are wrong
    plain = image_sets.Arrays(images, labels)
    masked = image_sets.Arrays(images, labels, masked=True)
    assert evaluate.count(Gray(10), plain, **PLAIN, device=CPU, batch=2).correct == 1
    assert evaluate.count(Gray(10), masked, **PLAIN, device=CPU, batch=2).correct == 3


def test_bad_labels_and_logits() -> None:
    with pytest.raises(ValueError, match="images: expected labels 0 to 9, as many as logits, got 0 to 10"):
        evaluate.accuracy(Gray(10), gray([0, 1]), np.array([0, 10]), **PLAIN, device=CPU)
    with pytest.raises(ValueError, match="images: expected images, got none"):
        evaluate.accuracy(Gray(10), gray([]), np.array([], np.int64), **PLAIN, device=CPU)
    with pytest.raises(ValueError, match=r"images: expected uint8 \[N, H, W, 3\], got uint8 \[2, 3, 32, 32\]"):
        evaluate.accuracy(Gray(10), gray([0, 1]).transpose(0, 3, 1, 2), np.array([0, 1]), **PLAIN, device=CPU)
    with pytest.raises(ValueError, match=r"labels: expected int64 \[2\], one an image, got int64 \[3\]"):
        evaluate.accuracy(Gray(10), gray([0, 1]), np.array([0, 1, 2]), **PLAIN, device=CPU)
    broken = Gray(10)
    broken.levels[3] = torch.nan
    with pytest.raises(ValueError, match="expected finite logits, got others"):
        evaluate.accuracy(broken, gray([0, 1]), np.array([0, 1]), **PLAIN, device=CPU)


# CIFAR


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
    (lambda f: np.save(f / "labels.npy", np.full(40, 10)), "labels.npy: expected 0 to 9 for a network of 10 classes, got 10 to 10"),
    (lambda f: np.save(f / "labels.npy", np.full(40, -1)), "got -1 to -1"),
    (lambda f: (f / "fog.npy").write_text("no array"), "fog.npy: not a NumPy array"),
    (lambda f: np.save(f / "fogg.npy", gray(range(40))), "got 'fogg'; did you mean 'fog'?"),
    (lambda f: (f / "labels.npy").unlink(), "labels.npy: no such file"),
    (lambda f: (f / "manifest.json").write_text("["), "manifest.json: not JSON"),
    (lambda f: (f / "manifest.json").write_text("[1]"), "manifest.json: expected a JSON object, got list"),
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


def save_cifar_pictures(folder: Path) -> Path:
    for label in range(10):
        for part in ("train", "test"):
            save_picture(folder / part / f"class_{label}" / "a.png", 20 * label, (32, 32))
    return folder


def test_clean_cifar(tmp_path: Path) -> None:
    save_cifar_pictures(tmp_path)
    classes = tuple(f"class_{i}" for i in range(10))
    part = benchmarks.cifar_clean(tmp_path, 10, classes)
    assert evaluate.run(classifier(), {"clean": part}, device=CPU)["clean"] == evaluate.Count(10, 10)
    assert len(benchmarks.cifar_clean(tmp_path, 10, tuple(str(i) for i in range(10))).labels) == 10  # no names there
    with pytest.raises(ValueError, match="expected the network's classes in its order, got 'class_0' for 'class_1'"):
        benchmarks.cifar_clean(tmp_path, 10, (classes[1], classes[0], *classes[2:]))


# ImageNet


def test_class_folders_are_mapped_by_name(tmp_path: Path) -> None:
    """The folders of a part of the classes would have other numbers by position."""
    for place in (1, 3):
        save_picture(tmp_path / WNIDS[place] / "a.png", 20 * place, (300, 260))
        save_picture(tmp_path / WNIDS[place] / "deep" / "b.JPEG", 20 * place, (240, 500))
    part = benchmarks.imagenet_pictures(tmp_path, WNIDS)
    assert part.labels.tolist() == [1, 1, 3, 3]
    assert [images.shape for images, _ in part.batches(3, CPU)] == [(3, 3, 224, 224), (1, 3, 224, 224)]
    assert evaluate.count(Gray(4), part, **PLAIN, device=CPU, batch=3).correct == 4
    reverse = benchmarks.imagenet_pictures(tmp_path, WNIDS[::-1])
    assert reverse.labels.tolist() == [2, 2, 0, 0]


def test_unknown_class_folders(tmp_path: Path) -> None:
    save_picture(tmp_path / WNIDS[0] / "a.png", 0)
    save_picture(tmp_path / "n99999999" / "a.png", 0)
    message = f"expected folders of the network's 4 classes ({WNIDS[0]} to {WNIDS[3]}), got 1 others: n99999999"
    with pytest.raises(ValueError, match=re.escape(message)):
        benchmarks.imagenet_pictures(tmp_path, WNIDS)
    assert benchmarks.imagenet_pictures(tmp_path, WNIDS, subset=True).labels.tolist() == [0]
    with pytest.raises(ValueError, match="got 2 others"):  # a subset of nothing
        benchmarks.imagenet_pictures(tmp_path, ("a", "b"), subset=True)
    (tmp_path / WNIDS[1]).mkdir()
    with pytest.raises(FileNotFoundError, match=f"no valid file for the classes {WNIDS[1]}"):
        benchmarks.imagenet_pictures(tmp_path, WNIDS, subset=True)


def test_the_centre_of_a_photograph_is_what_is_seen(tmp_path: Path) -> None:
    pixels = np.zeros((512, 768, 3), np.uint8)  # resized by half to 256 x 384: the crop is rows 16:240, columns 80:304
    pixels[32:480, 160:608] = 255
    (tmp_path / WNIDS[0]).mkdir()
    Image.fromarray(pixels).save(tmp_path / WNIDS[0] / "a.png")
    ((images, _),) = benchmarks.imagenet_pictures(tmp_path, WNIDS).batches(1, CPU)
    assert images[..., 1:-1, 1:-1].min() == 255
    ((images, _),) = benchmarks.imagenet_pictures(tmp_path, WNIDS, size=226).batches(1, CPU)
    assert images[..., 0, :].max() < 128  # a pixel more, and the rim is seen


@pytest.fixture
def imagenet_c(tmp_path: Path) -> Path:
    """Two corruptions, fog without severity 4; in each part one image of classes 1 and 3, wrong from severity 3 on."""
    for corruption in ("snow", "fog"):
        for severity in names.SEVERITIES:
            for place in (1, 3):
                seen = place if severity < 3 else 0
                folder = tmp_path / "c" / corruption / str(severity) / WNIDS[place]
                if (corruption, severity) != ("fog", 4):
                    save_picture(folder / "a.JPEG", 20 * seen)
    return tmp_path / "c"


def test_imagenet_c(imagenet_c: Path) -> None:
    what = benchmarks.imagenet_corrupted(imagenet_c, WNIDS)
    assert what.counted == names.CORRUPTIONS
    assert len(what.parts()) == 9
    counts = evaluate.run(classifier(4, 224), {"imagenet-c": what}, device=CPU, batch=3)["imagenet-c"]
    assert {c: [count.correct for count in row.values()] for c, row in counts.items()} == {
        "snow": [2, 2, 0, 0, 0],
        "fog": [2, 2, 0, 0],
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_images_of_imagenet_c_are_not_resized(imagenet_c: Path, workers: int) -> None:
    save_picture(imagenet_c / "fog" / "2" / WNIDS[3] / "big.png", 0, (256, 224))
    part = benchmarks.imagenet_corrupted(imagenet_c, WNIDS, workers=workers).read("fog", 2)
    message = rf"^{imagenet_c}/fog/2/{WNIDS[3]}/big\.png: expected 224 x 224 pixels, as this benchmark is not resized, got 256 x 224$"
    with pytest.raises(ValueError, match=message):
        list(part.batches(8, CPU))


def test_bad_imagenet_c(imagenet_c: Path) -> None:
    broken = imagenet_c / "fog" / "1" / WNIDS[1] / "broken.JPEG"
    broken.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.JPEG: not a readable image"):
        list(benchmarks.imagenet_corrupted(imagenet_c, WNIDS).read("fog", 1).batches(8, CPU))
    (imagenet_c / "fog" / "5" / "n99999999").mkdir()
    with pytest.raises(ValueError, match=r"fog/5: expected folders of the network's 4 classes .*: n99999999"):
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
        benchmarks.imagenet_pictures(imagenet_c, WNIDS, loader="pilow")


def test_dali_reads_the_same(tmp_path: Path) -> None:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
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
            part = benchmarks.imagenet_pictures(tmp_path, WNIDS, resize=resize, loader=loader, workers=1)
            batches = list(part.batches(2, CPU))
            assert [len(images) for images, _ in batches] == [2, 2, 1]
            assert torch.cat([labels for _, labels in batches]).tolist() == [0, 0, 0, 1, 1]
            read[loader] = torch.cat([images for images, _ in batches]).int()
        assert (read["pillow"] - read["dali"]).abs().max() <= differs
    save_picture(tmp_path / WNIDS[0] / "big.png", 0, (225, 224))
    part = benchmarks.imagenet_pictures(tmp_path, WNIDS, resize=None, loader="dali", workers=1)
    with pytest.raises(ValueError, match=r"big\.png: expected 224 x 224 pixels"):
        list(part.batches(2, CPU))


def test_wnids_of_networks_that_do_not_say_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("timm", reason="timm, which has the wnids, is not installed")
    thousand = benchmarks.imagenet_classes(1000, None)
    assert len(set(thousand)) == 1000
    assert thousand[:4] == WNIDS
    assert list(thousand) == sorted(thousand)
    assert benchmarks.imagenet_classes(100, None) == thousand[::10]
    with pytest.raises(ValueError, match="got 12 without names"):
        benchmarks.imagenet_classes(12, None)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="expected timm or a clean set of all classes"):
        benchmarks.imagenet_classes(1000, None)
    for wnid in thousand[:-1]:
        (tmp_path / wnid).mkdir()
    with pytest.raises(ValueError, match="expected all 1,000 class folders, which then number the classes, got 999"):
        benchmarks.imagenet_classes(1000, tmp_path)
    (tmp_path / thousand[-1]).mkdir()
    assert benchmarks.imagenet_classes(1000, tmp_path) == thousand


# Batch-norm adaptation


def norm(mean: float, variance: float) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(1, eps=1e-30)
    layer.running_mean.fill_(mean)
    layer.running_var.fill_(variance)
    return layer.eval()


def statistics(layer: nn.BatchNorm2d) -> list[float]:
    return [layer.running_mean.item(), layer.running_var.item()]


def test_statistics_are_blended_in_one_pass() -> None:
    """N = 1, n = 2, worked out by hand for two layers in a row, with a doubling between them."""
    double = nn.Conv2d(1, 1, 1, bias=False)
    double.weight.data.fill_(2.0)
    network = nn.Sequential(norm(1.0, 1.0), double, norm(0.0, 3.0)).eval()
    images = torch.tensor([[1.0, 3.0], [5.0, 7.0]]).reshape(2, 1, 1, 2)
    with adaptation.adapted(network, images, 1):
        # The values 1 3 5 7: mean 4, variance 5. A third of (1, 1) and two thirds of (4, 5): mean 3, variance 11/3.
        assert statistics(network[0]) == pytest.approx([3, 11 / 3])
        # The second layer sees 2 (x - 3) / sqrt(11/3): mean 2 / sqrt(11/3), variance 4 * 5 / (11/3) = 60/11.
        assert statistics(network[2]) == pytest.approx([2 / 3 * 2 / (11 / 3) ** 0.5, (3 + 2 * 60 / 11) / 3])
    assert statistics(network[0]) == [1, 1]
    assert statistics(network[2]) == [0, 3]


def test_one_sample_of_one_value() -> None:
    layer = norm(2.0, 4.0)
    with adaptation.adapted(nn.Sequential(layer), torch.full((1, 1, 1, 1), 19.0), 16):
        assert statistics(layer) == pytest.approx([(16 * 2 + 19) / 17, 16 * 4 / 17])  # its variance is 0


def test_without_prior_it_is_training_mode() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5))
    images = torch.randn(6, 3, 9, 9)
    trained = {key: value.clone() for key, value in network.state_dict().items()}
    with adaptation.adapted(network.eval(), images, 0), torch.no_grad():
        found = network(images)
    assert all(torch.equal(value, network.state_dict()[key]) for key, value in trained.items())
    with torch.no_grad():
        expected = network.train()(images)
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_network_is_restored_after_a_failure() -> None:
    network = nn.Sequential(norm(1.0, 1.0), nn.Conv2d(2, 1, 1)).eval()  # the convolution expects another width
    with pytest.raises(RuntimeError), adaptation.adapted(network, torch.ones(2, 1, 2, 2), 1):
        pass
    assert statistics(network[0]) == [1, 1]
    assert not network[0]._forward_pre_hooks
    with (
        pytest.raises(ValueError, match="expected batch-norm layers to adapt, got none"),
        adaptation.adapted(Gray(3), torch.ones(1, 3, 2, 2), 1),
    ):
        pass


def test_counting_with_adaptation() -> None:
    """All images are 100 brighter than in training, and adaptation with N = 0 undoes it."""
    labels = np.array([0, 1, 2, 3] * 2)
    brighter = gray(labels) + 100
    layer = nn.BatchNorm2d(3, eps=1e-30, affine=False)
    layer.running_mean.fill_(30 / 255)  # of the values 0, 20, 40, 60
    layer.running_var.fill_(500 / 255**2)
    scale = nn.Conv2d(3, 3, 1, groups=3)
    scale.weight.data.fill_(500**0.5 / 255)
    scale.bias.data.fill_(30 / 255)
    network = nn.Sequential(layer, scale, Gray(4))
    images = image_sets.Arrays(brighter, labels)
    assert evaluate.count(network, image_sets.Arrays(gray(labels), labels), **PLAIN, device=CPU, batch=4).correct == 8
    assert evaluate.count(network, images, **PLAIN, device=CPU, batch=4).correct == 2
    adapt = adaptation.Adaptation(0, 8)
    assert evaluate.count(network, images, **PLAIN, device=CPU, batch=3, adapt=adapt).correct == 8
    assert layer.running_mean[0].item() == pytest.approx(30 / 255)


def test_draws_are_named_by_seed_and_set() -> None:
    adapt = adaptation.Adaptation(16, 8, seed=3)
    first = adapt.draw("fog 1", 100)
    assert len(set(first.tolist())) == 8
    assert first.max() < 100
    assert np.array_equal(first, adapt.draw("fog 1", 100))
    for other in (adapt.draw("fog 2", 100), adaptation.Adaptation(16, 8, seed=4).draw("fog 1", 100)):
        assert not np.array_equal(first, other)
    assert adaptation.Adaptation(0, 5, seed=-1).draw("fog 1", 5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="n: expected at most the 7 images of fog 1, got 8"):
        adapt.draw("fog 1", 7)


def test_adaptations_by_name() -> None:
    found = [adaptation.parse(words) for words in (["single"], ["partial"], ["full"], ["2", "3"])]
    assert [(a.prior, a.samples) for a in found] == [(16, 1), (16, 8), (0, 400), (2, 3)]
    for words in (["some"], ["1"], ["1", "-2"], ["1", "2", "3"], ["partial", "8"]):
        with pytest.raises(ValueError, match="bn-adapt: expected single, partial, full, or two whole numbers N n"):
            adaptation.parse(words)
    with pytest.raises(ValueError, match="n: expected 1 to"):
        adaptation.parse(["16", "0"])


# The command


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of :class:`Gray` behind a batch norm, in place of a network of torchvision, which takes longer than all else."""
    monkeypatch.setattr(
        networks, "create", lambda name, classes, stem="imagenet": nn.Sequential(nn.BatchNorm2d(3), Gray(classes))
    )
    made = networks.Classifier(networks.create("resnet18", 10).eval(), "resnet18", 10, size=32, resize=None, **PLAIN)
    torch.save(networks.checkpoint(made, epoch=5), tmp_path / "last.pt")
    return tmp_path / "last.pt"


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data`` and ``c``."""
    folder = tmp_path_factory.mktemp("cifar")
    save_cifar_pictures(folder / "data")
    save_cifar_c(folder / "c")
    return folder


def test_evaluate(checkpoint: Path, cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["evaluate", str(checkpoint), "--clean", str(cifar / "data"), "--cifar-c", str(cifar / "c")]
    assert cli.main([*arguments, "--device", "cpu", "--batch", "5", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert "76/76" in shown.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cifar-c.png",
        "results.csv",
        "results.json",
        "results.md",
    ]

    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = results["sets"]["cifar-c"]
    assert found["correct"]["snow"] == {"1": 7, "2": 6, "3": 5, "4": 4, "5": 3}
    assert found["images"]["snow"] == dict.fromkeys("12345", 8)
    mean = (14 * 5 / 8 + 1) / 15  # brightness has no errors, the others 1 to 5 of 8
    assert found["scores"]["corruption_accuracy"] == pytest.approx(mean)
    assert found["scores"]["by_severity"]["5"] == pytest.approx((14 * 3 / 8 + 1) / 15)
    assert found["scores"]["by_group"]["weather"] == pytest.approx((3 * 5 / 8 + 1) / 4)
    assert found["scores"]["mce"] == pytest.approx(100 * (1 - mean))
    assert found["scores"]["normalisation"] == "none"
    assert results["sets"]["clean"]["accuracy"] == 1
    assert results["sets"]["clean"]["images"] == 10
    assert results["settings"]["precision"] == "float32"
    assert results["classifier"]["epoch"] == 5
    assert not found["regenerated"]
    assert results["dataset"] == "CIFAR-10"

    text = (tmp_path / "out" / "results.md").read_text()
    assert text.strip() in shown.out
    assert "mCE, normalisation none" in text
    assert "- clean: 10 images\n" in text
    assert re.search(r"\| snow +\|.* 83\.1 \| +89\.7 \| +89\.3 \|", text)  # the paper's, marked in the header
    assert "PRIME, reported" in text
    rows = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 1 + 75
    assert "cifar-c,False,snow,4,8,4,0.5" in rows
    with Image.open(tmp_path / "out" / "cifar-c.png") as picture:
        assert np.asarray(picture).std() > 10

    # The same network as its own reference; but not on brightness, where that has no errors.
    lesser = tmp_path / "lesser"
    save_cifar_c(lesser, [c for c in names.CORRUPTIONS if c != "brightness"])
    arguments = ["evaluate", str(checkpoint), "--cifar-c", str(lesser), "--partial"]
    reference = str(tmp_path / "out" / "results.json")
    assert cli.main([*arguments, "--device", "cpu", "--reference", reference, "--out", str(tmp_path / "again")]) == 0
    assert "mCE, normalisation standard" in capsys.readouterr().out
    again = json.loads((tmp_path / "again" / "results.json").read_text())["sets"]
    assert again["cifar-c"]["scores"]["mce"] == pytest.approx(100)
    assert again["cifar-c"]["scores"]["normalisation"] == "standard"
    assert again["cifar-c"]["accuracy"]["fog"] == found["accuracy"]["fog"]  # the batch does not matter
    assert cli.main(["evaluate", str(checkpoint), "--cifar-c", str(cifar / "c"), "--reference", reference]) == 1
    shown = capsys.readouterr()
    assert "normalisation: expected 'standard' to have an error on brightness, got none" in shown.err
    assert "evaluating" not in shown.err  # it was known before the work began
    for key, value, got in (("dataset", "CIFAR-100", "CIFAR-100"), ("settings", {"bn_adapt": {"N": 1}}, "adapted")):
        (tmp_path / "other.json").write_text(json.dumps(results | {key: value}))
        assert cli.main([*arguments, "--device", "cpu", "--reference", str(tmp_path / "other.json")]) == 1
        message = capsys.readouterr().err
        assert "other.json: expected results on CIFAR-10 as trained, got" in message
        assert got in message


def test_a_regenerated_benchmark_is_labelled(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ten = [f"corruption_{i}" for i in range(10)]
    save_cifar_c(tmp_path, ten)
    (tmp_path / "manifest.json").write_text('{"seed": 3}')
    arguments = ["evaluate", str(checkpoint), "--cifar-c-bar", str(tmp_path), "--device", "cpu"]
    assert cli.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())["sets"]["cifar-c-bar"]
    assert found["regenerated"]
    assert found["manifest"] == {"seed": 3}
    assert found["counted"] == ten
    assert found["scores"]["by_group"] == {}
    text = capsys.readouterr().out
    assert "CIFAR-C-bar (regenerated): 8 images a corruption and severity\n" in text
    assert "| CIFAR-C-bar (regenerated) mean |" in text
    assert "## CIFAR-C-bar (regenerated), by corruption and severity, %" in text
    assert "cifar-c-bar,True,corruption_3,2,8,6,0.75" in (tmp_path / "out" / "results.csv").read_text()
    assert "mCE, normalisation" not in text
    assert "reported |" not in text  # the paper has no row for this set


def test_what_is_missing_is_named_before_anything_runs(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    save_cifar_c(tmp_path, ["snow", "fog"])
    arguments = ["evaluate", str(checkpoint), "--cifar-c", str(tmp_path), "--device", "cpu"]
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert "expected all of cifar-c for a mean, missing: gaussian_noise; shot_noise; " in error
    assert error.count("\n") == 1
    assert cli.main([*arguments, "--partial", "--out", str(tmp_path / "out")]) == 0
    assert "CIFAR-C: PARTIAL, means of what is there; missing: gaussian_noise; shot_noise;" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "results.json").read_text())["sets"]["cifar-c"]
    assert len(found["missing"]) == 13
    assert list(found["scores"]["by_corruption"]) == ["snow", "fog"]
    assert found["scores"]["mce"] == pytest.approx(100 * (1 - found["scores"]["corruption_accuracy"]))


def test_evaluate_on_imagenet(
    checkpoint: Path, imagenet_c: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["network"]["num_classes"], content["classes"] = 4, list(WNIDS)
    content["model"]["1.levels"] = content["model"]["1.levels"][:4].clone()
    torch.save(content | {"size": 96, "resize": 100}, checkpoint)
    for place in (1, 2):
        save_picture(tmp_path / "r" / WNIDS[place] / "a.png", 60, (120, 110))  # class 3 is nearest, of these two 2
    arguments = ["evaluate", str(checkpoint), "--clean", str(tmp_path / "r"), "--imagenet-r", str(tmp_path / "r"),
                 "--imagenet-c", str(imagenet_c), "--device", "cpu", "--workers", "0"]  # fmt: skip
    assert cli.main(arguments) == 1
    absent = f"2 of 4 classes ({WNIDS[0]}, {WNIDS[3]})"
    message = f"{tmp_path}/r: expected all of clean for a mean, missing: {absent}; --partial"
    assert message in capsys.readouterr().err
    assert cli.main([arguments[0], *arguments[1:2], *arguments[4:]]) == 1
    error = capsys.readouterr().err
    assert f"missing: 2 of 4 classes ({WNIDS[0]}, {WNIDS[2]}) in {imagenet_c}/" in error
    assert "and some in 8 other folders; gaussian_noise; " in error
    assert "; fog severity 4; " in error
    assert cli.main([*arguments, "--partial", "--out", str(tmp_path / "out")]) == 0
    sets = json.loads((tmp_path / "out" / "results.json").read_text())["sets"]
    assert (sets["clean"]["correct"], sets["imagenet-r"]["correct"]) == (0, 1)
    assert (sets["clean"]["missing"], sets["imagenet-r"]["missing"]) == ([absent], [])
    assert f"- clean: PARTIAL, means of what is there; missing: {absent}\n" in capsys.readouterr().out
    assert sets["imagenet-c"]["correct"]["fog"] == {"1": 2, "2": 2, "3": 0, "5": 0}
    capsys.readouterr()
    save_picture(imagenet_c / "snow" / "1" / WNIDS[0] / "more.png", 0)
    assert cli.main([*arguments, "--partial", "--bn-adapt", "16", "2"]) == 0
    text = capsys.readouterr().out
    assert "ImageNet-R: only its 2 classes can be answers" in text
    assert (
        "ImageNet-C: 2 to 3 images a corruption and severity, of UNEQUAL parts; as found, without a manifest.json"
        in text
    )
    assert "N = 16, n = 2, drawn anew for each with seed 0" in text
    assert "measured, adapted" in text
    assert re.search(r"\| fog +\|( +\d+\.\d+ \|){3} +- \|", text)  # severity 4
    assert "reported" not in text  # four classes are none of the paper's data sets


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "sets: expected at least one, such as --clean, got none"),
    (["--imagenet-c", "x"], "--imagenet-c: expected a network of ImageNet, got one of size 32"),
    (["--cifar-c", "{c}", "--normalise", "standard"], "reference: expected with --normalise standard, and only then"),
    (["--cifar-c", "{c}", "--reference", "x", "--normalise", "none"], "reference: expected with --normalise standard, and only then"),
    (["--cifar-c", "{c}", "--normalise", "alexnet"], "normalise: expected none or standard, as AlexNet's errors are of ImageNet-C"),
    (["--cifar-c", "{c}", "--reference", "{c}/labels.npy"], "labels.npy: expected results.json of prime-dali evaluate with cifar-c"),
    (["--cifar-c", "{c}", "--bn-adapt", "some"], "bn-adapt: expected single, partial, full, or two whole numbers N n, got 'some'"),
    (["--cifar-c", "{c}", "--bn-adapt", "full"], "n: expected at most the 8 images of gaussian_noise 1, got 400"),
    (["--cifar-c", "{c}", "--batch", "0"], "batch: expected 1 to"),
    (["--clean", "{c}"], "expected CIFAR-10 as one of"),
])  # fmt: skip
def test_bad_input(
    arguments: list[str], message: str, checkpoint: Path, cifar: Path, capsys: pytest.CaptureFixture
) -> None:
    given = [argument.format(c=cifar / "c") for argument in arguments]
    assert cli.main(["evaluate", str(checkpoint), "--device", "cpu", *given]) == 1
    assert message in capsys.readouterr().err


def test_a_checkpoint_of_another_network(cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(networks.create("shufflenet_v2_x0_5", 10).state_dict(), weights)
    start = ["evaluate", str(weights), "--cifar-c", str(cifar / "c"), "--device", "cpu", "--num-classes"]
    for arguments, message in (
        (["10", "--network", "shufflenet_v2_x1_0"], "of another shape (stage2"),
        (["100", "--network", "shufflenet_v2_x0_5"], "fc.weight: expected [100, 1024], got [10, 1024]"),
        (
            ["10", "--network", "shufflenet_v2_x0_5"],
            "--cifar-c: expected a network of 32 x 32 images (--size), got one of size 224",
        ),
    ):
        assert cli.main([*start, *arguments]) == 1
        assert message in capsys.readouterr().err


def test_a_gpu_that_is_not_there(checkpoint: Path, cifar: Path, capsys: pytest.CaptureFixture) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    assert cli.main(["evaluate", str(checkpoint), "--cifar-c", str(cifar / "c"), "--device", "cuda"]) == 1
    assert "device: expected a GPU that torch can use, got none" in capsys.readouterr().err


def test_reported_rows_of_adapted_networks() -> None:
    """ImageNet-100 with the paper's adaptation stands beside the paper's own adapted accuracies."""
    found = {"corruption_accuracy": 0.7, "mce": 61.0, "normalisation": "standard"}
    content = {"scores": found, "regenerated": False}
    results = {
        "dataset": "ImageNet-100", "settings": {"bn_adapt": {"N": 16, "n": 8, "seed": 0}},
        "sets": {"imagenet-c": content},
    }  # fmt: skip
    text = report._summary(results)
    assert re.search(r"\| PRIME, adapted \(partial\), reported +\| +75\.3 \| +- \|", text)
    assert re.search(r"\| PRIME, reported +\| +71\.6 \| +61\.0 \|", text)
    assert "single" not in text
