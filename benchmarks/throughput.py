"""Images per second and peak memory of prime_dali.PRIME beside its peers, in one process, on the same batch.

::

    python benchmarks/throughput.py --device cpu --size 224 --batch 32
    python benchmarks/throughput.py --device cuda --batch 32 256 --official DIR --json throughput.json
    python benchmarks/throughput.py --device cuda --batch 256 --graph --kernels --plot out
    python benchmarks/throughput.py --device cuda --batch 256 --channels 1 3 4 16 --dtype uint16 --peers none
    python benchmarks/throughput.py --from-json throughput.json --plot out
    python benchmarks/throughput.py --pipeline FOLDER ...      DALI pipelines instead: see pipeline.py
    python benchmarks/throughput.py --loader FOLDER ...        loaders on CPU cores instead: see loader.py

A rate is the median over the repeats; a repeat calls until ``--seconds`` have passed. Memory is the largest growth
during a call, output included: of the resident set on the CPU, of what torch has allocated on CUDA. The launch is the
time until a call returns to the host, the device idle before it: a median too. Peers whose library is not installed are
named, with the command that installs it, and not measured, unless ``--peers`` names them: then that is a bad argument.
Exit status: 0; 1 if a peer failed (a line says how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import peers
import plots
import torch
from common import (
    MEAN,
    SEED,
    SIZES,
    STD,
    Call,
    add_shared,
    aligned,
    check_shared,
    circumstances,
    failure,
    natural_images,
    number,
    official_peer,
    peak_growth,
    print_head,
    significant,
    time_cpu,
    time_cuda,
    write_json,
)
from profiling import kernel_table, profile

import prime_dali
from prime_dali import _arrays

PEERS = (*peers.PEERS, "official")
DTYPES = ("uint8", "uint16", "float16", "bfloat16", "float32")
NOTES = {
    "prime": "prime_dali.PRIME: samples, augments, normalizes; float32 (CPU) or float16 (CUDA) out",
    "prime-baseline": "prime, by the CPU back end as compiled for every processor, where prime uses AVX-512",
    "prime-graph": "prime, replayed from a CUDA graph, which holds its memory from the capture on, so nothing grows",
    "copy": "a device copy that moves as many bytes as reading the images once and writing float16 once",
    **{name: peer.note for name, peer in peers.PEERS.items()},
    "official": "the authors' code and configuration: samples, augments, normalizes; float32 in [0, 1] in, float32 out",
}
DRAWS = {  # what one draw serves
    **dict.fromkeys(("prime", "prime-baseline", "prime-graph"), peers.IMAGE),
    **{name: peer.draws for name, peer in peers.PEERS.items()},
    "official": "operations per image, strengths per batch",
}
MIN_CALLS = 3  # timed calls that even the slowest candidate gets


@dataclass(frozen=True)
class Result:
    """What one candidate did with one batch; where it failed, ``rates`` is empty and ``error`` says why."""

    name: str
    size: int  # pixels a side
    batch: int
    rates: tuple[float, ...] = ()  # images/s of each repeat
    calls: int = 0  # timed ones, all repeats together
    launch_seconds: float | None = None  # until a call returns to the host; CUDA alone
    peak_bytes: int | None = 0  # largest growth of memory during a call, its output included; None: cannot be seen
    output_bytes: int = 0  # what a call hands over
    error: str = ""
    channels: int = 3
    dtype: str = "uint8"  # of the images
    draws: str = ""  # what one draw serves

    @property
    def median(self) -> float:
        """Images/s."""
        return statistics.median(self.rates) if self.rates else math.nan


def captured(module: prime_dali.PRIME, images: torch.Tensor, index: torch.Tensor) -> Call:
    """One batch as a CUDA graph that counts the epochs itself, so that every replay draws anew."""
    epoch = torch.zeros((), dtype=torch.int64, device=images.device)

    def draw() -> torch.Tensor:
        epoch.add_(1)
        return module(images, index, epoch)

    draw()  # loads every kernel, which a capture cannot
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = draw()

    def replay(read: Any = (images, index, epoch)) -> torch.Tensor:  # the graph reads their memory, so they must live
        graph.replay()
        return output

    return replay


def candidates(
    options: argparse.Namespace, official: torch.nn.Module | None, images: torch.Tensor
) -> Iterator[tuple[str, Call]]:
    """Name and call of everything that is to be measured, each made when the one before is done with.

    A call augments one batch, and returns an image each, as one tensor or several.
    """
    config = prime_dali.preset(options.preset).replace(mixing=options.mixing)
    dtype = torch.float16 if images.is_cuda else torch.float32
    mean, std = ([numbers[c % 3] for c in range(images.shape[1])] for numbers in (MEAN, STD))
    module = prime_dali.PRIME(config, mean=mean, std=std, out_dtype=dtype)
    index = torch.arange(len(images), device=images.device)
    epochs = iter(range(2**32))  # a new epoch each call, so that no two calls draw the same
    yield "prime", lambda: module(images, index, next(epochs))
    chosen = _arrays.instructions()
    if not images.is_cuda and chosen != "baseline":
        again = partial(with_instructions, "baseline", lambda: module(images, index, next(epochs)), chosen)
        yield "prime-baseline", again
    if options.graph:
        yield "prime-graph", captured(module, images, index)
    if images.is_cuda:
        # The plain copy reads and writes half of the bytes each, and is faster than torch's converting copy.
        moved = images.nbytes + images.numel() * dtype.itemsize
        source = torch.empty(moved // 2, dtype=torch.uint8, device=images.device).random_()
        target = torch.empty_like(source)
        yield "copy", lambda: [target.copy_(source)][1:]  # hands nothing over: its output is no growth of memory
    for name in options.peers:
        if name in peers.PEERS:
            yield name, started(peers.PEERS[name], images)
    if official is not None:
        floats = images.float() / 255  # not timed: their data loader hands over float32
        yield "official", lambda: official(floats)


def with_instructions(name: str, call: Call, afterwards: str) -> Any:
    """What a call gives by that compilation of the CPU back end."""
    _arrays.use_instructions(name)
    try:
        return call()
    finally:
        _arrays.use_instructions(afterwards)


def started(peer: peers.Peer, images: torch.Tensor) -> Call:
    """Its call, made by the first one: what fails then is the peer's failure."""
    made: list[Call] = []

    def call() -> Any:
        if not made:
            made.append(peer.start(images))
        return made[0]()

    return call


def how_often(per_call: float, repeats: int, seconds: float) -> tuple[int, int]:
    """``(repeats, minimum calls in each)``: fewer repeats where a call takes longer than a repeat should."""
    count = min(repeats, max(MIN_CALLS, math.ceil(repeats * seconds / per_call)))
    return count, math.ceil(MIN_CALLS / count)


def measure_cpu(call: Call, batch: int, repeats: int, seconds: float) -> dict[str, Any]:
    """What a :class:`Result` says of time and memory."""
    calls, passed = time_cpu(call, seconds)  # warm-up
    peak = peak_growth(call, seconds)  # in calls of its own, for the watching costs time
    count, least = how_often(passed / calls, repeats, seconds)
    loops = [time_cpu(call, seconds, least) for _ in range(count)]
    rates = tuple(calls * batch / passed for calls, passed in loops)
    return {"rates": rates, "calls": sum(calls for calls, _ in loops), "peak_bytes": peak}


def measure_cuda(call: Call, batch: int, repeats: int, seconds: float) -> dict[str, Any]:
    """What a :class:`Result` says of time and memory."""
    launches: list[float] = []

    def launch() -> None:
        start = time.perf_counter()
        call()
        launches.append(time.perf_counter() - start)
        torch.cuda.synchronize()  # a full queue would make the next launch wait

    torch.cuda.synchronize()  # whatever came before is not to be timed
    calls, passed = time_cpu(launch, seconds)  # warm-up
    if calls > 1:  # waiting after each call made it look slower than it is in a row
        passed = time_cuda(call, calls)
    count, least = how_often(passed / calls, repeats, seconds)
    # Decided in advance: calls return before the device is done, so a clock on the host cannot tell when to stop.
    calls = max(least, math.ceil(seconds * calls / passed))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    rates = tuple(calls * batch / time_cuda(call, calls) for _ in range(count))
    peak = torch.cuda.max_memory_allocated() - before
    return {
        "rates": rates,
        "calls": calls * count,
        "launch_seconds": statistics.median(launches),
        "peak_bytes": peak,
    }


def measure(name: str, call: Call, images: torch.Tensor, options: argparse.Namespace) -> Result:
    """Time a candidate. Where a peer fails, out of memory for instance, its result says so and the others continue."""
    batch, size = len(images), images.shape[-1]
    kind = {"channels": images.shape[1], "dtype": str(images.dtype).removeprefix("torch.")}
    kind["draws"] = DRAWS.get(name, "")
    print(f"measuring {name}, {size} x {size}, batch {batch} ...", file=sys.stderr, flush=True)
    torch.manual_seed(SEED)
    try:
        output = sum(image.nbytes for image in call())
        measured = (measure_cuda if images.is_cuda else measure_cpu)(call, batch, options.repeats, options.seconds)
    except Exception as error:  # whatever a library raises
        if name not in PEERS:
            raise
        return Result(name, size, batch, error=failure(error), **kind)
    if images.is_cuda and name in peers.PEERS and not peers.PEERS[name].memory:
        measured["peak_bytes"] = None
    return Result(name, size, batch, output_bytes=output, **measured, **kind)


def table(results: list[Result], device: str) -> str:
    """The results of one batch, in aligned columns, and what else is to say about them."""
    by_name = {r.name: r for r in results}
    prime, copy = by_name["prime"], by_name.get("copy")
    rows = [["", "images/s", "min", "max", "repeats", "calls", "prime / it", "peak MiB", "of it output"]]
    # On the CPU, memory in float32 images for each thread too, with and without the output.
    rows[0] += ["images/thread", "without output"] if device == "cpu" else ["launch us", "of copy's rate"]
    rows[0].append("draws")
    for r in (r for r in results if r.rates):
        rates = map(significant, (r.median, min(r.rates), max(r.rates)))
        ratio = significant(prime.median / r.median)
        memory = ["" if size is None else f"{size / 2**20:,.1f}" for size in (r.peak_bytes, r.output_bytes)]
        rows.append([r.name, *rates, str(len(r.rates)), str(r.calls), ratio, *memory])
        if device == "cpu":
            unit = r.channels * r.size**2 * 4 * torch.get_num_threads()
            rows[-1] += [f"{size / unit:.1f}" for size in (r.peak_bytes, r.peak_bytes - r.output_bytes)]
        if copy is not None and r.launch_seconds is not None:
            rows[-1] += [significant(r.launch_seconds * 1e6), f"{r.median / copy.median:.2%}"]
        rows[-1].append(r.draws)
    kind = "" if (prime.channels, prime.dtype) == (3, "uint8") else f", {prime.channels} channels of {prime.dtype}"
    lines = [f"{prime.size} x {prime.size}, batch {prime.batch}{kind}", *aligned(rows)]
    values, item = prime.channels * prime.size**2, getattr(torch, prime.dtype).itemsize
    moved = values * item + prime.output_bytes / prime.batch  # bytes of an image, in and out
    lines.append(f"prime reads and writes {significant(prime.median * moved / 1e9)} GB/s of pixels")
    if copy is not None:
        lines.append(f"copy moves {copy.median * moved / 1e9:,.0f} GB/s")
    lines += [f"{r.name} failed: {r.error}" for r in results if r.error]
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = p.add_argument
    size = "side lengths of the square images, 8 to 4096 pixels, each with every batch size (default: 224, cifar: 32)"
    add("--size", type=number(int, 8, 4096), nargs="+", metavar="PIXELS", help=size)
    batch = "images per call (default: 32)"
    add("--batch", type=number(int, 1, 2**20), nargs="+", default=[32], metavar="N", help=batch)
    channels = "of the images, 1 to 16, each with every size and batch; peers take 3 (default: 3)"
    add("--channels", type=number(int, 1, 16), nargs="+", default=[3], metavar="C", help=channels)
    add("--dtype", choices=DTYPES, default="uint8", help="of the images; peers take uint8 (default: %(default)s)")
    add("--preset", choices=tuple(SIZES), default="imagenet", help="of prime and official (default: %(default)s)")
    add("--mixing", choices=("paper", "official"), default="paper", help="of prime (default: %(default)s)")
    repeats = "repeats per median; fewer if a call takes longer than --seconds (default: %(default)s)"
    add("--repeats", type=number(int, 1, 1000), default=5, metavar="R", help=repeats)
    add("--seconds", type=number(float, 0.01, 3600), default=1.0, metavar="S", help="per repeat (default: %(default)s)")
    add("--graph", action="store_true", help="also measure prime in a CUDA graph")
    add("--kernels", action="store_true", help="also measure each kernel of prime (on the CPU: each operator)")
    add("--plot", type=Path, metavar="DIR", help="write plots there (default: none)")
    again = "measure nothing; plot files of --json, of one processor and one preset, to --plot"
    add("--from-json", type=Path, nargs="+", metavar="FILE", help=again)
    add_shared(p, PEERS)
    return p


def check(p: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Complete and check the options, before minutes are spent on measuring."""
    named = {*(options.peers or ())} - {"all"}
    check_shared(p, options, PEERS)
    options.missing = peers.missing(options.peers, options.device)
    for name in sorted(named & options.missing.keys()):
        p.error(f"argument --peers: {name}: {options.missing[name]}")
    options.peers = [name for name in options.peers if name not in options.missing]
    options.size = options.size or [SIZES[options.preset]]
    if options.peers and (options.channels != [3] or options.dtype != "uint8"):
        p.error(f"argument --peers: expected none with --channels or --dtype, got {' '.join(options.peers)}")
    if options.graph and options.device != "cuda":
        p.error(f"argument --graph: expected --device cuda, got {options.device}")
    if options.from_json and options.plot is None:
        p.error("argument --from-json: expected --plot DIR beside it, got none")
    if options.plot is not None:
        if importlib.util.find_spec("matplotlib") is None:
            p.error("argument --plot: expected matplotlib to be installed, found none; pip install matplotlib")
        try:
            options.plot.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            p.error(f"argument --plot: expected a folder that can be written to, got {options.plot}: {error.strerror}")
        if not os.access(options.plot, os.W_OK):
            p.error(f"argument --plot: expected a folder that can be written to, got {options.plot}")


def run(options: argparse.Namespace, official: torch.nn.Module | None) -> dict[str, Any]:
    """Measure every size with every batch and number of channels; print, and write, what came out."""
    facts = circumstances(options, options.preset)
    shown = {"prime", *options.peers, *(["copy"] if options.device == "cuda" else [])}
    if options.device == "cpu" and _arrays.instructions() != "baseline":
        shown.add("prime-baseline")
    print_head(facts, NOTES, shown | {"prime-graph"} if options.graph else shown)
    for why in dict.fromkeys(options.missing.values()):
        print(f"not measured: {', '.join(n for n, w in options.missing.items() if w == why)}: {why}", flush=True)
    everything: dict[str, Any] = {**facts, "settings": vars(options), "results": [], "kernels": []}
    for size, batch, channels in itertools.product(options.size, options.batch, options.channels):
        images = natural_images(batch, size, options.device, channels, getattr(torch, options.dtype))
        rows, kernels = [], []
        for name, call in candidates(options, official, images):
            rows.append(measure(name, call, images, options))
            if options.kernels and name == "prime":
                kernels = profile(call, images)
        print(f"\n{table(rows, options.device)}", flush=True)
        if options.kernels:
            print(f"\n{kernel_table(kernels)}", flush=True)
        everything["results"] += [{**asdict(r), "median": r.median if r.rates else None} for r in rows]
        everything["kernels"] += map(asdict, kernels)
        if options.json:
            write_json(options.json, everything)
    return everything


def main(argv: list[str] | None = None) -> int:
    """Measure, or read what was measured; draw it."""
    given = sys.argv[1:] if argv is None else argv
    for other in ("pipeline", "loader"):
        if any(argument.split("=")[0] == f"--{other}" for argument in given):
            return int(importlib.import_module(other).main(given))
    p = parser()
    options = p.parse_args(argv)
    check(p, options)
    if options.from_json:
        try:
            everything = plots.read(options.from_json)
        except ValueError as error:
            p.error(f"argument --from-json: {error}")
    else:
        official = official_peer(p, options, options.preset)
        if options.threads:
            torch.set_num_threads(options.threads)
        everything = run(options, official)
    if options.plot:
        print(*(f"drew {path}" for path in plots.draw(everything, options.plot)), sep="\n")
    return int(not options.from_json and any(row["error"] for row in everything["results"]))


if __name__ == "__main__":
    sys.exit(main())
