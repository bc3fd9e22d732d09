"""Wheels: what `make wheels` asks of the machine, and that the release workflow names what there is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
build = SimpleNamespace(**runpy.run_path(str(ROOT / "tools/build_wheels.py")))


def default(name: str) -> list[str]:
    """The words of a variable of the Makefile."""
    found = re.search(rf"^{name} \?= (.+)$", MAKEFILE, re.M)
    assert found is not None
    return found[1].split()


def test_a_missing_interpreter_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    python = tmp_path / "python3.12"
    with pytest.raises(SystemExit, match=r"expected an interpreter python3.12, found none that runs; .*PYTHONS='3.11"):
        build.interpreter("3.12")
    python.write_text("#!/bin/sh\nexit 127\n")  # as a wrapper that has no such version
    python.chmod(0o755)
    with pytest.raises(SystemExit, match=r"expected an interpreter python3.12, found none that runs"):
        build.interpreter("3.12")
    python.write_text("#!/bin/sh\nexit 0\n")
    assert build.interpreter("3.12") == build.interpreter(str(python)) == str(python)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [(None, "cu12"), (SimpleNamespace(version="13.0"), "cu12"), (SimpleNamespace(version="12.9"), "cu13")],
)
def test_a_missing_cuda_toolkit_ends_the_build(found: object, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/some/toolkit")
    monkeypatch.setattr(build.runpy, "run_path", lambda _: {"find": lambda: found})
    message = f"variant {wanted} needs the CUDA toolkit {wanted[2:]}, found none in CUDA_HOME, .*VARIANTS=cpu"
    with pytest.raises(SystemExit, match=message):
        build.toolkit(wanted)
    monkeypatch.setattr(build.runpy, "run_path", lambda _: {"find": lambda: SimpleNamespace(version=f"{wanted[2:]}.1")})
    assert build.toolkit(wanted) == {"CUDA_HOME": "/some/toolkit"}
    assert build.toolkit("cpu") == {}
    with pytest.raises(SystemExit, match="expected variants cpu, cu12 or cu13, got 'cu11'"):
        build.toolkit("cu11")


def test_the_release_workflow_builds_and_tries_everything() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    built = {
        f"wheels-{made['machine']}-{made['variant']}": made for made in jobs["build"]["strategy"]["matrix"]["include"]
    }
    assert {made["variant"] for made in built.values() if made["machine"] == "x86_64"} == set(default("VARIANTS"))
    # PyPI gets one wheel of each Python and architecture.
    assert [name for name, made in built.items() if made["named"] == "0"] == [
        "wheels-x86_64-cu13",
        "wheels-aarch64-cpu",
    ]
    tried = jobs["try"]["strategy"]["matrix"]
    assert {wheels["name"] for wheels in tried["wheels"]} == built.keys()
    assert all(wheels["runner"] == built[wheels["name"]]["runner"] for wheels in tried["wheels"])
    assert tried["python"] == default("PYTHONS")
    commands = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    for version in default("PYTHONS"):
        assert f" {version.replace('.', '')}" in commands
    assert set(re.findall(r"==([\d.]+)", commands)) == {default("DALI_VERSIONS")[-1]}
    targets = set(re.findall(r"make ([\w-]+)", commands))
    assert targets == {"wheels", "try-wheel", "aarch64"}
    assert all(f"\n{target}:" in MAKEFILE for target in targets)
    assert "secrets" not in text
