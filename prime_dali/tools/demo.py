"""A small demonstration: a DALI pipeline that decodes and crops photographs and applies PRIME."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _devices, _extras, _findings
from .._files import make_output_folder, shown
from .._progress import Report
from .._wording import facts, plural
from ..config import PrimeConfig
from ..data.pictures import PhotoError, read_photos, unusable
from ..data.records import Records
from . import doctor
from .gallery import captions, figures

MAX_PHOTOS = 32  # the pipeline holds them in memory, and each is a row of the gallery

# Photographs that come with scikit-image and scikit-learn.
_SHIPPED = {
    "skimage": ("data/astronaut.png", "data/chelsea.png", "data/coffee.png", "data/rocket.jpg"),
    "sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
}


def shipped_photos() -> list[Path]:
    """Photographs shipped with scikit-image and scikit-learn.

    Raises:
        ImportError: Neither is installed, or neither ships any of the known photographs.
    """
    found: list[Path] = []
    for package, names in _SHIPPED.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found += [path for name in names if (path := Path(spec.origin).parent / name).exists()]
    if not found:
        raise ImportError(f"no photographs to show: {_extras.install('demo')} (scikit-image, scikit-learn)")
    return found


@dataclass(frozen=True)
class Settings:
    """Settings of ``prime-dali demo``."""

    config: PrimeConfig
    out: Path
    photos: list[Path]
    size: int = 224
    batch: int = 32
    batches: int = 20
    seed: int = 0
    device: str = "auto"
    on_error: str = "raise"


def build_pipeline(photos: list[Path], settings: Settings, device: str) -> Any:
    """A DALI pipeline that repeats the photographs: decode, random resized crop, PRIME; uint8 HWC batches."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali import types as dali_types

    from ..dali import prime

    types: Any = dali_types  # its members are made at run time
    device_id: Any = 0 if device == "gpu" else None
    encoded = [np.fromfile(path, np.uint8) for path in photos]

    def source(sample: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return encoded[sample.idx_in_epoch % len(encoded)], np.array(sample.idx_in_epoch, np.int64)

    @pipeline_def(batch_size=settings.batch, num_threads=_devices.cores(), device_id=device_id, seed=settings.seed)
    def pipeline() -> Any:
        files, index = fn.external_source(source, num_outputs=2, batch=False, dtype=[types.UINT8, types.INT64])
        images = fn.decoders.image(files, device="mixed" if device == "gpu" else "cpu", output_type=types.RGB)
        images = fn.random_resized_crop(images, size=(settings.size, settings.size), seed=settings.seed)
        return prime(images, settings.config, index=index, epoch=0, seed=settings.seed)

    built = pipeline()
    built.build()
    return built


def _decodable(photos: list[Path], on_error: str, device: str, report: Report) -> list[Path]:
    """The photographs that DALI can decode too; it supports fewer formats than Pillow.

    Raises:
        PhotoError: There are others and ``on_error`` is ``"raise"``, or DALI can decode none.
    """
    from ..dali.broken import broken_images

    records = Records([str(path) for path in photos], np.zeros(len(photos), np.int64))
    broken = broken_images(records, range(len(photos)), 0 if device == "gpu" else None)
    if broken and on_error == "raise":
        raise unusable(list(broken.values()))
    for why in broken.values():
        report(f"skipped {why}")
    if len(broken) == len(photos):
        raise PhotoError("no photographs are left that DALI can decode")
    return [path for place, path in enumerate(photos) if place not in broken]


def run(settings: Settings, report: Report, progress: Callable[..., Any] | None = None) -> float:
    """Run the demo: time the pipeline, write ``gallery.png`` and ``batch.png``.

    Args:
        settings: The settings.
        report: Called with each line of output.
        progress: Wraps an iterable with a progress bar, as :func:`._progress.over`; None: no bar.

    Returns:
        Images per second of the pipeline, decoding and cropping included, after one warm-up batch.

    Raises:
        ImportError: DALI or an image package is missing; the message says what to install.
        PhotoError: A photograph cannot be read, and ``settings.on_error`` is ``"raise"``.
    """
    make_output_folder(settings.out)
    if len(settings.photos) > MAX_PHOTOS:
        report(f"using the first {MAX_PHOTOS} of {len(settings.photos)} photographs")
    squares = read_photos(settings.photos[:MAX_PHOTOS], settings.size, settings.on_error, report)
    device, why = _findings.dali_device(settings.device, doctor.plugin)
    photos = _decodable(list(squares), settings.on_error, device, report)
    report(facts({
        "data": plural(len(photos), "photograph"),
        "images": f"{settings.size} x {settings.size}, {plural(settings.batches, 'batch', 'batches')} of "
        f"{settings.batch}",
        "method": captions.about(settings.config, settings.seed), "device": f"{device} ({why})",
        "out": settings.out,
    }))  # fmt: skip
    pipeline = build_pipeline(photos, settings, device)
    pipeline.run()
    batches = range(settings.batches)
    start = time.perf_counter()
    for _ in batches if progress is None else progress(batches, "decode, crop, PRIME", "batch"):
        (images,) = pipeline.run()
    images = images.as_cpu()  # synchronizes with the GPU
    rate = settings.batches * settings.batch / (time.perf_counter() - start)
    report(f"{rate:,.0f} images/s")

    named = {shown(path): square for path, square in squares.items()}
    figures.save_gallery(
        named, settings.config, settings.out / "gallery.png", seed=settings.seed,
        progress=iter if progress is None else lambda each: progress(each, "overview"),
    )  # fmt: skip
    figures.save_batch(np.stack([np.array(image) for image in images]), settings.out / "batch.png")
    report(f"wrote {settings.out / 'gallery.png'} and {settings.out / 'batch.png'}")
    return rate
