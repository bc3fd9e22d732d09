"""``prime-dali``: every command, or where it lives."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import __version__, _command, _options
from ._wording import clock

# Commands with modules of their own, whose main(arguments) parses and runs; imported when called.
_MODULES = {
    "gallery": ("tools.gallery.command", "show PRIME on photographs, as an image or as a searchable page"),
    "augment": ("tools.augment", "augment a folder of images, or CIFAR, offline, before training"),
    "train": ("training.train", "train a robust classifier by one of the paper's recipes"),
    "corrupt": ("evaluation.corrupt", "make a corruption benchmark from a clean test set"),
    "evaluate": ("evaluation.command", "report accuracy, corruption accuracy and mCE of a classifier"),
    "analyze": ("experiments.command", "run the paper's experiments: main table, similarity, ablation and more"),
}
# The others, which are here: parser(name) has their options.
_SMALL = {
    "doctor": ("", "list what is installed and usable, and how to install the rest"),
    "build-dali-plugin": ("", "compile the native operator for the installed DALI"),
    "demo": ("", "run photographs through a DALI pipeline with PRIME"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status: 0, 1 for bad input (one line on stderr), 2 for bad usage, 75 if a signal
    stopped it and everything is saved, 130 for Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # no name of a file ends a run, as stderr has it anyway
    with _command.debugging(sys.argv[1:] if arguments is None else arguments) as words:
        place = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
        named = words[place : place + 1]
        if named == ["analyze"]:
            named += [word for word in words[place + 1 : place + 2] if not word.startswith("-")]
        return _command.run(" ".join(["prime-dali", *named]), lambda: _dispatch(words))


def _dispatch(words: Sequence[str]) -> None:
    about = "PRIME data augmentation for robust image classifiers."
    name, rest = _command.choose("prime-dali", about, {**_SMALL, **_MODULES}, words, __version__)
    try:
        os.getcwd()
    except OSError as error:  # libraries then fail in many ways, and Intel's MKL ends the process
        reason = "it was deleted" if isinstance(error, FileNotFoundError) else error.strerror
        raise RuntimeError(f"the working directory cannot be used ({reason}); change to another one first") from error
    if name in _MODULES:
        importlib.import_module(f"{__package__}.{_MODULES[name][0]}").main(rest)
    else:
        options = parser(name).parse_args(rest)
        options.run(options)


def parser(name: str) -> _command.Parser:
    """The options of a command that has no module of its own."""
    summary = _SMALL[name][1]
    out = _command.Parser(prog=f"prime-dali {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    out.set_defaults(run={"doctor": _doctor, "build-dali-plugin": _build_dali_plugin, "demo": _demo}[name])
    if name == "build-dali-plugin":
        out.add_argument("--force", action="store_true", help="compile again what has been compiled")
    if name == "demo":
        out.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for gallery.png and batch.png")
        out.add_argument("--photos", type=Path, help="a folder; default: those of scikit-image and -learn")
        out.add_argument("--batch", type=_command.whole(1, 65536), default=32, help="images per batch")
        out.add_argument("--batches", type=_command.whole(1, 10**9), default=20, help="batches to time")
        out.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where the pipeline runs")
        _options.add_images(out)
    return out


def _doctor(options: argparse.Namespace) -> None:
    from .tools import doctor

    print(doctor.report())


def _build_dali_plugin(options: argparse.Namespace) -> None:
    from . import dali

    if dali.native.is_built() and not options.force:
        print(f"built before: {dali.plugin_path()}; --force compiles it again")
        return
    start = time.monotonic()
    path = dali.build_plugin(force=options.force)
    print(f"built {path} in {clock(time.monotonic() - start)}")


def _demo(options: argparse.Namespace) -> None:
    from . import _progress
    from .data.folders import find
    from .tools import demo

    photos = find([options.photos]) if options.photos else demo.shipped_photos()
    device = "gpu" if options.device == "cuda" else options.device  # as DALI calls it
    settings = demo.Settings(
        config=_options.distributions(options), out=options.out, photos=photos, size=options.size, batch=options.batch,
        batches=options.batches, seed=options.seed, device=device, on_error=options.on_error,
    )  # fmt: skip
    demo.run(settings, print, _progress.over)


if __name__ == "__main__":
    raise SystemExit(main())
