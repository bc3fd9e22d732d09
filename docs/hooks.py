"""What `make docs` does besides MkDocs: formulas as MathML, measured results, files from outside docs/."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown.extensions.toc import slugify
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_MARK = "<!-- measured results -->"
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<block>.*?)\\\])\s*</\1>', re.S
)


def on_files(files: Any, config: Any) -> Any:
    """Give the site the notes on speed and the pictures of measurements, which lie outside docs/."""
    files.append(File.generated(config, "NOTES.md", abs_src_path=str(ROOT / "benchmarks" / "NOTES.md")))
    for picture in sorted(RESULTS.glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links out of docs/ to their copies, and put what benchmarks/results/*.md say in the place of the mark."""
    markdown = markdown.replace("](../benchmarks/", "](")
    if _MARK not in markdown:
        return markdown
    pages = {path.name: path.read_text() for path in sorted(RESULTS.glob("*.md"))}
    headings = {name: text.partition("\n")[0].removeprefix("# ") for name, text in pages.items()}

    def here(match: re.Match[str]) -> str:
        name = match[1]
        return f"](#{slugify(headings[name], '-')})" if name in headings else f"](results/{name})"

    tables = [re.sub(r"^#", "###", re.sub(r"\]\((\w+\.(?:md|png))\)", here, t), flags=re.M) for t in pages.values()]
    return markdown.replace(_MARK, "\n\n".join(tables) or "No trainings have been measured yet.")


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers show without a script."""

    def mathml(match: re.Match[str]) -> str:
        inline = match["inline"] is not None
        formula = html.unescape(match["inline"] if inline else match["block"]).strip()
        return convert(formula, display="inline" if inline else "block")

    return _FORMULA.sub(mathml, content)
