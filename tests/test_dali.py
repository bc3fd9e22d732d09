"""The DALI interface, on CPU pipelines and, where there is a GPU and CuPy, on GPU ones."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DALI_GPU, make_images, needs_gpu
from PIL import Image

import prime_dali
from prime_dali.tools import doctor

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

from nvidia.dali import Pipeline, fn, pipeline_def, types

from prime_dali.dali import native

SIZE = (24, 40)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = make_images(8, *SIZE, torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
TORCH = pytest.param("torch", marks=needs_gpu)


@pytest.fixture(params=["cpu", DALI_GPU])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["native", "cupy", "dlpack", TORCH])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == "native":
        request.getfixturevalue("plugin")
    return request.param


def run(
    device: str,
    images: Sequence[np.ndarray] = IMAGES,
    batch: int = 4,
    iterations: int = 1,
    indexed: bool = True,
    flipped: bool = False,
    **arguments,
):
    """The outputs of each iteration: a list of host arrays [batch, ...] a view."""

    @pipeline_def(batch_size=batch, num_threads=2, device_id=0 if device == "gpu" else None, seed=1)
    def pipeline():
        image, index = fn.external_source(
            lambda s: (images[s.idx_in_epoch % len(images)], np.array(s.idx_in_epoch, np.int64)),
            num_outputs=2, batch=False, dtype=[types.UINT8, types.INT64] if images[0].dtype == np.uint8 else None,
        )  # fmt: skip
        image = image.gpu() if device == "gpu" else image
        if flipped:
            arguments["flip"] = index & 1
        out = prime_dali.dali.prime(image, index=index if indexed else None, **arguments)
        return (*(out if isinstance(out, tuple) else (out,)), index)

    built = pipeline()
    built.build()
    return [[np.stack([np.array(s) for s in out.as_cpu()]) for out in built.run()[:-1]] for _ in range(iterations)]


def expected(device: str, count: int, **arguments) -> np.ndarray:
    xp = importlib.import_module("cupy" if device == "gpu" else "numpy")
    plan = prime_dali.sample("imagenet", xp.arange(count), size=SIZE, seed=5, **arguments)
    images = xp.asarray(IMAGES[:count])
    out = prime_dali.arrays.apply(images, plan, layout="NHWC", out_layout="NCHW", mean=MEAN, std=STD)
    return out if device == "cpu" else out.get()


def test_same_images_as_the_array_door_whatever_the_batch(device: str, mode: str) -> None:
    arguments = {"seed": 5, "mean": MEAN, "std": STD, "out_layout": "CHW", "mode": mode}
    for batch in (1, 4, 8):
        out = np.concatenate([views[0] for views in run(device, batch=batch, iterations=8 // batch, **arguments)])
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out, expected(device, 8))
    np.testing.assert_array_equal(run(device, batch=8, epoch=3, **arguments)[0][0], expected(device, 8, epoch=3))


def test_three_views(device: str, mode: str) -> None:
    [views] = run(device, batch=8, seed=5, views=np.int64(3), mean=np.array(MEAN), std=STD, out_layout="CHW", mode=mode)
    np.testing.assert_array_equal(np.concatenate(views), expected(device, 8, view=("clean", 0, 1)))


def test_flip(device: str, mode: str) -> None:
    [views] = run(device, batch=8, seed=5, views=3, mean=MEAN, std=STD, out_layout="CHW", flipped=True, mode=mode)
    straight = expected(device, 8, view=("clean", 0, 1))
    out = np.concatenate(views)
    np.testing.assert_array_equal(out[::2], straight[::2])
    np.testing.assert_array_equal(out[1::2], straight[1::2, ..., ::-1])


@pytest.mark.parametrize("built", [True, False])
def test_auto_is_native_where_that_is_compiled(built: bool, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prime_dali.dali import operator

    taken = []
    for name in ("_native", "_cupy"):
        monkeypatch.setattr(operator, name, lambda *_, name=name, **__: taken.append(name))
    monkeypatch.setattr(operator.native, "is_built", lambda: built)
    with Pipeline(batch_size=1, num_threads=1, device_id=None):
        prime_dali.dali.prime(fn.external_source(IMAGES, batch=False))
    assert taken == ["_native" if built else "_cupy"]


def test_in_a_pipeline_with_conditionals(device: str, mode: str) -> None:
    """DALI rewrites the code of such pipelines, and must leave ours alone."""

    @pipeline_def(
        batch_size=4, num_threads=2, device_id=0 if device == "gpu" else None, enable_conditionals=True
    )  # fmt: skip
    def pipeline():
        image, index = fn.external_source(
            lambda s: (IMAGES[s.idx_in_epoch % 4], np.array(s.idx_in_epoch % 4, np.int64)), num_outputs=2, batch=False
        )
        image = image.gpu() if device == "gpu" else image
        out = prime_dali.dali.prime(image, index=index, seed=5, out_layout="CHW", mean=MEAN, std=STD, mode=mode)
        if index == 3:
            out = out * 0
        return out

    built = pipeline()
    built.build()
    out = np.stack([np.array(sample) for sample in built.run()[0].as_cpu()])
    np.testing.assert_array_equal(out[:3], expected(device, 4)[:3])
    assert not out[3].any()


def test_dtypes(device: str, mode: str) -> None:
    [[same]] = run(device, batch=8, config="cifar", mode=mode)
    assert same.dtype == np.uint8
    [[half]] = run(device, batch=8, config="cifar", out_dtype=types.FLOAT16, mode=mode)
    assert half.dtype == np.float16
    assert np.abs(half * 255.0 - same).max() <= 0.5 + 255 * 2**-11
    [[single]] = run(device, images=(IMAGES / 255).astype(np.float32), batch=8, config="cifar", mode=mode)
    np.testing.assert_allclose(single, half, atol=1e-3)


def test_without_an_index_draws_differ_between_batches_and_repeat_between_runs(device: str, mode: str) -> None:
    first = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=7, mode=mode)
    again = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=7, mode=mode)
    other = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=8, mode=mode)
    assert not np.array_equal(first[0][0], first[1][0])
    np.testing.assert_array_equal(first[0][0], again[0][0])
    np.testing.assert_array_equal(first[1][0], again[1][0])
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.parametrize("mode", ["native", "cupy", "dlpack"])
def test_index_and_epoch_are_integers_in_every_mode(mode: str, plugin: Path) -> None:
    """Of any type that int64 holds; fractions and numbers past the range are refused alike."""

    def augmented(index: Callable, epoch: Callable) -> np.ndarray:
        @pipeline_def(batch_size=4, num_threads=1, device_id=None)
        def pipeline():
            image, *numbers = fn.external_source(
                lambda s: (IMAGES[s.idx_in_epoch], index(s.idx_in_epoch), epoch(s.idx_in_epoch)), num_outputs=3,
                batch=False,
            )  # fmt: skip
            return prime_dali.dali.prime(image, "cifar", index=numbers[0], epoch=numbers[1], mode=mode)

        built = pipeline()
        built.build()
        return np.stack([np.array(out) for out in built.run()[0]])

    plan = prime_dali.sample("cifar", np.arange(4), size=SIZE, epoch=np.arange(4))
    expected = prime_dali.arrays.apply(IMAGES[:4], plan, layout="NHWC")
    for index, epoch in ((np.int64, np.int64), (np.uint8, np.int16), (np.int32, np.uint32)):
        np.testing.assert_array_equal(augmented(index, epoch), expected)
    for index, epoch, message in (
        (np.float32, np.int64, "index: expected integers that int64 holds"),
        (np.int64, np.uint64, "epoch: expected integers that int64 holds"),
        (np.int64, lambda i: np.int64(2**32), "epoch: expected 0 to 4294967295, got 4294967296"),
        (np.int64, lambda i: np.int64(-1), "epoch: expected 0 to 4294967295, got -1"),
        (lambda i: np.array([i, i]), np.int64, "index: expected one number an image, got shape"),
        (np.int64, lambda i: np.array([i, i]), "epoch: expected one number an image, got shape"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=message):
            augmented(index, epoch)


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"config": "imagnet"}, ValueError, "did you mean 'imagenet'"),
    ({"views": 2}, ValueError, "views: expected 1 or 3"),
    ({"layout": "WHC"}, ValueError, "layout: expected one of 'HWC', 'CHW', got 'WHC'; did you mean 'HWC'"),
    ({"out_dtype": types.INT32}, TypeError, "out_dtype: expected types.UINT8, FLOAT16 or FLOAT"),
    ({"mean": MEAN}, ValueError, "std: expected three numbers"),
    ({"mean": "000", "std": STD}, TypeError, "mean: expected three numbers, one per channel, got '000'"),
    ({"mean": MEAN, "std": [1e39, 1, 1]}, ValueError, "std: expected numbers from 1.2e-38 to 8.5e.37"),
    ({"seed": 0.5}, TypeError, "seed: expected an int"),
    ({"epoch": -1}, ValueError, "epoch: expected 0 to"),
    ({"flip": True}, TypeError, "flip: expected a DataNode of scalars, got bool"),
    ({"mode": "nativ"}, ValueError, "mode: expected one of .*; did you mean 'native'"),
])  # fmt: skip
def test_bad_arguments_fail_when_the_pipeline_is_built(
    arguments: dict, exception: type, message: str, device: str
) -> None:
    with pytest.raises(exception, match=message):
        run(device, **arguments)


@pytest.mark.parametrize("mode", ["cupy", "dlpack", TORCH])
def test_bad_batches_fail_with_our_message(device: str, mode: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"images: expected CHW with 3 channels as layout says, got shape \[24, 40, 3\]"
    ):
        run(device, layout="CHW", mode=mode)
    gray = IMAGES[..., :1].copy()
    with pytest.raises(
        RuntimeError, match=r"images: expected HWC with 3 channels as layout says, got shape \[24, 40, 1\]"
    ):
        run(device, images=gray, mode=mode)
    with pytest.raises(RuntimeError, match="images: expected one size in a batch, got shapes"):
        run(device, images=[np.zeros((24, 40, 3), np.uint8), np.zeros((24, 41, 3), np.uint8)], batch=2, mode=mode)


@pytest.mark.parametrize(("images", "arguments", "message"), [
    (IMAGES, {"layout": "CHW"}, "images: expected 3 channels, got 24 in image 0"),
    (IMAGES[..., :1].copy(), {}, "images: expected 3 channels, got 1 in image 0"),
    (IMAGES[:, :7].copy(), {}, "images: expected 8 to 4096 pixels, got 7 x 40 in image 0"),
])  # fmt: skip
def test_bad_batches_in_the_native_operator(
    images: np.ndarray, arguments: dict, message: str, device: str, plugin: Path
) -> None:
    with pytest.raises(RuntimeError, match=rf"prime\.augment(.|\n)*{message}"):
        run(device, images=images, mode="native", **arguments)


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
        return prime_dali.dali.prime(image, "cifar", index=index, seed=3, mode="native")

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
        ({"law": [1.0]}, "law: expected 21 numbers"),
        ({"law": [1e30] * 21}, "law: chains: expected 1 to 255, got 1e\\+30"),
        ({"plan_shape": [1]}, "plan_shape: expected 5 numbers"),
        *(
            ({"plan_shape": shape}, message)
            for shape, message in (
                (
                    [2, 3, 3, 500, 20],
                    "law, plan_shape: expected those of one configuration, got a law of 3 chains of depth 3",
                ),
                ([3, 2, 3, 500, 20], "law, plan_shape: expected those of one configuration"),
                ([3, 3, 3, 499, 20], "law, plan_shape: expected those of one configuration"),
                ([3, 3, 3, 500, 19], "law, plan_shape: expected those of one configuration"),
                ([3, 3, 0, 500, 20], "filter_size: expected 1 to 31, got 0"),
                ([3, 3, 3, 5000, 20], "max_cut: expected 0 to 4094, got 5000"),
            )
        ),
        ({"mean": [0.5]}, "mean, std: expected three numbers each, or none, got 1 and 0"),
        ({"std": [0.5, 0.5, 0.0], "mean": [0.5] * 3}, "std: expected positive numbers, got 0"),
        ({"dtype": types.INT32}, "dtype: expected UINT8, FLOAT16 or FLOAT"),
        ({"output_layout": "WHC"}, "output_layout: expected HWC or CHW, got WHC"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=message):
            run_once(pipeline(arguments))


def test_the_native_operator_in_dynamic_mode(plugin: Path) -> None:
    program = f"""if True:
        import numpy as np
        import prime_dali.dali
        prime_dali.dali.load_plugin({str(plugin)!r})
        import nvidia.dali.experimental.dynamic as ndd
        images = np.random.default_rng(0).integers(0, 256, (4, 24, 40, 3), dtype=np.uint8)
        batch, index = ndd.as_batch(list(images), layout="HWC"), ndd.as_batch([np.int64(i) for i in range(4)])
        law = prime_dali.dali.arguments("imagenet")
        out = ndd.prime.augment(batch, index=index, key=5, **law)
        plan = prime_dali.sample("imagenet", np.arange(4), size=(24, 40), seed=5)
        expected = prime_dali.arrays.apply(images, plan, layout="NHWC")
        assert np.array_equal(np.stack([np.array(tensor) for tensor in out.tensors]), expected)
        draws = [np.stack([np.array(t) for t in ndd.prime.augment(batch, rng=rng, **law).tensors])
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
            num_outputs=3, batch=False,
        )  # fmt: skip
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
     "ImportError: .*/text.so is no plugin for DALI .*; build it with `prime-dali build-dali-plugin`"),
    ("arrays.functions = lambda: {'size': 1}; dali.load_plugin()",
     "ImportError: .* was built for another version of prime-dali; build it with `prime-dali build-dali-plugin`"),
    ("dali.load_plugin(); dali.load_plugin(); open('other.so', 'w'); dali.load_plugin('other.so')",
     "RuntimeError: path: the plugin .* has been loaded, and DALI cannot take another"),
])  # fmt: skip
def test_plugins_that_do_not_fit_are_refused(program: str, message: str, tmp_path: Path, plugin: Path) -> None:
    program = f"from prime_dali import _arrays as arrays, dali; {program}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(message, done.stderr), done.stderr[-2000:]


def test_one_process_compiles_and_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho once >> {tmp_path}/calls\nsleep 1\nexec c++ "$@" -O0\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    program = "from prime_dali import dali; dali.load_plugin()"
    both = [subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert (tmp_path / "calls").read_text().splitlines() == ["once"]
    path = prime_dali.dali.plugin_path()
    assert sorted(p.name for p in path.parent.iterdir()) == ["libprime_dali_plugin.so", f"{path.name}.json", "lock"]
    assert native.is_built()

    # Cut off or changed, as by a full disk or a copy that was stopped: found before it is loaded, and compiled again.
    whole, record = path.read_bytes(), native._record(path).read_bytes()
    for content, text, message in (
        (whole[:100_000], record, f"damaged: expected {len(whole)} bytes, got 100000"),
        (whole[:-8] + b"changed!", record, "damaged: its content is not what was compiled"),
        (whole, b"{", "not compiled to its end"),
        (whole, None, "not compiled to its end"),
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
    for given, message in ((path, "not compiled to its end"), (elsewhere, "damaged: expected .* bytes, got 100000")):
        monkeypatch.setattr(native, "_loaded", None)
        if given == path:
            native._record(path).write_bytes(b"{")
        with pytest.raises(ImportError, match=f"is no plugin that can be loaded: {message}; build it with"):
            native.load_plugin(given)
    monkeypatch.setattr(
        native, "_compile", lambda target: (target.write_bytes(whole), native._record(target).write_bytes(record))
    )
    assert native.build_plugin() == path
    assert native.is_built()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'plugin.cpp:1: error: no such header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(RuntimeError, match=r"does not compile for DALI .*:\nplugin.cpp:1: error: no such header"):
        prime_dali.dali.build_plugin()
    assert not prime_dali.dali.plugin_path().exists()
    before = prime_dali.dali.plugin_path()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert prime_dali.dali.plugin_path() == before  # what was built in one place is found in another without compiler
    with pytest.raises(RuntimeError, match=r"needs a C.*compiler; no-such-compiler is not on PATH"):
        prime_dali.dali.build_plugin()


def test_images_must_be_a_data_node() -> None:
    with pytest.raises(TypeError, match="images: expected a DataNode of a pipeline definition, got ndarray"):
        prime_dali.dali.prime(IMAGES)


@pytest.mark.parametrize("indexed", [False, True])
def test_checkpoint_in_the_middle_of_an_epoch(indexed: bool, device: str, mode: str, tmp_path: Path) -> None:
    """What a pipeline gives after a checkpoint, one restored from it gives too: order, crops, flips and PRIME."""
    (tmp_path / "photos").mkdir()
    for i, image in enumerate(make_images(10, 40, 50, torch.uint8)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "photos" / f"{i}.png")

    @pipeline_def(
        batch_size=3, num_threads=2, device_id=0 if device == "gpu" else None, seed=5, enable_checkpointing=True
    )
    def pipeline():
        files = [f"photos/{i}.png" for i in range(10)]
        encoded, number = fn.readers.file(
            file_root=str(tmp_path), files=files, labels=list(range(10)), random_shuffle=True
        )
        images = fn.random_resized_crop(fn.decoders.image(encoded), size=SIZE)
        images = images.gpu() if device == "gpu" else images
        index = fn.cast(number, dtype=types.INT64) if indexed else None
        out = prime_dali.dali.prime(images, "cifar", seed=1, index=index, flip=fn.random.coin_flip(), mode=mode)
        return out, number

    def batches(built, count: int) -> list[np.ndarray]:
        outs = [built.run() for _ in range(count)]
        return [np.stack([np.array(s) for s in out.as_cpu()]) for pair in outs for out in pair]

    first = pipeline()
    first.build()
    batches(first, 2)
    restored = pipeline(checkpoint=first.checkpoint())
    restored.build()
    for expected_batch, batch in zip(batches(first, 4), batches(restored, 4), strict=True):
        np.testing.assert_array_equal(batch, expected_batch)
