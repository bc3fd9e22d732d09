"""Trains a ResNet-18 on a folder: torchvision decodes, crops and flips on CPU workers, PRIME works on the batch.

    python examples/torchvision_loader.py FOLDER --epochs 90

PRIME's draws depend on each image's index and the epoch, not on batch size, order or workers. The crops and flips
come from torch's generators in the workers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from arguments import parse
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18
from torchvision.transforms import v2

from prime_dali import PRIME


class IndexedFolder(ImageFolder):
    """An ImageFolder that returns each image's index too."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        """Image, label, index."""
        return *super().__getitem__(index), index


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the last loss of every epoch."""
    options = parse(__doc__, argv)
    crop = v2.Compose([v2.RandomResizedCrop(options.size), v2.RandomHorizontalFlip(), v2.PILToTensor()])  # uint8
    data = IndexedFolder(options.folder, crop)
    # All batches have one size; a folder that is smaller than a batch makes one batch.
    loader = DataLoader(data, min(options.batch, len(data)), True, num_workers=options.workers, drop_last=True)
    model = resnet18(num_classes=len(data.classes)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    augment = PRIME("imagenet", seed=1, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    for epoch in range(options.epochs):
        for batch in loader:
            images, labels, index = (tensor.to(options.device) for tensor in batch)
            loss = torch.nn.functional.cross_entropy(model(augment(images, index, epoch)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
