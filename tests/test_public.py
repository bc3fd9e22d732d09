"""What a user meets at the surface: public names in dir(), help() and type checkers, and what objects say of themselves."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import prime_dali
from prime_dali import PRIME, Plan

ROOT = Path(__file__).parent.parent
PUBLIC = {"PRIME", "Plan", "PrimeConfig", "apply", "arrays", "check_pixels", "preset", "reference", "sample"}


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_names_are_listed_without_importing_torch() -> None:
    program = "import sys, prime_dali; print(*dir(prime_dali)); assert not {'torch', 'nvidia.dali'} & set(sys.modules)"
    assert set(run(program).split()) - {"dali", "v2"} == PUBLIC | {"__version__"}
    assert set(prime_dali.__all__) == PUBLIC


def test_names_that_cannot_be_imported_are_not_listed() -> None:
    program = """if True:
        import importlib.util, pydoc, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name in ("torch", "nvidia") else find(name, *rest)
        sys.modules["torch"] = sys.modules["nvidia"] = None
        import prime_dali
        pydoc.render_doc(prime_dali)  # imports every name
        print(*dir(prime_dali))
    """
    assert set(run(program).split()) == PUBLIC - {"PRIME", "apply"} | {"__version__"}


def test_help_has_every_name() -> None:
    text = pydoc.render_doc(prime_dali, renderer=pydoc.plaintext)
    for name in (
        "class PRIME(",
        "class Plan(",
        "class PrimeConfig(",
        "apply(images",
        "check_pixels(",
        "preset(",
        "sample(",
    ):
        assert name in text


def test_a_wrong_name_is_an_error_with_the_nearest() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import prime_dali; prime_dali.PRIMEE"], capture_output=True, text=True, check=False
    )
    assert "AttributeError: module 'prime_dali' has no attribute 'PRIMEE'" in done.stderr
    assert "Did you mean: 'PRIME'?" in done.stderr


def test_type_checkers_know_every_name_and_no_other(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    names = sorted(
        {f"prime_dali.{name}" for name in PUBLIC}
        | {"prime_dali.dali.prime", "prime_dali.arrays.apply", "prime_dali.v2.PRIME"}
    )
    wrong = [
        "prime_dali.PRIMEE",
        "prime_dali.dali.Loadr",
        "prime_dali.arrays.aply",
        "prime_dali.sample(size=1, sise=2)",
    ]
    (tmp_path / "use.py").write_text("\n".join(["import prime_dali", *names, *wrong, ""]))
    # Other packages are not read: they take a minute.
    settings = "no_site_packages = True\nignore_missing_imports = True\nfollow_imports = silent\n"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\n{settings}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "use.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = {
        int(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("use.py") and "error" in line
    }
    first = 2 + len(names)
    assert lines == set(range(first, first + len(wrong))), done.stdout + done.stderr


def test_an_editable_install_is_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Type checkers and editors run no import hooks, which setuptools installs where it may."""
    pytest.importorskip("setuptools", minversion="77", reason="setuptools is not installed")
    from setuptools import Distribution
    from setuptools.command import editable_wheel

    monkeypatch.chdir(ROOT)
    project = Distribution({"version": "0"})
    project.parse_config_files()
    command = project.get_command_obj("editable_wheel")
    command.ensure_finalized()
    chosen = command._select_strategy("prime_dali", "any", ROOT / "build")
    assert isinstance(chosen, editable_wheel._StaticPth)
    assert [entry.resolve() for entry in chosen.path_entries] == [ROOT]


def plan() -> Plan:
    return prime_dali.sample("cifar", np.arange(20), size=(32, 48), seed=1, view=("clean", 0))


def test_a_plan_says_what_it_is_for() -> None:
    facts = "rows=40, views=2, size=(32, 48), channels=3, chains=3, depth=3"
    assert repr(plan()) == f"Plan({facts}, device='cpu', array='numpy')"
    assert repr(plan().torch()) == f"Plan({facts}, device='cpu', array='torch')"
    assert repr(plan().torch("meta")) == f"Plan({facts}, device='meta', array='torch')"


def test_the_table_has_every_row() -> None:
    described = plan()
    header, *lines = described.describe(limit=40).splitlines()
    assert header.split() == ["row", "image", "view", "weight", "drawn"]
    starts = [i for i, line in enumerate(lines) if line[:5].strip()]
    assert [[int(word) for word in lines[i].split()[:3]] for i in starts] == [[r, r % 20, r // 20] for r in range(40)]
    for row, (i, j) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True)):
        drawn = [" ".join(line[18:].split()) for line in lines[i:j]]
        expected = [" ".join(line.split()) for line in described.describe(row).splitlines()]
        weights = described.weights[row]
        assert drawn == expected if row >= 20 else drawn == ["1.00 clean"], (row, weights)


def test_a_long_table_is_cut_and_says_so() -> None:
    *lines, last = plan().describe().splitlines()
    assert last == "... and 24 more rows: describe(limit=40) shows all, describe(row) one"
    assert lines == plan().describe(limit=40).splitlines()[: len(lines)]
    assert "more rows" not in plan()[:8].describe()
    with pytest.raises(ValueError, match="limit: expected 1 to"):
        plan().describe(limit=0)


def test_a_table_of_no_images() -> None:
    assert plan()[:0].describe().split() == ["row", "image", "view", "weight", "drawn"]


def test_evaluation_mode_changes_nothing() -> None:
    """As for the transforms of torchvision: PRIME augments, and counts, in both modes."""
    images, index = torch.rand(4, 3, 32, 32), torch.arange(4)
    augment = PRIME("cifar", seed=1)
    training = augment.train()(images, index, 2)
    assert not torch.equal(training, images)
    assert torch.equal(augment.eval()(images, index, 2), training)
    assert torch.equal(augment(images), PRIME("cifar", seed=1)(images))
    assert augment.counter == 4
    assert not augment.training


def test_a_number_is_the_index_of_a_single_image() -> None:
    """Any of 64 bits, as a number and as a tensor."""
    image, augment = torch.rand(3, 32, 32), PRIME("cifar", seed=1)
    for number in (3, -3, -(2**63), 2**63 - 1):
        expected = augment(image[None], torch.tensor([number]))[0]
        assert torch.equal(augment(image, number), expected)
        assert torch.equal(augment(image, torch.tensor(number)), expected)
