"""The native DALI operator: its own inputs and errors, and how it is compiled, kept and loaded."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_images

import prime_dali
from prime_dali.tools import doctor

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

import dali_runs
from dali_runs import IMAGES, SIZE, run
from nvidia.dali import fn, pipeline_def, types

from prime_dali.config import Distributions
from prime_dali.dali import native

device = dali_runs.device  # fixtures


@pytest.mark.parametrize(("images", "arguments", "message"), [
    (IMAGES, {"layout": "CHW"}, 'images: expected CHW with 1 to 16 channels, got 24 in image 0; of another layout, say layout="CHW" or "HWC"'),
    ([IMAGES[0], IMAGES[1, ..., :1].copy()], {}, "images: expected one number of channels in a batch, got 3 in image 0 and 1 in image 1"),
    (IMAGES, {"mean": [0.5] * 4, "std": [0.5] * 4}, "mean, std: expected 3 numbers each, one per channel, got 4"),
    (IMAGES[:, :7].copy(), {}, "images: expected 8 to 4096 pixels, got 7 x 40 in image 0"),
    (IMAGES[:, None], {}, 'images: expected 3 axes, HWC, got 4; layout="HWC" or "CHW" are images, "FHWC" or "FCHW" sequences'),
    (IMAGES, {"layout": "FHWC"}, "images: expected 4 axes, FHWC, got 3"),
    (IMAGES[..., 0].copy(), {}, "images: expected 3 axes, HWC, got 2; images without an axis of channels need one"),
])  # fmt: skip
def test_bad_batches_in_the_native_operator(
    images: np.ndarray, arguments: dict, message: str, device: str, plugin: Path
) -> None:
    with pytest.raises(RuntimeError, match=rf"prime\.augment(.|\n)*{message}") as raised:
        run(device, images=images, mode="native", **arguments)
    assert "Assert on" not in str(raised.value)  # a condition in C++


def test_images_of_several_sizes_in_the_native_operator(device: str, plugin: Path) -> None:
    sizes = [(24, 40), (24, 40), (30, 17), (24, 40)]
    images = [image.permute(1, 2, 0).contiguous().numpy() for i, size in enumerate(sizes)
              for image in make_images(1, *size, torch.uint8, seed=i)]  # fmt: skip

    @pipeline_def(batch_size=4, num_threads=2, device_id=0 if device == "gpu" else None)
    def pipeline():
        image, index = fn.external_source(
            lambda s: (images[s.idx_in_epoch % 4], np.array(s.idx_in_epoch, np.int64)), num_outputs=2, batch=False
        )
        image = image.gpu() if device == "gpu" else image
        return prime_dali.dali.prime(image, "cifar", index=index, epoch=0, seed=3, mode="native")

    built = pipeline()
    built.build()
    for i, out in enumerate(built.run()[0].as_cpu()):
        plan = prime_dali.sample("cifar", np.array([i]), size=sizes[i], seed=3)
        alone = prime_dali.arrays.apply(images[i][None], plan, layout="NHWC")
        assert np.abs(np.array(out).astype(int) - alone[0]).max() <= (0 if device == "cpu" else 1)


def test_the_native_operator_itself(device: str, plugin: Path) -> None:
    """Called directly: an alpha for every image, random indices of its own that checkpoints hold, its own errors."""

    @pipeline_def(batch_size=4, num_threads=2, device_id=0 if device == "gpu" else None, enable_checkpointing=True)
    def pipeline(more=None):
        image = fn.external_source(lambda s: IMAGES[s.idx_in_epoch % 4], batch=False)
        image = image.gpu() if device == "gpu" else image
        return fn.prime.augment(image, seed=6, **{**prime_dali.dali.arguments("imagenet"), **(more or {})})

    def run_once(built) -> np.ndarray:
        return np.stack([np.array(s) for s in built.run()[0].as_cpu()])

    first = pipeline()
    first.build()
    start = run_once(first)
    restored = pipeline(checkpoint=first.checkpoint())
    restored.build()
    following = run_once(first)
    assert not np.array_equal(start, following)
    np.testing.assert_array_equal(run_once(restored), following)

    scaled = pipeline({"alpha": 0.0, "index": 3})
    scaled.build()
    np.testing.assert_array_equal(run_once(scaled), IMAGES[:4])
    for arguments, message in (
        ({"alpha": -1.0}, r"alpha: expected 0 to 1e\+06, got -1"),
        ({"alpha": 1e7}, r"alpha: expected 0 to 1e\+06, got 1e\+07"),
        ({"epoch": -1}, "epoch: expected 0 to 4294967295, got -1"),
        ({"epoch": 2**32}, "epoch: expected 0 to 4294967295, got 4294967296"),
        ({"view": [-2]}, "view: expected -1 .* got -2"),
        ({"distributions": [1.0]}, f"distributions: expected {len(Distributions._fields)} numbers"),
        (
            {"distributions": [1e30] * len(Distributions._fields)},
            "distributions: chains: expected 1 to 255, got 1e\\+30",
        ),
        ({"plan_shape": [1]}, "plan_shape: expected 6 numbers"),
        *(
            ({"plan_shape": shape}, message)
            for shape, message in (
                (
                    [2, 3, 3, 500, 20, 0],
                    "distributions, plan_shape: expected those of one configuration, got distributions of 3 chains",
                ),
                ([3, 2, 3, 500, 20, 0], "distributions, plan_shape: expected those of one configuration"),
                ([3, 3, 3, 499, 20, 0], "distributions, plan_shape: expected those of one configuration"),
                ([3, 3, 3, 500, 19, 0], "distributions, plan_shape: expected those of one configuration"),
                ([3, 3, 3, 500, 20, 1], "distributions, plan_shape: expected those of one configuration"),
                ([3, 3, 0, 500, 20, 0], "filter_size: expected 1 to 31, got 0"),
                ([3, 3, 3, 5000, 20, 0], "max_cut: expected 0 to 4094, got 5000"),
            )
        ),
        ({"mean": [0.5]}, "mean, std: expected as many numbers each, got 1 and 0"),
        (
            {"mean": [124.0] * 3, "std": [58.0] * 3},
            r"mean: expected numbers up to 1, on the \[0, 1\] scale, got 124; divide mean and std of the 0 to 255",
        ),
        ({"std": [0.5, 0.5, 0.0], "mean": [0.5] * 3}, "std: expected positive numbers, got 0"),
        ({"dtype": types.INT32}, "dtype: expected UINT8, UINT16, FLOAT16 or FLOAT"),
        ({"output_layout": "WHC"}, "output_layout: expected HWC or CHW, or of sequences FHWC or FCHW, got WHC"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=message):
            run_once(pipeline(arguments))


@pytest.mark.parametrize(("axes", "message"), [
    (2, "images: expected 3 axes, HWC, got 2; images without an axis of channels need one"),
    (5, 'images: expected 3 axes, HWC, got 5; layout="HWC" or "CHW" are images, "FHWC" or "FCHW" sequences'),
])  # fmt: skip
def test_images_of_unknown_layout_in_the_native_operator(axes: int, message: str, plugin: Path) -> None:
    """DALI knows no layout of arrays from Python, and ``prime`` is not there to name one."""

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        image = fn.external_source(lambda s: np.zeros((16,) * axes, np.uint8), batch=False)
        return fn.prime.augment(image, seed=6, **prime_dali.dali.arguments("imagenet"))

    built = pipeline()
    built.build()
    with pytest.raises(RuntimeError, match=message):
        built.run()


@pytest.mark.parametrize(("known", "layout", "fits"), [
    ("CHW", "HWC", False),  # these images could be either
    ("WHC", "HWC", False),
    ("HWC", "HWC", True),
    ("", "HWC", True),
    ("FHWC", "FCHW", False),
    ("DHWC", "FHWC", True),
])  # fmt: skip
def test_a_layout_that_dali_knows_otherwise(known: str, layout: str, fits: bool, plugin: Path) -> None:
    images = np.zeros((2,) * (len(layout) - 3) + (12, 12, 12), np.uint8)

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        image = fn.external_source(lambda: [images], layout=known)
        return prime_dali.dali.prime(image, "cifar", layout=layout, mode="native")

    if fits:
        assert pipeline().run()[0].layout() == layout
        return
    with pytest.raises(RuntimeError, match=f"images: expected {layout}, as layout= says, got {known}, as DALI knows"):
        pipeline().run()


def test_numbers_of_each_image(plugin: Path) -> None:
    """An alpha of any type; integers that are integers."""

    def run_once(name: str, number: np.ndarray) -> np.ndarray:
        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def pipeline():
            given = {"index": 7, name: fn.external_source(lambda: [number])}
            image = fn.external_source(lambda: [IMAGES[0]])
            return fn.prime.augment(image, seed=2, **given, **prime_dali.dali.arguments("cifar"))

        return np.array(pipeline().run()[0][0])

    expected = run_once("alpha", np.array(0.5, np.float32))
    for dtype in (np.float16, np.float64):
        np.testing.assert_array_equal(run_once("alpha", np.array(0.5, dtype)), expected)
        for name in ("index", "epoch", "flip"):
            with pytest.raises(RuntimeError, match=f"{name}: expected integers that fit int64, got .*; cast them"):
                run_once(name, np.array(1, dtype))
    with pytest.raises(RuntimeError, match="alpha: expected one number per image, got shape 3 for image 0; in dynamic"):
        run_once("alpha", np.ones(3, np.float32))


def test_the_native_operator_in_dynamic_mode(plugin: Path) -> None:
    program = f"""if True:
        import numpy as np
        import prime_dali.dali
        prime_dali.dali.load_plugin({str(plugin)!r})
        import nvidia.dali.experimental.dynamic as ndd
        images = np.random.default_rng(0).integers(0, 256, (4, 24, 40, 3), dtype=np.uint8)
        batch, index = ndd.as_batch(list(images), layout="HWC"), ndd.as_batch([np.int64(i) for i in range(4)])
        drawn = prime_dali.dali.arguments("imagenet")
        out = ndd.prime.augment(batch, index=index, key=5, **drawn)
        plan = prime_dali.sample("imagenet", np.arange(4), size=(24, 40), seed=5)
        expected = prime_dali.arrays.apply(images, plan, layout="NHWC")
        assert np.array_equal(np.stack([np.array(tensor) for tensor in out.tensors]), expected)
        draws = [np.stack([np.array(t) for t in ndd.prime.augment(batch, rng=rng, **drawn).tensors])
                 for rng in (ndd.random.RNG(1), ndd.random.RNG(1), ndd.random.RNG(2))]
        assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_alpha_of_each_image(device: str, plugin: Path) -> None:
    """``alpha`` of the operator scales the amplitudes as that of the configuration does."""
    given = np.array([0.0, 0.5, 1.0, 2.0], np.float32)

    @pipeline_def(batch_size=4, num_threads=2, device_id=0 if device == "gpu" else None)
    def pipeline():
        image, index, alpha = fn.external_source(
            lambda s: (IMAGES[s.idx_in_epoch % 4], np.array(s.idx_in_epoch, np.int64), given[s.idx_in_epoch % 4]),
            num_outputs=3,
            batch=False,
        )
        image = image.gpu() if device == "gpu" else image
        return fn.prime.augment(image, index=index, alpha=alpha, seed=2, **prime_dali.dali.arguments("imagenet"))

    built = pipeline()
    built.build()
    xp = importlib.import_module("cupy" if device == "gpu" else "numpy")
    for i, out in enumerate(built.run()[0].as_cpu()):
        config = prime_dali.preset("imagenet").replace(alpha=float(given[i]))
        plan = prime_dali.sample(config, xp.array([i]), size=SIZE, seed=2)
        alone = prime_dali.arrays.apply(xp.asarray(IMAGES[i : i + 1]), plan, layout="NHWC")[0]
        np.testing.assert_array_equal(np.array(out), alone if device == "cpu" else alone.get())


@pytest.mark.parametrize(("program", "message"), [
    ("dali.load_plugin('none.so')", "FileNotFoundError: path: expected a plugin library, found no file at .*/none.so"),
    ("open('text.so', 'w').write('no library'); dali.load_plugin('text.so')",
     "ImportError: .*/text.so is not a plugin for DALI .*; build it with `prime-dali build-dali-plugin`"),
    ("arrays.interface = 1; dali.load_plugin()",
     "ImportError: .* was built for another version of prime-dali; build it with `prime-dali build-dali-plugin`"),
    ("dali.load_plugin(); dali.load_plugin(); open('other.so', 'w'); dali.load_plugin('other.so')",
     "RuntimeError: path: the plugin .* is already loaded, and DALI cannot load another"),
    ("import shutil; shutil.copy(dali.plugin_path(), 'own.so'); dali.load_plugin('own.so'); dali.load_plugin('own.so'); "
     "dali.load_plugin(); raise LookupError('all good')", "LookupError: all good"),  # it stays that from another path
])  # fmt: skip
def test_plugins_that_do_not_fit_are_refused(program: str, message: str, tmp_path: Path, plugin: Path) -> None:
    program = f"from prime_dali import _arrays as arrays, dali; {program}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(message, done.stderr), done.stderr[-2000:]


def test_one_process_compiles_and_the_others_wait(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a compiler that has the result ready."""
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    made = f'while [ "$1" != -o ]; do shift; done\nexec cp {plugin} "$2"\n'
    compiler.write_text(f"#!/bin/sh\necho once >> {tmp_path}/calls\nsleep 1\n{made}")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    program = "from prime_dali import dali; dali.load_plugin()"
    command = [sys.executable, "-c", program]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    line = f"compiling the DALI operator for DALI {native.nvidia.dali.__version__}, about ten seconds ...\n"
    assert "".join(said).count(line) == 1
    assert (tmp_path / "calls").read_text().splitlines() == ["once"]
    path = prime_dali.dali.plugin_path()
    assert sorted(p.name for p in path.parent.iterdir()) == ["libprime_dali_plugin.so", f"{path.name}.json", "lock"]
    assert native.is_built()

    # Cut off or changed, as by a full disk or a copy that was stopped: found before it is loaded, and compiled again.
    whole, record = path.read_bytes(), native._record(path).read_bytes()
    for content, text, message in (
        (whole[:100_000], record, f"damaged: expected {len(whole)} bytes, got 100000"),
        (whole[:-8] + b"changed!", record, "damaged: its content has changed"),
        (whole, b"{", "not compiled completely"),
        (whole, None, "not compiled completely"),
    ):
        path.write_bytes(content)
        native._record(path).unlink() if text is None else native._record(path).write_bytes(text)
        assert not native.is_built()
        [found] = [finding for finding in doctor.examine() if finding.what == "native DALI operator"]
        assert not found.usable
        assert message in found.detail
        assert found.advice == "prime-dali build-dali-plugin"
    path.write_bytes(whole[:100_000])
    elsewhere = tmp_path / "elsewhere.so"
    elsewhere.write_bytes(whole[:100_000])
    for given, message in ((path, "not compiled completely"), (elsewhere, "damaged: expected .* bytes, got 100000")):
        monkeypatch.setattr(native, "_loaded", None)
        if given == path:
            native._record(path).write_bytes(b"{")
        with pytest.raises(ImportError, match=f"cannot be loaded: {message}; build it with"):
            native.load_plugin(given)
    monkeypatch.setattr(
        native, "_compile", lambda target: (target.write_bytes(whole), native._record(target).write_bytes(record))
    )
    assert native.build_plugin() == path
    assert native.is_built()
    compiled: list[Path] = []
    monkeypatch.setattr(native, "_compile", compiled.append)
    assert native.build_plugin() == native.build_plugin(force=True) == path
    assert compiled == [path]


def test_a_wheel_brings_the_operator(plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used without a compiler, unless it is damaged or the user has compiled one."""
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    compiled, brought = native.plugin_path(), tmp_path / native._in_wheel().name
    monkeypatch.setattr(native, "_in_wheel", lambda: brought)
    assert native.plugin_path() == compiled
    shutil.copy(plugin, brought)
    shutil.copy(native._record(plugin), native._record(brought))
    assert native.plugin_path() == native.build_plugin() == brought
    assert native.is_built()
    with pytest.raises(RuntimeError, match="no-such-compiler is not on PATH"):
        native.build_plugin(force=True)
    brought.write_bytes(plugin.read_bytes()[:-1])
    assert not native.is_built()
    with pytest.raises(RuntimeError, match="no-such-compiler is not on PATH"):
        native.build_plugin()
    compiled.write_bytes(b"")
    assert native.plugin_path() == compiled
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", brought.name, native._record(brought).name]


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    said = "ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status"
    compiler.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(RuntimeError, match=rf"does not compile for DALI .*:\n{said}"):
        prime_dali.dali.build_plugin()
    assert not prime_dali.dali.plugin_path().exists()
    before = prime_dali.dali.plugin_path()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert prime_dali.dali.plugin_path() == before  # what was built in one place is found in another without compiler
    with pytest.raises(RuntimeError, match=r"needs a C.*compiler; no-such-compiler is not on PATH"):
        prime_dali.dali.build_plugin()
