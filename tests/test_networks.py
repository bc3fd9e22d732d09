"""Networks by name, and classifiers from every kind of file."""

from __future__ import annotations

import argparse
import os
import re
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from classifying import save, small

from prime_dali.data import statistics
from prime_dali.models import networks, state_dicts


def as_the_authors_name(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict of torchvision's ResNet under the names of the authors' CIFAR networks."""
    return {key.replace("downsample", "shortcut").replace("fc.", "linear."): value for key, value in state.items()}


def test_the_cifar_stem_keeps_the_resolution() -> None:
    network = networks.create("resnet18", 10, "cifar")
    assert sum(p.numel() for p in network.parameters()) == 11_173_962  # the ResNet-18 of CIFAR-10
    seen: list[torch.Size] = []
    network.layer1.register_forward_hook(lambda _, inputs, output: seen.append(output.shape))
    assert network.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert seen == [(2, 64, 32, 32)]


@pytest.mark.parametrize(("name", "millions"), [
    ("wrn_40_2", 2.2), ("wrn_28_10", 36.5), ("resnext29_4x32d", 6.8), ("resnext29_8x64d", 34.4),
    ("resnet11_pooled", 10.0),
])  # fmt: skip
def test_networks_for_cifar(name: str, millions: float, tmp_path: Path) -> None:
    """Their numbers of parameters are the published ones, or ours, and the last maps have a quarter of the resolution,
    or an eighth."""
    with torch.device("meta"):
        network = networks.create(name, 10, "cifar")
        side = 4 if "pooled" in name else 8
        assert network.stages(network.norm1(network.conv1(torch.zeros(2, 3, 32, 32)))).shape[2:] == (side, side)
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert round(sum(p.numel() for p in network.parameters()) / 1e6, 1) == millions
    if name == "wrn_40_2":
        weights = networks.create(name, 10, "cifar").state_dict()
        torch.save(weights, tmp_path / "weights.pt")
        found = networks.load(tmp_path / "weights.pt", network=name, num_classes=10)
        assert (found.stem, found.size) == ("cifar", 32)
        assert all(torch.equal(value, weights[key]) for key, value in found.network.state_dict().items())


def test_the_published_network_is_left_alone() -> None:
    ours = networks.create("resnet18", 7).state_dict()
    theirs = torchvision.models.resnet18(num_classes=7).state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}


def test_timm() -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    for name in ("timm:resnet10t", "resnet10t"):  # torchvision has no such network
        assert networks.create(name, 5).eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 5)


def test_options_of_timm_are_in_the_name_and_in_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    name = "timm:vit_tiny_patch16_224:img_size=16,patch_size=8,depth=1,drop_rate=0.0"
    network = networks.create(name, 3, drop_path=0.5).eval()
    assert network(torch.zeros(1, 3, 16, 16)).shape == (1, 3)
    assert len(network.blocks) == 1
    made = networks.Classifier(network, name, 3, size=16, resize=None)
    read = networks.load(save(networks.checkpoint(made), tmp_path / "last.pt"))
    assert read.name == name
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(read.network(images), network(images))
    content = networks.checkpoint(made, ema=[1])
    with pytest.raises(ValueError, match=re.escape("(ema: expected a mapping, got list)")):
        networks.load(save(content, tmp_path / "damaged.pt"))


def test_stochastic_depth() -> None:
    rates = {module.p for module in networks.create("convnext_tiny", 3, drop_path=0.5).modules()
             if isinstance(module, torchvision.ops.StochasticDepth)}  # fmt: skip
    assert max(rates) == 0.5


@pytest.mark.parametrize(("arguments", "message"), [
    (("resnet81", 10), "got 'resnet81'; did you mean 'resnet"),
    (("timm:resnet18x", 10), "got 'resnet18x'; did you mean"),
    (("resnet18", 0), "num_classes: expected 1 to 1000000, got 0"),
    (("resnet18", 10, "cifr"), "stem: expected one of 'imagenet', 'cifar', got 'cifr'; did you mean 'cifar'?"),
    (("squeezenet1_1", 10, "cifar"), "stem: expected 'imagenet' for squeezenet1_1"),
    (("wrn_40_2", 10), "stem: expected 'cifar' for wrn_40_2, a network for images of 32 x 32, got 'imagenet'"),
    (("wrn_40_2", 10, "cifar", 0.5), "drop_path: expected 0 for wrn_40_2, which takes no rate"),
    (("wrn_40_3", 10), "did you mean 'wrn_40_2'?"),
    (("resnet18", 10, "imagenet", 1.5), "drop_path: expected 0 to 1, got 1.5"),
    (("swin_t", 10, "imagenet", 0.5), "drop_path: expected 0 for swin_t, which takes no rate of stochastic depth, got 0.5"),
    (("timm:vgg11", 10, "imagenet", 0.5), "drop_path: expected 0 for timm:vgg11, which takes no rate"),
    (("timm:vgg11:depth=3", 10), "network: expected options of timm's vgg11, got 'depth=3' ("),
    (("timm:vgg11:depth", 10), "network: expected timm:NAME:OPTION=VALUE,... with numbers, texts in quotes"),
    (("timm:vgg11:num_classes=3", 10), "network: expected a name without the options that other settings determine, got num_classes"),
    (("fcn_resnet50", 10), "expected a classifier of torchvision or timm, got 'fcn_resnet50'"),
])  # fmt: skip
def test_bad_arguments(arguments: tuple[Any, ...], message: str) -> None:
    if "timm" in arguments[0]:
        pytest.importorskip("timm", reason="timm is not installed")
    with pytest.raises(ValueError, match=re.escape(message)):
        networks.create(*arguments)


def test_a_checkpoint_says_all_about_itself(tmp_path: Path) -> None:
    made = replace(
        small(3), classes=("cat", "dog", "owl"), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), interpolation="bicubic"
    )
    path = save(networks.checkpoint(made, epoch=7, config={"lr": 0.2}), tmp_path / "last.pt")
    read = networks.load(path)
    for name in ("name", "num_classes", "stem", "classes", "mean", "std", "size", "resize", "interpolation"):
        assert getattr(read, name) == getattr(made, name)
    assert read.details == {"epoch": 7, "config": {"lr": 0.2}}
    assert read.source == str(path)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(read.network(images), made.network(images))
    assert networks.load(path, mean=(0, 0, 0), std=(1, 1, 1)).std == (1, 1, 1)
    assert networks.load(path, network="resnet18", num_classes=3, stem="cifar").num_classes == 3


@pytest.mark.parametrize(("arguments", "message"), [
    ({"num_classes": 10}, "num_classes: expected 3, which"),
    ({"network": "resnet34"}, "network: expected 'resnet18', which"),
    ({"stem": "imagenet"}, "stem: expected 'cifar', which"),
    ({"size": 224}, "size: expected 32, which"),
    ({"mean": (0, 0, 0)}, "std: expected three numbers because mean is given"),
])  # fmt: skip
def test_arguments_must_agree_with_the_checkpoint(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(networks.checkpoint(small(3)), tmp_path / "last.pt")
    with pytest.raises(ValueError, match=message):
        networks.load(path, **arguments)


@pytest.mark.parametrize(("change", "message"), [
    ({"version": 2}, "expected a checkpoint of version 1, got 2"),
    ({"network": {"name": "resnet18"}}, "not a complete checkpoint of prime-dali (network.num_classes: expected an int, got none); take another file"),
    ({"classes": ["one"]}, "expected 3 names of classes, got 1"),
    ({"interpolation": "bicubik"}, "not a complete checkpoint of prime-dali (interpolation: expected one of 'nearest', "),
    ({"network": {"name": "resnet18", "num_classes": 3, "stem": "imagenet"}},
     "conv1.weight: expected [64, 3, 7, 7], got [64, 3, 3, 3]"),
])  # fmt: skip
def test_checkpoints_that_contradict_themselves(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(networks.checkpoint(small(3)) | change, tmp_path / "last.pt")
    with pytest.raises(ValueError, match=re.escape(message)):
        networks.load(path)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
@pytest.mark.parametrize("prefix", ["", "module.", "model.", "_orig_mod.", "module._orig_mod."])
def test_state_dicts(wrap: Any, prefix: str, tmp_path: Path) -> None:
    made = torchvision.models.shufflenet_v2_x0_5(num_classes=4).eval()
    path = save(wrap({prefix + key: value for key, value in made.state_dict().items()}), tmp_path / "weights.pth")
    read = networks.load(path, network="shufflenet_v2_x0_5", num_classes=4)
    assert (read.stem, read.size, read.resize) == ("imagenet", 224, 256)
    assert (read.mean, read.std) == statistics.IMAGENET_STATISTICS
    expected = made.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in read.network.state_dict().items())


@pytest.mark.parametrize(("key", "averages", "prefix"), [
    ("state_dict", "state_dict_ema", ""),  # timm's script
    ("model", "model_ema", "module."),  # torchvision's references
])  # fmt: skip
def test_checkpoints_of_other_scripts(key: str, averages: str, prefix: str, tmp_path: Path) -> None:
    """With averages, which are what one reports, and with the options of the script."""
    last = torchvision.models.shufflenet_v2_x0_5(num_classes=2).state_dict()
    mean = {prefix + name: torch.full_like(value, 2) for name, value in last.items()} | {"n_averaged": torch.tensor(3)}
    given = {key: last, averages: mean, "args": argparse.Namespace(lr=0.1, model="shufflenet"), "epoch": 3}
    path = save(given, tmp_path / "weights.pth")
    network: dict[str, Any] = {"network": "shufflenet_v2_x0_5", "num_classes": 2}
    read, raw = (networks.load(path, raw=raw, **network) for raw in (False, True))
    assert all(bool((value == 2).all()) for value in read.network.state_dict().values())
    assert all(torch.equal(value, last[name]) for name, value in raw.network.state_dict().items())
    assert (read.source, raw.source) == (f"{path} (EMA of the weights)", f"{path}{state_dicts.RAW}")
    with pytest.raises(ValueError, match="raw: expected a checkpoint with averages"):
        networks.load(save({key: last}, path), raw=True, **network)


@pytest.mark.parametrize("statistics", [
    {"model.aug.preprocess.mean": [0.1, 0.2, 0.3], "model.aug.preprocess.std": [0.5, 0.6, 0.7]},
    {"mu": [0.1, 0.2, 0.3], "sigma": [0.5, 0.6, 0.7]},
])  # fmt: skip
def test_the_files_of_the_authors(statistics: dict[str, list[float]], tmp_path: Path) -> None:
    made = small(10).network
    prefix = "model.model." if "mu" not in statistics else ""
    state = {prefix + key: value for key, value in as_the_authors_name(made.state_dict()).items()}
    assert f"{prefix}layer2.0.shortcut.1.running_var" in state
    state |= {key: torch.tensor(value).reshape(1, 3, 1, 1) for key, value in statistics.items()}
    path = save({"state_dict": state, "epoch": 99, "pytorch-lightning_version": "1.5.0"}, tmp_path / "best.ckpt")
    read = networks.load(path, network="resnet18", num_classes=10)  # 3 x 3 weights say which stem
    assert (read.stem, read.size, read.resize) == ("cifar", 32, None)
    assert read.mean == pytest.approx((0.1, 0.2, 0.3))
    assert read.std == pytest.approx((0.5, 0.6, 0.7))
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(read.network(images), made(images))


def test_a_cifar_network_without_statistics_gets_those_of_its_data(tmp_path: Path) -> None:
    path = save(small(100).network.state_dict(), tmp_path / "weights.pth")
    read = networks.load(path, network="resnet18", num_classes=100)
    assert (read.mean, read.std) == statistics.CIFAR_STATISTICS[100]


def test_the_size_of_a_state_dict_that_does_not_say_it(tmp_path: Path) -> None:
    path = save(torchvision.models.shufflenet_v2_x0_5(num_classes=10).state_dict(), tmp_path / "weights.pth")
    read = networks.load(path, network="shufflenet_v2_x0_5", num_classes=10, size=32)
    assert (read.size, read.resize, read.stem) == (32, None, "imagenet")
    assert (read.mean, read.std) == statistics.CIFAR_STATISTICS[10]
    read = networks.load(path, network="shufflenet_v2_x0_5", num_classes=10, size=112)
    assert (read.size, read.resize) == (112, 128)


@pytest.mark.parametrize("num_classes", [10, 7])
def test_small_images_of_a_network_of_timm(num_classes: int, tmp_path: Path) -> None:
    """Of CIFAR's size and numbers of classes they are normalized as CIFAR's, others as timm does it."""
    timm = pytest.importorskip("timm", reason="timm is not installed")
    name = "vit_tiny_patch16_224"
    options = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "num_heads": 2, "depth": 1}
    state = timm.create_model(name, num_classes=num_classes, **options).state_dict()
    path = save(state, tmp_path / "weights.pth")
    named = ",".join(f"{option}={value}" for option, value in options.items())
    read = networks.load(path, network=f"timm:{name}:{named}", num_classes=num_classes)
    half = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert read.size == 32
    assert (read.mean, read.std) == statistics.CIFAR_STATISTICS.get(num_classes, half)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"network": "resnet34"}, "got keys 80 missing (layer1.2.conv1.weight; layer1.2.bn1.weight; layer1.2.bn1.bias; ...)"),
    ({"num_classes": 100}, "2 of another shape (fc.weight: expected [100, 512], got [10, 512]; fc.bias: expected [100], got [10])"),
    ({"stem": "imagenet"}, "1 of another shape (conv1.weight: expected [64, 3, 7, 7], got [64, 3, 3, 3])"),
    ({"network": "squeezenet1_1"}, "unexpected (conv1.weight; bn1.weight; bn1.bias; ...)"),
    ({"network": None}, "network: expected with"),
    ({"num_classes": None}, "num_classes: expected with"),
])  # fmt: skip
def test_the_wrong_network(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(small(10).network.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=re.escape(message)):
        networks.load(path, **{"network": "resnet18", "num_classes": 10, **arguments})


def test_the_wrong_width(tmp_path: Path) -> None:
    path = save(torchvision.models.shufflenet_v2_x0_5(num_classes=4).state_dict(), tmp_path / "weights.pth")
    message = "of another shape (stage2.0.branch1.2.weight: expected [58, 24, 1, 1], got [24, 24, 1, 1];"
    with pytest.raises(ValueError, match=re.escape(message)):
        networks.load(path, network="shufflenet_v2_x1_0", num_classes=4)


def test_a_weight_that_comes_twice(tmp_path: Path) -> None:
    state = torchvision.models.shufflenet_v2_x0_5(num_classes=4).state_dict()
    path = save(state | {"module.fc.bias": state["fc.bias"]}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"module\.fc\.bias: expected each weight once, got another for fc\.bias"):
        networks.load(path, network="shufflenet_v2_x0_5", num_classes=4)


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, ("harm",)


def test_a_file_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save({"state_dict": Harmful()}, tmp_path / "weights.pth")
    with pytest.raises(
        ValueError,
        match=r"weights\.pth: not a checkpoint or a state dict \(it has an object of \w+\.mkdir, and to make",
    ):
        networks.load(path, network="resnet18", num_classes=10)
    assert not (tmp_path / "harm").exists()


def test_files_that_are_no_checkpoints(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"notes\.txt: not a checkpoint"):
        networks.load(text)
    with pytest.raises(ValueError, match=r"not a checkpoint or a state dict \(expected a mapping, got list"):
        networks.load(save([1, 2], tmp_path / "list.pt"))
    with pytest.raises(ValueError, match="expected a state dict, got a dictionary of 'epoch'"):
        networks.load(save({"epoch": 1}, tmp_path / "epoch.pt"), network="resnet18", num_classes=10)
    with pytest.raises(ValueError, match="got a dictionary of 'weights', 'epoch'; save its entry 'weights' alone"):
        networks.load(save({"weights": {}, "epoch": 1}, tmp_path / "w.pt"), network="resnet18", num_classes=10)
    with pytest.raises(FileNotFoundError, match="no such file"):
        networks.load(tmp_path / "none.pt")
    with pytest.raises(FileNotFoundError, match=r"or timm:NAME; a folder$"):
        networks.load(tmp_path)


def test_weights_in_an_entry_or_behind_a_prefix(tmp_path: Path) -> None:
    state = networks.create("resnet18", 10, "cifar").state_dict()
    saved = save({"net": {f"module.{key}": value for key, value in state.items()}, "acc": 95.0}, tmp_path / "net.pt")
    found = networks.load(saved, network="resnet18", num_classes=10).network.state_dict()
    assert all(torch.equal(found[key], value) for key, value in state.items())
    lightning = {"state_dict": {f"task.backbone.{key}": value for key, value in state.items()}, "epoch": 1}
    message = (
        r"got keys 102 missing .*; all of them are there with 'task\.backbone\.' before their names: save those alone"
    )
    with pytest.raises(ValueError, match=message):
        networks.load(save(lightning, tmp_path / "lightning.ckpt"), network="resnet18", num_classes=10, stem="cifar")


def test_torchvision_weights_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made = torchvision.models.shufflenet_v2_x0_5().eval()
    monkeypatch.setattr(
        torchvision.models.ShuffleNet_V2_X0_5_Weights, "get_state_dict", lambda *_, **__: made.state_dict()
    )
    read = networks.load("torchvision:shufflenet_v2_x0_5:DEFAULT")
    assert read.source == "torchvision:shufflenet_v2_x0_5:IMAGENET1K_V1"
    assert (read.num_classes, read.size, read.resize, read.classes) == (1000, 224, 256, None)
    assert (read.mean, read.std) == statistics.IMAGENET_STATISTICS
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(read.network(images), made(images))


def test_torchvision_weights_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(torchvision.models.ShuffleNet_V2_X0_5_Weights, "get_state_dict", fail)
    name = "torchvision:shufflenet_v2_x0_5:DEFAULT"
    with pytest.raises(
        OSError, match=rf"{name}: expected its published weights in the cache or from https.*TORCH_HOME"
    ):
        networks.load(name)
    with pytest.raises(ValueError, match=f"num_classes: expected 1000, which {name} is of, got 3"):
        networks.load(name, num_classes=3)  # before a download


def test_timm_weights_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    create = timm.create_model
    asked = []
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: asked.append((name, pretrained)) or create(name))
    read = networks.load("timm:resnet10t.c3_in1k")
    assert asked == [("resnet10t.c3_in1k", True)]
    assert (read.source, read.name) == ("timm:resnet10t.c3_in1k", "timm:resnet10t.c3_in1k")
    assert (read.num_classes, read.size, read.resize) == (1000, 176, 201)  # its crop is 7/8 of the shorter side
    assert not read.network.training
    with pytest.raises(ValueError, match="num_classes: expected 1000, which timm:"):
        networks.load("timm:resnet10t.c3_in1k", num_classes=10)


def test_timm_weights_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of the hub does not say what it was asked for; and what cannot have averages is not downloaded."""
    timm = pytest.importorskip("timm", reason="timm is not installed")
    with pytest.raises(ValueError, match=r"raw: expected a checkpoint with averages .*, got timm:resnet10t, which has"):
        networks.load("timm:resnet10t", raw=True)

    def offline(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("cannot find the requested files\nsecond line")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(OSError, match=r"^timm:resnet10t: expected its published weights .* requested files\); connect"):
        networks.load("timm:resnet10t")


def test_weights_that_torchvision_does_not_have() -> None:
    with pytest.raises(ValueError, match="expected one of 'IMAGENET1K_V1', 'IMAGENET1K_V2', 'DEFAULT', got ''"):
        networks.load("torchvision:resnet50")
    with pytest.raises(ValueError, match="got 'resnet51'; did you mean 'resnet"):
        networks.load("torchvision:resnet51:IMAGENET1K_V1")
