"""PRIME with Hugging Face: the real Trainer with a tiny network, and datasets with the transform of torchvision v2."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_images
from PIL import Image

import prime_dali

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
from prime_dali.integrations.huggingface import PRIMETrainer  # noqa: E402

IMAGES = make_images(5, 8, 8, torch.uint8)
LABELS = torch.arange(5) % 2


class Model(torch.nn.Module):
    """A linear classifier with the interface of transformers, which keeps what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
        self.seen: list[torch.Tensor] = []
        self.evaluated: list[torch.Tensor] = []
        self.others: set[str] = set()

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None, **others: Any) -> dict[str, Any]:
        self.others |= others.keys()
        (self.seen if self.training else self.evaluated).append(pixel_values)
        logits = self.net(pixel_values.float() / 255)
        out = {"logits": logits}
        return out if labels is None else {"loss": torch.nn.functional.cross_entropy(logits, labels), **out}


def samples() -> list[dict[str, Any]]:
    return [
        {"pixel_values": image, "labels": label, "index": i}
        for i, (image, label) in enumerate(zip(IMAGES, LABELS.tolist(), strict=True))
    ]


def train(
    folder: Path, augment: prime_dali.PRIME, resume: Path | None = None, saving: bool = False, **options: Any
) -> Any:
    """Two epochs of three batches, two steps each."""
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=2, per_device_eval_batch_size=5, num_train_epochs=2, save_steps=1,
        save_strategy="steps" if saving else "no",
        gradient_accumulation_steps=2, remove_unused_columns=False, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    data = samples()
    trainer = PRIMETrainer(Model(), arguments, train_dataset=data, eval_dataset=data, augment=augment, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_training_with_index_and_three_views(tmp_path: Path) -> None:
    augment = prime_dali.PRIME("cifar", seed=5, views=3)
    trainer = train(tmp_path, augment, index_key="index")
    seen = trainer.model.seen
    assert [len(images) for images in seen] == 2 * [6, 6, 3]
    for number, images in enumerate(seen):
        clean = images[: len(images) // 3]
        index = torch.tensor([int((image == IMAGES).flatten(1).all(1).nonzero()) for image in clean])
        assert torch.equal(images, augment(IMAGES[index], index, number // 3))
    result = trainer.evaluate()
    assert torch.equal(trainer.model.evaluated[-1], IMAGES)
    assert "index" not in trainer.model.others
    logits = trainer.model.net(IMAGES.float() / 255).detach()
    assert result["eval_loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, LABELS)), rel=1e-5)


def test_a_run_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Without an index, every image has a number of its own; transformers itself resumes the order."""
    augment, numbers = prime_dali.PRIME("cifar"), list[int]()
    augment.register_forward_pre_hook(lambda module, arguments: numbers.extend(arguments[1].tolist()))
    whole = train(tmp_path, augment, saving=True).model.seen
    assert len(set(numbers)) == 10
    rest = train(tmp_path, prime_dali.PRIME("cifar"), tmp_path / "checkpoint-1").model.seen
    assert len(rest) == 4
    assert all(torch.equal(*pair) for pair in zip(rest, whole[2:], strict=True))
    assert len(torch.cat(whole).flatten(1).unique(dim=0)) == 10


def test_ranks_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = SimpleNamespace(_step=(-1, 0), state=SimpleNamespace(global_step=1), _train_batch_size=4)
    trainer.args = SimpleNamespace(gradient_accumulation_steps=2)
    monkeypatch.setattr("prime_dali.integrations.huggingface.rank_and_ranks", lambda: (1, 2))
    assert PRIMETrainer._places(trainer, IMAGES[:2]).tolist() == [17, 19]  # 8 images of each before
    assert PRIMETrainer._places(trainer, IMAGES[:2]).tolist() == [25, 27]


def test_a_batch_without_the_index(tmp_path: Path) -> None:
    message = "index_key: expected a batch with the entry 'number', got one with .*; .* remove_unused_columns=False"
    with pytest.raises(ValueError, match=message):
        train(tmp_path, prime_dali.PRIME("cifar"), index_key="number")


def test_labels_of_three_views(tmp_path: Path) -> None:
    from prime_dali.integrations.huggingface import _jsd

    logits = torch.zeros(6, 2)
    soft = _jsd({"logits": logits}, torch.full((2, 2), 0.5), 4)
    assert soft == _jsd({"logits": logits}, torch.tensor([0, 1]), 4) == pytest.approx(np.log(2) * 2 / 4)
    with pytest.raises(ValueError, match=r"labels: expected int64 \[N\], or soft labels, floating \[N, C\], got"):
        _jsd({"logits": logits}, torch.full((2,), 0.5))
    three, one = (prime_dali.PRIME("cifar", views=views) for views in (3, 1))
    arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    for augment, options, loss in ((three, {}, _jsd), (one, {}, None), (three, {"compute_loss_func": print}, print)):
        assert PRIMETrainer(Model(), arguments, augment=augment, **options).compute_loss_func is loss
    with pytest.raises(TypeError, match=r"augment: expected a prime_dali.PRIME, got str"):
        PRIMETrainer(Model(), augment="cifar")  # type: ignore[arg-type]


def test_datasets_with_the_transform_of_v2() -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    transform = prime_dali.v2.PRIME("cifar", seed=5, index_key="index")
    data = datasets.Dataset.from_dict({"image": IMAGES.tolist(), "index": list(range(5))})

    def augmented(batch: dict[str, list]) -> dict[str, Any]:
        images = torch.tensor(batch["image"], dtype=torch.uint8)
        return transform({"image": images, "index": torch.tensor(batch["index"])})

    made = next(iter(torch.utils.data.DataLoader(data.with_transform(augmented), 5)))
    assert torch.equal(made["image"], prime_dali.PRIME("cifar", seed=5)(IMAGES, torch.arange(5), 0))


def test_datasets_as_on_the_page_of_loops() -> None:
    """The page's own lines: each image of a batch has a draw of its own."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="torchvision is not installed")
    page = (Path(__file__).parents[1] / "docs/loops.md").read_text(encoding="utf-8")
    block = next(code for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "with_transform" in code)
    photo = Image.fromarray(IMAGES[0].permute(1, 2, 0).numpy())
    columns = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    train = datasets.Dataset.from_dict({"image": 3 * [photo], "label": [0, 1, 2]}, columns)
    names: dict[str, Any] = {"prime_dali": prime_dali, "v2": v2, "train": train}
    exec(block.replace("224", "8"), names)
    made = next(iter(torch.utils.data.DataLoader(names["train"], 3)))
    assert made["labels"].tolist() == [0, 1, 2]
    assert len(made["pixel_values"].flatten(1).unique(dim=0)) == 3
