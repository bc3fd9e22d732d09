"""Trains with the Jensen-Shannon loss on any loader of (images, labels), PRIME within the compiled step.

    python examples/timm_loop.py FOLDER --epochs 90

Any loader of uint8 images, or of floats in [0, 1], does; here it is torchvision's. It returns no index of the images,
so PRIME counts; save its ``state_dict`` with the network's to resume a run. For timm's own loader see timm_splits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from arguments import parse
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from prime_dali import PRIME
from prime_dali.training.losses import jsd_loss

try:
    from timm import create_model
except ImportError:
    from torchvision.models import get_model as create_model


def train(loader: Iterable, model: torch.nn.Module, epochs: int, device: str) -> None:
    """Train, and print the last loss of every epoch."""
    augment = PRIME("imagenet", seed=1, views=3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)).to(device)
    optimizer = torch.optim.SGD(model.to(device).parameters(), lr=0.1, momentum=0.9)
    step = torch.compile(lambda images, labels: jsd_loss(model(augment(images)), labels), fullgraph=True)
    for epoch in range(epochs):
        for images, labels in loader:
            loss = step(images.to(device), labels.to(device))  # tensors that are there already stay as they are
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def main(argv: Sequence[str] | None = None) -> None:
    """Train a ResNet-18, timm's where timm is installed, on a folder."""
    options = parse(__doc__, argv)
    data = ImageFolder(options.folder, v2.Compose([v2.RandomResizedCrop(options.size), v2.PILToTensor()]))
    # All batches have one size; a folder that is smaller than a batch makes one batch.
    loader = DataLoader(data, min(options.batch, len(data)), True, num_workers=options.workers, drop_last=True)
    train(loader, create_model("resnet18", num_classes=len(data.classes)), options.epochs, options.device)


if __name__ == "__main__":
    main()
