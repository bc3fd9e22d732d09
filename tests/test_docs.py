"""The pages in docs/ say what is so: code blocks run, commands parse, tables are those of the code."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import inspect
import re
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_images
from PIL import Image

from prime_dali import cli
from prime_dali.evaluation import names

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)
GPU = torch.cuda.is_available()
# What is for a GPU runs on the CPU where there is none, and what is for a whole data set on a few pictures.
SMALL = {"range(90)": "range(2)", "batch_size=256": "batch_size=2"}
ON_CPU = {".cuda()": "", "device_id=0": "device_id=None", '"mixed"': '"cpu"'}


def blocks(page: Path, *languages: str) -> list[re.Match[str]]:
    return [block for block in BLOCK.finditer(page.read_text()) if block["language"] in languages]


def test_every_block_is_code_that_is_tested_or_none() -> None:
    languages = {block["language"] for page in PAGES for block in BLOCK.finditer(page.read_text())}
    assert languages <= {"python", "sh", "text", "yaml", "diff", "json"}


def folder_of_photographs(root: Path) -> None:
    for folder in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (root / folder).mkdir(parents=True)
        for i, image in enumerate(make_images(2, 60, 80, torch.uint8)):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / folder / f"{i}.jpg")


def given(root: Path) -> dict[str, Any]:
    """What the blocks of every page find: data of the size of CIFAR, a network, a folder of photographs."""
    folder_of_photographs(root)
    device = "cuda" if GPU else "cpu"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10)).to(device)
    images, labels, index = make_images(4, 32, 32, torch.uint8), torch.arange(4), torch.arange(4)
    return {
        "device": device, "model": model, "criterion": torch.nn.CrossEntropyLoss(), "epoch": 1, "epochs": 2,
        "images": images, "labels": labels, "index": index, "loader": [(images, labels, index)],
        "pictures": images.permute(0, 2, 3, 1).numpy(),
    }  # fmt: skip


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.stem)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem in ("dali", "data"):
        pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    if page.stem == "data":
        pytest.importorskip("webdataset", reason="webdataset is not installed")
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    found = given(tmp_path)
    for block in blocks(page, "python"):
        if block["reason"]:
            continue
        code = block["code"]
        for before, after in (SMALL if GPU else SMALL | ON_CPU).items():
            code = code.replace(before, after)
        line = page.read_text()[: block.start("code")].count("\n")
        exec(compile("\n" * line + code, str(page), "exec"), found)


# What a batch script puts before the options that it is given.
SCRIPTS = {"grid": ["analyze"], "shards": [], "train_one_node": ["train"], "train_many_nodes": ["train"]}
MODULES = {"prime_dali": [], "prime_dali.cli": [], "prime_dali.integrations.timm": ["timm"]}  # python -m


def commands(page: Path) -> Iterator[list[str]]:
    """The words after ``prime-dali`` of each command of a page, or of the comments of an example."""
    text = page.read_text()
    code = "".join(block["code"] for block in blocks(page, "sh"))
    if page.suffix != ".md":
        code = "\n".join(re.findall(r"^# +(.*)$", text, re.M))
    for line in code.replace("\\\n", " ").splitlines():
        if "prime" not in line and ".sbatch" not in line:
            continue
        plain = line.replace("job=$(", "").replace(")", "").replace("$k", "1").replace("; done", "")
        words = shlex.split(plain, comments=True)
        for i, word in enumerate(words):
            script = SCRIPTS.get(word.removeprefix("examples/slurm/").removesuffix(".sbatch"))
            before = script if word.endswith(".sbatch") else MODULES.get(word, [] if word == "prime-dali" else None)
            if before is not None and "..." not in words:
                yield [*before, *words[i + 1 :]]
                break


EXAMPLES = [*sorted((ROOT / "examples").rglob("*.yaml")), *sorted((ROOT / "examples").rglob("*.sbatch"))]
COMMANDS = [(page, words) for page in [*PAGES, ROOT / "README.md", *EXAMPLES] for words in commands(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[f"{p.stem}: {' '.join(w)}"[:70] for p, w in COMMANDS])
def test_commands_parse(page: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "yaml"):
        Path("run.yaml").write_text(block["code"])

    def parse(words: list[str]) -> Any:
        command, rest = words[0], words[1:]
        if command == "timm":  # its own options end at the script
            return (
                importlib.import_module("prime_dali.integrations.timm")
                .parser()
                .parse_args(rest[: rest.index("train.py") + 1])
            )
        if command not in cli._MODULES:
            return cli.parser(command).parse_args(rest)
        module = importlib.import_module(f"prime_dali.{cli._MODULES[command][0]}")
        if command == "train":
            return module.read(rest)
        if command == "analyze":
            return module.parser(rest[0]).parse_args(rest[1:])
        return module.parser().parse_args(rest)

    try:
        with contextlib.suppress(SystemExit) if "--help" in words else contextlib.nullcontext():
            parse(words)  # bad usage exits
    except ImportError as error:
        pytest.skip(f"what prime-dali {words[0]} needs is not installed: {error}")


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {name for page in PAGES for name in re.findall(r"`make ([\w-]+)|^make ([\w-]+)", page.read_text(), re.M)}
    assert {name for pair in named for name in pair if name} <= targets


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in row) + "|" for row in lines)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(shown, value)) or "none"
    return "none" if value == "" else f"{value:g}" if isinstance(value, (int, float)) else str(value)


def settings() -> str:
    """All settings, with the values of the recipes of residual networks."""
    return table_of_settings([recipe for recipe in recipes() if "-" not in recipe], everything=True)


def settings_of_the_fast_recipe() -> str:
    return table_of_settings(["cifar10", "cifar10-fast"], everything=False)


def settings_of_transformers() -> str:
    """The settings in which the others differ from them; those of CIFAR-100 are those of CIFAR-10."""
    own = recipes()
    for kind in ("vit", "convnext"):
        assert own[f"cifar100-{kind}"] == dataclasses.replace(own[f"cifar10-{kind}"], recipe=f"cifar100-{kind}")
    columns = [recipe for recipe in own if recipe.endswith(("-vit", "-convnext")) and "100" not in recipe]
    return table_of_settings(columns, everything=False)


def recipes() -> dict[str, Any]:
    from prime_dali.training.config import TrainConfig, defaults
    from prime_dali.training.recipes import RECIPES

    return {recipe: TrainConfig(**defaults(recipe, "prime")) for recipe in RECIPES}


def table_of_settings(columns: list[str], *, everything: bool) -> str:
    from prime_dali.training.config import TrainConfig

    types = typing.get_type_hints(TrainConfig, include_extras=True)
    configs = recipes()
    rows = []
    for field in dataclasses.fields(TrainConfig):
        if field.name in ("recipe", "data", "out"):
            continue
        kind, about = typing.get_args(types[field.name])
        choices = f" ({', '.join(typing.get_args(kind))})" if typing.get_origin(kind) is typing.Literal else ""
        values = [shown(getattr(configs[recipe], field.name)) for recipe in columns]
        known = [shown(getattr(configs[recipe.partition("-")[0]], field.name)) for recipe in columns]
        name = f"`--{field.name.replace('_', '-')}`"
        if everything:
            cells = values if len(set(values)) > 1 else [values[0], *["="] * (len(columns) - 1)]
            rows.append([name, about + choices, *cells])
        elif values != known:
            rows.append([name, *values])
    return table([*(["setting", "what it is"] if everything else ["setting"]), *columns], rows)


@pytest.mark.parametrize("made", [settings, settings_of_the_fast_recipe, settings_of_transformers])
def test_settings_of_training_are_those_of_the_code(made: Any) -> None:
    pytest.importorskip("torchvision", reason="recipes need torchvision")
    expected = made()
    assert expected in (ROOT / "docs/training.md").read_text(), expected


def strengths(kind: str, which: str) -> str:
    from prime_dali.evaluation import c_bar, corruptions, distortions

    module: Any = distortions if which == "c" else c_bar
    rows = []
    for name, five in corruptions.STRENGTHS[kind, which].items():
        takes = list(inspect.signature(getattr(module, name)).parameters)[2:]
        cells = [", ".join(f"{number:g}" for number in strength) for strength in five]
        rows.append([name, ", ".join(takes).replace("_", " "), *cells])
    return table(["corruption", "takes", *map(str, names.SEVERITIES)], rows)


@pytest.mark.parametrize(
    ("kind", "which"),
    [("cifar", "c"), ("cifar", "c-bar"), ("imagenet", "c"), ("imagenet", "c-bar"), ("tinyimagenet", "c")],
)
def test_parameters_of_corruptions_are_those_of_the_code(kind: str, which: str) -> None:
    pytest.importorskip("cv2", reason="corruptions need OpenCV")
    expected = strengths(kind, which)
    assert expected in (ROOT / "docs/EVALUATION.md").read_text(), expected


def test_alexnet_errors_are_those_of_the_code() -> None:
    from prime_dali.evaluation.scores import ALEXNET_ERRORS

    expected = table(["corruption", "AlexNet's error"], [[name, f"{e:.6f}"] for name, e in ALEXNET_ERRORS.items()])
    assert expected in (ROOT / "docs/EVALUATION.md").read_text(), expected


def test_options_of_commands_are_documented() -> None:
    """Every option of a command stands on the page of the command, but for training, whose table is compared above."""
    from prime_dali.evaluation import command
    from prime_dali.experiments import command as experiments
    from prime_dali.tools import augment
    from prime_dali.tools.gallery import command as gallery

    pages = {"EVALUATION.md": [command.parser()]}
    with contextlib.suppress(ImportError):
        from prime_dali.evaluation import corrupt

        pages["EVALUATION.md"].append(corrupt.parser())
    pages["command_line.md"] = [cli.parser(name) for name in cli._SMALL]
    pages["command_line.md"].append(gallery.parser())
    pages["analysis.md"] = [augment.parser()]
    with contextlib.suppress(ImportError):
        pages["analysis.md"] += [experiments.parser(name) for name in experiments._EXPERIMENTS]
    with contextlib.suppress(ImportError):
        from prime_dali.integrations import timm

        pages["loops.md"] = [timm.parser()]
    for page, parsers in pages.items():
        text = (ROOT / "docs" / page).read_text()
        actions = [a for p in parsers for a in p._actions if a.help != argparse.SUPPRESS]
        options = {o for a in actions for o in a.option_strings if o.startswith("--")}
        assert {o for o in options - {"--help", "--debug"} if f"`{o}" not in text} == set(), page


def test_environment_variables_are_documented() -> None:
    """Each one of the package and of its build, but for that of the sanitizers, which ``make fuzz`` sets."""
    sources = [*(ROOT / "prime_dali").rglob("*.py"), *(ROOT / "csrc").rglob("*.cpp"), ROOT / "setup.py"]
    named = {name for path in sources for name in re.findall(r"PRIME_DALI_[A-Z_]+", path.read_text())}
    documented = set(re.findall(r"^\| `(PRIME_DALI_[A-Z_]+)`", (ROOT / "docs/index.md").read_text(), re.M))
    assert named - {"PRIME_DALI_SANITIZE"} == documented


def test_links_into_the_repository_are_there() -> None:
    for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page}: {link}"
