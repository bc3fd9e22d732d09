"""The gallery as one self-contained HTML page: no server, no network, no other files."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ..._files import replacing
from ...config import PrimeConfig
from . import captions, cells
from .cells import Cell, Photo
from .figures import Progress

_SMALL = 112  # pixels; smaller images are enlarged without smoothing
_MIXED = "PRIME"  # the choice beside the primitives
_MARK = "<!-- photographs -->"


def save(
    photos: dict[str, NDArray[np.uint8]], config: PrimeConfig, path: Path, *, seed: int = 0, details: int = 6,
    progress: Progress = iter,
) -> None:  # fmt: skip
    """Write the page. Images in it are PNGs, so that every pixel is as it was computed.

    Args:
        photos: uint8 ``[H, W, 3]``, all of one size, by the names to show and to search.
        config: The distributions.
        path: Where to write; replaced only when the page is complete.
        seed: Seed of the draws; photograph ``i`` has index ``i``.
        details: This many photographs, from the first, are shown in several samples, at several strengths of each
            primitive, and at several alphas; the others only before and after.
        progress: Wraps the photographs, as :func:`._progress.over`.
    """
    height, width = next(iter(photos.values())).shape[:2]
    before, after = _frame(config, seed, (height, width)).split(_MARK)
    numbered = [Photo(name, image, index) for index, (name, image) in enumerate(photos.items())]
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as file:
        file.write(before)
        for photo in progress(numbered):
            name = escape(photo.name)
            file.write(f'<article data-name="{name}"><h2>{name.replace("/", "/<wbr>")}</h2><div class="rows">\n')
            file.writelines(_strips(photo, config, seed, whole=photo.number < details))
            file.write("</div></article>\n")
        file.write(after)


def _frame(config: PrimeConfig, seed: int, size: tuple[int, int]) -> str:
    """The page without its photographs."""
    folder = resources.files(__package__)
    own = {kind: (folder / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")}
    about = f"{captions.about(config, seed)}, images of {size[1]} × {size[0]} pixels, prime-dali {__version__}"
    legend = captions.legend(cells.parts(config), mixed=True)
    percent = [cells.percent(fraction) for fraction in cells.FRACTIONS]
    alphas = [f"alpha {alpha:g}" for alpha in sorted({*cells.ALPHAS, config.alpha})]
    return Template(own["html"]).substitute(
        size="small" if max(size) <= _SMALL else "", style=own["css"], script=own["js"], about=escape(about),
        legend="".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in legend),
        primitives=_options([_MIXED, *config.primitives]),
        strengths=f'<optgroup label="of a primitive\'s largest amplitude">{_options(percent)}</optgroup>'
        f'<optgroup label="of PRIME">{_options(alphas)}</optgroup>',
    )  # fmt: skip


def _options(values: list[str]) -> str:
    return "".join(f"<option>{escape(value)}</option>" for value in values)


def _strips(photo: Photo, config: PrimeConfig, seed: int, *, whole: bool) -> Iterator[str]:
    """Rows of images, each a heading and figures: samples, each primitive by strength, and PRIME by alpha."""
    drawn = cells.samples(photo, config, seed, cells.SAMPLES if whole else 1)
    alpha = f"alpha {config.alpha:g}"
    figures = [_figure(cell, _MIXED, f"sample {number}", alpha) for number, cell in enumerate(drawn, 1)]
    yield _strip(_MIXED, "samples of PRIME" if whole else "", [_figure(cells.original(photo)), *figures])
    if not whole:
        return
    for name in config.primitives:
        figures = [_figure(cell, name, cell.heading) for cell in cells.strengths(photo, config, name, seed)]
        yield _strip(name, f"{name}, in percent of its largest amplitude", figures)
    figures = [_figure(cell, _MIXED, cell.heading) for cell in cells.alphas(photo, config, seed)]
    yield _strip(_MIXED, "PRIME, sample 1, amplitudes times alpha", figures)


def _strip(primitive: str, heading: str, figures: list[str]) -> str:
    title = f"<h3>{escape(heading)}</h3>" if heading else ""
    return f'{title}<div class="strip" data-primitive="{escape(primitive)}">{"".join(figures)}</div>\n'


def _figure(cell: Cell, primitive: str = "", caption: str = "original", strength: str = "") -> str:
    """An image that a click enlarges; no filter hides the original, which is of no ``primitive``."""
    own = f' data-strength="{escape(strength or caption)}"' if primitive else ""
    named = f"<span>{escape(primitive)}, </span>" if primitive else ""  # shown where rows are filtered
    return (
        f'<figure{own} data-words="{escape(cell.whole)}"><button type="button" aria-label="Enlarge {escape(caption)}">'
        f"{_image(cell.image)}</button><figcaption>{named}{escape(caption)}</figcaption></figure>"
    )


def _image(pixels: NDArray[np.uint8]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="" width="{pixels.shape[1]}" height="{pixels.shape[0]}" src="data:image/png;base64,{data}">'
