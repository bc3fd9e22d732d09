"""Images per second and peak memory of prime_dali.PRIME beside its peers, in one process, on the same uint8 batch.

::

    python benchmarks/throughput.py --device cpu --size 224 --batch 32
    python benchmarks/throughput.py --device cuda --batch 32 256 --official DIR --json throughput.json

A rate is the median over the repeats; a repeat calls until ``--seconds`` have passed. Memory is the largest growth
during a call, output included: of the resident set on the CPU, of what torch has allocated on CUDA. Exit status: 0; 1
if a peer failed (a line says how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import importlib.util
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torchvision
from torchvision.transforms import Normalize, v2

import prime_dali

Call = Callable[[], Any]  # one batch; returns an image each, as one tensor or several
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet, on the [0, 1] scale
SIZES = {"imagenet": 224, "cifar": 32}  # pixels a side
OFFICIAL_CONFIGS = {"imagenet": "imagenet_cfg", "cifar": "cifar10_cfg"}
OFFICIAL_URL = "https://github.com/amodas/PRIME-augmentations"
PEERS = ("augmix", "trivial", "official")
NOTES = {
    "prime": "prime_dali.PRIME: draws, augments, normalises; uint8 in, float32 (CPU) or float16 (CUDA) out",
    "copy": "a device copy that moves 3 bytes a value: reading uint8 once and writing float16 once",
    "augmix": "torchvision v2.AugMix(), image by image because it draws once a call; uint8 in and out",
    "trivial": "torchvision v2.TrivialAugmentWide(), image by image because it draws once a call; uint8 in and out",
    "official": "the authors' code and configuration: draws, augments, normalises; float32 in [0, 1] in, float32 out",
}
SEED = 0
MIN_CALLS = 3  # timed calls that even the slowest candidate gets


@dataclass(frozen=True)
class Result:
    """What one candidate did with one batch; where it failed, ``rates`` is empty and ``error`` says why."""

    name: str
    size: int  # pixels a side
    batch: int
    rates: tuple[float, ...] = ()  # images/s of each repeat
    calls: int = 0  # timed ones, all repeats together
    peak_bytes: int = 0  # largest growth of memory during a call, its output included
    output_bytes: int = 0  # what a call hands over
    error: str = ""

    @property
    def median(self) -> float:
        """Images/s."""
        return statistics.median(self.rates) if self.rates else math.nan


def natural_images(count: int, size: int, device: str) -> torch.Tensor:
    """uint8 ``[count, 3, size, size]``: random noise with the 1/f spectrum of photographs, the same on every device.

    Smooth like decoded photographs, because white noise would be a case of its own: neighbours that always differ make
    branches, clipping and table look-ups behave as on no data set.
    """
    generator = torch.Generator().manual_seed(SEED)
    frequency = torch.hypot(torch.fft.fftfreq(size)[:, None], torch.fft.rfftfreq(size))
    low_pass = 1 / frequency.clamp(min=1 / size)
    images = torch.empty(count, 3, size, size, dtype=torch.uint8)
    for image in images:  # one by one, so that the float intermediates stay small
        noise = torch.fft.rfft2(torch.randn(4, size, size, generator=generator))
        planes = torch.fft.irfft2(noise * low_pass, s=(size, size))
        planes = planes[:1] + 0.5 * planes[1:]  # the channels of a photograph share most of their content
        image.copy_(((planes - planes.mean()) / planes.std() * 55 + 120).round().clamp(0, 255))
    return images.to(device)


def load(path: Path) -> ModuleType:
    """Import one file of the authors' clone under a name of its own.

    By their own names, the packages ``utils`` and ``config`` could shadow others or be shadowed by them; loading by
    path leaves ``sys.path`` and ``sys.modules`` alone.
    """
    spec = importlib.util.spec_from_file_location(f"_official_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # their docstrings hold backslashes
        spec.loader.exec_module(module)
    return module


def official_module(folder: Path, preset: str) -> torch.nn.Module:
    """The authors' augmentation, put together as their ``train.py`` does, with the numbers of their own config file.

    From float32 ``[N, 3, n, n]`` in [0, 1] to the same shape, normalised: one augmented view, without the two others of
    the Jensen-Shannon loss. OSError or ImportError if a file of the clone, or a package that it imports, is missing.
    """
    config = load(folder / "config" / f"{OFFICIAL_CONFIGS[preset]}.py").get_config()
    files = ("prime", "diffeomorphism", "color_jitter", "rand_filter")
    mixer, spatial, color, spectral = (load(folder / "utils" / f"{name}.py") for name in files)
    diffeo = {k: config.diffeo[k] for k in ("sT", "rT", "scut", "rcut", "cutmin", "cutmax", "alpha")}
    jitter, kernel = config.color_jit, config.rand_filter
    augmentations = [
        spatial.Diffeo(**diffeo, stochastic=True),
        color.RandomSmoothColor(cut=jitter.cut, T=jitter.T, freq_bandwidth=jitter.max_freqs, stochastic=True),
        spectral.RandomFilter(kernel_size=kernel.kernel_size, sigma=kernel.sigma, stochastic=True),
    ]
    mixture = {k: config.augmix[k] for k in ("mixture_width", "mixture_depth")}
    chain = mixer.PRIMEAugModule(augmentations)
    return mixer.GeneralizedPRIMEModule(Normalize(MEAN, STD), chain, **mixture, no_jsd=True, max_depth=3)


def candidates(
    options: argparse.Namespace, official: torch.nn.Module | None, images: torch.Tensor
) -> Iterator[tuple[str, Call]]:
    """Name and call of everything that is to be measured, each made when the one before is done with."""
    config = prime_dali.preset(options.preset).replace(mixing=options.mixing)
    dtype = torch.float16 if images.is_cuda else torch.float32
    module = prime_dali.PRIME(config, mean=MEAN, std=STD, out_dtype=dtype)
    index = torch.arange(len(images), device=images.device)
    epochs = iter(range(2**32))  # a new epoch each call, so that no two calls draw the same
    yield "prime", lambda: module(images, index, next(epochs))
    if images.is_cuda:
        # The plain copy of half as many bytes again reads 1.5 and writes 1.5 bytes a value, 3 like reading uint8 and
        # writing float16, and is faster than torch's converting copy.
        source = torch.empty(images.numel() * 3 // 2, dtype=torch.uint8, device=images.device).random_()
        target = torch.empty_like(source)
        yield "copy", lambda: [target.copy_(source)][1:]  # hands nothing over: its output is no growth of memory
    # These two draw once a call, so only image by image does each image get a draw of its own, as in a data set.
    for name, kind in (("augmix", v2.AugMix), ("trivial", v2.TrivialAugmentWide)):
        if name in options.peers:
            transform = kind()
            yield name, lambda transform=transform: [transform(image) for image in images]
    if official is not None:
        floats = images.float() / 255  # not timed: their data loader hands over float32
        yield "official", lambda: official(floats)


def how_often(per_call: float, repeats: int, seconds: float) -> tuple[int, int]:
    """``(repeats, least calls in each)``: fewer repeats where a call takes longer than a repeat should."""
    count = min(repeats, max(MIN_CALLS, math.ceil(repeats * seconds / per_call)))
    return count, math.ceil(MIN_CALLS / count)


def time_cpu(call: Call, seconds: float, least: int = 1) -> tuple[int, float]:
    """Call until ``seconds`` have passed, ``least`` times at least: calls and seconds."""
    calls, start = 0, time.perf_counter()
    while True:
        call()
        calls += 1
        passed = time.perf_counter() - start
        if passed >= seconds and calls >= least:
            return calls, passed


def time_cuda(call: Call, calls: int) -> float:
    """Seconds between two events around ``calls`` calls; waits for the device only after the second."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1000


def resident() -> int:
    """Bytes of this process that are in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_growth(call: Call, seconds: float) -> int:
    """Largest growth of the resident set, in bytes, over the calls of ``seconds`` seconds (one call at least)."""
    # What glibc keeps of freed memory would hide growth, or count twice what the next call allocates elsewhere.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)
    trim(0)
    before = resident()
    seen, stop = [before], threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            seen.append(resident())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        # The pair holds the output while memory is looked at, and lets go of it before the next call.
        time_cpu(lambda: (trim(0), seen.append((call(), resident())[1])), seconds)
    finally:
        stop.set()
        watcher.join()
    return max(seen) - before


def measure_cpu(call: Call, batch: int, repeats: int, seconds: float) -> tuple[tuple[float, ...], int, int]:
    """``rates``, ``calls`` and ``peak_bytes`` of a :class:`Result`."""
    calls, passed = time_cpu(call, seconds)  # warm-up
    peak = peak_growth(call, seconds)  # in calls of its own, for the watching costs time
    count, least = how_often(passed / calls, repeats, seconds)
    loops = [time_cpu(call, seconds, least) for _ in range(count)]
    return tuple(calls * batch / passed for calls, passed in loops), sum(calls for calls, _ in loops), peak


def measure_cuda(call: Call, batch: int, repeats: int, seconds: float) -> tuple[tuple[float, ...], int, int]:
    """``rates``, ``calls`` and ``peak_bytes`` of a :class:`Result`."""
    torch.cuda.synchronize()  # whatever came before is not to be timed
    calls, passed = time_cpu(lambda: (call(), torch.cuda.synchronize()), seconds)  # warm-up
    if calls > 1:  # waiting after each call made it look slower than it is in a row
        passed = time_cuda(call, calls)
    count, least = how_often(passed / calls, repeats, seconds)
    # Settled beforehand: calls return before the device is done, so a clock on the host cannot tell when to stop.
    calls = max(least, math.ceil(seconds * calls / passed))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    rates = tuple(calls * batch / time_cuda(call, calls) for _ in range(count))
    return rates, calls * count, torch.cuda.max_memory_allocated() - before


def measure(name: str, call: Call, images: torch.Tensor, options: argparse.Namespace) -> Result:
    """Time a candidate. Where a peer fails, out of memory for instance, its result says so and the others go on."""
    batch, size = len(images), images.shape[-1]
    print(f"measuring {name}, {size} x {size}, batch {batch} ...", file=sys.stderr, flush=True)
    torch.manual_seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.meshgrid")  # the authors' code is older than its keyword
            output = sum(image.nbytes for image in call())
            measure_on = measure_cuda if images.is_cuda else measure_cpu
            rates, calls, peak = measure_on(call, batch, options.repeats, options.seconds)
    except RuntimeError as error:
        if name not in PEERS:
            raise
        return Result(name, size, batch, error=f"{type(error).__name__}: {error}".splitlines()[0])
    return Result(name, size, batch, rates, calls, peak, output)


def output_of(*command: str) -> str:
    """What a command prints, or ``unknown`` where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def circumstances(options: argparse.Namespace) -> dict[str, str]:
    """What a number is worth nothing without: hardware, threads, versions, date, command."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    facts = {"cpu": f"{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} logical CPUs"}
    if options.device == "cuda":
        driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
        facts["gpu"] = f"{torch.cuda.get_device_name()}, driver {driver}"
    facts["threads"] = f"{torch.get_num_threads()}, load average before {os.getloadavg()[0]:.1f}"
    facts["versions"] = (
        f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}, "
        f"torchvision {torchvision.__version__}, prime_dali {prime_dali.__version__}"
    )
    if "official" in options.peers:
        commit = output_of("git", "-C", str(options.official), "rev-parse", "--short", "HEAD")
        facts["official"] = f"{OFFICIAL_URL}, commit {commit}, config/{OFFICIAL_CONFIGS[options.preset]}.py"
    facts["date"] = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    facts["command"] = shlex.join(["python", *sys.argv])
    return facts


def significant(value: float) -> str:
    """Three digits at least, and thousands separated."""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:,.{max(0, digits)}f}"


def table(results: list[Result], device: str) -> str:
    """The results of one batch, in aligned columns, and what else is to say about them."""
    by_name = {r.name: r for r in results}
    prime, copy = by_name["prime"], by_name.get("copy")
    rows = [["", "images/s", "min", "max", "repeats", "calls", "prime / it", "peak MiB", "of it output"]]
    if device == "cpu":  # in float32 images for each thread, with and without the output
        rows[0] += ["images/thread", "without output"]
    for r in (r for r in results if r.rates):
        rates = map(significant, (r.median, min(r.rates), max(r.rates)))
        ratio = significant(prime.median / r.median)
        memory = [f"{size / 2**20:,.1f}" for size in (r.peak_bytes, r.output_bytes)]
        rows.append([r.name, *rates, str(len(r.rates)), str(r.calls), ratio, *memory])
        if device == "cpu":
            unit = 3 * r.size**2 * 4 * torch.get_num_threads()
            rows[-1] += [f"{size / unit:.1f}" for size in (r.peak_bytes, r.peak_bytes - r.output_bytes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{prime.size} x {prime.size}, batch {prime.batch}"]
    lines += ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    if copy is not None:
        rate = copy.median * 3 * copy.size**2 * (1 + 2) / 1e9
        lines.append(f"copy moves {rate:,.0f} GB/s; prime runs at {prime.median / copy.median:.1%} of the copy's rate")
    lines += [f"{r.name} failed: {r.error}" for r in results if r.error]
    return "\n".join(lines)


def write_json(path: Path, facts: dict[str, str], options: argparse.Namespace, results: list[Result]) -> None:
    """Everything that was measured, written aside and renamed, so that nobody ever reads half a file."""
    rows = [{**asdict(r), "median": r.median if r.rates else None} for r in results]
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    everything = {**facts, "settings": vars(options), "results": rows}
    aside.write_text(json.dumps(everything, indent=1, default=str) + "\n")  # str is for the paths
    os.replace(aside, path)


def number(kind: type, low: float, high: float) -> Callable[[str], Any]:
    """An argparse type: an int or float from ``low`` to ``high``."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if low <= value <= high:
            return value
        raise argparse.ArgumentTypeError(f"expected {kind.__name__} from {low} to {high}, got {text!r}")

    return parse


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, torch.nn.Module | None]:
    """The options, complete and checked, and the authors' module if it is among the peers."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = p.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the images are (default: %(default)s)")
    size = "sides of the square images, 8 to 4096 pixels; every size with every batch (default: 224, cifar: 32)"
    add("--size", type=number(int, 8, 4096), nargs="+", metavar="PIXELS", help=size)
    add("--batch", type=number(int, 1, 2**20), nargs="+", default=[32], metavar="N", help="images a call (default: 32)")
    add("--preset", choices=tuple(SIZES), default="imagenet", help="of prime and official (default: %(default)s)")
    add("--mixing", choices=("paper", "official"), default="paper", help="of prime (default: %(default)s)")
    peers = "augmix, trivial, official, all or none (default: augmix trivial, and official with --official)"
    add("--peers", nargs="+", choices=(*PEERS, "all", "none"), metavar="PEER", help=peers)
    add("--official", type=Path, metavar="DIR", help=f"a clone of {OFFICIAL_URL} (default: none)")
    repeats = "the median is over so many; fewer for peers slower than --seconds a call (default: %(default)s)"
    add("--repeats", type=number(int, 1, 1000), default=5, metavar="R", help=repeats)
    add("--seconds", type=number(float, 0.01, 3600), default=1.0, metavar="S", help="a repeat (default: %(default)s)")
    add("--threads", type=number(int, 1, 4096), metavar="T", help="of torch on the CPU (default: as torch chooses)")
    add("--json", type=Path, metavar="FILE", help="write everything there (default: nothing is written)")
    options = p.parse_args(argv)
    options.size = options.size or [SIZES[options.preset]]
    chosen = options.peers or ["augmix", "trivial", *(["official"] if options.official else [])]
    if len(chosen) > 1 and {"all", "none"} & set(chosen):
        p.error(f"argument --peers: expected all or none by itself, got {' '.join(chosen)}")
    options.peers = {"all": list(PEERS), "none": []}.get(chosen[0], chosen)
    if "official" in options.peers and options.official is None:
        p.error(f"argument --peers: official needs --official DIR, a clone of {OFFICIAL_URL}")
    if options.official is not None and not (options.official / "utils" / "prime.py").is_file():
        p.error(f"argument --official: expected a clone of {OFFICIAL_URL}, with utils/prime.py, got {options.official}")
    if options.json is not None and (options.json.is_dir() or not os.access(options.json.parent, os.W_OK)):
        p.error(f"argument --json: expected a file in a folder that can be written to, got {options.json}")
    if options.device == "cuda" and not torch.cuda.is_available():
        p.error("argument --device: expected a CUDA device and a torch that can use it, found none")
    if "official" not in options.peers:
        return options, None
    try:
        return options, official_module(options.official, options.preset)
    except (ImportError, OSError) as error:
        p.error(f"argument --official: {error}; its packages: pip install einops opt_einsum ml_collections")


def main(argv: list[str] | None = None) -> int:
    """Measure every size with every batch; print, and write, what came out."""
    options, official = parse(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    facts = circumstances(options)
    shown = {"prime", *options.peers, *(["copy"] if options.device == "cuda" else [])}
    lines = [*facts.items(), ("", ""), *((name, note) for name, note in NOTES.items() if name in shown)]
    print(*(f"{name:10}{text}".rstrip() for name, text in lines), sep="\n", flush=True)
    results: list[Result] = []
    for size in options.size:
        for batch in options.batch:
            images = natural_images(batch, size, options.device)
            rows = [measure(*each, images, options) for each in candidates(options, official, images)]
            results += rows
            print(f"\n{table(rows, options.device)}", flush=True)
            if options.json:
                write_json(options.json, facts, options, results)
    return int(any(r.error for r in results))


if __name__ == "__main__":
    sys.exit(main())
