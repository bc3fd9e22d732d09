"""``prime-dali``: every command, or where it lives."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .tools import options as _options

# Commands with modules of their own, whose main(arguments) parses and runs; imported when called.
_MODULES = {
    "gallery": ("tools.gallery_command", "show PRIME on photographs, as an image or as a searchable page"),
    "augment": ("tools.augment", "augment a folder of images, or CIFAR, offline, before training"),
    "train": ("training.train", "train a robust classifier by one of the paper's recipes"),
    "corrupt": ("evaluation.corrupt", "make a corruption benchmark from a clean test set"),
    "evaluate": ("evaluation.evaluate", "report accuracy, corruption accuracy and mCE of a classifier"),
    "analyze": ("experiments.command", "run the paper's experiments: main table, similarity, ablation and more"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit status: 0, 1 for a bad input (one line on stderr), 2 for bad usage, 130 for Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # no name of a file ends a run, as stderr has it anyway
    try:
        if command in _MODULES:
            importlib.import_module(f"{__package__}.{_MODULES[command][0]}").main(given[1:])
        else:
            options = _parser().parse_args(given)
            options.run(options)
    except (ValueError, TypeError, RuntimeError, OSError, ImportError, MemoryError) as error:
        print(f"prime-dali {command}: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"prime-dali {command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prime-dali", description="PRIME data augmentation for robust image classifiers."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, summary) in _MODULES.items():
        commands.add_parser(name, help=summary)

    doctor = commands.add_parser("doctor", help="list what is installed and usable, and how to install the rest")
    doctor.set_defaults(run=_doctor)

    plugin = commands.add_parser("build-dali-plugin", help="compile the native operator for the installed DALI")
    plugin.add_argument("--force", action="store_true", help="compile again what has been compiled")
    plugin.set_defaults(run=_build_dali_plugin)

    demo = commands.add_parser(
        "demo",
        help="run photographs through a DALI pipeline with PRIME",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for gallery.png and batch.png")
    demo.add_argument("--photos", type=Path, help="a folder; default: those of scikit-image and -learn")
    demo.add_argument("--batch", type=_options.whole(1, 65536), default=32, help="images per batch")
    demo.add_argument("--batches", type=_options.whole(1, 10**9), default=20, help="batches to time")
    demo.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="where the pipeline runs")
    _options.add_config(demo)
    demo.set_defaults(run=_demo)
    return parser


def _doctor(options: argparse.Namespace) -> None:
    from .tools import doctor

    print(doctor.report())


def _build_dali_plugin(options: argparse.Namespace) -> None:
    from . import dali

    print(f"built {dali.build_plugin(force=options.force)}")


def _demo(options: argparse.Namespace) -> None:
    from .data import jobs
    from .data.folders import find
    from .tools import demo

    photos = find([options.photos]) if options.photos else demo.shipped_photos()
    settings = demo.Settings(
        config=_options.config(options), out=options.out, photos=photos, size=options.size, batch=options.batch,
        batches=options.batches, seed=options.seed, device=options.device, on_error=options.on_error,
    )  # fmt: skip
    demo.run(settings, print, jobs.tqdm())


if __name__ == "__main__":
    raise SystemExit(main())
