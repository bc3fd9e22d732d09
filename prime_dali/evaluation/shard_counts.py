"""The counts of the shards of ``prime-dali evaluate``, in files that grow with every set."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .._files import write_text
from .._states import Kind
from ..data import partition
from ..data.partition import Shard
from ..models import networks
from . import scores
from .tasks import Found, Task

FILE = "counts.json"
_WHERE = ("device", "precision", "hardware")
"""What is the same, but for the hardware, of all shards, but not of the machine that joins them."""
_NUMBERS = range(2**63)
_COUNT = {"images": _NUMBERS, "correct": _NUMBERS, "calibration": (None, {"ece": float, "rms": float})}
_STABILITY = {"sequences": _NUMBERS, "frames": _NUMBERS, "flip_rate": float, "top5_distance": float}
_KIND = Kind(
    {"shard": str, "about": dict, "counts": [{"set": str, "corruption": (None, str), "severity": range(6),
                                              "count": (_COUNT, _STABILITY)}]},
    "counts of a shard of prime-dali evaluate", "remove it, and run this shard again",
)  # fmt: skip


def fingerprint(classifier: networks.Classifier) -> str:
    """SHA-256 of a classifier's weights, its name, how its images are prepared, and which classes its logits are."""
    digest = hashlib.sha256()
    facts = (
        classifier.name, classifier.stem, classifier.num_classes, classifier.classes,
        classifier.mean, classifier.std, classifier.size, classifier.resize, classifier.interpolation,
    )  # fmt: skip
    digest.update(repr(facts).encode())
    for name, tensor in classifier.network.state_dict().items():
        array = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class ShardCounts:
    """The counts of one shard."""

    def __init__(self, folder: Path, shard: Shard, about: Mapping[str, Any]) -> None:
        self.shard = shard
        self._path = shard.folder(folder) / FILE
        self.about: dict[str, Any] = json.loads(json.dumps(about))
        self.counts: dict[Task, Found] = {}

    def read(self) -> None:
        """Read the shard's file, if there is one.

        Raises:
            ValueError: It is damaged, or of another shard.
        """
        if not self._path.exists():
            return
        content = _KIND.read_json(self._path)
        if content["shard"] != str(self.shard):
            raise ValueError(f"{self._path}: expected the counts of shard {self.shard}, got those of "
                             f"{content['shard']}, which would count double; run shard {self.shard} again")  # fmt: skip
        self.about = content["about"]
        self.counts = {
            (one["set"], one["corruption"], one["severity"]): scores.from_plain(one["count"])
            for one in content["counts"]
        }

    def check(self, about: Mapping[str, Any]) -> None:
        """Raise a ValueError unless the counts are of this network, with these options and versions."""
        for key, value in json.loads(json.dumps(about)).items():
            if self.about.get(key) != value:
                raise ValueError(
                    f"{self._path}: expected counts with the same {key}, {value}, got {self.about.get(key)}; give the "
                    f"same network and options to all shards and --join, or remove {self._path.parent}"
                )

    def also_on(self, hardware: str) -> None:
        """From now on it counts on this hardware."""
        before = str(self.about.get("hardware")).split(", ")
        self.about["hardware"] = ", ".join(sorted({*before, hardware}))

    def missing(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of all tasks that belong to the shard and are not counted."""
        return [task for task in self.shard.of(tasks) if task not in self.counts]

    def add(self, task: Task, count: Found) -> None:
        """Keep a count, on the disk too."""
        self.counts[task] = count
        listed = [{"set": name, "corruption": corruption, "severity": severity, "count": scores.as_plain(one)}
                  for (name, corruption, severity), one in self.counts.items()]  # fmt: skip
        content = {"shard": str(self.shard), "about": self.about, "counts": listed}
        write_text(self._path, json.dumps(content, indent=1) + "\n")


@contextlib.contextmanager
def held(folder: Path, shard: Shard, about: Mapping[str, Any]) -> Iterator[ShardCounts]:
    """The counts that a shard has so far; no other process runs it within the block.

    Args:
        folder: Of the results.
        shard: The shard.
        about: All that the counts depend on, as plain values.

    Raises:
        ValueError: There are counts of another network or with other options, or shards of another number.
        RuntimeError: Another process runs this shard.
    """
    with partition.held(folder, shard):
        part = ShardCounts(folder, shard, about)
        part.read()
        part.check({key: value for key, value in about.items() if key != "hardware"})
        part.also_on(str(about.get("hardware")))
        yield part


def join(folder: Path, tasks: Sequence[Task], about: Mapping[str, Any]) -> tuple[dict[Task, Found], dict[str, Any]]:
    """The counts of all shards, and where they were made.

    Args:
        folder: Of the results.
        tasks: All that there is to count.
        about: As for :func:`held`.

    Raises:
        ValueError: A count is missing or there twice, or shards differ in network, options or versions; the message
            names the shards.
        RuntimeError: A shard is running.
    """
    counts: dict[Task, Found] = {}
    same = {key: value for key, value in about.items() if key not in _WHERE}
    hardware: set[str] = set()
    with partition.joining(folder) as all_shards:
        for shard in all_shards:
            part = ShardCounts(folder, shard, about)
            part.read()
            if not part.counts:
                continue
            part.check(same)
            same |= {key: part.about.get(key) for key in _WHERE if key != "hardware"}
            hardware |= set(str(part.about.get("hardware")).split(", "))
            for task, count in part.counts.items():
                if task not in shard.of(tasks):
                    what = " ".join(map(str, filter(None, task)))
                    raise ValueError(
                        f"{shard.folder(folder) / FILE}: expected counts of shard {shard} of these sets, got {what}, "
                        "which is of none or another shard; give the same sets to all shards and --join"
                    )
                counts[task] = count
        missing = [number for number, task in enumerate(tasks) if task not in counts]
        partition.check_none_missing(folder, all_shards, len(tasks), missing)
    return counts, {key: same[key] for key in _WHERE if key in same} | {"hardware": ", ".join(sorted(hardware))}
