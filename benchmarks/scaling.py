"""Images per second of ``prime-dali train`` on 1, 2, ... processes of this machine, beside the network alone.

::

    python benchmarks/scaling.py --device cuda --processes 1 2 --batch 128 -- --recipe cifar10 --data CIFAR
    python benchmarks/scaling.py --device cuda --processes 1 4 8 --batch 256 -- --recipe imagenet --data FOLDER

Each number of processes is two runs under torchrun, with ``--batch`` images per process and what follows ``--`` as
further settings: "bare", the loop of bare_loop.py over one batch of random pixels, and the training. Rates are medians
over the parts of a run but the first, when compilers were at work. "of bare" is the rate of the training over that of
the bare loop. "efficiency" is the training's rate per process over that on the smallest number of processes, "bare's"
the same of the bare loop, and "ratio" the former over the latter.
Exit status: 0; 1 if a run failed (its last lines say how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from bare_loop import PARTS
from common import add_shared, aligned, circumstances, number, parsed, significant, write_json

from prime_dali.training.checkpoint import read_log


def launched(processes: int, options: argparse.Namespace, program: list[str], out: str) -> str:
    """What a program prints that is started under torchrun; RuntimeError with its last lines if it fails."""
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *program,
            "--out", out, "--device", options.device, "--batch", str(processes * options.batch), "--epochs", "1",
            "--limit-steps", str(options.steps), "--log-every", str(max(options.steps // PARTS, 1)), *options.settings,
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(last_lines(done.stdout + done.stderr))
    return done.stdout


def last_lines(said: str) -> str:
    """The last lines before torchrun's report of a failure, which does not say why."""
    before, _, _ = said.partition("failed (exitcode: ")
    return "\n".join(before.splitlines()[: None if before == said else -1][-15:])


def measure(processes: int, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Images per second of every part of the training, and of the bare loop; RuntimeError if one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        bare = json.loads(
            launched(processes, options, [str(Path(__file__).with_name("bare_loop.py"))], folder).splitlines()[-1]
        )
        launched(processes, options, ["-m", "prime_dali", "train"], folder)
        rates = [line["images_per_second"] for line in read_log(Path(folder)) if "images_per_second" in line]
    if len(rates) < 2:
        raise RuntimeError(
            f"expected more than one line of the log, got {len(rates)}: --steps is too small for --batch"
        )
    return rates[1:], bare


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
    options = parsed(p, argv)
    if options.device == "cuda" and max(options.processes) > torch.cuda.device_count():
        p.error(
            f"argument --processes: expected at most one per GPU, {torch.cuda.device_count()}, got {options.processes}"
        )
    results = []
    for processes in options.processes:
        print(f"{processes} processes ...", file=sys.stderr, flush=True)
        try:
            rates, bare = measure(processes, options)
            results.append({"processes": processes, "rates": rates, "bare": bare, "error": ""})
        except RuntimeError as error:
            results.append({"processes": processes, "rates": [], "bare": [], "error": str(error)})
    compare(results)
    print(table(results))
    if options.json:
        write_json(options.json, {**circumstances(options, "train"), "settings": vars(options), "results": results})
    return int(any(r["error"] for r in results))


def compare(results: list[dict]) -> None:
    """Add the medians, and the efficiencies relative to the smallest number of processes, to the results without an
    error; if that number has one, only the medians."""
    smallest = min(results, key=lambda r: r["processes"])
    for r in results:
        if not r["error"]:
            r["images_per_second"], r["bare_images_per_second"] = map(statistics.median, (r["rates"], r["bare"]))
            r["of_bare"] = r["images_per_second"] / r["bare_images_per_second"]
    for r in results:
        if not r["error"] and not smallest["error"]:
            more = r["processes"] / smallest["processes"]
            for name in ("", "bare_"):
                rate = f"{name}images_per_second"
                r[f"{name}efficiency"] = r[rate] / smallest[rate] / more
            r["ratio"] = r["efficiency"] / r["bare_efficiency"]


def table(results: list[dict]) -> str:
    """A line for every number of processes, of the results of :func:`compare`."""
    rows = [["processes", "bare", "images/s", "min", "max", "of bare", "efficiency", "bare's", "ratio"]]
    for r in results:
        if r["error"]:
            rows.append([str(r["processes"]), "failed", *[""] * 7])
            continue
        rates = (r["bare_images_per_second"], r["images_per_second"], min(r["rates"]), max(r["rates"]))
        shares = ("of_bare", "efficiency", "bare_efficiency", "ratio")
        rows.append(
            [str(r["processes"]), *map(significant, rates), *(f"{r[name]:.3f}" if name in r else "" for name in shares)]
        )
    return "\n".join([*aligned(rows), *(f"{r['processes']} processes: {r['error']}" for r in results if r["error"])])


if __name__ == "__main__":
    sys.exit(main())
