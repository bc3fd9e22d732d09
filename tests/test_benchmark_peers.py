"""What the benchmarks measure beside PRIME, and loaders on CPU cores: that each does what its note says."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import make_images

pytest.importorskip("torchvision", reason="torchvision is not installed")

import benchmarking
from benchmarking import assert_rated

script, run_here, photos = benchmarking.script, benchmarking.run_here, benchmarking.photos  # fixtures


def runnable(name: str) -> Any:
    """The peer of a name, or a skip that says why it cannot run here."""
    peer = importlib.import_module("peers").PEERS[name]
    if why := peer.absent("cuda" if torch.cuda.is_available() else "cpu"):
        pytest.skip(why)
    return peer


# On a GPU all of them. DALI's take seconds each, and differ in a name.
NAMES = ["augmix", "augmix-batch", "trivial", "trivial-batch", "rand", "rand-batch", "kornia-rand", "kornia-auto",
         "kornia-trivial", "kornia-sequence", "dali-trivial",
         *(["dali-rand", "dali-auto", "triton"] if torch.cuda.is_available() else [])]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_peers_augment(name: str, script: Callable[[str], ModuleType]) -> None:
    """Each gives as many images as it gets, and other ones. What it says one draw serves, it serves."""
    script("peers")
    peer = runnable(name)
    image = make_images(1, 32, 40, torch.uint8)
    images = image.repeat(4, 1, 1, 1).to("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    call = peer.start(images)
    same, changed = True, False
    for _ in range(12):
        out = list(call())
        rows = [row for part in out for row in (part if part.dim() == 4 else [part])]
        assert [row.numel() for row in rows] == [3 * 32 * 40] * 4
        same &= all(torch.equal(rows[0], row) for row in rows)
        plain = images[0].permute(1, 2, 0) if name.startswith("dali") else images[0]
        exact = rows[0].cpu() if rows[0].dtype == torch.uint8 else (rows[0].float().cpu() * 255).round().to(torch.uint8)
        changed |= not torch.equal(exact, plain.cpu())
    assert changed
    assert same == (peer.draws == "per batch")


def test_peers_that_are_not_installed(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """They are named, with the command; whoever asks for one gets an error."""
    peers = script("peers")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = peers.missing(["augmix", "official", "kornia-auto", "triton"], "cpu")
    assert found.keys() == {"augmix", "kornia-auto", "triton"}
    assert found["kornia-auto"] == "kornia is not installed: pip install kornia"
    assert found["triton"] == "triton_augment is not installed: pip install triton-augment"
    with pytest.raises(SystemExit) as stopped:
        script("throughput").main(["--peers", "kornia-auto"])
    assert stopped.value.code == 2
    assert "argument --peers: kornia-auto: kornia is not installed: pip install kornia" in capsys.readouterr().err


def test_peers_that_need_cuda(script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    peers = script("peers")
    assert peers.missing(["augmix", "triton"], "cpu") == {"triton": "runs on CUDA alone"}
    assert peers.missing(["augmix", "triton"], "cuda") == {}


def test_a_peer_that_fails(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The others are measured, and the table says how it failed."""
    throughput, peers = script("throughput"), script("peers")

    def fails(images: torch.Tensor) -> None:
        raise TypeError("no such operation")

    monkeypatch.setitem(peers.PEERS, "rand", peers.Peer("fails", "per image", fails))
    tiny = ["--size", "16", "--batch", "2", "--seconds", "0.01", "--repeats", "1", "--peers", "rand", "trivial-batch"]
    assert throughput.main(tiny) == 1
    out = capsys.readouterr().out
    assert "rand failed: TypeError: no such operation" in out
    (row,) = [line for line in out.splitlines() if line.startswith("trivial-batch") and "torchvision" not in line]
    assert row.endswith("  per batch")


LOADERS = ["prime", "prime-batch", "plain", "augmix", "augmix-pil", "trivial", "trivial-pil"]


def test_loaders(photos: Path, run_here: Callable[..., str], tmp_path: Path) -> None:
    written = tmp_path / "out.json"
    tiny = ["--workers", 1, "--size", 32, "--batch", 2, "--seconds", 0.01, "--repeats", 1, "--files", 3]
    text = run_here("throughput", "--loader", photos, *tiny, "--decoded", "--json", written)
    assert_rated(written, LOADERS)
    assert "32 x 32, batch 2, 1 worker, 3 files, decoded in advance" in text


def test_every_loader_gives_normalized_batches(script: Callable[[str], ModuleType], photos: Path) -> None:
    """Also from PIL images; and each image of a batch has a draw of its own."""
    loader = script("loader")
    file = str(photos / "class" / "0.jpg")
    found = loader.candidates(40)
    assert list(found) == LOADERS
    assert set(loader.NOTES) == set(found)
    for name, one in found.items():
        batch = one.collate([one.transform(one.read(file)) for _ in range(3)])
        assert (batch.shape, batch.dtype) == ((3, 3, 40, 40), torch.float32), name
        assert batch.min() < -0.3, name
    image = torch.full((3, 40, 40), 100, dtype=torch.uint8)
    first, *others = found["prime-batch"].collate([image] * 4)
    assert not all(torch.equal(first, other) for other in others)


def test_loaders_need_a_folder_of_class_folders(
    script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stopped:
        script("throughput").main(["--loader", str(tmp_path)])
    assert stopped.value.code == 2
    assert "argument --loader: folder: expected one subfolder per class" in capsys.readouterr().err
