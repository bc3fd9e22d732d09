"""The options of ``prime-dali evaluate``, which are checked before torch and torchvision, which take seconds, are
imported."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from .. import _arguments, _command
from ..data import partition
from ..models import STEMS
from .names import C_SETS, CIFAR_SETS, HEADINGS, LOADERS, SETS
from .scores import NORMALIZATIONS


def parser() -> _command.Parser:
    """The options of ``prime-dali evaluate``."""
    parser = _command.Parser(
        prog="prime-dali evaluate",
        description="Accuracy, corruption accuracy, mCE, calibration error and flip rates of a classifier. Networks of "
        "32 x 32 images that are not resized are evaluated on CIFAR, others on ImageNet or photographs. Several "
        "machines each evaluate a part of the sets with --shard; --join makes the tables.",
    )
    add = parser.add_argument
    add("checkpoint", help="checkpoint of prime-dali train; any state dict (with --network and --num-classes), such as "
        "the files published with PRIME; torchvision:NAME:WEIGHTS; or timm:NAME")  # fmt: skip
    network = parser.add_argument_group("network of a plain state dict")
    network.add_argument("--network", metavar="NAME", help="name of a torchvision network, or timm:NAME")
    network.add_argument("--num-classes", type=int, metavar="N", help="number of its logits")
    network.add_argument("--stem", choices=STEMS, help="stem of a ResNet; default: that of the weights")
    network.add_argument("--classes", type=Path, metavar="PATH", help="names of the classes, in the order of the "
        "logits: a file with a name a line, or a folder whose subfolders, sorted, are they; default: those of ImageNet "
        "for 1,000 and 100 classes, else the folders in --clean if there are as many")  # fmt: skip
    network.add_argument("--size", type=int, help="side of the images in pixels; default: 32 with stem "
                         "cifar, timm's for its networks, else 224")  # fmt: skip
    add("--raw", action="store_true", help="of a checkpoint with averaged weights (EMA; of prime-dali train, timm or "
        "torchvision's references), use those of the last step; default: the averages")  # fmt: skip
    network.add_argument("--mean", type=float, nargs=3, metavar=("R", "G", "B"), help="of the normalization, for "
                         "values in [0, 1]; default: that in the file, else that of CIFAR for 32 x 32 images of 10 or "
                         "100 classes, timm's for its networks, else that of ImageNet")  # fmt: skip
    network.add_argument("--std", type=float, nargs=3, metavar=("R", "G", "B"), help="as --mean")
    sets = parser.add_argument_group("sets, each a folder")
    sets.add_argument("--clean", type=Path, metavar="DIR", help="CIFAR's, or ImageNet's val: class folders or shards")
    for name in SETS:
        sets.add_argument(f"--{name}", type=Path, metavar="DIR", help=HEADINGS[name])
    sets.add_argument("--label", metavar="NAME", help="column, feature, or field of the labels in sets that are "
                      "shards; default: the usual names")  # fmt: skip
    sets.add_argument("--subset", action="store_true", help="skip classes that the network does not have")
    sets.add_argument("--partial", action="store_true", help="if severities or classes are missing, take "
                      "means over the rest")  # fmt: skip
    add("--normalize", choices=NORMALIZATIONS, help="reference errors of the mCE; default: standard with "
        "--reference, alexnet for ImageNet, else none")  # fmt: skip
    add("--normalise", action=_command.Renamed, const="--normalize", help=argparse.SUPPRESS)
    add("--reference", type=Path, metavar="JSON", help="results.json of a network with standard training")
    add("--bn-adapt", nargs="+", metavar="N", help="adapt batch norm to images of each set: single, partial, full, or "
        "N n")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of the draw of these images; default: 0")
    add("--batch", type=int, default=500, help="images per forward pass; default: 500")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if one is available")
    add("--workers", type=_command.workers, default="0", help="processes that decode images; 0: one per core")
    add("--loader", choices=LOADERS, default="pillow", help="image decoder: pillow, as for published "
        "numbers, or dali, on the GPU, with slightly different pixels; default: pillow")  # fmt: skip
    add("--out", type=Path, metavar="DIR", help="folder for results.json, results.csv, results.md and plots; for "
        "the counts of shards")  # fmt: skip
    partition.add_options(parser)
    return parser


def unread(sets: Collection[str], adapts: bool, small: bool) -> dict[str, str]:
    """Options that an evaluation does not read, and what is wrong with giving them: the end of a message.

    Args:
        sets: Names of those that are evaluated.
        adapts: Whether batch norm is adapted.
        small: Whether the network is for CIFAR: its images are 32 x 32, and not resized first.
    """
    files = any(name not in ("imagenet-p", *CIFAR_SETS) for name in sets)
    return _arguments.unread(
        (adapts, "--bn-adapt", "batch norm as trained", "seed"),
        (any(name in C_SETS for name in sets), " or ".join(f"--{name}" for name in C_SETS),
         "other sets alone", "normalize reference"),
        (files, "sets of image files", "videos alone", "loader"),
        (not small, "a network of larger images", "a network of 32 x 32 images", "subset loader"),
    )  # fmt: skip


def main(argv: list[str]) -> None:
    """Run the command; exits with status 2 for bad usage. Errors as :func:`.evaluate.main`."""
    known = parser()
    options = known.parse_args(argv)
    given = {name: getattr(options, name.replace("-", "_")) for name in ("clean", *SETS)}
    options.folders = {name: folder for name, folder in given.items() if folder is not None}
    if not options.folders:
        known.error("expected one or more sets, such as --clean DIR, got none")
    if (options.shard or options.join) and options.out is None:
        known.error("--out: expected with --shard and --join, one folder for all shards, got none")
    _arguments.integer("batch", options.batch, 1, 2**20)

    def check_read(small: bool) -> None:
        known.refuse_unread(argv, unread(options.folders, bool(options.bn_adapt), small))

    check_read(any(name in CIFAR_SETS for name in options.folders))  # now as far as it is known without the network
    from . import evaluate

    evaluate.main(options, check_read)
