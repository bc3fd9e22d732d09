"""``prime-dali``: every command, or where it lives."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import __version__, _arguments
from .config import LAWS, MIXINGS, PrimeConfig, preset

# Commands with modules of their own, whose main(arguments) parses and runs; imported when called.
_MODULES = {
    "train": ("recipes.train", "a robust classifier, by one of the paper's recipes"),
    "corrupt": ("evaluation.corrupt", "make a corruption benchmark of a clean test set"),
    "evaluate": ("evaluation.evaluate", "accuracy, corruption accuracy and mCE of a classifier, with tables"),
    "analyze": ("analysis.command", "the paper's other experiments: similarity, embedding and more"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for a bad input (one line on stderr), or 2 for bad usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    try:
        if command in _MODULES:
            importlib.import_module(f"{__package__}.{_MODULES[command][0]}").main(given[1:])
        else:
            options = _parser().parse_args(given)
            options.run(options)
    except (ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        print(f"prime-dali {command}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prime-dali", description="PRIME data augmentation for robust image classifiers."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, summary) in _MODULES.items():
        commands.add_parser(name, help=summary)

    doctor = commands.add_parser("doctor", help="what was built, found and usable, and how to get what is missing")
    doctor.set_defaults(run=_doctor)

    plugin = commands.add_parser("build-dali-plugin", help="compile the native operator for the installed DALI")
    plugin.add_argument("--force", action="store_true", help="compile again what has been compiled")
    plugin.set_defaults(run=_build_dali_plugin)

    demo = commands.add_parser(
        "demo",
        help="photographs through a DALI pipeline with PRIME",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for gallery.png and batch.png")
    demo.add_argument("--photos", type=Path, help="a folder; none: those of scikit-image and -learn")
    demo.add_argument("--batch", type=_whole(1, 65536), default=32, help="images a batch")
    demo.add_argument("--batches", type=_whole(1, 10**9), default=20, help="batches to time")
    demo.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="where the pipeline runs")
    _add_config(demo)
    demo.set_defaults(run=_demo)

    gallery = commands.add_parser(
        "gallery", help="a picture of what PRIME does", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    gallery.add_argument("photos", type=Path, nargs="*", help="files and folders; none: those of the demo")
    gallery.add_argument("--out", type=Path, default=Path("out/gallery.png"), help="the PNG to write")
    _add_config(gallery)
    gallery.set_defaults(run=_gallery)
    return parser


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            return _arguments.integer("value", int(text), low, high)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}") from None

    return parse


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", choices=("imagenet", "cifar"), default="imagenet", help="the distributions")
    parser.add_argument("--mixing", choices=MIXINGS, default="paper", help="chains and weights")
    parser.add_argument("--law", choices=LAWS, help="law of spatial strengths; without it as --mixing implies")
    parser.add_argument("--alpha", type=float, default=1.0, help="scale of every amplitude")
    parser.add_argument("--size", type=_whole(8, _arguments.MAX_SIDE), default=224, help="side of the images, pixels")
    parser.add_argument("--seed", type=_whole(0, 2**31 - 1), default=0, help="names all random draws")
    parser.add_argument("--on-error", choices=("fail", "skip"), default="fail", help="what an unreadable photo does")


def _config(options: argparse.Namespace) -> PrimeConfig:
    return preset(options.preset).replace(mixing=options.mixing, spatial_law=options.law, alpha=options.alpha)


def _doctor(options: argparse.Namespace) -> None:
    from . import doctor

    print(doctor.report())


def _build_dali_plugin(options: argparse.Namespace) -> None:
    from . import dali

    print(f"built {dali.build_plugin(force=options.force)}")


def _demo(options: argparse.Namespace) -> None:
    from . import demo
    from ._files import find_photos

    photos = find_photos([options.photos]) if options.photos else demo.shipped_photos()
    settings = demo.Settings(
        config=_config(options), out=options.out, photos=photos, size=options.size, batch=options.batch,
        batches=options.batches, seed=options.seed, device=options.device, on_error=options.on_error,
    )  # fmt: skip
    demo.run(settings, print, _tqdm())


def _gallery(options: argparse.Namespace) -> None:
    from . import demo, gallery
    from ._files import find_photos, read_photos

    found = find_photos(options.photos) if options.photos else demo.shipped_photos()
    photos = read_photos(found, options.size, options.on_error, print)
    gallery.save_gallery(list(photos.values()), _config(options), options.out, seed=options.seed)
    print(f"wrote {options.out}")


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError("the progress bar needs tqdm: pip install 'prime-dali[demo]'") from error
    return tqdm


if __name__ == "__main__":
    raise SystemExit(main())
