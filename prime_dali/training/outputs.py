"""What a run leaves in its folder and shows its user."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import _yaml
from .._files import held, write_text
from .._progress import Report
from . import checkpoint
from .config import TrainConfig

SLOW = 1.0  # seconds of which a user is told


class Outputs:
    """The checkpoint, the log, the configuration, TensorBoard's curves, lines for the user and a progress bar.

    All of it is the first process's: in others every method does nothing.

    Args:
        config: The settings; everything is written to its folder ``out``.
        first: Whether this is the first process.
        report: Called with lines for the user.
        progress: Creates a progress bar, as :class:`._progress.Progress` does; None: no bar.
    """

    def __init__(self, config: TrainConfig, first: bool, report: Report, progress: Any) -> None:
        self.folder = Path(config.out)
        self._config, self._first, self._report, self._progress = config, first, report, progress
        self._written = checkpoint.written(self.folder)
        self._log: checkpoint.Log
        self._bar: Any = None
        self._curves: Any = None
        self.failed: OSError | None = None
        """Why a line did not reach the user: a closed pipe, a terminal that is gone. The run saves and stops then."""

    @contextlib.contextmanager
    def opened(self, step: int, total: int) -> Iterator[None]:
        """Lock the folder, and open the files and the bar, for the steps from ``step`` to ``total``.

        Raises:
            RuntimeError: Another run is writing in the folder, or has written there since this one read it.
            OSError: A file cannot be written.
        """
        with contextlib.ExitStack() as stack:
            if not self._first:
                yield
                return
            stack.enter_context(held(self.folder))
            for left in self.folder.glob(".last-????????.pt"):  # of runs of earlier versions that were killed
                left.unlink()
            if checkpoint.written(self.folder) != self._written:
                raise RuntimeError(f"{self.folder}: another run has written there meanwhile; run the command again")
            write_text(self.folder / checkpoint.CONFIG, _yaml.dump(self._config.plain()))
            self._log = checkpoint.Log(self.folder, step)
            if self._progress is not None:
                self._bar = stack.enter_context(self._progress(total, "training", "step", step))
            if self._config.tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                self._curves = stack.enter_context(SummaryWriter(str(self.folder / "tensorboard"), purge_step=step))
            yield

    def advance(self) -> None:
        """A step is done."""
        if self._bar is not None:
            self._bar.update()

    def note(self, text: str) -> None:
        """Show a few words at the end of the bar."""
        if self._bar is not None:
            self._bar.note = text

    def tell(self, line: str) -> None:
        """A line for the user, unless one has failed."""
        if self._first and self.failed is None:
            try:
                with contextlib.nullcontext() if self._bar is None else self._bar.hidden():
                    self._report(line)
            except OSError as error:
                self.failed = error

    @contextlib.contextmanager
    def telling_if_slow(self, line: str) -> Iterator[None]:
        """A line for the user if the block takes longer than a second."""
        timer = threading.Timer(SLOW, self.tell, (line,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def log(self, step: int, epoch: float, **numbers: float) -> None:
        """A line of the log, and points of the curves."""
        if not self._first:
            return
        self._log.write(step=step, epoch=epoch, **numbers)
        if self._curves is not None:
            for name, number in numbers.items():
                self._curves.add_scalar(name, number, step)

    def save(self, content: dict[str, Any]) -> None:
        """Write the checkpoint, after the log has the lines up to it; errors as :func:`.checkpoint.save`."""
        if self._first:
            self._log.sync()
            checkpoint.save(self.folder, content)
            self._written = checkpoint.written(self.folder)
