"""Trains a ResNet of Hugging Face's transformers on a data set of datasets: PRIME works on the device, in the Trainer.

    python examples/huggingface_trainer.py FOLDER --epochs 90

PRIME's draws depend on each image's index and the epoch. The data set crops and flips, in the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from arguments import parse
from datasets import Dataset, Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
from transformers import ResNetConfig, ResNetForImageClassification, TrainingArguments

from prime_dali import PRIME
from prime_dali.integrations.huggingface import PRIMETrainer


def cropped(batch: dict[str, list], crop: v2.Compose) -> dict[str, list]:
    """A batch of rows as the Trainer takes them; the images uint8."""
    return {
        "pixel_values": [crop(image) for image in batch["image"]],
        "labels": batch["label"],
        "index": batch["index"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Train."""
    options = parse(__doc__, argv)
    paths, labels = zip(*ImageFolder(options.folder).samples, strict=True)
    rows = {"image": paths, "label": labels, "index": range(len(paths))}
    crop = v2.Compose([v2.RGB(), v2.RandomResizedCrop(options.size), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    data = Dataset.from_dict(rows).cast_column("image", Image()).with_transform(partial(cropped, crop=crop))
    arguments = TrainingArguments(
        per_device_train_batch_size=options.batch, num_train_epochs=options.epochs, use_cpu=options.device == "cpu",
        dataloader_num_workers=options.workers, remove_unused_columns=False, report_to=[],
    )  # fmt: skip
    augment = PRIME("imagenet", seed=1, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    model = ResNetForImageClassification(ResNetConfig(num_labels=len(set(labels))))
    PRIMETrainer(model, arguments, train_dataset=data, augment=augment, index_key="index").train()


if __name__ == "__main__":
    main()
