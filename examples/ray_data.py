"""Trains a ResNet-18 on a folder: Ray Data decodes, actors on the cluster's CPUs run PRIME, the batches come here.

    python examples/ray_data.py FOLDER --epochs 90 --workers 8

An image's draws depend on its index and the epoch, not on batches, actors or machines. --workers is the number of
actors. With num_gpus=1 in map_batches each of them runs on a GPU.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
from arguments import parse
from PIL import Image, ImageOps
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

from prime_dali.ray import PRIME


def decode(row: dict[str, Any], size: int) -> dict[str, Any]:
    """The row of a file with its image, uint8 [size, size, 3]."""
    return {**row, "image": np.asarray(ImageOps.fit(Image.open(row["path"]).convert("RGB"), (size, size)))}


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the last loss of every epoch."""
    options = parse(__doc__, argv)
    rows = [{"path": p, "label": c, "index": i} for i, (p, c) in enumerate(ImageFolder(options.folder).samples)]
    model = resnet18(num_classes=len({row["label"] for row in rows})).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    actors = ray.data.ActorPoolStrategy(size=max(options.workers, 1))
    for epoch in range(options.epochs):
        images = ray.data.from_items(random.sample(rows, len(rows))).map(decode, fn_kwargs={"size": options.size})
        drawn = {"config": "imagenet", "seed": 1, "epoch": epoch}
        augmented = images.map_batches(PRIME, fn_constructor_kwargs=drawn, batch_size=options.batch, compute=actors)
        for batch in augmented.iter_batches(batch_size=options.batch):
            pixels, labels = (torch.tensor(batch[name], device=options.device) for name in ("image", "label"))
            loss = torch.nn.functional.cross_entropy(model(pixels.permute(0, 3, 1, 2) / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
