"""``prime-dali analyze``: one of the paper's experiments, or where it lives."""

from __future__ import annotations

import importlib
from typing import Any

from .. import _command
from . import arguments

# Each module has run(options), and add_arguments(parser) unless that is in .arguments; imported when it is called.
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
    apart = {"similarity": arguments.similarity, "embedding": arguments.embedding, "cost": arguments.cost}
    (apart.get(name) or _imported(module).add_arguments)(out)
    return out


def _imported(module: str) -> Any:
    return importlib.import_module(f"{__package__}.{module}")


def main(argv: list[str]) -> None:
    """Parse ``argv`` and run the experiment; errors as its module's ``run``."""
    name, rest = _command.choose("prime-dali analyze", "The paper's experiments.", _EXPERIMENTS, argv)
    known = parser(name)
    options = known.parse_args(rest)
    known.refuse_unread(rest, arguments.unread(name, options))
    _imported(_EXPERIMENTS[name][0]).run(options)
