"""PRIME as a callback of the real Trainer: which batches are augmented, with which draws, and after a resume."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from conftest import make_images
from torch.utils.data import DataLoader, TensorDataset

import prime_dali

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")
from prime_dali.integrations.lightning import PRIMECallback  # noqa: E402

IMAGES = make_images(6, 8, 8, torch.uint8)
LABELS, INDEX = torch.arange(6) % 2, torch.arange(6)


class Model(lightning.LightningModule):
    """A linear classifier that keeps the batches it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
        self.seen: list[Any] = []
        self.validated: list[Any] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.seen.append(batch)
        images = batch["image"] if isinstance(batch, dict) else batch[0]
        return self.net(images.float()).square().mean()

    def validation_step(self, batch: Any, _: int) -> None:
        self.validated.append(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


class Plain(lightning.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        return loader()


class Doubled(Plain):
    """Has a hook of its own."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return OrderedDict(image=batch[0] // 2, index=batch[2])


class Named(NamedTuple):
    image: torch.Tensor
    index: torch.Tensor


class Hooked(Model):
    """Has a hook of its own, which makes named tuples."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return Named(batch[0] // 2, batch[2])


def loader(images: torch.Tensor = IMAGES) -> DataLoader:
    return DataLoader(TensorDataset(images, LABELS, INDEX), 2)


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return lightning.Trainer(
        callbacks=list(callbacks), default_root_dir=folder, **{"enable_checkpointing": False, **quiet, **options}
    )


def test_training_batches_alone_with_index_and_epoch(tmp_path: Path) -> None:
    model, augment = Model(), prime_dali.PRIME("cifar", seed=5, views=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    prime = PRIMECallback(augment, image_key=-3, index_key=-1)  # positions from the end
    training = trainer(tmp_path, prime, max_epochs=2)
    prime.setup(training, model, "fit")  # as after a run that ended without a teardown: images are augmented once
    training.fit(model, loader(), loader())
    assert len(model.seen) == 6
    for number, (images, labels, index) in enumerate(model.seen):
        assert torch.equal(images, augment(IMAGES[index], index, number // 3))
        assert torch.equal(labels, LABELS[index])
    assert torch.equal(torch.cat([images for images, *_ in model.validated[-3:]]), IMAGES)
    assert "on_after_batch_transfer" not in vars(model)


def test_behind_the_hook_of_a_data_module(tmp_path: Path) -> None:
    model, prime = Model(), PRIMECallback(prime_dali.PRIME("cifar", seed=5), image_key="image", index_key="index")
    data = Doubled()
    trainer(tmp_path, prime, max_epochs=1).fit(model, datamodule=data)
    assert {type(batch) for batch in model.seen} == {OrderedDict}
    out = torch.cat([batch["image"] for batch in model.seen])
    assert torch.equal(out, prime_dali.PRIME("cifar", seed=5)(IMAGES // 2, INDEX, 0))
    assert "on_after_batch_transfer" not in vars(data)


def test_behind_the_hook_of_the_module_where_the_data_module_has_none(tmp_path: Path) -> None:
    model, prime = Hooked(), PRIMECallback(prime_dali.PRIME("cifar", seed=5), index_key=1)
    trainer(tmp_path, prime, max_epochs=1).fit(model, datamodule=Plain())
    out = torch.cat([batch.image for batch in model.seen])
    assert torch.equal(out, prime_dali.PRIME("cifar", seed=5)(IMAGES // 2, INDEX, 0))


def test_a_run_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Lightning begins a loader anew that has no state; so the images are all one, and what differs are the draws."""
    same = loader(IMAGES[:1].expand_as(IMAGES))
    whole, rest = Model(), Model()
    saving = lightning.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1)
    trainer(tmp_path, PRIMECallback(prime_dali.PRIME("cifar")), saving, max_epochs=2, enable_checkpointing=True).fit(
        whole, same
    )
    trainer(tmp_path, PRIMECallback(prime_dali.PRIME("cifar")), max_epochs=2).fit(
        rest, same, ckpt_path=tmp_path / "step=2.ckpt"
    )
    made = torch.cat([batch[0] for batch in whole.seen])
    assert torch.equal(torch.cat([batch[0] for batch in rest.seen]), made[4:])
    assert len(made.flatten(1).unique(dim=0)) == 12


@pytest.mark.parametrize(("arguments", "message"), [
    ({"image_key": 5}, "image_key: expected a batch with the entry 5, got one with 3 entries"),
    ({"index_key": "index"}, "index_key: expected a batch with the entry 'index'"),
    ({"image_key": 1}, "images: expected uint8, uint16, float16"),
    ({"index_key": 0}, "index: expected int64"),
])  # fmt: skip
def test_bad_batches(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    """And nothing is left behind."""
    model = Model()
    with pytest.raises((TypeError, ValueError), match=message):
        trainer(tmp_path, PRIMECallback(prime_dali.PRIME("cifar"), **arguments), max_epochs=1).fit(model, loader())
    assert "on_after_batch_transfer" not in vars(model)


def test_a_name_is_no_module() -> None:
    with pytest.raises(TypeError, match=r"augment: expected a prime_dali.PRIME, got str"):
        PRIMECallback("cifar")  # type: ignore[arg-type]


def test_the_package_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pytorch_lightning`` where only that has been imported, else ``lightning``."""
    from prime_dali.integrations.lightning import _package

    assert _package() is lightning
    other = types.ModuleType("pytorch_lightning")
    monkeypatch.setitem(sys.modules, "pytorch_lightning", other)
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    assert _package() is other
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(ImportError, match=r"integrations.lightning needs .*: pip install 'prime-dali\[lightning\]'"):
        _package()
