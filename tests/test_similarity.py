"""``prime-dali analyze similarity`` and ``embedding``: distances, features, projections, and what a user calls."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_images
from PIL import Image
from torch import nn

from prime_dali import cli
from prime_dali.data.cifar import Cifar
from prime_dali.evaluation import corruptions
from prime_dali.experiments import embedding, features, samples, similarity, similarity_report
from prime_dali.experiments.images import CifarImages, Corruptions, images_of, pairs
from prime_dali.models import networks

CPU = torch.device("cpu")


class Tiny(nn.Module):
    """A convolution, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 5, 3)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(5, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).relu().mean((2, 3)))


def tiny(**options: Any) -> features.Features:
    classifier = networks.Classifier(Tiny(), "tiny", 10, size=32, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    return features.Features(classifier, CPU, 32, **options)


def cifar(count: int) -> CifarImages:
    pixels = make_images(count, 32, 32, torch.uint8).permute(0, 2, 3, 1).numpy()
    return CifarImages(Cifar(np.ascontiguousarray(pixels), np.arange(count) % 10, tuple("abcdefghij")))


def test_least_distance_by_hand() -> None:
    corrupted = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, -1.0]])
    augmented = torch.tensor([[5.0, 5.0], [1.0, 0.0]])
    # cos: (1/sqrt 2, 1), (1/sqrt 2, 0), (-1, -1/sqrt 2)
    expected = [0.0, 1 - 0.5**0.5, 1 + 0.5**0.5]
    assert similarity.least_distances(corrupted, augmented).tolist() == pytest.approx(expected, abs=1e-15)


def test_a_tiny_distance_keeps_its_digits() -> None:
    angle = 1e-9  # 1 - cos is 5e-19, which 1 - 0.999... cannot show
    found = similarity.least_distances(torch.tensor([[1.0, angle]]).double(), torch.tensor([[1.0, 0.0]]))
    assert found.item() == pytest.approx(5e-19, rel=1e-6)


def test_a_vector_of_zeros_has_no_direction() -> None:
    with pytest.raises(ValueError, match="augmented: expected features that are not zero"):
        similarity.least_distances(torch.ones(1, 2), torch.zeros(1, 2))


def test_statistics_by_hand() -> None:
    found = similarity_report.statistics(np.arange(1.0, 13.0).reshape(3, 2, 2), ["fog", "snow"], [1, 5])
    # 1 .. 12: percentile q lies at 1 + 11 q / 100; fog has 1 2 5 6 9 10, severity 5 the even ones, snow 5 has 4 8 12
    assert [found[k] for k in ("mean", "median", "p5", "p10", "p25", "p50", "p75")] == pytest.approx(
        [6.5, 6.5, 1.55, 2.1, 3.75, 6.5, 9.25]
    )
    assert found["by_corruption"]["fog"]["mean"] == 5.5
    assert found["by_severity"]["5"]["mean"] == 7
    assert found["by_part"]["snow"]["5"]["median"] == 8


def test_measure_agrees_with_brute_force() -> None:
    images, network = cifar(3), tiny()
    names, severities, count = ["contrast", "gaussian_noise"], [2, 4], 4
    source = Corruptions.of(images, names, severities, 7)
    assert list(source.names) == ["gaussian_noise", "contrast"]  # the order of the tables
    normalization = network.classifier.statistics
    methods = {"clean": None} | {
        name: samples.augmentation(name, "cifar", 7, *normalization) for name in samples.AUGMENTATIONS
    }
    found = np.stack(list(similarity.measure(network, source, [0, 2], methods, count, batch=3)))

    weight, bias = (p.detach().double().numpy() for p in network.classifier.network.conv.parameters())

    def embed(x: np.ndarray) -> np.ndarray:  # [3, 32, 32], normalized
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        maps = np.einsum("chwij,ocij->ohw", windows, weight) + bias[:, None, None]
        return np.maximum(maps, 0).mean((1, 2))

    def normalized(pixels: np.ndarray) -> np.ndarray:
        return ((pixels / 255.0 - normalization[0]) / normalization[1]).transpose(2, 0, 1)

    assert found.shape == (2, 5, 2, 2)
    for place, number in enumerate([0, 2]):
        clean = images.data.images[number]
        tensor = torch.from_numpy(clean).permute(2, 0, 1)
        for m, draw in enumerate(methods.values()):
            if draw is None:
                candidates = [normalized(clean)]
            else:
                candidates = [draw(tensor, number, range(k, k + 1))[0].double().numpy() for k in range(count)]
            for c, name in enumerate(source.names):
                for s, severity in enumerate(severities):
                    changed = corruptions.cifar(clean[None], name, severity, seed=7, numbers=[number])[0]
                    target, least = embed(normalized(changed)), np.inf
                    for other in map(embed, candidates):
                        cos = target @ other / np.sqrt((target @ target) * (other @ other))
                        least = min(least, 1 - cos)
                    assert found[place, m, c, s] == pytest.approx(least, rel=1e-3, abs=1e-7)


@pytest.mark.timeout(60)
def test_workers_of_a_process_in_which_opencv_has_threads() -> None:
    """They are forked, without these threads, and must not wait for them."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(2)
        cv2.cvtColor(np.zeros((1000, 1000, 3), np.float32), cv2.COLOR_RGB2HSV)
        time.sleep(0.3)  # the second thread waits for work
        source = Corruptions.of(cifar(2), ["contrast"], [1], 7)
        assert len(list(pairs(source, [0, 1], 1))) == 2
        assert cv2.getNumThreads() == 2
    finally:
        cv2.setNumThreads(before)


def test_samples_without_mixing_are_one_chain() -> None:
    """AugMix's operations on 8-bit levels give such levels; a blend does not. All augmentations name their draws."""
    image = make_images(1, 32, 32, torch.uint8)[0]
    plain = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    unmixed = samples.augmentation("augmix-no-mix", "cifar", 0, *plain)(image, 5, range(6)) * 255
    mixed = samples.augmentation("augmix", "cifar", 0, *plain)(image, 5, range(6)) * 255
    assert (unmixed - unmixed.round()).abs().max() < 1e-4
    assert (mixed - mixed.round()).abs().max() > 0.1
    for name in samples.AUGMENTATIONS:
        draw = samples.augmentation(name, "cifar", 3, *plain)
        whole = draw(image, 5, range(6))
        assert torch.equal(whole[4:], draw(image, 5, range(4, 6)))
        assert not torch.equal(whole, draw(image, 6, range(6)))


def test_features_of_layers() -> None:
    images = torch.rand(2, 3, 32, 32)
    network = Tiny()
    maps = network.conv(images)
    default, conv = tiny(), tiny(layer="conv")
    assert (default.layer, default.width) == ("input of head", 5)
    assert (conv.layer, conv.width) == ("output of conv", 5)
    assert torch.allclose(default(images), maps.relu().mean((2, 3)), atol=1e-6)
    assert torch.allclose(conv(images), maps.mean((2, 3)), atol=1e-6)
    assert tiny(layer="head").width == 10


@pytest.mark.parametrize(("name", "layer", "width"), [
    ("resnet18", "input of fc", 512), ("squeezenet1_1", "input of classifier.1", 512),
    ("mobilenet_v3_small", "input of classifier.3", 1024),
])  # fmt: skip
def test_the_final_layer_is_found(name: str, layer: str, width: int) -> None:
    network = features.Features(networks.Classifier(networks.create(name, 7), name, 7), CPU, 64)
    assert (network.layer, network.width) == (layer, width)


def test_bad_layers() -> None:
    with pytest.raises(ValueError, match="layer: expected a module of tiny, got 'cnv'; nearest: 'conv'"):
        tiny(layer="cnv")
    with pytest.raises(ValueError, match=r"layer: .* from the output of unused, got no call of it"):
        tiny(layer="unused")


def test_principal_components_by_hand() -> None:
    # Along (0.6, 0.8) by -2, 0, 2, and across it by 1, -2, 1: variances 8 / 2 and 6 / 2.
    along, across = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    vectors = np.array([10, 20]) + np.outer([-2, 0, 2], along) + np.outer([1, -2, 1], across)
    found = embedding.principal(vectors)
    assert found.total_variance == pytest.approx(7)
    assert found.shares == pytest.approx((4 / 7, 3 / 7))
    np.testing.assert_allclose(found.components, [along, across], atol=1e-12)
    np.testing.assert_allclose(found(vectors), [[-2, 1], [0, -2], [2, 1]], atol=1e-12)
    with pytest.raises(ValueError, match="all the same"):
        embedding.principal(np.ones((3, 2)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network's checkpoint, CIFAR as pictures (a few), and a folder of photographs."""
    folder = tmp_path_factory.mktemp("similarity")
    network = networks.create("shufflenet_v2_x0_5", 10)
    torch.save(networks.checkpoint(networks.Classifier(network, "shufflenet_v2_x0_5", 10, size=32)), folder / "net.pt")
    images = make_images(20, 32, 32, torch.uint8).permute(0, 2, 3, 1).numpy()
    for number, image in enumerate(images):
        for part in ("train", "test"):
            path = folder / "cifar" / part / f"class{number % 10}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    (folder / "empty").mkdir()
    return folder


def analyze(files: Path, what: str, out: Path, *more: str) -> int:
    """On CIFAR, with few and cheap corruptions."""
    arguments = ["--cifar", "10", str(files / "cifar"), "--backbone", str(files / "net.pt"), "--out", str(out)]
    few = ["--corruptions", "contrast", "brightness", "--severities", "1", "5", "--samples", "3"]
    return cli.main(["analyze", what, *arguments, *few, "--device", "cpu", *more])


def test_similarity(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert analyze(files, "similarity", tmp_path / "a", "--images", "3") == 0
    text = re.sub(" +", " ", capsys.readouterr().out)
    assert "| PRIME | reported | 7.71 | 1.61 | 0.08 | 0.12 | 0.32 | 1.61 | 5.76 |" in text
    assert "input of fc, width 1024; 3 images, 4 corruptions, 3 samples" in text
    assert "3 images, 51 inputs of the network" in text  # of each 4 corrupted, 4 x 3 augmented and itself
    folder = tmp_path / "a"
    assert sorted(path.name for path in folder.iterdir()) == [
        "distances.npz", "results.csv", "results.json", "results.md", "results.png",
    ]  # fmt: skip
    results = json.loads((folder / "results.json").read_text())
    distances = np.load(folder / "distances.npz")["distances"]
    assert distances.shape == (3, 5, 2, 2)
    assert results["measured"]["prime"]["mean"] == pytest.approx(distances[:, 4].mean())
    rows = list(csv.DictReader((folder / "results.csv").open()))
    row = next(r for r in rows if (r["method"], r["corruption"], r["severity"]) == ("clean", "contrast", "5"))
    assert float(row["mean"]) == pytest.approx(distances[:, 0, 1, 1].mean())  # brightness comes before contrast
    with Image.open(folder / "results.png") as picture:
        assert np.asarray(picture).std() > 10

    # A run that was stopped resumes with what is missing, and ends the same.
    settings = np.load(folder / "distances.npz")["settings"]
    holes = distances.copy()
    holes[1] = np.nan
    holes[2] = 0.5
    np.savez(folder / "distances.npz", distances=holes, settings=settings)
    assert analyze(files, "similarity", folder, "--images", "3") == 0
    assert "1 image, 17 inputs" in capsys.readouterr().out
    again = np.load(folder / "distances.npz")["distances"]
    np.testing.assert_array_equal(again[:2], distances[:2])
    assert (again[2] == 0.5).all()
    for content, message in (
        (
            {"distances": holes[:2], "settings": settings},
            "distances: expected float64 [3, 5, 2, 2], got float64 [2, 5, 2, 2]",
        ),
        ({"distances": holes, "settings": "["}, "settings: not JSON"),
        ({"distances": holes}, "settings: expected a ndarray, got none"),
    ):
        np.savez(tmp_path / "damaged.npz", **content)
        with pytest.raises(ValueError, match=re.escape(message)):
            similarity._resume(tmp_path / "damaged.npz", json.loads(str(settings)), (3, 5, 2, 2))
    assert analyze(files, "similarity", folder, "--images", "3", "--seed", "1") == 1
    assert "made with other settings" in capsys.readouterr().err


def test_corrupted_images_of_a_folder(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    test = images_of(None, ["10", str(files / "cifar")], train=False).data
    np.save(folder / "labels.npy", np.tile(test.labels, 5))
    for name in ("contrast", "brightness"):
        np.save(folder / f"{name}.npy", np.concatenate([corruptions.cifar(test.images, name, s) for s in range(1, 6)]))
    (folder / "manifest.json").write_text('{"benchmark": "CIFAR-10-C"}')
    few = ["--images", "4", "--methods", "clean", "augmix"]
    assert analyze(files, "similarity", tmp_path / "a", *few) == 0
    assert analyze(files, "similarity", tmp_path / "b", *few, "--corrupted", str(folder)) == 0
    made, read = (np.load(tmp_path / name / "distances.npz")["distances"] for name in "ab")
    np.testing.assert_array_equal(made, read)  # train and test are the same pictures here
    assert "(regenerated)" in (tmp_path / "b" / "results.md").read_text()


def test_embedding(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert analyze(files, "embedding", tmp_path / "a") == 0
    header = capsys.readouterr().err
    assert [line.split()[0] for line in header.splitlines()] == ["data", "images", "network", "device", "out"]
    assert "; 3 samples of each by augmix, prime, corrupted\n" in header
    results = json.loads((tmp_path / "a" / "embedding.json").read_text())
    assert len({image["class"] for image in results["images"]}) == 3
    assert np.shape(results["methods"]["prime"]["samples"]) == (3, 3, 2)
    assert np.shape(results["methods"]["corrupted"]["samples"]) == (3, 4, 2)
    assert len((tmp_path / "a" / "embedding.csv").read_text().splitlines()) == 1 + 3 * (4 + 4 + 5)
    with Image.open(tmp_path / "a" / "embedding.png") as picture:
        assert np.asarray(picture).std() > 10
    assert analyze(files, "embedding", tmp_path / "b") == 0
    again = json.loads((tmp_path / "b" / "embedding.json").read_text())
    assert again["methods"] == results["methods"]


@pytest.mark.parametrize(("more", "message"), [
    (["--images", "30"], "images: expected at most 20, which there are, got 30"),
    (["--methods", "prme"], "--methods: expected one of 'clean', 'augmix-no-mix', 'prime-no-mix', 'augmix', 'prime', got 'prme'; did you mean 'prime'?"),
    (["--corruptions", "fgo"], "got 'fgo'; did you mean 'fog'?"),
    (["--severities", "6"], "--severities: expected 1 to 5, got 6"),
    (["--layer", "stage5", "--images", "3"], "layer: expected a module of shufflenet_v2_x0_5, got 'stage5'; nearest: 'stage"),
    (["--backbone", "torchvision:resnet18:NONE", "--images", "3"], "weights of resnet18"),
])  # fmt: skip
def test_bad_input(more: list[str], message: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert analyze(files, "similarity", tmp_path / "out", *more) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bad_folders(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    common = ["--backbone", str(files / "net.pt"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert cli.main(["analyze", "similarity", str(files / "empty"), *common]) == 1
    assert "empty: expected photographs" in capsys.readouterr().err
    assert cli.main(["analyze", "similarity", *common]) == 1
    assert "images: expected a folder of photographs or --cifar, and not both" in capsys.readouterr().err
    photos = str(files / "cifar" / "train" / "class0")
    assert cli.main(["analyze", "similarity", photos, *common, "--images", "2"]) == 1
    assert "backbone: expected a network of 224 x 224 images" in capsys.readouterr().err
    assert cli.main(["analyze", "embedding", photos, *common]) == 1
    assert "expected at least 3 class folders, got 0; or name files" in capsys.readouterr().err
    assert cli.main(["analyze", "embedding", "/no/such.jpg", *common]) == 1
    assert "/no/such.jpg: expected a photograph" in capsys.readouterr().err
