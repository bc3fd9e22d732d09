"""PRIME in timm's own loader: splits, mixup, random erasing, epochs and ranks, and the command that runs its script."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_images
from PIL import Image

import prime_dali

pytest.importorskip("timm", reason="timm is not installed")
import timm.data
from timm.data import AugMixDataset, FastCollateMixup, ImageDataset, create_loader

from prime_dali.integrations import timm as integration
from prime_dali.integrations.timm import augment_loader

SIZE, COUNT = 16, 6
MEAN, STD = torch.tensor(timm.data.IMAGENET_DEFAULT_MEAN), torch.tensor(timm.data.IMAGENET_DEFAULT_STD)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("timm")
    for number, image in enumerate(make_images(COUNT, SIZE, SIZE, torch.uint8)):
        path = root / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return root


def loader(data: Any, **options: Any) -> Any:
    """timm's training loader without any random change of its own, in a fixed order."""
    torch.manual_seed(0)
    unchanged = {"scale": (1, 1), "ratio": (1, 1), "hflip": 0, "color_jitter": None, "num_workers": 0}
    options = {"input_size": SIZE, **unchanged, **options}
    return create_loader(data, batch_size=2, is_training=True, device=torch.device("cpu"), **options)


def batches(loader: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """All images of a pass, ``[batches, images of a batch, ...]``, and all targets."""
    torch.manual_seed(0)
    images, targets = zip(*loader, strict=True)
    return torch.stack(images), torch.stack(targets)


def expected(clean: torch.Tensor, first: int, epoch: int = 0, view: int = 0, step: int = 1) -> torch.Tensor:
    """Normalized images of timm, augmented as numbers ``first``, ``first + step``, ..."""
    index = torch.arange(first, first + step * len(clean), step)
    plan = prime_dali.sample("cifar", index, size=SIZE, seed=4, epoch=epoch, view=view)
    pixels = clean * STD[:, None, None] + MEAN[:, None, None]
    return prime_dali.apply(pixels, plan, mean=MEAN.tolist(), std=STD.tolist())


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal up to the rounding of timm's normalization, which steep color maps amplify."""
    return bool(((one - other).abs() < 0.02).float().mean() > 0.99)


def test_every_image_of_every_epoch_has_its_draw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, labels = batches(loader(ImageDataset(folder)))
    augmented = augment_loader(loader(ImageDataset(folder)), "cifar", seed=4)
    assert len(augmented) == 3
    for epoch in (0, 1, 5):
        if epoch == 5:
            augmented.dataset.set_epoch(5)  # as timm's script does
        images, targets = batches(augmented)
        assert torch.equal(targets, labels)
        assert not close(images, clean)
        for number, (image, before) in enumerate(zip(images, clean, strict=True)):
            assert close(image, expected(before, 2 * number, epoch))
    told: list[int] = []
    augmented.sampler.set_epoch = told.append  # as a sampler of several ranks has it
    augmented.batch_sampler.set_epoch = told.append
    augmented.set_epoch(7)
    assert told == [7, 7]
    monkeypatch.setattr(integration, "rank_and_ranks", lambda: (1, 2))
    augmented.set_epoch(0)
    assert close(batches(augmented)[0][1], expected(clean[1], 2 * 2 + 1, step=2))


def test_gray_images(folder: Path) -> None:
    gray = loader(ImageDataset(folder, input_img_mode="L"), input_size=(1, SIZE, SIZE), mean=(0.5,), std=(0.25,))
    images, _ = batches(augment_loader(gray, "cifar", seed=4))
    assert images.shape == (3, 2, 1, SIZE, SIZE)


def test_splits_are_clean_and_augmented_views(folder: Path) -> None:
    """Of one image each; the targets are repeated, and random erasing comes last."""
    splits = {"num_aug_splits": 3}
    clean, labels = batches(loader(AugMixDataset(ImageDataset(folder), 3), **splits))
    images, targets = batches(augment_loader(loader(AugMixDataset(ImageDataset(folder), 3), **splits), "cifar", seed=4))
    assert torch.equal(targets, labels)
    assert images.shape == (3, 3 * 2, 3, SIZE, SIZE)
    for number, batch in enumerate(images):
        assert torch.allclose(batch[:2], clean[number, :2], atol=1e-5)
        for view in range(2):
            assert close(batch[2 + 2 * view : 4 + 2 * view], expected(clean[number, :2], 2 * number, view=view))
    torch.nn.functional.one_hot(targets)  # hard labels, as JsdCrossEntropy wants

    erased, _ = batches(augment_loader(loader(ImageDataset(folder), re_prob=1.0), "cifar"))
    assert (erased == 0).all(2).flatten(2).any(2).all()  # what is erased stays the mean
    inner, erasings = loader(ImageDataset(folder)), []
    inner.random_erasing = lambda images: erasings.append(len(images)) or images
    batches(augment_loader(inner, "cifar"))
    assert erasings == [2] * 3  # once


def test_mixup_comes_before(folder: Path) -> None:
    mixup = FastCollateMixup(mixup_alpha=1.0, prob=1.0, num_classes=2, label_smoothing=0)
    augmented = augment_loader(loader(ImageDataset(folder), collate_fn=mixup), "cifar")
    assert augmented.mixup_enabled
    _, soft = batches(augmented)
    assert soft.shape == (3, 2, 2)
    augmented.mixup_enabled = False  # as timm's script does after --mixup-off-epoch
    assert not mixup.mixup_enabled
    _, hard = batches(augmented)
    assert hard.unique().tolist() == [0, 1]
    with pytest.raises(ValueError, match="splits with hard labels, or mixup without splits"):
        augment_loader(loader(AugMixDataset(ImageDataset(folder), 2), num_aug_splits=2, collate_fn=mixup))


def test_a_loader_that_has_normalized_is_refused(folder: Path) -> None:
    with pytest.raises(TypeError, match=r"loader: .* PrefetchLoader, got DataLoader; .*--no-prefetcher"):
        augment_loader(loader(ImageDataset(folder), use_prefetcher=False))
    with pytest.raises(TypeError, match="got AugmentedLoader"):
        augment_loader(augment_loader(loader(ImageDataset(folder))))  # type: ignore[arg-type]
    inner = augment_loader(loader(ImageDataset(folder))).loader
    with pytest.raises(ValueError, match="loader: expected one without PRIME, got one that has it"):
        augment_loader(inner)
    validation = create_loader(ImageDataset(folder), SIZE, 2, is_training=False, device=torch.device("cpu"))
    with pytest.warns(UserWarning, match="loader: expected a training loader, got one that does not shuffle"):
        augment_loader(validation)


SCRIPT = """
import sys
import torch
from timm.data import ImageDataset, create_loader

if sys.argv[2] == "naflex":
    import timm.data

    timm.data.create_naflex_loader(ImageDataset(sys.argv[1]), is_training=True)
for training in eval(sys.argv[2]):
    loader = create_loader(ImageDataset(sys.argv[1]), 16, 2, training, device=torch.device("cpu"), num_workers=0)
    print(__name__, training, type(loader).__name__, [getattr(getattr(loader, "config", None), name, None) for name in ("alpha", "wave_strength")], getattr(loader, "seed", None))
"""


def test_the_command_runs_a_script(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    before = timm.data.create_loader
    monkeypatch.setattr(
        sys,
        "argv",
        ["", "--alpha", "0.5", "--wave-strength", "5", "--prime-seed", "7", str(script), str(folder), "(True, False)"],
    )
    with pytest.warns(RuntimeWarning, match="found in sys.modules"):  # of runpy, as it is imported here
        runpy.run_module(integration.__name__, run_name="__main__")
    assert timm.data.create_loader is before
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["__main__ True AugmentedLoader [0.5, 5.0] 7", "__main__ False PrefetchLoader [None, None] None"]
    with pytest.raises(ValueError, match="got a NaFlex one"):
        integration.main([str(script), str(folder), "naflex"])
    own = list(sys.argv), list(sys.path)
    with pytest.raises(RuntimeError, match=r"train.py: expected a training loader .* nothing was augmented"):
        integration.main([str(script), str(folder), "(False,)"])
    assert (sys.argv, sys.path) == own
    for words, message in (
        (["--aalpha", "1", str(script)], "--aalpha: no such option"),
        (["--wave-strength", "-1", str(script)], "--wave-strength: expected "),
        (["no.py"], "expected a file"),
    ):
        with pytest.raises(SystemExit):
            integration.main(words)
        assert message in capsys.readouterr().err
