"""What `make docs` does besides MkDocs: formulas and their font, measured results, files from outside docs/."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown.extensions.toc import slugify
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_MARK = re.compile(r"<!-- result: ([\w/-]+) -->")
_RESULT = re.compile(
    r"\]\((?:results/)?((?:\w+/)?[^/)]+)\)"
)  # a link, as pages here, in benchmarks/ and in RESULTS have it
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<block>.*?)\\\])\s*</\1>', re.S
)


_THIN = '<mspace width="0.17em" />'


def on_files(files: Any, config: Any) -> Any:
    """Give the site what lies outside docs/: notes on speed, plots and numbers, the font of formulas."""
    files.append(File.generated(config, "NOTES.md", abs_src_path=str(ROOT / "benchmarks" / "NOTES.md")))
    font = Path(str(importlib.util.find_spec("ziamath").origin)).parent / "fonts" / "STIXTwoMath-Regular.ttf"  # OFL 1.1
    files.append(File.generated(config, f"fonts/{font.name}", abs_src_path=str(font)))
    for path in _results("png", "json"):
        files.append(File.generated(config, f"results/{path.relative_to(RESULTS)}", abs_src_path=str(path)))
    return files


def _results(*suffixes: str) -> list[Path]:
    """The files of measurements and of whole experiments; a run of one has a folder of its own, which is left out."""
    return sorted(path for folder in ("", "*/") for suffix in suffixes for path in RESULTS.glob(f"{folder}*.{suffix}"))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a file of benchmarks/results in the place of each mark, its headings lower, and lead links there."""
    pages = {str(path.relative_to(RESULTS)): path.read_text() for path in _results("md")}
    markdown = _MARK.sub(lambda found: re.sub(r"^#", "###", pages[f"{found[1]}.md"], flags=re.M), markdown)

    def here(match: re.Match[str]) -> str:
        name = match[1]
        if name in pages:
            heading = pages[name].partition("\n")[0].removeprefix("# ")
            return f"](results.md#{slugify(heading, '-')})"
        return f"](results/{name})" if (RESULTS / name).is_file() else match[0]

    markdown = markdown.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    return _RESULT.sub(here, markdown.replace("](../benchmarks/", "]("))


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers show without a script."""

    def mathml(match: re.Match[str]) -> str:
        inline = match["inline"] is not None
        formula = html.unescape(match["inline"] if inline else match["block"]).strip()
        made = convert(formula, display="inline" if inline else "block")
        # The converter takes a relation for a letter, and puts no space around the names of functions.
        made = made.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
        return re.sub(r"<mi>(ln|sin)</mi>", rf"{_THIN}\g<0>{_THIN}", made)

    return _FORMULA.sub(mathml, content)
