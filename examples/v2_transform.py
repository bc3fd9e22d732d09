"""Trains a ResNet-18 on a folder, with PRIME as one transform among those of torchvision, in the loader's workers.

    python examples/v2_transform.py FOLDER --epochs 90

This is one line in a pipeline that exists. On a GPU PRIME is faster by orders of magnitude: see torchvision_loader.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from arguments import parse
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18
from torchvision.transforms import v2

import prime_dali.v2


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the last loss of every epoch."""
    options = parse(__doc__, argv)
    to_floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    normalize = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    augment = [v2.RandomResizedCrop(options.size), v2.RandomHorizontalFlip(), prime_dali.v2.PRIME("imagenet")]
    data = ImageFolder(options.folder, v2.Compose([*augment, *to_floats, normalize]))
    loader = DataLoader(data, options.batch, shuffle=True, num_workers=options.workers)
    model = resnet18(num_classes=len(data.classes)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(options.epochs):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.to(options.device)), labels.to(options.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
