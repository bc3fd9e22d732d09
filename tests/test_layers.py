"""Imports run downwards only, there is no circle between modules, and the library is light."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forking
import pytest

PACKAGE = Path(__file__).parent.parent / "prime_dali"
# What a layer may import: a folder of the package, "library" for the modules at its top, "cli" for the command line.
BELOW = {
    "library": set(),
    "data": {"library"},
    "dali": {"library", "data"},
    "models": {"library", "data"},
    "training": {"library", "data", "dali", "models"},
    "evaluation": {"library", "data", "dali", "models"},
    "experiments": {"library", "data", "dali", "models", "training", "evaluation"},
    "integrations": {"library", "data", "dali", "models", "training"},
    "tools": {"library", "data", "dali", "models", "evaluation"},
    # The other commands it imports by name.
    "cli": {"library", "data", "dali", "models", "evaluation", "tools"},
    "__main__": {"library", "data", "dali", "models", "evaluation", "tools", "cli"},
}
HEAVY = {
    "torch", "torchvision", "timm", "lightning", "transformers", "datasets", "cupy", "matplotlib", "PIL", "cv2", "nvidia.dali",
}  # fmt: skip


def named(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {named(path): path for path in PACKAGE.rglob("*.py")}
COMPILED = {named(path) for path in PACKAGE.rglob("*.pyi")}


def imported(module: str) -> Iterator[str]:
    """All that a module imports, also within functions and for type checkers, by full name."""
    path = MODULES[module]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".") + ["__init__"] * (path.name == "__init__.py")
            base = ".".join([*above[: -node.level], *filter(None, [node.module])] if node.level else [str(node.module)])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in MODULES.keys() | COMPILED else base
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


EDGES = {module: {name for name in imported(module) if name in MODULES} for module in MODULES}


def layer(module: str) -> str:
    first = [*module.split("."), ""][1]
    return first if first in BELOW else "library"


def test_imports_are_seen_wherever_they_stand() -> None:
    assert "prime_dali.module" in EDGES["prime_dali"]  # for type checkers
    assert "prime_dali.dali.broken" in EDGES["prime_dali.tools.demo"]  # within a function
    assert "prime_dali.torch_ops" in EDGES["prime_dali._devices"]  # by name
    assert {layer(module) for module in MODULES} == set(BELOW)


def test_layers_import_downwards_only() -> None:
    upwards = [
        f"{module} imports {name}"
        for module, names in EDGES.items()
        for name in sorted(names)
        if layer(name) not in BELOW[layer(module)] | {layer(module)}
        and (module, name) != ("prime_dali", "prime_dali.dali")  # named for type checkers
    ]
    assert upwards == []


def test_layers_are_in_order() -> None:
    """The table itself has no circle, nor does any layer reach what the layers below it must not."""
    graphlib.TopologicalSorter(BELOW).prepare()
    for name, below in BELOW.items():
        assert all(BELOW[other] <= below for other in below), name


def test_there_is_no_circle_between_modules() -> None:
    graphlib.TopologicalSorter(EDGES).prepare()  # CycleError names the modules


OPTIONS = (
    "import prime_dali.training.train, prime_dali.evaluation.command; from prime_dali.experiments import command; "
    "[command.parser(name) for name in command._EXPERIMENTS]"
)


@pytest.mark.parametrize("what", ["import prime_dali", OPTIONS], ids=["the library", "options of commands"])
def test_imports_no_heavy_package(what: str) -> None:
    """The library, and what reads the options of commands: a mistake in them is said at once."""
    code = f"import sys; {what}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_what_starts_the_gpu_imports_torch_alone() -> None:
    """So that it starts while the packages of the others are imported."""
    found, new = set(), {"prime_dali.training.ranks"}
    while new:
        found |= new
        new = {name for module in new for name in EDGES[module] if name != "prime_dali.torch_ops"} - found
    assert "prime_dali._devices" in found
    heavy = {name.split(".")[0] for module in found for name in imported(module)} & HEAVY
    assert heavy == {"torch"}


def import_by_the_old_name() -> None:
    """In a process of its own, which has imported none of this by that name."""
    import prime_dali.recipes.trainer
    from prime_dali.recipes.cifar import read_cifar
    from prime_dali.recipes.networks import create

    from prime_dali.data import cifar
    from prime_dali.models import networks
    from prime_dali.training import trainer

    assert read_cifar is cifar.read_cifar
    assert create is networks.create
    assert prime_dali.recipes.trainer is trainer


def test_the_old_name_of_training_goes_on_working(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="training needs torchvision")
    process = forking.start(tmp_path / "said", import_by_the_old_name)
    process.join()
    said = (tmp_path / "said").read_text()
    assert process.exitcode == 0, said
    assert "prime_dali.recipes: its modules are now in prime_dali.training" in said
