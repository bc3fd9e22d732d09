"""Settings of a training run: recipes, files, the command line, and what they refuse."""

from __future__ import annotations

import time
import typing
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")

from prime_dali.models import networks
from prime_dali.training import outputs, train
from prime_dali.training.config import NAMES, TrainConfig, defaults, differences
from prime_dali.training.recipes import RECIPES


def test_recipes_are_those_of_the_paper() -> None:
    """docs/METHOD.md, "Training": net, batch, peak learning rate, warm-up, weight decay, JSD, clip."""
    for recipe, expected in (
        ("cifar10", ("resnet18", "cifar", 128, 0.2, 0.25, 5e-4, True, 0.5, 32)),
        ("cifar100", ("resnet18", "cifar", 128, 0.2, 0.25, 5e-4, True, 0.5, 32)),
        ("in100", ("resnet18", "imagenet", 256, 0.2, 0.25, 1e-4, True, 0.5, 224)),
        ("imagenet", ("resnet50", "imagenet", 256, 0.01, 0.1, 1e-4, False, 0.0, 224)),
    ):
        c = train.read(["--recipe", recipe, "--data", "d", "--out", "o"])
        assert (c.network, c.stem, c.batch, c.lr, c.warmup, c.weight_decay, c.jsd, c.clip, c.size) == expected
        assert (c.method, c.epochs, c.momentum, c.seed) == ("prime", 100, (0.85, 0.95), 1)
    assert c.weights == "torchvision:resnet50:IMAGENET1K_V1"
    other = ["--recipe", "imagenet", "--network", "resnet18", "--data", "d", "--out", "o"]
    assert train.read(other).weights == ""  # they are of the recipe's network
    assert train.read([*other, "--weights", "start.pt"]).weights == "start.pt"
    assert not TrainConfig(**defaults("cifar10", "standard")).jsd


def test_recipes_of_today() -> None:
    """Every one is complete, without JSD unless it is asked for, and its network can be made."""
    pytest.importorskip("timm", reason="timm is not installed")
    assert typing.get_args(NAMES) == tuple(RECIPES)
    made = set()
    for recipe in [name for name in RECIPES if name.endswith(("-vit", "-convnext"))]:
        c = train.read(["--recipe", recipe, "--data", "d", "--out", "o"])
        assert (c.optimizer, c.schedule, c.jsd, c.mixup, c.cutmix, c.label_smoothing) == (
            "adamw",
            "cosine",
            False,
            0.8,
            1,
            0.1,
        )
        assert c.ema_decay > 0
        assert c.dataset == recipe.partition("-")[0]
        assert c.size == {"c": 32, "t": 64, "i": 224}[recipe[0]]
        assert train.read(["--recipe", recipe, "--data", "d", "--out", "o", "--jsd", "--sizes", "16", "24"]).sizes == (
            16,
            24,
        )
        made.add((c.network, c.size, c.drop_path))
    for name, size, drop_path in made:
        if ":img_size" in name or ":patch_size" in name:  # the others are published networks
            network = networks.create(name, 10, drop_path=drop_path).eval()
            assert network(torch.zeros(1, 3, size, size)).shape == (1, 10)
    assert TrainConfig(schedule="cosine", warmup=0.0).warmup == 0


def test_a_run_of_an_earlier_version_resumes() -> None:
    """It lacks the settings that it did not have; what it did is their default."""
    new = TrainConfig().plain()
    old = {name: value for name, value in new.items() if name not in ("optimizer", "ema_decay", "sizes")}
    assert differences(old, new) == []
    assert differences(old, {**new, "ema_decay": 0.9}) == ["ema_decay: 0.0, now 0.9"]


def test_settings_come_from_recipe_file_and_command_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: imagenet\nmethod: augmix\nlr: 0.5\nbatch: 512\ndata: here\n")
    c = train.read(["--config", str(file), "--out", "o", "--batch", "1024", "--no-compile"])
    assert (c.recipe, c.method, c.network, c.lr, c.batch, c.data, c.compile) == (
        "imagenet",
        "augmix",
        "resnet50",
        0.5,
        1024,
        "here",
        False,
    )
    assert c.max_lr == 0.5 * 1024 / 256
    saved = tmp_path / "saved.yaml"
    import yaml

    saved.write_text(yaml.safe_dump(c.plain()))
    assert train.read(["--config", str(saved)]) == c
    saved.write_text(yaml.safe_dump({**c.plain(), "method": "standard", "alpha": 2.0}))  # a run of a grid
    assert train.read(["--config", str(saved)]).alpha == 2
    file.write_text("recipe: cifar10-fast\nseed: 2\n")  # whose settings of PRIME nobody gave
    words = ["--config", str(file), "--data", "d", "--out", "o", "--method", "standard"]
    assert train.read(words).mixing == "official"
    file.write_text("alpha: 2\n")
    with pytest.raises(ValueError, match=r"alpha in .*mine.yaml: expected with --method prime"):
        train.read(words)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--recipe", "cifar1"], "recipe"),
    (["--method", "primee"], "method"),
    (["--batch", "many"], "batch"),
    (["--nonsense", "1"], "nonsense"),
    (["--lr"], "lr"),
    (["--method", "standard", "--alpha", "1"], "--alpha: expected with --method prime, got it with --method standard"),
    (["--method=standard", "--width=3"], "--width: expected with --method prime or augmix, got it with"),
    (["--severity", "3"], "--severity: expected with --method augmix, got it with --method prime"),
    (["--beta2", "0.9"], "--beta2: expected with --optimizer adamw, got it with --optimizer sgd"),
    (["--no-jsd", "--jsd-weight", "1"], "--jsd-weight: expected with --jsd, got it with --no-jsd"),
    (["--mix-order", "after"], "--mix-order: expected with --mixup or --cutmix, got it with neither"),
    (["--mixing", "none", "--width", "2"], "--width: expected with --mixing paper or official, got it with --mixing none"),
    (["--primitives", "color", "--spatial-distribution", "mixing"], "expected with --primitives spatial, got it with"),
])  # fmt: skip
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        train.read(["--data", "d", "--out", "o", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "message"), [
    ({"jsd": True, "method": "standard"}, "jsd: expected method augmix or prime"),
    ({"batch": 0}, "batch: expected 1 to"),
    ({"alpha_start": -1.0}, "alpha_start: expected a finite number >= 0"),
    ({"alpha_start": 0.0, "method": "augmix"}, "alpha_start: expected with --method prime, got it with --method augmix"),
    ({"alpha_start": 0.0, "epochs": 1}, "alpha_start: expected 1 with a single epoch, got 0.0"),
    ({"draws": "batch", "method": "standard"}, "draws: expected with --method prime, got it with --method st"),
    ({"alpha_start": 1e7, "alpha": 2.0}, "alpha_start: expected at most 500000 with alpha 2, got 1e\\+07"),
    ({"draws": "bach"}, "draws: expected one of 'image', 'batch'"),
    ({"warmup": 1.0}, "warmup: expected a fraction"),
    ({"momentum": (0.9, 0.8)}, "momentum: expected two numbers, 0 <= minimum"),
    ({"resize": 16, "recipe": "in100"}, "resize: expected at least size, 32, got 16"),
    ({"resize": 40}, "resize: expected with a recipe of image files, got it with --recipe cifar10, .*; leave it out"),
    ({"deepaugment": ("a", "b")}, "deepaugment: expected the folders EDSR and CAE, with an ImageNet recipe"),
    ({"primitives": ("blur",)}, "primitives: .*'blur'"),
    ({"lr": -1.0}, "lr: expected a finite number >= 0"),
    ({"lr": 0.0}, "lr: expected more than 0, as nothing is learned with 0, got 0.0"),
    ({"muon_sgd_lr_scale": 0.0}, "muon_sgd_lr_scale: expected more than 0"),
    ({"ema_decay": 1.0}, "ema_decay: expected at least 0 and less than 1, got 1.0"),
    ({"label_smoothing": 1.0}, "label_smoothing: expected at least 0 and less than 1"),
    ({"layer_decay": 0.0}, "layer_decay: expected more than 0 and at most 1, got 0.0"),
    ({"mixup": -1.0}, "mixup: expected a finite number >= 0"),
    ({"accumulate": 3}, "accumulate: expected a divisor of batch, 128, so that all parts are equal, got 3"),
    ({"mix_order": "before"}, "mix_order: expected mixup or cutmix, and .* got neither mixup nor cutmix"),
    ({"mix_order": "before", "cutmix": 1.0, "method": "standard"}, "mix_order: .* with before, got method standard"),
    ({"sizes": (4,)}, "sizes: expected 8 to 4096, got 4"),
    ({"sizes": (24, 28, 32), "epochs": 2}, "sizes: expected at most 2 .*, got 3"),
    ({"sizes": (32,) * 9}, "sizes: expected at most 8 .*, got 9"),
    ({"crop_area": 0.5}, "crop_area: expected with a recipe of image files"),
    ({"warmup": -0.1}, "warmup: expected a fraction of all steps, at least 0 and less than 1, got -0.1"),
    ({"muon_sgd_lr_scale": 1.0}, "muon_sgd_lr_scale: expected with --optimizer muon, got"),
    ({"optimizer": "muon"}, "schedule: expected cosine or linear with muon, whose momentum is constant, got onecycle"),
])  # fmt: skip
def test_bad_settings(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes)


def test_files_and_recipes_on_the_command_line(tmp_path: Path) -> None:
    """What the command line says counts, wherever a file stands; the recipe's defaults are those of the recipe."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("recipe: in100\nseed: 5\n")
    two.write_text("lr: 0.125\nseed: 6\n")
    paths = ["--data", "d", "--out", "o"]
    found = train.read([*paths, "--seed", "2", "--config", str(one), "--config", str(two)])
    assert (found.recipe, found.size, found.stem, found.seed, found.lr) == ("in100", 224, "imagenet", 2, 0.125)
    with pytest.raises(SystemExit, match="2"):  # its defaults would not be that recipe's
        train.read([*paths, "--recip", "in100"])
    two.write_text("lr: 1\nbatch: 8\nlr: 2\n")
    with pytest.raises(ValueError, match=r"config: expected YAML in .*two.yaml: 'lr' comes twice .*line 3"):
        train.read([*paths, "--config", str(two)])
    two.write_text("lr: [1\n")
    with pytest.raises(ValueError, match=r"config: expected YAML in .*two.yaml"):
        train.read([*paths, "--config", str(two)])


def test_files_that_name_others(tmp_path: Path) -> None:
    """The recipe's defaults come with the recipe, at any depth; a file counts over those that it names."""
    below = tmp_path / "below"
    below.mkdir()
    files = {"a": "config: below/b.yaml\nseed: 7\n", "below/b": "lr: 1e-3\nseed: 6\nconfig: [c.yaml, ../d.yaml]\n",
             "below/c": "recipe: imagenet\nseed: 5\nbatch: 64\n", "d": "batch: 32\n", "loop": "config: below/to.yaml\n",
             "below/to": f"config: {tmp_path}/loop.yaml\n", "bad": "config: 3\n", "none": "config: gone.yaml\n",
             "list": "[1]\n", "one": "momentum: 0.9\n", "word": "primitives: color\n", "int": "jsd: 1\n",
             "null": "lr:\n"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    found = train.read(["--config", str(tmp_path / "a.yaml"), "--data", "d", "--out", "o"])
    assert found == TrainConfig(
        **{**defaults("imagenet", "prime"), "data": "d", "out": "o", "lr": 1e-3, "seed": 7, "batch": 32}
    )
    for name, kind, message in (
        ("loop", ValueError, r"config: expected files that do not include each other in a circle, got .*loop.yaml, "
         r"included by .*to.yaml, included by .*loop.yaml"),
        ("bad", ValueError, r"config: expected the name of a file, or a list of names, in .*bad.yaml, got 3"),
        ("none", FileNotFoundError, "gone.yaml"),
        ("list", ValueError, r"config: expected settings by name in .*list.yaml, got list"),
        ("one", ValueError, r"momentum: expected a list in .*one.yaml, got 0.9"),
        ("word", ValueError, r"primitives: expected a list in .*word.yaml, got 'color'"),
        ("int", ValueError, r"jsd: expected true or false in .*int.yaml, got 1"),
        ("null", ValueError, r"lr: expected a value in .*null.yaml, got nothing"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            train.read(["--config", str(tmp_path / f"{name}.yaml")])


def test_a_list_may_be_empty_on_the_command_line() -> None:
    """Planar waves alone."""
    config = train.read(
        ["--data", "d", "--out", "o", "--primitives", "--wave-strength", "10", "--width", "1", "--depth", "1"]
    )
    assert (config.prime(0).primitives, config.prime(0).wave_strength) == ((), 10.0)


def test_the_color_cutoff() -> None:
    config = TrainConfig(data="d", out="o", color_cut_max=100)
    assert (config.prime(0).color_cut_max, TrainConfig(data="d", out="o").prime(0).color_cut_max) == (100, 10)
    assert "color cutoffs up to 100" in config.also()
    with pytest.raises(ValueError, match="color_cut_max: expected 1 to 1024, got 1025"):
        TrainConfig(data="d", out="o", color_cut_max=1025)


def test_what_takes_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "SLOW", 0.05)
    told: list[str] = []
    tells = outputs.Outputs(
        TrainConfig(**defaults("cifar10", "prime") | {"data": "d", "out": str(tmp_path)}), True, told.append, None
    )
    with tells.telling_if_slow("not told"):
        pass
    with tells.telling_if_slow("reading"):
        while not told:
            time.sleep(0.01)
    assert told == ["reading"]
