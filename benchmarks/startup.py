"""Seconds from the start of ``prime-dali train`` to the end of its first step, with empty and with filled caches of
compiled code.

::

    python benchmarks/startup.py --device cuda --json startup.json -- --recipe imagenet --data FOLDER

The run has what follows ``--`` as further settings. It is started once with empty folders for what ``torch.compile``
keeps and for Python's byte code, which installers make of every module and some images of machines leave out, "cold",
and then ``--repeats`` times with what the first one left there, "warm"; each run is stopped after its first step. Other
caches, the plugin for DALI among them, are as they are. The columns after those of the whole have the
median seconds of each phase, as the run's log has them: until modules are imported, the data set is listed, the network
is on its device, the first batch is there and the first step is done. Exit status: 0; 1 if a run failed (its last lines
say how); 2 for a bad argument.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from common import add_shared, aligned, circumstances, number, parsed, significant, write_json
from scaling import last_lines

from prime_dali._command import STOPPED
from prime_dali.training.checkpoint import LOG, read_log

STEPS = 20  # that a run may have: more than one, as its schedule wants
POLL = 0.01  # seconds
PHASES = ("imports", "data", "network", "first_batch", "first_step")


def first_step(command: list[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Seconds until a run has written a line to its log in this folder; then it is stopped. RuntimeError, with its last
    lines, if it ends before or fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        run = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        try:
            log = folder / LOG
            while run.poll() is None and not (log.exists() and log.stat().st_size):
                time.sleep(POLL)
            passed = time.perf_counter() - began
            run.send_signal(signal.SIGTERM)
            status = run.wait()
        finally:
            run.kill()
        said.seek(0)
        if status not in (0, STOPPED) or not log.exists():
            raise RuntimeError(last_lines(said.read()))
    return passed


def phases(folder: Path) -> list[float]:
    """The seconds of each of a run's :data:`PHASES`."""
    line = read_log(folder)[0]
    ended = [line[f"startup_{phase}"] for phase in PHASES]
    return [round(end - begin, 3) for begin, end in zip([0.0, *ended], ended, strict=False)]


def measure(options: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, list[list[float]]]]:
    """The seconds of each run, cold and warm, and those of each of its phases."""
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    parts: dict[str, list[list[float]]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as cache:
        set_here = ("TRITON_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if name not in set_here}
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/compiled", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
        for kind in ("cold", *["warm"] * options.repeats):
            print(f"{kind} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as out:
                command = [
                    sys.executable, "-m", "prime_dali", "train", "--out", out, "--device", options.device,
                    "--epochs", "1", "--limit-steps", str(STEPS), "--log-every", "1", *options.settings,
                ]  # fmt: skip
                seconds[kind].append(first_step(command, Path(out), {**kept, **caches}))
                parts[kind].append(phases(Path(out)))
    return seconds, parts


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    p.add_argument("--repeats", type=number(int, 1, 100), default=2, metavar="R", help="warm runs (default: 2)")
    p.add_argument("settings", nargs="*", help="of prime-dali train, after --: --recipe and --data at least")
    add_shared(p, ())
    return p


def main(argv: list[str] | None = None) -> int:
    """Measure, print and write."""
    options = parsed(parser(), argv)
    facts = circumstances(options, "train")
    try:
        seconds, parts = measure(options)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    rows = [["", "seconds", "min", "max", *(phase.replace("_", " ") for phase in PHASES)]]
    for kind, of in seconds.items():
        whole = [f(of) for f in (statistics.median, min, max)]
        rows.append([kind, *map(significant, [*whole, *map(statistics.median, zip(*parts[kind], strict=True))])])
    print(*aligned(rows), sep="\n")
    if options.json:
        write_json(options.json, {**facts, "settings": vars(options), "results": seconds, "phases": parts})
    return 0


if __name__ == "__main__":
    sys.exit(main())
