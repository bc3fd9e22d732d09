"""Trains a ResNet-18 with Lightning: PRIME is a callback, which works on the device.

    python examples/lightning_callback.py FOLDER --epochs 90

A checkpoint has what PRIME needs, so ``trainer.fit(..., ckpt_path=...)`` goes on with the same draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from arguments import parse
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
from torchvision.models import resnet18
from torchvision.transforms import v2
from torchvision_loader import IndexedFolder

from prime_dali import PRIME
from prime_dali.integrations.lightning import PRIMECallback


class Classifier(LightningModule):
    """A network and its loss."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = resnet18(num_classes=classes)

    def training_step(self, batch: tuple[torch.Tensor, ...], _: int) -> torch.Tensor:
        """The loss of augmented, normalized images."""
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main(argv: Sequence[str] | None = None) -> None:
    """Train."""
    options = parse(__doc__, argv)
    crop = v2.Compose([v2.RandomResizedCrop(options.size), v2.RandomHorizontalFlip(), v2.PILToTensor()])  # uint8
    data = IndexedFolder(options.folder, crop)  # (image, label, index)
    augment = PRIME("imagenet", seed=1, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    prime = PRIMECallback(augment, index_key=2)
    trainer = Trainer(max_epochs=options.epochs, callbacks=[prime], accelerator=options.device)
    trainer.fit(Classifier(len(data.classes)), DataLoader(data, options.batch, True, num_workers=options.workers))


if __name__ == "__main__":
    main()
