"""``prime-dali analyze``: one of the paper's experiments, or where it lives."""

from __future__ import annotations

import importlib

from .. import _command

# Each module has add_arguments(parser) and run(options); imported when its experiment is called.
_EXPERIMENTS = {
    "similarity": ("similarity", "feature distance between augmented and corrupted images"),
    "embedding": ("embedding", "plot augmented images in a network's feature space"),
    "methods": ("methods", "the main table: standard training, AugMix and PRIME, over seeds"),
    "ablation": ("ablation", "what each primitive, the mixing and the Jensen-Shannon loss contribute"),
    "compare": ("compare", "choices that the paper leaves open, each against its alternatives, over seeds"),
    "alpha": ("alpha", "accuracy and robustness by the strength of PRIME"),
    "sample-complexity": (
        "sample_complexity",
        "offline augmentation with a few copies, compared with online augmentation",
    ),
    "cost": ("cost", "time of an epoch with each method"),
}


def parser(name: str) -> _command.Parser:
    """The options of an experiment."""
    module, summary = _EXPERIMENTS[name]
    out = _command.Parser(prog=f"prime-dali analyze {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    chosen = importlib.import_module(f"{__package__}.{module}")
    chosen.add_arguments(out)
    out.set_defaults(run=chosen.run)
    return out


def main(argv: list[str]) -> None:
    """Parse ``argv`` and run the experiment; errors as its module's ``run``."""
    name, rest = _command.choose("prime-dali analyze", "The paper's experiments.", _EXPERIMENTS, argv)
    options = parser(name).parse_args(rest)
    options.run(options)
