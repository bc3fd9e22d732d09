"""What stops a training run after it has saved: signals, and output that cannot be written."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import training

from prime_dali._progress import Progress
from prime_dali.training import train
from prime_dali.training.stopping import Stopping
from prime_dali.training.trainer import Trainer

cifar, one_thread = training.cifar, training.one_thread  # fixtures


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # what runs the tests may ignore it, as nohup does
    try:
        with Stopping("") as stopping:
            assert not stopping.asked
            signal.raise_signal(number)
            assert (stopping.asked, stopping.interrupted) == (True, False)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_ignored_signals(number: signal.Signals) -> None:
    """What nohup starts ignores SIGHUP, and a shell's jobs in the background ignore SIGINT: they go on."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Stopping("") as stopping:
            signal.raise_signal(number)
            assert not stopping.asked
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("notice", ["saving", ""])
def test_ctrl_c(notice: str, capfd: pytest.CaptureFixture) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Stopping(notice) as stopping:
            signal.raise_signal(signal.SIGINT)
            assert (stopping.asked, stopping.interrupted) == (True, True)
            assert capfd.readouterr().err == (f"\n{notice}\n" if notice else "")
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("bar", [None, Progress])
def test_a_run_whose_output_is_gone_saves_and_stops(cifar: Path, tmp_path: Path, bar: type | None) -> None:
    """At the first line, of the first validation; the same command resumes."""
    config = train.read(training.settings(cifar, tmp_path, "--validate-every", "1"))
    lines = []

    def gone(line: str) -> None:
        lines.append(line)
        raise BrokenPipeError(line)

    with pytest.raises(BrokenPipeError, match="epoch 1 of 3"):
        Trainer(config, training.ALONE, gone, bar).run()
    assert len(lines) == 1  # no other is tried
    resumed = Trainer(config, training.ALONE, lines.append)
    assert 6 < resumed.step <= 8  # at the next line of the log
    assert resumed.run().finished
    assert [line.partition(":")[0] for line in lines[2:]] == ["epoch 2 of 3", "epoch 3 of 3"]
