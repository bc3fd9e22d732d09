"""The examples train on a tiny folder of images, are as short as they claim, and their images are reproducible."""

from __future__ import annotations

import ast
import importlib
import json
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import make_images
from PIL import Image

from prime_dali import PRIME

pytest.importorskip("torchvision", reason="torchvision is not installed")

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
NAMES = ["torchvision_loader", "timm_loop"]
SIZE = 32
COUNT = 6  # images in the folder


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports an example by name."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of images that all differ, a little larger than the crops."""
    for number, image in enumerate(make_images(COUNT, SIZE + 8, SIZE + 8, torch.uint8)):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return tmp_path / "images"


def tiny_network(num_classes: int = 2) -> torch.nn.Module:
    """Traced in a second: a linear function of the image's mean color."""
    pool = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*pool, torch.nn.Linear(3, num_classes))


def options(folder: Path, epochs: int = 1, batch: int = 3, workers: int = 0) -> list[str]:
    """A command line for small images on the CPU."""
    small = ["--size", SIZE, "--workers", workers, "--device", "cpu"]
    return [str(word) for word in (folder, "--epochs", epochs, "--batch", batch, *small)]


def losses(text: str) -> list[float]:
    """The losses that an example printed; the lines number the epochs from 0."""
    lines = [line.removeprefix("epoch ").split(": loss ") for line in text.splitlines()]
    assert [int(epoch) for epoch, _ in lines] == list(range(len(lines)))
    return [float(loss) for _, loss in lines]


def lines_of_code(source: str) -> list[str]:
    """Lines that hold code: no imports (nor a try of imports alone), docstrings, blanks, comments or main guard."""
    tree = ast.parse(source)
    kept: set[int] = set()
    skipped: set[int] = set()
    for node in ast.walk(tree):
        span = range(getattr(node, "lineno", 1), getattr(node, "end_lineno", 0) + 1)
        imports = (ast.Import, ast.ImportFrom)
        tried = isinstance(node, ast.Try) and [*node.body, *(s for h in node.handlers for s in h.body)]
        if (
            isinstance(node, imports)
            or (tried and all(isinstance(statement, imports) for statement in tried))
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'")
        ):
            skipped.update(span)
        elif isinstance(node, ast.stmt):
            kept.update(span)
    lines = dict(enumerate(source.splitlines(), 1))
    texts = [lines[number] for number in sorted(kept - skipped)]
    return [text for text in texts if text.strip() and not text.strip().startswith("#")]


def test_what_counts_as_a_line_of_code() -> None:
    source = '''"""Two
lines."""
import os

try:
    import a
except ImportError:
    import b


class C:
    """Text."""

    # A comment.
    x = [
        1,
    ]  # 4 lines so far

    def f(self):
        """Text."""
        import c

        return c  # 6


if __name__ == "__main__":
    C()
'''
    assert [line.split()[0] for line in lines_of_code(source)] == ["class", "x", "1,", "]", "def", "return"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_under_20_lines_of_code(path: Path) -> None:
    lines = lines_of_code(path.read_text())
    assert 0 < len(lines) < 20, lines


@pytest.mark.parametrize("name", NAMES)
def test_command_line(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """As a script, with the real network and a worker, but not compiled: below, a small network is traced."""
    path = str(EXAMPLES / f"{name}.py")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [path, *options(folder, epochs=2, workers=1)])
    monkeypatch.setattr(torch, "compile", lambda step, fullgraph: step)
    torch.manual_seed(0)
    runpy.run_path(path, run_name="__main__")
    printed = losses(capsys.readouterr().out)
    assert len(printed) == 2
    assert torch.tensor(printed).isfinite().all()


def test_torchvision_loader_trains(
    script: Callable[[str], ModuleType], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    example, model = script("torchvision_loader"), tiny_network()
    monkeypatch.setattr(example, "resnet18", lambda num_classes: model)
    before = [parameter.clone() for parameter in model.parameters()]
    example.main(options(folder, batch=100))  # more than there are images
    [loss] = losses(capsys.readouterr().out)
    assert 0 < loss < 100
    assert not any(map(torch.equal, before, model.parameters()))


def test_same_index_and_epoch_give_the_same_image(
    script: Callable[[str], ModuleType], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another order, in batches of another size. The random crop and flip are left out: they are not PRIME's."""
    example = script("torchvision_loader")
    monkeypatch.setattr(example.v2, "RandomResizedCrop", lambda size: example.v2.Resize((size, size)))
    monkeypatch.setattr(example.v2, "RandomHorizontalFlip", example.v2.Identity)
    monkeypatch.setattr(example, "resnet18", tiny_network)  # the network does not matter here
    runs: list[dict[tuple[int, int], torch.Tensor]] = []
    orders: list[list[int]] = []

    class Recorded(PRIME):
        def forward(self, images: torch.Tensor, index: torch.Tensor, epoch: int) -> torch.Tensor:  # type: ignore[override]
            out = super().forward(images, index, epoch)
            runs[-1].update({(epoch, number): image for number, image in zip(index.tolist(), out, strict=True)})
            orders[-1] += index.tolist()
            return out

    monkeypatch.setattr(example, "PRIME", Recorded)
    for seed, batch in ((0, 3), (1, 2)):
        runs.append({})
        orders.append([])
        torch.manual_seed(seed)
        example.main(options(folder, epochs=2, batch=batch))
    assert orders[0] != orders[1]
    assert set(runs[0]) == set(runs[1]) == {(epoch, number) for epoch in range(2) for number in range(COUNT)}
    for key, image in runs[0].items():
        assert torch.equal(image, runs[1][key]), key
    assert not any(torch.equal(runs[0][0, number], runs[0][1, number]) for number in range(COUNT))


def test_timm_loop_trains_compiled(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A list of (uint8 batch, labels) is a loader; every image of every epoch gets draws of its own."""
    example, model, made = script("timm_loop"), tiny_network(), []

    def recorded(*args: object, **kwargs: object) -> PRIME:
        made.append(PRIME(*args, **kwargs))  # type: ignore[arg-type]
        return made[0]

    monkeypatch.setattr(example, "PRIME", recorded)
    # Traces all, backward too; test_torch.py compiles PRIME to the end, which takes long.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    before = [parameter.clone() for parameter in model.parameters()]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    loader = [(images, torch.tensor([0, 1])) for images in make_images(4, SIZE, SIZE, torch.uint8).split(2)]
    example.train(loader, model, 2, "cpu")
    assert all(0 < loss < 100 for loss in losses(capsys.readouterr().out))
    assert not any(map(torch.equal, before, model.parameters()))
    assert made[0].counter == 2 * 4
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_v2_transform_and_timm_splits_train(
    script: Callable[[str], ModuleType], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    model = tiny_network()
    before = [parameter.clone() for parameter in model.parameters()]
    for name, network in (("v2_transform", "resnet18"), ("timm_splits", "create_model")):
        example = pytest.importorskip(name, exc_type=ImportError)
        monkeypatch.setattr(example, network, lambda *_, num_classes: model)
        example.main(options(folder))
        [loss] = losses(capsys.readouterr().out)
        assert 0 < loss < 100
        assert not any(map(torch.equal, before, model.parameters()))


def test_lightning_callback_trains(
    script: Callable[[str], ModuleType], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed")
    example, model = script("lightning_callback"), tiny_network()
    monkeypatch.chdir(folder.parent)  # for logs and the checkpoint
    monkeypatch.setattr(example, "resnet18", lambda num_classes: model)
    before = [parameter.clone() for parameter in model.parameters()]
    example.main(options(folder))
    assert not any(map(torch.equal, before, model.parameters()))
    assert list(folder.parent.glob("lightning_logs/*/checkpoints/*.ckpt"))


def test_huggingface_trainer_trains(
    script: Callable[[str], ModuleType], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("datasets", reason="datasets is not installed")
    example = script("huggingface_trainer")
    monkeypatch.chdir(folder.parent)
    small = {"embedding_size": 4, "hidden_sizes": [4], "depths": [1], "layer_type": "basic"}
    monkeypatch.setattr(example, "ResNetConfig", partial(example.ResNetConfig, **small))
    example.main(options(folder))
    [checkpoint] = (folder.parent / "trainer_output").glob("checkpoint-*")
    assert json.loads((checkpoint / "trainer_state.json").read_text())["epoch"] == 1


def test_jsd_loss_is_its_definition(script: Callable[[str], ModuleType]) -> None:
    logits = torch.randn(3 * 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 4, 2, 2])
    distributions = logits.view(3, 4, 5).softmax(2)
    divergence = (distributions * (distributions / distributions.mean(0)).log()).sum(2).mean()
    expected = -distributions[0, torch.arange(4), labels].log().mean() + 12 * divergence
    torch.testing.assert_close(script("timm_loop").jsd_loss(logits, labels), expected)


def test_jsd_loss_where_a_softmax_is_0(script: Callable[[str], ModuleType]) -> None:
    logits = torch.tensor([[0.0, 200], [200, 0], [0, 0]], requires_grad=True)
    loss = script("timm_loop").jsd_loss(logits, torch.tensor([1]))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", ["missing", "file", "empty", "no images"])
def test_bad_folder(
    name: str, content: str, script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "train"
    if content == "file":
        path.write_text("")
    elif content != "missing":
        (path / "class").mkdir(parents=True)
    if content == "no images":
        (path / "class" / "notes.txt").write_text("")
    with pytest.raises(SystemExit) as stop:
        script(name).main(options(path))
    assert stop.value.code == 2
    expected = f"argument folder: expected a folder with one folder of images for each class, got {str(path)!r}"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["--epochs", "--batch", "--size"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_bad_number(
    argument: str, value: str, script: Callable[[str], ModuleType], folder: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        script("torchvision_loader").main([*options(folder), f"{argument}={value}"])
    assert stop.value.code == 2
    assert f"argument {argument}: expected a whole number from 1, got {value!r}" in capsys.readouterr().err
