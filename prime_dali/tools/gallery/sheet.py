"""A sheet of images with captions: a title, rows of equal cells, and a legend, as a PNG or JPEG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ..._files import replacing, shown
from ...data.pictures import opened, reading
from .captions import Meaning
from .cells import Cell

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg")
_CELL = (160, 480)  # pixels: smaller images are enlarged by a whole number, larger ones are reduced
_MARK = f"prime-dali gallery {__version__}"  # in the file
_INK, _SOFT, _FRAME, _PAPER = "#1b1b1f", "#5c5f66", "#d3d6da", "#ffffff"
_FULL_CELL = 224  # pixels, for which the sizes of fonts and gaps are given
_QUALITY = 75  # of a JPEG


class Sheet:
    """Collects rows, then writes them. Images keep their pixels unless they are larger than a cell can be.

    Args:
        size: Height and width of every image in pixels.
    """

    def __init__(self, size: Sequence[int]) -> None:
        from PIL import ImageFont

        height, width = size
        least, most = _CELL
        longer = max(height, width)
        self._zoom = -(-least // longer) if longer < least else min(1.0, most / longer)
        self._cell = round(width * self._zoom), round(height * self._zoom)
        scale = max(self._cell) / _FULL_CELL
        self._gap = round(14 * scale)
        fonts = _fonts()
        self._fonts = {
            name: ImageFont.truetype(fonts[bold], round(points * scale))
            for name, points, bold in (
                ("title", 27, True), ("heading", 20, True), ("caption", 18, False), ("legend", 18, False),
                ("entry", 18, True),
            )
        }  # fmt: skip
        self._title: tuple[str, str] | None = None
        self._rows: list[Image.Image] = []
        self._legend: list[Meaning] = []

    def title(self, title: str, about: str) -> None:
        """What stands above the rows; the version is added."""
        self._title = title, f"{about}, prime-dali {__version__}"

    def legend(self, entries: Sequence[Meaning]) -> None:
        """What stands below the rows: a word and a text for each entry."""
        self._legend = list(entries)

    def row(self, heading: str, cells: Sequence[Cell]) -> None:
        """Images side by side, each with its caption below it; above the first row, also the headings of the cells."""
        width, height = self._cell
        across = width + self._gap
        above = [] if self._rows else [cell.heading for cell in cells]
        captions = [self._wrapped(shown_lines(cell.words), "caption", width) for cell in cells]
        below = max(map(len, captions), default=0) * self._line("caption")
        headings = [self._wrapped([text], "heading", width) for text in above if any(above)]
        top = max(map(len, headings), default=0) * self._line("heading")
        top += self._gap if top and heading else 0
        name = self._line("heading") if heading else 0
        strip, draw = self._blank(len(cells) * across + self._gap, top + name + height + below + 2 * self._gap)
        for i, lines in enumerate(headings):
            self._write(draw, lines, "heading", (self._gap + i * across, 0))
        self._write(draw, [heading], "heading", (self._gap, top))
        for i, (cell, lines) in enumerate(zip(cells, captions, strict=True)):
            left = self._gap + i * across
            y = top + name + self._gap // 3
            strip.paste(self._scaled(cell.image), (left, y))
            draw.rectangle((left - 1, y - 1, left + width, y + height), outline=_FRAME)  # of images that are white
            self._write(draw, lines, "caption", (left, top + name + height + self._gap * 2 // 3), _SOFT)
        self._rows.append(strip)

    def save(self, path: Path) -> None:
        """Write the sheet, as PNG or JPEG by the suffix of ``path``; replaced only when the file is complete."""
        from PIL import Image
        from PIL.PngImagePlugin import PngInfo

        width = max(strip.width for strip in self._rows)
        strips = [*self._head(width), *self._rows, *self._foot(width)]
        sheet = Image.new("RGB", (width, sum(strip.height for strip in strips) + self._gap), _PAPER)
        at = self._gap
        for strip in strips:
            sheet.paste(strip, (0, at))
            at += strip.height
        mark, png = PngInfo(), path.suffix.lower() == ".png"
        mark.add_text("Software", _MARK)
        kind: dict[str, Any] = {"pnginfo": mark} if png else {"comment": _MARK, "quality": _QUALITY, "optimize": True}
        with replacing(path) as temporary:
            sheet.save(temporary, "PNG" if png else "JPEG", **kind)

    def _head(self, width: int) -> Iterable[Image.Image]:
        if self._title is None:
            return
        inside = width - 2 * self._gap
        title, about = self._wrapped(self._title[:1], "title", inside), self._wrapped(self._title[1:], "legend", inside)
        height = len(title) * self._line("title") + len(about) * self._line("legend")
        strip, draw = self._blank(width, height + self._gap)
        self._write(draw, title, "title", (self._gap, 0))
        self._write(draw, about, "legend", (self._gap, len(title) * self._line("title")), _SOFT)
        yield strip

    def _foot(self, width: int) -> Iterable[Image.Image]:
        column = max((self._fonts["entry"].getlength(entry.word) for entry in self._legend), default=0)
        left = round(2 * self._gap + column)
        for entry in self._legend:
            lines = self._wrapped([entry.text], "legend", width - left - self._gap)
            strip, draw = self._blank(width, len(lines) * self._line("legend") + self._gap // 3)
            self._write(draw, [entry.word], "entry", (self._gap, 0))
            self._write(draw, lines, "legend", (left, 0), _SOFT)
            yield strip

    def _scaled(self, image: NDArray[np.uint8]) -> Image.Image:
        from PIL import Image

        how = Image.Resampling.NEAREST if self._zoom >= 1 else Image.Resampling.LANCZOS
        return Image.fromarray(image).resize(self._cell, how)

    def _blank(self, width: int, height: int) -> tuple[Image.Image, Any]:
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (width, height), _PAPER)
        return image, ImageDraw.Draw(image)

    def _line(self, font: str) -> int:
        return round(1.25 * self._fonts[font].size)

    def _write(self, draw: Any, lines: Sequence[str], font: str, at: tuple[int, int], color: str = _INK) -> None:
        for i, line in enumerate(lines):
            draw.text((at[0], at[1] + i * self._line(font)), line, fill=color, font=self._fonts[font])

    def _wrapped(self, lines: Sequence[str], font: str, width: int) -> list[str]:
        """The lines, broken between words where they are wider than ``width`` pixels; what goes on is indented."""
        measure = self._fonts[font].getlength
        indent = "   " if font == "caption" else ""
        out = []
        for line in lines:
            now = ""
            for word in re.split("(?<!→) ", line):
                if now.strip() and measure(f"{now} {word}") > width:
                    out.append(now)
                    now = indent + word
                else:
                    now = f"{now} {word}" if now else word
                while measure(now) > width and len(now.strip()) > 1:  # a word that is wider than the cell
                    fits = next(n for n in range(len(now) - 1, 0, -1) if n == 1 or measure(now[:n]) <= width)
                    out.append(now[:fits])
                    now = indent + now[fits:]
            out.append(now)
        return out


def shown_lines(text: str) -> list[str]:
    """The lines of a caption, printable."""
    return [shown(line) for line in text.split("\n")] if text else []


def is_sheet(path: Path) -> bool:
    """Whether a :class:`Sheet` wrote this file, in this version or another."""
    with reading(path), opened(path) as image:
        mark = image.info.get("Software") or image.info.get("comment") or ""
    text = mark.decode("latin-1") if isinstance(mark, bytes) else str(mark)
    return text.startswith(_MARK.rpartition(" ")[0])


def _fonts() -> dict[bool, str]:
    """Files of the fonts that matplotlib ships: regular, and bold (True)."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return {bold: str(folder / f"DejaVuSans{'-Bold' if bold else ''}.ttf") for bold in (False, True)}
