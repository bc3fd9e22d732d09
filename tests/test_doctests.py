"""Every public name has an example in its docstring, and the examples say what happens. On the CPU."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_docs import folder_of_photographs

import prime_dali
from prime_dali import arrays, reference

PACKAGES: list[types.ModuleType] = [prime_dali, arrays, reference]
try:
    import prime_dali.dali

    PACKAGES.append(prime_dali.dali)
except ImportError:  # of DALI; the other examples need none
    pass
for name in ("v2", "integrations.timm", "integrations.lightning", "integrations.huggingface"):
    with contextlib.suppress(ImportError):  # of its library
        PACKAGES.append(importlib.import_module(f"prime_dali.{name}"))


def public() -> Iterator[tuple[str, Any]]:
    """The functions and classes that are public, by full name."""
    for package in PACKAGES:
        for name in package.__all__:
            if not isinstance(getattr(package, name), types.ModuleType):
                yield f"{package.__name__}.{name}", getattr(package, name)


def methods(kind: Any) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a class defines itself; no defaults of fields, which are ints with a docstring."""
    for name, member in vars(kind).items() if isinstance(kind, type) else ():
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            yield name, member


NAMES = dict(public())
MORE = {f"{name}.{part}": member for name, kind in NAMES.items() for part, member in methods(kind)}
EXAMPLES = {
    name: found
    for name, member in (NAMES | MORE).items()
    if (found := doctest.DocTestParser().get_examples(inspect.getdoc(member) or ""))
}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders ``train`` and ``val`` of two classes, two photographs each."""
    root = tmp_path_factory.mktemp("examples")
    folder_of_photographs(root)
    return root


def test_every_public_name_has_an_example() -> None:
    assert NAMES.keys() - EXAMPLES.keys() == set()
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, photographs: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    """As a user types them, who has imported NumPy, torch and the package."""
    if name in ("prime_dali.dali.build_plugin", "prime_dali.dali.load_plugin"):
        request.getfixturevalue("plugin")  # compiled once for all tests
    monkeypatch.chdir(photographs)
    given = {"np": np, "torch": torch, "prime_dali": prime_dali}
    test = doctest.DocTest(EXAMPLES[name], given, name, None, 0, None)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert tried == len(EXAMPLES[name])
    assert failed == 0, "".join(said)


def test_a_wrong_example_is_found() -> None:
    (example,) = doctest.DocTestParser().get_examples(">>> 1 + 1\n3\n")
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(doctest.DocTest([example], {}, "wrong", None, 0, None), out=lambda _: None).failed == 1
