"""The size of files and of parameter lists: what a reader can take in at once."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINES, PARAMETERS = 400, 7
SOURCES = {".py", ".pyi", ".h", ".cuh", ".cpp", ".cu"}
FOLDERS = ("prime_dali", "csrc", "tests", "benchmarks", "examples", "tools")
# Functions of the package that take more, and why.
MORE = {
    "prime_dali.arrays.apply": "what prime_dali.apply takes, and layouts and threads as torch has them elsewhere",
    "prime_dali.dali.operator.prime": "the keywords of the operator fn.prime.augment, in whose place it stands",
    "prime_dali.evaluation.distortions.snow": "a row of the published table of severities",
    "prime_dali.evaluation.distortions.spatter": "a row of the published table of severities",
    "prime_dali.models.networks.load": "what weights of any origin may leave open, and which of a checkpoint's to take",
    "prime_dali.torch_ops._apply_fake": "the operator prime_dali::apply, whose shapes it says",
    "prime_dali.torch_ops.apply_batch": "what prime_dali.apply takes, for its callers",
    "prime_dali.training.augmix.AugMix.__init__": "the keywords of PRIME, in whose place it stands, and its own three",
}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if a]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def functions(node: ast.AST, inside: str) -> dict[str, int]:
    """How many parameters each function has, by full name; those within functions too."""
    found = {}
    for child in ast.iter_child_nodes(node):
        name = f"{inside}.{child.name}" if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else inside
        if isinstance(child, ast.FunctionDef):
            found[name] = len(parameters(child))
        found |= functions(child, name)
    return found


def test_no_file_is_long() -> None:
    files = [ROOT / "setup.py", *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in SOURCES)]
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in files}
    assert len(lines) > 150
    assert {name: count for name, count in lines.items() if count > LINES} == {}


def test_no_function_takes_many_parameters_without_a_reason() -> None:
    """What belongs together is given together, as a dataclass that is checked where it is made."""
    package = ROOT / "prime_dali"
    found: dict[str, int] = {}
    for path in package.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found |= functions(ast.parse(path.read_text()), module)
    many = {name for name, count in found.items() if count > PARAMETERS}
    assert many - MORE.keys() == set(), "group them, or say in MORE why not"
    assert MORE.keys() - many == set(), "these take few by now: take them out of MORE"


def opens_text(call: ast.Call) -> bool:
    """Whether a call reads or writes a text file, as far as its words tell."""
    method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if method else getattr(call.func, "id", "")
    if method and name in ("read_text", "write_text"):
        return True
    place = 0 if method else 1  # path.open(mode), open(path, mode)
    if any(keyword.arg == "fileobj" for keyword in call.keywords):  # tarfile's
        return False
    mode = call.args[place] if len(call.args) > place else ast.Constant("r")
    return name == "open" and isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" not in mode.value


def test_text_files_do_not_depend_on_the_locale() -> None:
    """Tables have a ± in any locale, and are read again on another machine."""
    found = []
    for path in [ROOT / "setup.py", *(ROOT / "prime_dali").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and opens_text(node):
                named = {keyword.arg for keyword in node.keywords} & {"encoding", None}  # None: **TEXT
                given = [argument for argument in node.args if getattr(argument, "value", None) == "utf-8"]
                if not named and not given:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_tables_are_written_in_any_locale(tmp_path: Path) -> None:
    code = "import pathlib, sys; from prime_dali import _files\n_files.write_texts(pathlib.Path(sys.argv[1]), {'t.md': '94 \\xb1 1'})"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, tmp_path], env={**os.environ, **locale}, check=True)
    assert (tmp_path / "t.md").read_text("utf-8") == "94 ± 1"
