"""Training on folders of photographs, through DALI: the ImageNet recipes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")

from prime_dali.training import checkpoint, train
from prime_dali.training.config import TrainConfig
from prime_dali.training.datasets import opened
from prime_dali.training.ranks import Ranks
from prime_dali.training.trainer import Trainer

ALONE = Ranks(0, 1, torch.device("cpu"))
SMALL = [
    "--recipe=imagenet", "--weights=", "--network=shufflenet_v2_x0_5", "--no-compile", "--batch=6", "--epochs=2",
    "--log-every=2", "--size=32", "--resize=36", "--workers=1", "--lr=0.2", "--warmup=0.3", "--device=cpu",
]  # fmt: skip


def make_tree(root: Path, photo: np.ndarray, classes: str = "abc", images: int = 6) -> Path:
    for i, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for k in range(images):
            Image.fromarray(np.roll(photo[80 * i : 80 * i + 80, 40 * k : 40 * k + 90], k, -1)).save(
                root / name / f"{k}.jpg"
            )
    return root


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    skimage = pytest.importorskip("skimage", reason="scikit-image is not installed")
    return skimage.data.chelsea()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, photo: np.ndarray) -> Path:
    root = tmp_path_factory.mktemp("folders")
    make_tree(root / "train", photo)
    make_tree(root / "val", photo[:, ::-1], images=3)
    return root


def start(data: Path, out: Path, *more: str, ranks: Ranks = ALONE) -> Trainer:
    return Trainer(train.read(["--data", str(data), "--out", str(out), *SMALL, *more]), ranks, lambda line: None)


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in checkpoint.read_log(folder) if "loss" in line]


@pytest.mark.parametrize("method", [
    "standard", "prime --jsd --jsd-views 2", "augmix --jsd --mixup 1", "prime --mixup 1 --cutmix 1 --mix-order before --sizes 24 32",
])  # fmt: skip
def test_continues_in_the_middle_of_an_epoch(data: Path, tmp_path: Path, method: str) -> None:
    arguments = ["--method", *method.split()]
    whole = start(data, tmp_path / "whole", *arguments)
    assert whole.run().finished
    assert (whole.steps, whole.total) == (3, 6)
    assert [line["images"] for line in checkpoint.read_log(tmp_path / "whole") if "accuracy" in line] == [9, 9]
    stopped = start(data, tmp_path / "parts", *arguments)
    stopped._stopping.asked = True
    assert stopped.run().step == 1  # before the first log line
    assert start(data, tmp_path / "parts", *arguments).run().finished
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_the_network_sees_what_the_pipeline_is_told(data: Path, tmp_path: Path) -> None:
    """Three views, normalized; with PRIME of no strength, and with AugMix left out, all of them are the clean image."""
    trainer = start(data, tmp_path, "--method", "prime", "--jsd", "--alpha", "0")
    images, labels = next(trainer.data.batches(0))
    assert images.shape == (18, 3, 32, 32)
    assert len(labels) == 6
    torch.testing.assert_close(images[:6], images[6:12], atol=2e-5, rtol=0)
    plain, same = next(start(data, tmp_path, "--method", "standard").data.batches(0))
    assert torch.equal(labels, same)
    torch.testing.assert_close(images[:6], plain, atol=2e-5, rtol=0)
    assert (trainer.classifier.size, trainer.classifier.resize) == (32, 36)  # what an evaluation is told
    assert (trainer.classifier.mean, trainer.classifier.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize("order", ["after", "before"])
def test_mixing_before_and_after(data: Path, tmp_path: Path, order: str) -> None:
    """Without strength PRIME changes nothing, and normalization commutes with mixing: both orders are mixed images."""
    plain, labels = next(start(data, tmp_path, "--method", "standard").data.batches(0))
    words = ["--jsd", "--alpha", "0", "--mixup", "1", "--mix-order", order]
    images, soft = next(start(data, tmp_path, *words).data.batches(0))
    differs = int((labels != labels.roll(1)).nonzero()[0])
    weight = soft[differs, labels[differs]].item()
    one_hot = torch.nn.functional.one_hot(labels, 3).float()
    torch.testing.assert_close(soft, weight * one_hot + (1 - weight) * one_hot.roll(1, 0))
    for view in images.chunk(3):
        torch.testing.assert_close(view, weight * plain + (1 - weight) * plain.roll(1, 0), atol=4e-5, rtol=0)


def test_sizes_change_in_the_middle_of_what_is_read(data: Path, tmp_path: Path) -> None:
    """The same images in the same order as without sizes; each epoch of a trial has its size, also of a run that resumes
    in the last one, with a state of an earlier version too."""
    words = ["--method", "standard", "--epochs", "3", "--limit-steps", "2"]
    trainer = start(data, tmp_path, *words, "--sizes", "24", "32", "40")
    batches = trainer.data.batches(0)
    fixed = start(data, tmp_path, *words).data.batches(0)
    for side in (24, 24, 32, 32, 40, 40):
        state = trainer.data.state()
        (images, labels), (same, expected) = next(batches), next(fixed)
        assert images.shape == (6, 3, side, side)
        assert torch.equal(labels, expected)
        if side == 32:
            assert torch.equal(images, same)
    earlier = {name: one for name, one in state["settings"].items() if name not in ("prime", "crop", "output")}
    again = start(data, tmp_path, *words, "--sizes", "24", "32", "40").data
    for one in (state, {**state, "settings": earlier}):
        again.restore(one)
        assert torch.equal(next(again.batches(5))[0], images)


def test_alpha_changes_with_the_epoch(data: Path, tmp_path: Path) -> None:
    """From a part of it to all of it, also in a run that resumes in between."""
    words = ["--method", "prime", "--no-jsd", "--draws", "batch", "--epochs", "3"]
    trainer = start(data, tmp_path, *words, "--alpha", "0.8", "--alpha-start", "0.25")
    whole = trainer.data.batches(0)
    expected = {
        alpha: start(data, tmp_path, *words, "--alpha", alpha).data.batches(0) for alpha in ("0.2", "0.5", "0.8")
    }
    states = []
    for alpha in expected:
        for _ in range(trainer.data.steps):
            states.append(trainer.data.state())
            images, others = next(whole), {name: next(batches) for name, batches in expected.items()}
            assert torch.equal(images[0], others[alpha][0])
            assert not any(torch.equal(images[0], other[0]) for name, other in others.items() if name != alpha)
    again = start(data, tmp_path, *words, "--alpha", "0.8", "--alpha-start", "0.25").data
    again.restore(states[-1])
    assert torch.equal(next(again.batches(len(states) - 1))[0], images[0])


def test_tiny_imagenet(tmp_path: Path, photo: np.ndarray) -> None:
    """200 class folders, images below them as in the published archive; the recipe trains."""
    for part in ("train", "val"):
        for i in range(200):
            folder = tmp_path / "data" / part / f"n{i:08d}" / ("images" if part == "train" else "")
            folder.mkdir(parents=True)
            Image.fromarray(photo[i : i + 64, i : i + 64]).save(folder / "0.JPEG")
    words = ["--recipe=tinyimagenet", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    config = train.read(
        [*words, *(word for word in SMALL if word.split("=")[0] in ("--network", "--device", "--no-compile"))]
    )
    assert (config.size, config.resize, config.jsd, config.stem) == (64, 64, True, "cifar")
    trainer = start(tmp_path / "data", tmp_path / "out", "--recipe=tinyimagenet", "--size=64", "--resize=64",
                    "--stem=imagenet", "--limit-steps=2", "--batch=4", "--epochs=1", "--warmup=0.6")  # fmt: skip
    assert trainer.run().finished
    assert len(trainer.classifier.classes) == 200
    [seen] = [line["images"] for line in checkpoint.read_log(tmp_path / "out") if "accuracy" in line]
    assert seen == 2 * 4  # as many as in the steps
    (tmp_path / "data" / "train" / "n00000007").rename(tmp_path / "away")
    message = "data: .*train: expected the 200 classes of Tiny ImageNet, got 199; --recipe imagenet --weights= takes any classes"
    with pytest.raises(ValueError, match=message):
        start(tmp_path / "data", tmp_path / "new", "--recipe=tinyimagenet")
    with pytest.raises(FileNotFoundError, match=r"Tiny ImageNet comes from cs231n.stanford.edu"):
        start(tmp_path, tmp_path / "new", "--recipe=tinyimagenet")


def test_deepaugment_is_a_concatenation(data: Path, tmp_path: Path, photo: np.ndarray) -> None:
    trees = [make_tree(tmp_path / name, photo // divisor, images=4) for name, divisor in (("EDSR", 2), ("CAE", 3))]
    trainer = start(data, tmp_path / "out", "--deepaugment", *map(str, trees))
    assert trainer.steps == (18 + 12 + 12) // 6
    (trees[1] / "c").rename(trees[1] / "d")
    with pytest.raises(ValueError, match="CAE: expected the classes of train; missing: c; not in train: d"):
        start(data, tmp_path / "out", "--deepaugment", *map(str, trees))


def test_bad_folders(data: Path, tmp_path: Path, photo: np.ndarray) -> None:
    with pytest.raises(FileNotFoundError, match=r"^data: no such file or folder: .*nowhere$"):
        start(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"^val: no such file or folder: .*nowhere$"):
        start(data / "train", tmp_path / "out", "--val", str(tmp_path / "nowhere"))
    with pytest.raises(
        FileNotFoundError, match=r"^data: .*train: expected one folder of images per class here, .* image-net.org"
    ):
        start(tmp_path, tmp_path / "out")
    with pytest.raises(ValueError, match=r"^batch: expected at most the 18 training images, got 19"):
        start(data, tmp_path / "out", "--batch", "19")
    make_tree(tmp_path / "train", photo)
    make_tree(tmp_path / "val", photo, classes="abd")
    with pytest.raises(ValueError, match="val: expected the classes of train; missing: c; not in train: d"):
        start(tmp_path, tmp_path / "out")
    with pytest.raises(ValueError, match="for in100, got 3; --recipe imagenet --weights= takes any classes"):
        start(data, tmp_path / "out", "--recipe", "in100")
    message = (
        "^data: .*: expected the 10 class folders of CIFAR-10, got 3; --recipe imagenet --weights= takes any classes"
    )
    with pytest.raises(ValueError, match=message):
        Trainer(train.read(["--data", str(data), "--out", str(tmp_path / "out"), "--device=cpu"]), ALONE)
    assert not (tmp_path / "out").exists()


def test_imagenet_100_is_every_tenth_class(tmp_path: Path) -> None:
    for i in range(1000):
        (tmp_path / f"n{i:08d}").mkdir()
        (tmp_path / f"n{i:08d}" / "0.jpg").touch()
    found = opened(TrainConfig(recipe="in100"), str(tmp_path), None)
    assert found.classes == tuple(f"n{i:08d}" for i in range(0, 1000, 10))
    assert found.labels.tolist() == list(range(100))
    assert [Path(f).parent.name for f in found.files] == list(found.classes)


def test_does_not_continue_with_other_images(tmp_path: Path, photo: np.ndarray) -> None:
    """As many, but each with another's number."""
    make_tree(tmp_path / "train", photo)
    make_tree(tmp_path / "val", photo, images=2)
    trainer = start(tmp_path, tmp_path / "out")
    trainer._stopping.asked = True
    trainer.run()
    (tmp_path / "train" / "a" / "0.jpg").rename(tmp_path / "train" / "b" / "9.jpg")
    with pytest.raises(ValueError, match="data: expected the images and classes that the run started with"):
        start(tmp_path, tmp_path / "out")
    (tmp_path / "train" / "b" / "9.jpg").rename(tmp_path / "train" / "a" / "0.jpg")
    (tmp_path / "moved").mkdir()
    for part in ("train", "val"):
        (tmp_path / part).rename(tmp_path / "moved" / part)
    assert start(tmp_path / "moved", tmp_path / "out").step == 1


def test_a_broken_file_is_replaced(tmp_path: Path, photo: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    make_tree(tmp_path / "train", photo)
    make_tree(tmp_path / "val", photo, images=2)
    (tmp_path / "train" / "a" / "0.jpg").write_bytes(b"no picture")
    assert start(tmp_path, tmp_path / "out").run().finished
    assert "a/0.jpg" in caplog.text
