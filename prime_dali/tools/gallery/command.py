"""``prime-dali gallery``: show PRIME on photographs, as an image or as a searchable page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ... import _arguments, _options
from ..._command import Parser, whole
from ..._files import make_output_folder, shown
from ..._progress import over
from ..._wording import facts, plural
from ...data.folders import find
from ...data.pictures import read_photos
from .. import demo
from . import captions, figures, page, sheet


def parser() -> Parser:
    """The command's arguments."""
    out = Parser(
        prog="prime-dali gallery",
        description="Show PRIME on photographs, as a figure or as one HTML page.",
    )
    add = out.add_argument
    add("photos", type=Path, nargs="*", help="files and folders; default: those of the demo")
    add("--limit", type=whole(1, 10**6), metavar="N", help="use the first N photographs; default: all")
    add("--out", type=Path, help="the PNG or JPEG to write; default without --html: out/gallery.png")
    add("--figure", choices=tuple(figures.FIGURES), default="overview", help="content of --out")
    add(
        "--html", type=Path, help="the page to write: all photographs before and after, by name, primitive and strength"
    )
    add(
        "--details", type=whole(0, 10**6), default=6,
        help="number of photographs, from the first, that the page shows at every strength",
    )  # fmt: skip
    _options.add_images(out)
    return out


def main(argv: list[str]) -> None:
    """Parse ``argv`` and write the figures.

    Raises:
        FileNotFoundError: There is no such photograph.
        PhotoError: A photograph cannot be read, and ``--on-error`` is ``raise``.
        ValueError: A setting is invalid, or there are too many photographs for a figure.
        ImportError: An image package is missing.
    """
    known = parser()
    options = known.parse_args(argv)
    known.refuse_unread(argv, _arguments.unread(
        (options.out or not options.html, "--out", "--html alone", "figure"),
        (options.html, "--html", "a figure alone", "details"),
    ))  # fmt: skip
    config, out = _options.distributions(options), options.out
    if out is None and options.html is None:
        out = Path("out/gallery.png")
    found = find(options.photos) if options.photos else demo.shipped_photos()
    if out is not None and out not in options.photos:  # in a folder of photographs, of an earlier run
        found = [photo for photo in found if not (_same(photo, out) and sheet.is_sheet(photo))]
    found = found[: options.limit]
    targets = {name: path for name, path in (("out", out), ("html", options.html)) if path is not None}
    _check_targets(targets, found)
    photos = read_photos(found, options.size, options.on_error, print)
    for path in targets.values():
        make_output_folder(path.parent)
    print(facts({
        "data": plural(len(photos), "photograph"), "images": f"{options.size} x {options.size}",
        "method": captions.about(config, options.seed), "out": ", ".join(map(str, targets.values())),
    }), flush=True)  # fmt: skip
    top = os.path.commonpath([path.absolute().parent for path in photos])
    named = {shown(os.path.relpath(path.absolute(), top)): photo for path, photo in photos.items()}
    if out is not None:
        figures.save_gallery(
            named, config, out, seed=options.seed, figure=options.figure,
            progress=lambda each: over(each, options.figure),
        )  # fmt: skip
        print(f"wrote {out}")
    if options.html is not None:
        page.save(
            named, config, options.html, seed=options.seed, details=options.details,
            progress=lambda each: over(each, "page"),
        )  # fmt: skip
        print(f"wrote {options.html}")


def _check_targets(targets: Mapping[str, Path], photos: Sequence[Path]) -> None:
    """ValueError unless the files to write, by option, have suffixes of their kind and are none of the photographs."""
    suffixes = {"out": sheet.SUFFIXES, "html": (".html", ".htm")}
    for name, path in targets.items():
        if path.suffix.lower() not in suffixes[name] or path.is_dir():
            endings = " or ".join(suffixes[name][:2])
            raise ValueError(f"{name}: expected the name of a file that ends in {endings}, got {path}")
        if any(_same(path, photo) for photo in photos):
            raise ValueError(f"{name}: expected a new file, got one of the photographs, {path}")


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)  # a link to itself is no error
