"""What the benchmarks share: images, the authors' code, clocks, options, circumstances, and how results are shown."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import hashlib
import json
import math
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torchvision
from torchvision.transforms import Normalize

import prime_dali
from prime_dali import _arrays, _devices
from prime_dali._files import replacing
from prime_dali.data.statistics import IMAGENET_STATISTICS
from prime_dali.experiments import official
from prime_dali.experiments.arguments import OFFICIAL

Call = Callable[[], Any]
MEAN, STD = IMAGENET_STATISTICS
SEED = 0
SIZES = {"imagenet": 224, "cifar": 32}  # by preset, pixels a side


def natural_images(
    count: int, size: int, device: str, channels: int = 3, dtype: torch.dtype = torch.uint8
) -> torch.Tensor:
    """``[count, channels, size, size]``: random noise with the 1/f spectrum of photographs, the same on every device.

    From the fourth on channels are the first three again.

    Smooth like decoded photographs, because white noise would be a case of its own: neighbors that always differ make
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
    images = images[:, torch.arange(channels) % 3]
    if dtype == torch.uint16:
        images = (images.int() * 257).to(dtype)
    elif dtype != torch.uint8:
        images = (images / 255).to(dtype)
    return images.to(device)


def time_cpu(call: Call, seconds: float, minimum: int = 1) -> tuple[int, float]:
    """Call until ``seconds`` have passed, at least ``minimum`` times: calls and seconds."""
    calls, start = 0, time.perf_counter()
    while True:
        call()
        calls += 1
        passed = time.perf_counter() - start
        if passed >= seconds and calls >= minimum:
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

    def look() -> None:
        trim(0)
        output = call()  # held while memory is looked at, and let go of before the next call
        seen.append(resident())
        del output

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        time_cpu(look, seconds)
    finally:
        stop.set()
        watcher.join()
    return max(seen) - before


def failure(error: Exception) -> str:
    """An error in one line; DALI writes where it happened, then ``encountered:``, then what."""
    what = str(error).split("encountered:")[-1].strip()
    return f"{type(error).__name__}: {what}".splitlines()[0]


def output_of(*command: str) -> str:
    """What a command prints, or ``unknown`` where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def kernels(device: str) -> str:
    """A digest of the back end's code, without comments and spaces: whether a number was measured with this tree's."""
    source = Path(prime_dali.__file__).parent.parent / "csrc"
    digest = hashlib.sha256()
    for folder in ("core", "cuda" if device == "cuda" else "cpu"):
        for file in sorted(p for p in (source / folder).rglob("*") if p.is_file()):
            code = re.sub(r"//.*", "", file.read_text("utf-8"))
            digest.update((file.name + "".join(code.split())).encode())
    return digest.hexdigest()


def circumstances(options: argparse.Namespace, preset: str) -> dict[str, str]:
    """What a number is worth nothing without: hardware, threads, versions, date, command."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    facts = {"cpu": f"{models[0] if models else platform.machine()}, {_devices.cores()} logical CPUs"}
    if options.device == "cuda":
        driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
        facts["gpu"] = f"{torch.cuda.get_device_name()}, driver {driver}"
    facts["threads"] = f"{torch.get_num_threads()}, load average before {os.getloadavg()[0]:.1f}"
    if options.device == "cpu":
        facts["instructions"] = _arrays.instructions()
    facts["versions"] = (
        f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}, "
        f"torchvision {torchvision.__version__}, prime_dali {prime_dali.__version__}"
    )
    if "official" in options.peers:
        # By its .git, because a folder that is no clone but lies in another one would be given that one's commit.
        commit = output_of("git", f"--git-dir={options.official / '.git'}", "rev-parse", "--short", "HEAD")
        facts["official"] = f"{OFFICIAL}, commit {commit}, config/{official.CONFIGS[preset]}.py"
    repository = Path(prime_dali.__file__).parent.parent / ".git"  # an installed package may lie in another one
    facts["commit"] = output_of("git", f"--git-dir={repository}", "rev-parse", "--short", "HEAD")
    facts["kernels_sha256"] = kernels(options.device)
    facts["date"] = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    chosen = [f"{name}={os.environ[name]}" for name in ("CUDA_DEVICE_MAX_CONNECTIONS",) if name in os.environ]
    facts["command"] = " ".join([*chosen, shlex.join(["python", *sys.argv])])
    return facts


def print_head(facts: dict[str, str], notes: dict[str, str], shown: Collection[str]) -> None:
    """The circumstances, and what each candidate in ``shown`` is."""
    lines = [*facts.items(), ("", ""), *((name, note) for name, note in notes.items() if name in shown)]
    width = 1 + max(len(name) for name, _ in lines)
    print(*(f"{name:{width}}{text}".rstrip() for name, text in lines), sep="\n", flush=True)


def significant(value: float) -> str:
    """Three digits at least, and thousands separated."""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:,.{max(0, digits)}f}"


def aligned(rows: list[list[str]]) -> list[str]:
    """A line for each row: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


@dataclass
class Rates:
    """A candidate that took its turn in every round; images per second of each, or why there are none."""

    name: str
    rates: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median(self) -> float | None:
        """None if it failed."""
        return statistics.median(self.rates) if self.rates else None


def take_turns(candidates: Mapping[str, Callable[[], Callable[[], float]]], rounds: int) -> list[Rates]:
    """Start every candidate, which builds and warms it up and gives what measures a round in images per second; then
    let them take turns. One that fails to start says why, and the others continue."""
    results, ready = [], {}
    for name, start in candidates.items():
        print(f"warming up {name} ...", file=sys.stderr, flush=True)
        results.append(Rates(name))
        try:
            ready[name] = start()
        except (RuntimeError, ImportError, ValueError) as error:
            results[-1].error = failure(error)
    for i in range(rounds):
        print(f"round {i + 1} of {rounds} ...", file=sys.stderr, flush=True)
        for result in results:
            if result.name in ready:
                result.rates.append(ready[result.name]())
    return results


def show_rates(results: list[Rates], tables: str, facts: dict[str, str], options: argparse.Namespace) -> int:
    """Print the tables of them, and write them where ``--json`` says; the exit status."""
    print(f"\n{tables}", flush=True)
    if options.json:
        listed = [{**asdict(r), "median": r.median} for r in results]
        write_json(options.json, {**facts, "settings": vars(options), "results": listed})
    return int(any(r.error for r in results))


def rates_table(results: list[Rates], head: str) -> str:
    """One line a candidate; its rate over that of the first one as well."""
    first = results[0].median
    rows = [["", "images/s", "min", "max", f"of {results[0].name}"]]
    for r in results:
        if r.median is None:
            rows.append([r.name, "failed", "", "", ""])
        else:
            ratio = f"{r.median / first:.3f}" if first else ""
            rows.append([r.name, *map(significant, (r.median, min(r.rates), max(r.rates))), ratio])
    return "\n".join([head, *aligned(rows), *(f"{r.name}: {r.error}" for r in results if r.error)])


def write_json(path: Path, everything: dict[str, Any]) -> None:
    """Written aside and renamed, so that nobody ever reads half a file."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(everything, indent=1, default=str) + "\n")  # str is for the paths


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


def add_shared(p: argparse.ArgumentParser, peers: Sequence[str]) -> None:
    """The options that every benchmark has."""
    add = p.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the images are (default: %(default)s)")
    if peers:
        names = f"{', '.join(peers)}, all or none (default: all, but official only with --official)"
        add("--peers", nargs="+", choices=(*peers, "all", "none"), metavar="PEER", help=names)
        add("--official", type=Path, metavar="DIR", help=f"a clone of {OFFICIAL} (default: none)")
    else:
        p.set_defaults(peers=["none"], official=None)
    add("--threads", type=number(int, 1, 4096), metavar="T", help="of torch on the CPU (default: as torch chooses)")
    add("--json", type=Path, metavar="FILE", help="write everything there (default: nothing is written)")


def check_shared(p: argparse.ArgumentParser, options: argparse.Namespace, peers: Sequence[str]) -> None:
    """Complete and check what :func:`add_shared` has added."""
    chosen = options.peers or [name for name in peers if name != "official" or options.official]
    if len(chosen) > 1 and {"all", "none"} & set(chosen):
        p.error(f"argument --peers: expected all or none by itself, got {' '.join(chosen)}")
    options.peers = {"all": list(peers), "none": []}.get(chosen[0], chosen)
    if "official" in options.peers and options.official is None:
        p.error(f"argument --peers: official needs --official DIR, a clone of {OFFICIAL}")
    if options.official is not None and not (options.official / "utils" / "prime.py").is_file():
        p.error(f"argument --official: expected a clone of {OFFICIAL}, with utils/prime.py, got {options.official}")
    if options.json is not None and (options.json.is_dir() or not os.access(options.json.parent, os.W_OK)):
        p.error(f"argument --json: expected a file in a folder that can be written to, got {options.json}")
    if options.device == "cuda" and not torch.cuda.is_available():
        p.error("argument --device: expected a CUDA device and a torch that can use it, found none")


def parsed(p: argparse.ArgumentParser, argv: list[str] | None, peers: Sequence[str] = ()) -> argparse.Namespace:
    """The options of a command line, of which :func:`add_shared` has added some, completed and checked."""
    options = p.parse_args(argv)
    check_shared(p, options, peers)
    return options


def add_crops(p: argparse.ArgumentParser, *, batch: int, seconds: float) -> None:
    """The options of a benchmark that reads batches of crops for some seconds, with these defaults."""
    add = p.add_argument
    add("--size", type=number(int, 8, 4096), default=224, metavar="PIXELS", help="of the crops (default: %(default)s)")
    images = "images per batch (default: %(default)s)"
    add("--batch", type=number(int, 1, 2**20), default=batch, metavar="N", help=images)
    long = "a round (default: %(default)s)"
    add("--seconds", type=number(float, 0.01, 3600), default=seconds, metavar="S", help=long)


def official_peer(
    p: argparse.ArgumentParser, options: argparse.Namespace, preset: str, views: int = 1
) -> torch.nn.Module | None:
    """The authors' module if it is among the peers."""
    if "official" not in options.peers:
        return None
    try:
        return official.put_together(options.official, preset, views, Normalize(MEAN, STD))
    except (ImportError, OSError) as error:
        p.error(f"argument --official: {error}; its packages: pip install einops opt_einsum ml_collections")
