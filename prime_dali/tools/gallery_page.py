"""The gallery as one self-contained HTML page: no server, no network, no other files."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .._files import replacing
from ..config import PrimeConfig
from . import gallery

_SMALL = 64  # pixels; smaller images are PNG, others JPEG

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>PRIME gallery</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: light-dark(#666, #aaa); --page: light-dark(#fff, #181818);
  --card: light-dark(#f6f6f4, #222); }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); font: 15px/1.4 system-ui, sans-serif; }
header { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center;
  padding: .7rem 1.5rem; background: var(--page); border-bottom: 1px solid var(--line); }
h1 { margin: 0; font-size: 1.25rem; }
header p, output, figcaption, h3 { color: var(--soft); }
header p { margin: 0; font-size: .85rem; }
input { font: inherit; width: 18rem; max-width: 100%; padding: .35rem .7rem; border: 1px solid var(--line);
  border-radius: .5rem; margin-left: auto; }
output { font-size: .85rem; min-width: 8rem; }
main { display: flex; flex-wrap: wrap; gap: 1.2rem; padding: 1.2rem 1.5rem; align-items: start; }
.photo { background: var(--card); border: 1px solid var(--line); border-radius: .7rem; padding: .8rem 1rem;
  max-width: 100%; }
.photo.whole { width: 100%; }
.photo[hidden] { display: none; }
h2 { margin: 0 0 .5rem; font-size: 1rem; overflow-wrap: anywhere; }
h3 { margin: .9rem 0 .3rem; font-size: .85rem; font-weight: 600; }
.strip { display: flex; flex-wrap: wrap; gap: .7rem; }
figure { margin: 0; width: 176px; }
img { display: block; width: 176px; height: auto; border-radius: .3rem; }
img.small { image-rendering: pixelated; }
figcaption { margin-top: .2rem; font-size: .68rem; line-height: 1.3; white-space: pre-line; }
figcaption b { font-size: .78rem; font-weight: 600; color: light-dark(#222, #eee); }
</style>
</head>
<body>
"""
_TAIL = """</main>
<script>
const search = document.querySelector("input"), count = document.querySelector("output");
const photos = [...document.querySelectorAll(".photo")];
function filter() {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  for (const photo of photos) {
    photo.hidden = !words.every((word) => photo.dataset.name.toLowerCase().includes(word));
    shown += !photo.hidden;
  }
  count.textContent = `${shown} of ${photos.length} images`;
}
search.addEventListener("input", filter);
filter();
</script>
</body>
</html>
"""


def save(
    photos: dict[str, NDArray[np.uint8]],
    config: PrimeConfig,
    path: Path,
    *,
    seed: int = 0,
    details: int = 12,
    progress: Callable[[list[str]], Iterable[str]] = iter,
) -> None:
    """Write the page.

    Args:
        photos: uint8 ``[H, W, 3]``, all of one size, by the names to show and to search.
        config: The distributions.
        path: Where to write; replaced only when the page is complete.
        seed: Seed of the draws; photograph ``i`` has index ``i``.
        details: This many photographs, from the first, are shown at several strengths of each primitive, in several
            samples and at several alphas; the others only before and after.
        progress: Wraps the list of the names, as :func:`._progress.over`.
    """
    height, width = next(iter(photos.values())).shape[:2]
    about = f"{width} × {height} pixels, {gallery.about(config, seed)}"
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as file:
        file.write(f"{_HEAD}<header><h1>PRIME gallery</h1><p>{escape(about)}</p>\n")
        file.write('<input type="search" placeholder="Search by name" aria-label="Search by name">')
        file.write("<output></output></header>\n<main>\n")
        made = _strips(list(photos.values()), config, seed, details)
        for name, strips in zip(progress(list(photos)), made, strict=True):
            kind = "photo" if len(strips) == 1 else "photo whole"
            file.write(f'<article class="{kind}" data-name="{escape(name)}"><h2>{escape(name)}</h2>\n')
            for title, figures in strips:
                heading = f"<h3>{escape(title)}</h3>" if title else ""
                file.write(f'{heading}<div class="strip">{"".join(figures)}</div>\n')
            file.write("</article>\n")
        file.write(_TAIL)


def _strips(
    photos: list[NDArray[np.uint8]], config: PrimeConfig, seed: int, details: int
) -> Iterator[list[tuple[str, list[str]]]]:
    """The rows of figures of each photograph, with titles."""
    before: gallery.Column = ("before", [(photo, "") for photo in photos])
    after = gallery.samples(photos, config, seed, 1)[0]
    whole = photos[:details]
    rows: dict[str, list[gallery.Column]] = {}
    if whole:
        rows["Samples of PRIME"] = gallery.samples(whole, config, seed)
        for name in config.primitives:
            rows[f"{name.capitalize()} alone, by fraction of its largest amplitude"] = gallery.strengths(
                whole, config, name, seed
            )
        for view in range(gallery.SAMPLES):
            rows[f"Severity by alpha, sample {view + 1}"] = gallery.severities(whole, config, seed, view)
    for i in range(len(whole)):
        yield [(title, _figures([before, *columns], i)) for title, columns in rows.items()]
    for i in range(len(whole), len(photos)):
        yield [("", _figures([before, ("after", after[1])], i))]


def _figures(columns: list[gallery.Column], photo: int) -> list[str]:
    return [
        f"<figure>{_image(cells[photo][0], heading)}<figcaption><b>{escape(heading)}</b>\n{escape(cells[photo][1])}"
        "</figcaption></figure>"
        for heading, cells in columns
    ]


def _image(pixels: NDArray[np.uint8], alt: str) -> str:
    from PIL import Image

    small = max(pixels.shape[:2]) <= _SMALL
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, **({"format": "PNG"} if small else {"format": "JPEG", "quality": 90}))
    data = base64.b64encode(buffer.getvalue()).decode()
    kind = ' class="small"' if small else ""
    return (
        f'<img{kind} alt="{escape(alt)}" width="{pixels.shape[1]}" height="{pixels.shape[0]}" '
        f'src="data:image/{"png" if small else "jpeg"};base64,{data}">'
    )
