"""Wrong arguments of the training loops of other libraries: each message names the argument and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import prime_dali


def test_keys_of_lightning() -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed")
    from prime_dali.integrations.lightning import PRIMECallback

    augment = prime_dali.PRIME("cifar")
    for keys, message in (
        ({"index_key": True}, r"index_key: expected the key or the position of an entry .*, got bool \(True\)"),
        ({"image_key": 1.5}, "image_key: expected the key or the position of an entry .*, got float"),
        ({"image_key": None}, "image_key: expected the key or the position of an entry .*, got NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            PRIMECallback(augment, **keys)  # type: ignore[arg-type]


def test_three_views_without_labels_in_hugging_face() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from prime_dali.integrations.huggingface import PRIMETrainer

    trainer = PRIMETrainer(torch.nn.Linear(2, 2), augment=prime_dali.PRIME("cifar", views=3))
    with pytest.raises(ValueError, match="labels: expected a batch with labels for the loss of several views"):
        trainer.compute_loss_func({"logits": torch.zeros(3, 2)}, None)


def test_loader_and_options_of_timm(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    import PIL.Image
    from timm.data import ImageDataset, create_loader

    from prime_dali.integrations import timm

    (tmp_path / "a").mkdir()
    PIL.Image.new("RGB", (32, 32)).save(tmp_path / "a" / "0.png")
    loader = create_loader(
        ImageDataset(str(tmp_path)), 32, batch_size=1, is_training=True, num_workers=0, device=torch.device("cpu")
    )
    timm.augment_loader(loader)
    with pytest.raises(ValueError, match="loader: expected one without PRIME, got one that has it"):
        timm.augment_loader(loader)
    script = tmp_path / "train.py"
    script.write_text("")
    for alpha in ("nan", "-1"):
        with pytest.raises(SystemExit):
            timm.main(["--alpha", alpha, str(script)])
        assert "--alpha: expected a finite number >= 0, got" in capsys.readouterr().err
