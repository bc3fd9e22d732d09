"""``prime-dali analyze``: one of the paper's experiments, or where it lives."""

from __future__ import annotations

import argparse
import importlib

# Each module has add_arguments(parser) and run(options); imported when its experiment is called.
_EXPERIMENTS = {
    "similarity": ("similarity", "feature distance between augmented and corrupted images"),
    "embedding": ("embedding", "plot augmented images in a network's feature space"),
    "methods": ("methods", "the main table: standard training, AugMix and PRIME, over seeds"),
    "ablation": ("ablation", "what each primitive, the mixing and the Jensen-Shannon loss contribute"),
    "alpha": ("alpha", "accuracy and robustness by the strength of PRIME"),
    "sample-complexity": (
        "sample_complexity",
        "offline augmentation with a few copies, compared with online augmentation",
    ),
    "cost": ("cost", "time of an epoch with each method"),
}


def parser(argv: list[str]) -> argparse.ArgumentParser:
    """The options of the experiment that ``argv`` begins with, and the names of the others."""
    parser = argparse.ArgumentParser(prog="prime-dali analyze", description="The paper's experiments.")
    experiments = parser.add_subparsers(dest="experiment", required=True)
    for name, (module, summary) in _EXPERIMENTS.items():
        experiment = experiments.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if argv and argv[0] == name:
            chosen = importlib.import_module(f"{__package__}.{module}")
            chosen.add_arguments(experiment)
            experiment.set_defaults(run=chosen.run)
    return parser


def main(argv: list[str]) -> None:
    """Parse ``argv`` and run the experiment; errors as its module's ``run``."""
    options = parser(argv).parse_args(argv)
    options.run(options)
