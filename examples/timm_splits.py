"""Trains a ResNet-18 with timm's loader, its three splits and its Jensen-Shannon loss; PRIME works on the device.

    python examples/timm_splits.py FOLDER --epochs 90

timm's own script does the same: python -m prime_dali.integrations.timm train.py FOLDER --aug-splits 3 --jsd-loss
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from arguments import parse
from timm import create_model
from timm.data import AugMixDataset, ImageDataset, create_loader
from timm.loss import JsdCrossEntropy

from prime_dali.integrations.timm import augment_loader


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the last loss of every epoch."""
    options = parse(__doc__, argv)
    device, data = torch.device(options.device), ImageDataset(options.folder)
    batch = min(options.batch, len(data))  # timm drops a last batch that is smaller
    splits = {"num_aug_splits": 3, "color_jitter": None, "num_workers": options.workers}
    loader = create_loader(AugMixDataset(data, 3), options.size, batch, is_training=True, device=device, **splits)
    loader = augment_loader(loader, "imagenet", seed=1)
    model = create_model("resnet18", num_classes=len(data.reader.class_to_idx)).to(device)
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), JsdCrossEntropy(3)
    for epoch in range(options.epochs):
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
