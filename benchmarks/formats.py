"""Images per second of the formats of data sets: the same images in class folders and in shards, read and in pipelines.

::

    python benchmarks/formats.py FOLDER --device cuda --batch 256 --threads 16 --json formats.json
    python benchmarks/formats.py --made 256 --batch 32

The images of FOLDER, or photographs that it makes, are written once in every format, into a temporary folder. For each
there is a candidate that reads the encoded bytes alone, in a random order with as many threads as the pipelines, and
prime_dali.dali.train_pipeline without PRIME: decode, crop, flip, normalize. Beside them stand pipelines with DALI's own
readers, which shuffle in a buffer. Rates are medians over the rounds, in which all candidates take turns. Files are in
memory after the warm-up, unless it is too small for them: compared are formats, not disks. Exit status: 0; 1 if a
candidate failed (a line says how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import io
import os
import struct
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from common import (
    MEAN,
    SEED,
    STD,
    add_crops,
    add_shared,
    circumstances,
    natural_images,
    number,
    parsed,
    print_head,
    rates_table,
    show_rates,
    take_turns,
    time_cpu,
)
from PIL import Image

from prime_dali.data.formats import open_records
from prime_dali.data.records import Records
from prime_dali.data.sampling import permutation
from prime_dali.data.shards import masked_crc

try:
    import nvidia.dali
    from nvidia.dali import fn, pipeline_def, types

    from prime_dali.dali import Execution, Loader, Output, RandomCrop, train_pipeline
except ImportError as error:
    sys.exit(f"the pipelines need NVIDIA DALI: {error}")

FORMATS = ("folders", "webdataset", "tfrecord", "parquet", "huggingface")
OWN = ("folders", "webdataset")
NOTES = {
    "folders": "class folders",
    "webdataset": "one tar file",
    "tfrecord": "one TFRecord file, whose checksums are checked",
    "parquet": "one Parquet file, which is converted to Arrow in the cache before",
    "huggingface": "the folder of datasets.save_to_disk",
    "... by DALI": "fn.readers.file, fn.readers.webdataset: a pipeline of the same steps with DALI's own reader",
}
SETTLE = 4  # batches of a round before the clock starts: some were made ahead while the others had their turns
BUFFER = 1024  # images that DALI's own readers shuffle in


# The same images in every format.


def make_photographs(count: int, folder: Path) -> Path:
    """JPEG files of 480 x 480 pixels, in two classes."""
    for i, image in enumerate(natural_images(count, 480, "cpu")):
        place = folder / f"class{2 * i // count}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{i:06d}.jpg", quality=90)
    return folder


def write_webdataset(records: Records, path: Path) -> None:
    """A tar file, with the labels as numbers."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, label in enumerate(records.labels.tolist()):
            for suffix, content in (("jpg", records.encoded(i)), ("cls", str(label).encode())):
                info = tarfile.TarInfo(f"{i:08d}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def write_tfrecord(records: Records, path: Path) -> None:
    """Records of tf.train.Example with image and label."""

    def field(number: int, content: bytes) -> bytes:
        length, size = bytearray(), len(content)
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2, *length, size]) + content

    def feature(name: str, kind: int, value: bytes) -> bytes:
        return field(1, field(1, name.encode()) + field(2, field(kind, field(1, value))))

    with path.open("wb") as file:
        for i, label in enumerate(records.labels.tolist()):
            image, target = feature("image", 1, records.encoded(i)), feature("label", 1, f"{label:06d}".encode())
            content = field(1, image + target)
            length = struct.pack("<Q", len(content))
            for part in (length, content):
                file.write(part + struct.pack("<I", masked_crc(part)))


def write_table(records: Records, folder: Path, kind: str) -> None:
    """A Parquet file, or what ``save_to_disk`` writes, by the library of Hugging Face."""
    import datasets

    datasets.disable_progress_bars()
    images = [{"bytes": records.encoded(i), "path": None} for i in range(len(records))]
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    table = datasets.Dataset.from_dict({"image": images, "label": records.labels.tolist()}, kinds)
    table.to_parquet(folder / "0.parquet") if kind == "parquet" else table.save_to_disk(folder)


def written(photographs: Path, work: Path) -> dict[str, Path]:
    """The data set in every format, by name."""
    records, places = open_records(photographs), {"folders": photographs}
    for kind in FORMATS[1:]:
        places[kind] = work / kind
        places[kind].mkdir()
        if kind == "webdataset":
            write_webdataset(records, places[kind] / "0.tar")
        elif kind == "tfrecord":
            write_tfrecord(records, places[kind] / "0.tfrecord")
        else:
            write_table(records, places[kind], kind)
    return places


# What takes turns.


def encoded_batches(records: Records, options: argparse.Namespace) -> Iterator[list[bytes]]:
    """The bytes of random images, without an end."""
    pool, epoch = ThreadPoolExecutor(options.threads), 0
    while True:
        order = permutation(SEED, epoch, len(records)).tolist()
        for i in range(0, len(order) - options.batch + 1, options.batch):
            yield list(pool.map(records.encoded, order[i : i + options.batch]))
        epoch += 1


def loaded_batches(place: Path, options: argparse.Namespace) -> Iterator[Any]:
    """Batches of a pipeline, without an end."""
    cuda = options.device == "cuda"
    pipeline = train_pipeline(
        place,
        None,
        batch_size=options.batch,
        seed=SEED,
        crop=RandomCrop(options.size),
        output=Output(dtype=dtype(cuda)),
        execution=Execution("gpu" if cuda else "cpu", num_threads=options.threads),
    )
    loader = Loader(pipeline)
    while True:
        yield from loader


def own_batches(kind: str, place: Path, options: argparse.Namespace) -> Iterator[Any]:
    """Batches of a pipeline of the same steps with DALI's own reader, without an end."""
    cuda = options.device == "cuda"
    shuffle = {"random_shuffle": True, "initial_fill": BUFFER, "name": "reader"}

    @pipeline_def(batch_size=options.batch, num_threads=options.threads, device_id=0 if cuda else None, seed=SEED)
    def definition() -> Any:
        if kind == "folders":
            encoded, labels = fn.readers.file(file_root=str(place), **shuffle)
        else:
            encoded, labels = fn.readers.webdataset(paths=[str(place / "0.tar")], ext=["jpg", "cls"], **shuffle)
        images = fn.decoders.image_random_crop(encoded, device="mixed" if cuda else "cpu", random_area=[0.08, 1.0])
        images = fn.resize(images, size=[options.size, options.size])
        mean, std = ([255 * value for value in values] for values in (MEAN, STD))
        flip = fn.random.coin_flip()
        return fn.crop_mirror_normalize(images, mean=mean, std=std, mirror=flip, dtype=dtype(cuda)), labels

    pipeline = definition()
    pipeline.build()
    while True:
        yield pipeline.run()


def dtype(cuda: bool) -> Any:
    return types.FLOAT16 if cuda else types.FLOAT


def start(source: Iterator[Any], options: argparse.Namespace) -> Callable[[], float]:
    """Warm a source of batches up; what measures a round of it in images per second."""
    for _ in range(options.warmup):
        next(source)

    def round_of() -> float:
        for _ in range(SETTLE):
            next(source)
        calls, seconds = time_cpu(lambda: next(source), options.seconds)
        if options.device == "cuda":
            torch.cuda.synchronize()
        time.sleep(2 * SETTLE * seconds / calls)  # what is made ahead would slow down whoever has the next turn
        return calls * options.batch / seconds

    return round_of


def candidates(places: dict[str, Path], options: argparse.Namespace) -> dict[str, Callable[[], Callable[[], float]]]:
    """By name, what starts a candidate."""
    makes: dict[str, Callable[[], Iterator[Any]]] = {}
    for kind, place in places.items():
        makes[f"{kind}, bytes"] = lambda place=place: encoded_batches(open_records(place), options)
    for kind, place in places.items():
        makes[kind] = partial(loaded_batches, place, options)
    for kind in OWN:
        makes[f"{kind} by DALI"] = partial(own_batches, kind, places[kind], options)
    return {name: lambda make=make: start(make(), options) for name, make in makes.items()}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = p.add_argument
    add("folder", nargs="?", type=Path, help="class folders of JPEG files (default: those of --made)")
    add(
        "--made",
        type=number(int, 2, 10**6),
        default=256,
        metavar="N",
        help="photographs to make (default: %(default)s)",
    )
    add_crops(p, batch=32, seconds=2.0)
    add("--rounds", type=number(int, 1, 1000), default=5, metavar="R", help="of all candidates (default: %(default)s)")
    add("--warmup", type=number(int, 1, 10**6), default=8, metavar="B", help="batches before (default: %(default)s)")
    add_shared(p, ())
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure, print and write."""
    p = parser()
    options = parsed(p, argv)
    options.threads = options.threads or Execution().threads()
    if options.folder is not None and not options.folder.is_dir():
        p.error(f"argument folder: expected a folder of class folders, got {options.folder}")
    facts = circumstances(options, "imagenet")
    facts["versions"] += f", DALI {nvidia.dali.__version__}"
    print_head(facts, NOTES, NOTES)
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"PRIME_DALI_CACHE": f"{folder}/cache"}):
        places = written(options.folder or make_photographs(options.made, Path(folder, "folders")), Path(folder))
        records = open_records(places["folders"])
        size = sum(len(records.encoded(i)) for i in range(len(records))) // len(records)
        facts["images"] = f"{len(records):,}, {size:,} bytes each on average"
        results = take_turns(candidates(places, options), options.rounds)
    alone = f"encoded bytes, {facts['images']}, {options.threads} threads"
    pipelines = f"pipelines, {options.size} x {options.size}, batch {options.batch}, {options.threads} threads"
    tables = rates_table(results[: len(FORMATS)], alone), rates_table(results[len(FORMATS) :], pipelines)
    return show_rates(results, "\n\n".join(tables), facts, options)


if __name__ == "__main__":
    sys.exit(main())
