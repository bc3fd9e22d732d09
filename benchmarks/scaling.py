"""Images per second of ``prime-dali train`` on 1, 2, ... processes of this machine, and how well they scale.

::

    python benchmarks/scaling.py --device cuda --processes 1 2 --batch 128 -- --recipe cifar10 --data CIFAR
    python benchmarks/scaling.py --device cuda --processes 1 4 8 --batch 256 -- --recipe imagenet --data FOLDER

Each number of processes is a run of its own under torchrun, with ``--batch`` images per process and what follows ``--``
as further settings. Rates are medians over the lines of its log but the first, when compilers were at work. Efficiency
is the rate over that of the first number of processes, each per process. Exit status: 0; 1 if a run failed (its last
lines say how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from common import add_shared, aligned, check_shared, circumstances, number, significant, write_json

from prime_dali.training.checkpoint import read_log

PARTS = 8  # of a run; the first one is not counted


def measure(processes: int, options: argparse.Namespace) -> list[float]:
    """Images per second of every part of a run; RuntimeError with its last lines if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}",
            "-m", "prime_dali", "train", "--out", folder, "--device", options.device,
            "--batch", str(processes * options.batch), "--epochs", "1", "--limit-steps", str(options.steps),
            "--log-every", str(max(options.steps // PARTS, 1)), *options.settings,
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError("\n".join(done.stdout.splitlines()[-15:]))
        rates = [line["images_per_second"] for line in read_log(Path(folder)) if "images_per_second" in line]
    if len(rates) < 2:
        raise RuntimeError(
            f"expected more than one line of the log, got {len(rates)}: --steps is too small for --batch"
        )
    return rates[1:]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = p.add_argument
    add("--processes", type=number(int, 1, 1024), nargs="+", default=[1, 2], metavar="N", help="(default: 1 2)")
    add(
        "--batch",
        type=number(int, 1, 2**20),
        default=128,
        metavar="N",
        help="images per process (default: %(default)s)",
    )
    add("--steps", type=number(int, PARTS, 10**6), default=400, metavar="S", help="of each run (default: %(default)s)")
    add("settings", nargs="*", help="of prime-dali train, after --: --recipe and --data at least")
    add_shared(p, ())
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure, print and write."""
    p = parser()
    options = p.parse_args(argv)
    check_shared(p, options, ())
    if options.device == "cuda" and max(options.processes) > torch.cuda.device_count():
        p.error(
            f"argument --processes: expected at most one per GPU, {torch.cuda.device_count()}, got {options.processes}"
        )
    results = []
    for processes in options.processes:
        print(f"{processes} processes ...", file=sys.stderr, flush=True)
        try:
            results.append({"processes": processes, "rates": measure(processes, options), "error": ""})
        except RuntimeError as error:
            results.append({"processes": processes, "rates": [], "error": str(error)})
    print(table(results))
    if options.json:
        write_json(options.json, {**circumstances(options, "train"), "settings": vars(options), "results": results})
    return int(any(r["error"] for r in results))


def table(results: list[dict]) -> str:
    """A line for every number of processes."""
    rows = [["processes", "images/s", "min", "max", "efficiency"]]
    first = results[0]
    for r in results:
        if r["error"]:
            rows.append([str(r["processes"]), "failed", "", "", ""])
            continue
        rate = statistics.median(r["rates"])
        share = ""
        if not first["error"]:
            share = f"{rate / r['processes'] / (statistics.median(first['rates']) / first['processes']):.3f}"
        rows.append([str(r["processes"]), *map(significant, (rate, min(r["rates"]), max(r["rates"]))), share])
    return "\n".join([*aligned(rows), *(f"{r['processes']} processes: {r['error']}" for r in results if r["error"])])


if __name__ == "__main__":
    sys.exit(main())
