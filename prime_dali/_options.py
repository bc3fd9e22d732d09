"""Options of commands that say what PRIME draws, and for which images."""

from __future__ import annotations

import argparse

from . import _arguments
from ._command import Renamed, whole
from .config import MIXINGS, SPATIAL_DISTRIBUTIONS, PrimeConfig, preset


def add_distributions(parser: argparse.ArgumentParser) -> None:
    """The options that :func:`distributions` reads."""
    parser.add_argument("--preset", choices=("imagenet", "cifar"), default="imagenet", help="the distributions")
    parser.add_argument("--mixing", choices=MIXINGS, default="paper", help="chains and weights")
    parser.add_argument("--spatial-distribution", choices=SPATIAL_DISTRIBUTIONS,
                        help="distribution of spatial strengths; without it as --mixing implies")  # fmt: skip
    parser.add_argument("--law", action=Renamed, const="--spatial-distribution", help=argparse.SUPPRESS)
    parser.add_argument("--alpha", type=float, default=1.0, help="scales every amplitude; 0 leaves images unchanged")
    parser.add_argument("--wave-strength", type=float, default=0.0, metavar="S",
                        help="mean strength of the planar waves added after the mix; 0: none")  # fmt: skip


def add_images(parser: argparse.ArgumentParser) -> None:
    """What is drawn, as :func:`add_distributions`, and for which images."""
    add_distributions(parser)
    side = whole(_arguments.MIN_SIDE, _arguments.MAX_SIDE)
    parser.add_argument("--size", type=side, default=224, help="side length of the images in pixels")
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), default=0, help="seed of all random draws")
    parser.add_argument("--on-error", choices=("raise", "skip"), default="raise",
                        help="for unreadable images: stop with an error, or log and skip")  # fmt: skip


def distributions(options: argparse.Namespace) -> PrimeConfig:
    """The distributions that the options name; ValueError if one is out of range."""
    return preset(options.preset).replace(
        mixing=options.mixing, spatial_distribution=options.spatial_distribution, alpha=options.alpha,
        wave_strength=options.wave_strength,
    )  # fmt: skip
