"""Images per second of a training loop that has nothing but the network: one batch of random pixels, over and over.

::

    python benchmarks/bare_loop.py --recipe imagenet --data none --out none --limit-steps 160
    torchrun --nproc-per-node=2 benchmarks/bare_loop.py --recipe imagenet --no-jsd --batch 512 --data none --out none \\
        --limit-steps 160

The settings are those of ``prime-dali train``, of which network, batch, views, size, precision, compilation and
``--limit-steps`` (all steps of this program) count; ``--data`` is not read, and nothing is written to ``--out``. It is
what one would write with torch alone: ``torch.compile`` without CUDA graphs, ``DistributedDataParallel``,
cross-entropy, SGD. The last line is JSON: images/s of all processes, in each eighth of the steps but the first. Exit
status: 0; 2 for a bad argument.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from prime_dali.models import networks
from prime_dali.training import train
from prime_dali.training.config import TrainConfig
from prime_dali.training.ranks import Ranks

PARTS = 8  # of a run; the first one is not counted


def step_of(config: TrainConfig, ranks: Ranks) -> Any:
    """A function that makes one step."""
    classes = {"cifar10": 10, "cifar100": 100, "in100": 100, "tinyimagenet": 200}.get(config.dataset, 1000)
    network = networks.create(config.network, classes, config.stem).to(ranks.device, memory_format=torch.channels_last)
    count = config.share(ranks.world)
    pixels = torch.randn(count * config.views, 3, config.size, config.size, device=ranks.device)
    labels = torch.randint(classes, (count,), device=ranks.device).repeat(config.views)
    dtype = torch.bfloat16 if config.low_precision(ranks.device.type) else torch.float32
    pixels = pixels.to(dtype, memory_format=torch.channels_last)
    model: Any = network.train()
    if ranks.world > 1:
        model = DistributedDataParallel(model, device_ids=None if ranks.device.type == "cpu" else [ranks.device.index])

    def loss() -> torch.Tensor:
        with torch.autocast(ranks.device.type, dtype, enabled=dtype == torch.bfloat16):
            return cross_entropy(model(pixels).float(), labels)

    forward = torch.compile(loss, dynamic=False) if config.compile else loss
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True)

    def step() -> None:
        optimizer.zero_grad()
        forward().backward()
        optimizer.step()

    return step


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    try:
        config = train.read(argv)
    except (TypeError, ValueError) as error:
        print(f"bare_loop.py: {error}", file=sys.stderr)
        return 2
    ranks = Ranks.start(config.device)
    wait = partial(torch.cuda.synchronize, ranks.device) if ranks.device.type == "cuda" else lambda: None
    try:
        step, rates = step_of(config, ranks), []
        for _ in range(PARTS):
            started, count = time.perf_counter(), max(config.limit_steps // PARTS, 1)
            for _ in range(count):
                step()
            wait()
            rates.append(count * config.batch / (time.perf_counter() - started))
    finally:
        ranks.stop()
    if ranks.first:
        print(json.dumps(rates[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
