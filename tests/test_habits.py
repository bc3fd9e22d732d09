"""What contributors use agrees with what CI runs: pre-commit's hooks, and the commands that CONTRIBUTING.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> list[str]:
    """The lines of a target, without the path of the environment."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert found is not None, target
    return [line.strip().replace("$(BIN)/", "") for line in found[1].splitlines()]


def test_hooks_are_the_linters_of_ci() -> None:
    """The same commands in the same order, of the project's own environment, and so of the same versions."""
    yaml = pytest.importorskip("yaml", reason="reading the hooks needs PyYAML")
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    # make gives the files by name; pre-commit appends those that changed.
    of_make = [re.sub(r" (\.|\$\(SOURCES\))$", "", line) for line in recipe("lint")]
    entries = [hook["entry"].replace(" --force-exclude", "") for hook in repository["hooks"]]
    assert entries == [f".venv/bin/{line}" for line in of_make]
    assert "VENV := .venv\n" in MAKEFILE


def test_ci_runs_the_linters_tests_documentation_and_coverage() -> None:
    run = (ROOT / ".ci/run").read_text()
    words = " ".join(re.findall(r"^make (.*)$", run, re.M)).split()
    assert [word for word in words if not word.startswith("-")] == ["lint", "docs", "test", "coverage"]


def test_contributing_names_targets_and_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.M))
    named = set(
        re.findall(r"\bmake (?:[A-Z]+=\S* )*([a-z][a-z0-9-]+)", "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S)))
    )
    assert {"test", "coverage", "profile"} <= named
    assert named <= targets
    for path in re.findall(r"`((?:tests|tools|docs|benchmarks|csrc|prime_dali|\.ci)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
