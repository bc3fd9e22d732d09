"""What the package needs besides NumPy: its extras, and what is said where one is missing."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prime_dali import _command, _extras, cli

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")
ROOT = Path(__file__).parent.parent


def test_extras_are_those_of_the_package() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in _extras.PACKAGES.items():
        named = {re.match(r"[\w-]+", requirement)[0] for requirement in extras[extra]}  # type: ignore[index]
        assert named - {"prime-dali"} == set(packages.values()), extra
        included = re.findall(r"prime-dali\[([\w-]+)\]", " ".join(extras[extra]))
        assert included == [_extras.INCLUDED[extra]] if extra in _extras.INCLUDED else not included, extra


BASIS = {"numpy", "torch", "nvidia", "cupy", "ml_dtypes"}  # nobody needs the last one who does not have it


def test_every_package_that_a_command_imports_is_known() -> None:
    def imported(path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield str(node.module)

    found = {name.partition(".")[0] for path in (ROOT / "prime_dali").rglob("*.py") for name in imported(path)}
    others = found - set(sys.stdlib_module_names) - BASIS - {"prime_dali"}
    assert {name for name in others if not _extras.advice(name)} == set()


@pytest.mark.parametrize(("command", "module", "message"), [
    ("prime-dali evaluate", "torch", "torch, which is not installed: pip install 'prime-dali[train]'"),
    ("prime-dali evaluate", "torchvision.models", "torchvision, which is not installed: pip install 'prime-dali[train]'"),
    ("prime-dali analyze cost", "cv2", "opencv-python, which is not installed: pip install 'prime-dali[train]'"),
    ("prime-dali train", "matplotlib", "matplotlib, which is not installed: pip install 'prime-dali[train]'"),
    ("prime-dali gallery", "matplotlib", "matplotlib, which is not installed: pip install 'prime-dali[demo]'"),
    ("prime-dali augment", "PIL", "pillow, which is not installed: pip install 'prime-dali[demo]'"),
    ("prime-dali demo", "sklearn", "scikit-learn, which is not installed: pip install 'prime-dali[demo]'"),
])  # fmt: skip
def test_a_missing_package_is_named_with_its_extra(
    command: str, module: str, message: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert _command.run(command, lambda: importlib.import_module(module)) == 1
    assert capsys.readouterr().err == f"{command}: needs {message}\n"


def test_help_needs_no_extra() -> None:
    program = (
        "import sys\nfor name in ('torch', 'torchvision', 'yaml', 'PIL', 'matplotlib', 'scipy'): sys.modules[name] = None\n"
        "from prime_dali.cli import main\n"
        "for words in sys.argv[1:]: assert main([*words.split(), '--help']) == 0, words"
    )
    commands = ["doctor", "demo", "gallery", "augment", "train", "corrupt", "evaluate", "analyze", "analyze methods"]
    subprocess.run(
        [sys.executable, "-c", program, *commands, "analyze similarity"], stdout=subprocess.DEVNULL, check=True
    )


@pytest.mark.parametrize(("module", "extra"), [
    ("v2", "torchvision"), ("integrations.timm", "timm"), ("integrations.lightning", "lightning"),
    ("integrations.huggingface", "huggingface"), ("models.networks", "train"), ("training.losses", "torch"),
])  # fmt: skip
def test_a_module_says_how_to_install_torch(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, f"prime_dali.{module}", raising=False)
    message = rf"^prime_dali.{module} needs torch[ ,].*: pip install 'prime-dali\[{extra}\]'$"
    with pytest.raises(ImportError, match=message):
        importlib.import_module(f"prime_dali.{module}")


def test_doctor_lists_extras_and_ends_with_a_verdict(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["doctor"]) == 0
    *lines, verdict = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  [ok] extra 'train': complete") for line in lines)
    assert any("native DALI operator" in line for line in lines)
    libraries = {line.split("'")[1] for line in lines if "] extra '" in line}
    assert libraries >= _extras.PACKAGES.keys() - {
        "torch",
        "dali-cuda13",
        "cupy-cuda13",
    }  # which have lines of their own
    assert verdict.startswith("verdict: ")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch", None)
        assert cli.main(["doctor"]) == 0
        assert "extra 'train': missing: torch\n" in capsys.readouterr().out
    monkeypatch.setattr(_extras, "missing", lambda extra: ["pillow"])
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "[--] extra 'demo': missing: pillow\n       to get it: pip install 'prime-dali[demo]'\n" in out
    assert "extra 'demo', extra 'train'" in out.splitlines()[-1]
