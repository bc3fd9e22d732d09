"""The cost of a method: medians over turns, and what is said of methods that fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import gridding
from gridding import TINY, options

from prime_dali.experiments import cost

cifar = gridding.cifar  # a fixture


def test_costs_are_medians_over_standard() -> None:
    turns = []

    def start(name: str, seconds: list[float]) -> object:
        def measure(count: int) -> float:
            turns.append((name, count))
            return seconds.pop(0)

        return lambda: SimpleNamespace(steps=10, images=4, seconds=measure)

    def broken() -> object:
        raise RuntimeError("no memory\nlong story")

    starts = {"standard": start("standard", [2, 9, 1]), "official": broken, "prime": start("prime", [3, 2, 7])}
    costs = cost.take_turns(starts, 3, 0, lambda line: None)
    assert turns == [("standard", 10), ("prime", 10)] * 3
    rows = cost.rows(costs)
    assert rows["standard"] == {"s an epoch": 20, "least": 10, "most": 90, "images/s": 2, "over standard": 1,
                                "reported": None}  # fmt: skip
    assert rows["prime"]["over standard"] == 1.5
    assert rows["prime"]["reported"] == 1.27
    assert set(rows["official"].values()) == {None}
    assert costs[1].error == "no memory"
    assert "| official (failed) |" in cost.markdown([], costs)
    assert cost.rows(costs[1:])["prime"]["over standard"] is None


@pytest.mark.timeout(200)
def test_cost(cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "clone").mkdir()
    words = ["--out", tmp_path / "out", "--set", f"data={cifar}", *TINY, "--rounds", 2, "--steps", 1, "--warmup", 1]
    methods = ["--methods", "standard", "prime", "augmix+jsd"]
    cost.run(options(cost, *words, *methods))
    said = capsys.readouterr()
    assert "| prime " in said.out
    assert f"data     cifar10 in {cifar}\nimages   32 x 32, batches of " in said.err
    assert "\nmethods  standard, prime, augmix+jsd; 2 rounds of 1 step, after 1 step to warm up\n" in said.err
    content = json.loads((tmp_path / "out" / "cost.json").read_text())
    assert [row["method"] for row in content["methods"]] == methods[1:]
    assert all(
        row["steps"] == 5 and len(row["seconds"]) == 2 and row["over standard"] > 0 for row in content["methods"]
    )
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["cost.csv", "cost.json", "cost.md", "cost.png"]
    with pytest.raises(RuntimeError, match="1 of 1 methods failed: official: official: expected a clone of"):
        cost.run(options(cost, *words, "--methods", "official", "--official", tmp_path / "clone"))
    with pytest.raises(ValueError, match="official: expected --official DIR"):
        cost.run(options(cost, *words, "--methods", "official"))
    with pytest.raises(ValueError, match="rounds: expected 1 to"):
        cost.run(options(cost, *words, "--rounds", 0))
