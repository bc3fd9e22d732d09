"""The options of experiments whose modules import torch and torchvision, and the names in them: options are checked
before these are imported, which takes seconds."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

from .. import _arguments, _command
from ..evaluation.names import SEVERITIES
from ..models import STEMS
from . import grid_file

CLEAN, CORRUPTED = "clean", "corrupted"
AUGMENTATIONS = {
    "augmix-no-mix": "AugMix, no mixing", "prime-no-mix": "PRIME, no mixing", "augmix": "AugMix", "prime": "PRIME",
}  # fmt: skip
"""Titles by name. No mixing: one chain, and no blend with the clean image."""

SIMILARITY = {CLEAN: "Clean", **AUGMENTATIONS}
"""Titles of the methods of ``similarity``, by name."""

EMBEDDING = {"augmix": "AugMix", "prime": "PRIME", CORRUPTED: "Common corruptions"} | AUGMENTATIONS
"""Titles of those of ``embedding``."""

_EMBEDDING = ("augmix", "prime", CORRUPTED)

COST = ("standard", "augmix", "prime", "augmix+jsd", "prime+jsd", "official", "official+jsd")
"""Methods of ``cost``."""

OFFICIAL = "https://github.com/amodas/PRIME-augmentations"
"""The repository of PRIME's authors."""


def similarity(parser: argparse.ArgumentParser) -> None:
    """The options of ``prime-dali analyze similarity``."""
    add = parser.add_argument
    add("photos", type=Path, nargs="?", metavar="PHOTOS", help="a folder of photographs, with or without class folders")
    add("--cifar", nargs=2, metavar=("CLASSES", "DIR"), help="10 or 100, and a folder of CIFAR, instead of PHOTOS: "
        "the training part, or with --corrupted the test part")  # fmt: skip
    add("--corrupted", type=Path, metavar="DIR", help="read corrupted images from a benchmark that was made from these "
        "photographs, or from CIFAR's test part, instead of making them")  # fmt: skip
    add("--images", type=int, default=1000, metavar="N", help="images to draw from these; default: 1000")
    add("--samples", type=int, default=100, metavar="K", help="augmented samples per image and method; default: 100")
    add("--methods", nargs="+", default=list(SIMILARITY), metavar="NAME", help=f"default: {' '.join(SIMILARITY)}")
    _add_corruptions(parser)
    _add_network(parser)
    add("--out", type=Path, required=True, metavar="DIR", help="for results.json, .csv, .md and .png, and "
        "distances.npz, from which a stopped run resumes")  # fmt: skip


def embedding(parser: argparse.ArgumentParser) -> None:
    """The options of ``prime-dali analyze embedding``."""
    add = parser.add_argument
    add("photos", type=Path, nargs="*", metavar="PHOTOS", help="photographs to show, at most ten; or a folder "
        "CLASS/PHOTO, from which three classes and a photograph of each are drawn")  # fmt: skip
    add("--cifar", nargs=2, metavar=("CLASSES", "DIR"), help="10 or 100, and a folder of CIFAR, instead of PHOTOS: "
        "three classes of its training part and an image of each are drawn")  # fmt: skip
    add("--samples", type=int, default=100, metavar="K", help="samples per image and method; default: 100")
    add("--methods", nargs="+", default=list(_EMBEDDING), metavar="NAME", help=f"of {' '.join(EMBEDDING)}; default: "
        f"{' '.join(_EMBEDDING)}")  # fmt: skip
    _add_corruptions(parser)
    _add_network(parser)
    add("--out", type=Path, required=True, metavar="DIR", help="for embedding.json, .csv and .png")


def cost(parser: argparse.ArgumentParser) -> None:
    """The options of ``prime-dali analyze cost``."""
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the table and the plot")
    grid_file.add_options(parser)
    add("--methods", nargs="+", choices=COST, metavar="METHOD", help=f"of {', '.join(COST)}; default: all, but "
        "official only with --official")  # fmt: skip
    add("--official", type=Path, metavar="DIR", help=f"a clone of {OFFICIAL}")
    add("--rounds", type=int, default=3, metavar="N", help="rounds over all methods; default: 3")
    add(
        "--steps",
        type=int,
        default=0,
        metavar="N",
        help="steps per round, from which the time of an epoch is computed; default: an epoch",
    )
    add("--warmup", type=int, default=30, metavar="N", help="warm-up steps of each method, not timed; default: 30")


def unread(name: str, options: argparse.Namespace) -> dict[str, str]:
    """Options that an experiment does not read, and what is wrong with giving them: the end of a message."""
    if name == "cost":
        measured = any(method.startswith("official") for method in options.methods or COST)
        return _arguments.unread((measured, "--methods official", "other methods alone", "official"))
    if name not in ("similarity", "embedding"):
        return _arguments.unread((not options.collect, "runs to make", "--collect", "only task"))
    unaugmented = CLEAN if name == "similarity" else CORRUPTED
    augments, corrupts = {*options.methods} != {unaugmented}, name == "similarity" or CORRUPTED in options.methods
    return _arguments.unread(
        (augments, "methods that augment", f"--methods {unaugmented}", "samples"),
        (corrupts, f"--methods {CORRUPTED}", "other methods alone", "corruptions severities"),
    )


def chosen_methods(options: argparse.Namespace, counts: Sequence[str], known: Collection[str]) -> list[str]:
    """The selected methods, without duplicates, in the order of those that are known.

    Raises:
        TypeError, ValueError: An unknown method, or an option of these ``counts`` out of its range.
    """
    for name in counts:
        _arguments.integer(name, getattr(options, name), 1, 10**6)
    for name in options.methods:
        _arguments.one_of("method", name, known)
    return [name for name in known if name in options.methods]


def _add_corruptions(parser: argparse.ArgumentParser) -> None:
    """The options of the corruptions."""
    add = parser.add_argument
    add("--corruptions", nargs="+", metavar="NAME", help="of the benchmark C; default: the fifteen")
    add(
        "--severities", nargs="+", type=int, default=SEVERITIES, metavar="S", help="of the corruptions; default: 1 to 5"
    )
    add("--seed", type=int, default=0, help="seed of all random draws; default: 0")
    add("--batch", type=int, default=50, help="images per forward pass; default: 50")
    add("--workers", type=_command.workers, default="0", help="processes that make corrupted images; 0: one per core")


def _add_network(parser: argparse.ArgumentParser) -> None:
    """The options that :func:`.features.load` reads."""
    group = parser.add_argument_group("network")
    add = group.add_argument
    add("--backbone", required=True, metavar="WEIGHTS", help="a checkpoint of prime-dali train; any state dict "
        "(with --network and --num-classes); torchvision:NAME:WEIGHTS; timm:NAME")  # fmt: skip
    add("--layer", metavar="NAME", help="the module whose output is the features, such as layer4.1; default: the input "
        "of the final classifier layer")  # fmt: skip
    add("--network", metavar="NAME", help="network of a plain state dict: a torchvision name, or timm:NAME")
    add("--num-classes", type=int, metavar="N", help="number of its logits")
    add("--stem", choices=STEMS, help="stem of a ResNet; default: that of the weights")
    add("--mean", type=float, nargs=3, metavar=("R", "G", "B"), help="of the normalization; default: as "
        "prime-dali evaluate")  # fmt: skip
    add("--std", type=float, nargs=3, metavar=("R", "G", "B"), help="as --mean; 0 0 0 and 1 1 1: no normalization")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where the network runs; default: auto, a "
        "GPU if one is available")  # fmt: skip
