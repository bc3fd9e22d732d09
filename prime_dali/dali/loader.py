"""Batches of a pipeline as torch tensors: epochs, broken images, and states that resume exactly."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _arguments
from .._native import require_torch
from .._states import Kind
from .._wording import plural
from ..config import with_new_names
from ..data.pictures import PhotoError
from .broken import broken_images
from .dataset import Images
from .pipelines import ImagePipeline

if TYPE_CHECKING:
    import torch

_MAX_HELD = 2  # batches; torch's host code seldom is further ahead of the GPU

_log = logging.getLogger(__name__)


class Batch(NamedTuple):
    """One batch; N is ``batch_size``, or smaller in the last batch of ``last_batch="partial"``.

    Examples:
        >>> from prime_dali.dali import Batch
        >>> images, labels, indices = Batch(torch.zeros(2, 3, 224, 224), torch.tensor([0, 1]), torch.tensor([5, 7]))
        >>> indices
        tensor([5, 7])
    """

    images: torch.Tensor | tuple[torch.Tensor, ...]
    """``[N, 3, H, W]``, dtype and range as :class:`Output` says: by default float32, normalized. With ``views=3`` a
    tuple of three: clean, augmented, augmented. If the pipeline's layout is HWC: the same axes in memory format
    channels_last."""
    labels: torch.Tensor
    """int64 ``[N]``."""
    indices: torch.Tensor
    """int64 ``[N]``: each image's index in the whole data set."""


class Loader:
    """Iterates over the batches of a pipeline, one epoch per ``for`` loop.

    Tensors are DALI's own memory, without a copy, on the pipeline's device. On the CPU they stay valid as long as they
    are referenced. On a GPU too, but work that reads them must be enqueued on torch's current stream before the next
    batch is requested: DALI reuses the memory of a released tensor without waiting for torch, so the loader keeps each
    batch until that work is done. Clone tensors that are read later.

    If a loop is left before the end of its epoch, the next one resumes there: no image is lost or repeated.

    Args:
        pipeline: From :func:`train_pipeline` or :func:`val_pipeline`: one for each loader, and not run before.
        on_error: What happens when an image cannot be read or decoded. ``"raise"``: a ValueError that names it.
            ``"skip"``: a warning is logged, from then on the next good image of the list is read instead (with its own
            label and index, so that an epoch keeps its length), and the pipeline restarts from the same batch. Only
            for pipelines of a data set.

    Attributes:
        pipeline: The current pipeline; ``load_state_dict`` and skipped images replace it.
        replaced: Indices of broken images that were found, each with the index of the one read instead.

    Raises:
        TypeError, ValueError: An argument is invalid.
        ImportError: torch is not installed.

    Examples:
        >>> from prime_dali.dali import Execution, Loader, RandomCrop, train_pipeline
        >>> crop, execution = RandomCrop(32), Execution("cpu")
        >>> loader = Loader(train_pipeline("train", "cifar", batch_size=2, crop=crop, execution=execution))
        >>> for images, labels, indices in loader:  # an epoch
        ...     print(images.shape, labels.dtype)
        torch.Size([2, 3, 32, 32]) torch.int64
        torch.Size([2, 3, 32, 32]) torch.int64
        >>> len(loader), loader.epoch
        (2, 1)
    """

    def __init__(self, pipeline: ImagePipeline, *, on_error: str = "raise") -> None:
        require_torch("prime_dali.dali.Loader")  # fails here, not at the first batch

        if not isinstance(pipeline, ImagePipeline):
            raise TypeError(f"pipeline: expected one of train_pipeline or val_pipeline, got {type(pipeline).__name__}")
        _arguments.one_of("on_error", on_error, ("raise", "skip"))
        if on_error == "skip" and pipeline.data is None:
            raise ValueError("on_error: expected 'raise' with a Source, whose files are unknown here, got 'skip'")
        if pipeline.taken:
            raise ValueError(
                "pipeline: expected one for each Loader, and not run before, got one that was run or restarted, or "
                "that another has; make another by train_pipeline or val_pipeline"
            )
        pipeline.taken = True
        self.pipeline, self.on_error = pipeline, on_error
        self._done = 0  # batches returned, from the start of epoch 0
        self._failed = False
        self._first: Future[Sequence[Any]] | None = None  # what start() runs
        # The checkpoint before a batch of a source that was requested, and not returned so far.
        self._before: bytes | None = None
        # On a GPU: the last batch, and earlier ones that torch may still read, each with its event.
        self._last: Any = None
        self._held: list[tuple[Any, torch.cuda.Event]] = []

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.pipeline.batches

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0; after the last batch of an epoch it is the next epoch."""
        return self._done // len(self)

    @property
    def replaced(self) -> Mapping[int, int]:
        """Indices of broken images that were found, each with the index of the one read instead."""
        return {} if self.pipeline.data is None else dict(self.pipeline.data.replaced)

    def start(self) -> None:
        """Build the pipeline and make its next batch in a thread, while the caller does something else; the next loop
        begins with that batch, and raises the errors of the thread."""
        if self._first is None:
            thread = ThreadPoolExecutor(1, "prime-dali-start")
            self._first = thread.submit(self._run)
            thread.shutdown(wait=False)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of an epoch, or the rest of one after ``break`` or ``load_state_dict``.

        Raises:
            ValueError: With ``on_error="raise"``: an image cannot be read or decoded; the message names it. With
                ``"skip"``: no image can be decoded.
            RuntimeError: Any other failure of the pipeline, with DALI's message.
        """
        while True:
            self._wait_for_readers()
            self._wait_for_start()  # an interrupt leaves its batch to the next loop
            first, self._first = self._first, None
            batch = self._batch(self._run() if first is None else first.result())
            self._done, self._before = self._done + 1, None
            last = self._done % len(self) == 0
            yield batch
            if last:
                return

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch. A loader with the same arguments that loads it returns bit-identical batches
        from there on.

        It consists of strings, ints, bools, lists, dictionaries with string keys, and None, so ``torch.save`` and
        ``torch.load``, JSON and pickle preserve it.
        """
        data, checkpoint = self.pipeline.data, None
        if data is None:
            self._wait_for_start()  # it has the checkpoint
            checkpoint = base64.b64encode(self._before or self.pipeline.checkpoint()).decode()
        return {
            "batches": self._done,
            "settings": self._settings(),
            "replaced": [[broken, good] for broken, good in self.replaced.items()],
            "checkpoint": checkpoint,
        }

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resume from a ``state_dict()`` of a loader with the same arguments; an invalid one changes nothing.

        Paths, ``Execution``, ``mode`` of PRIME and ``on_error`` may differ. States of earlier versions lack some
        arguments, which are not compared.

        Args:
            state: From :meth:`state_dict`.
            strict: False: ``prime``, ``crop`` and ``output`` may differ too, but not the number of views. The batches
                have the same images from there on, made with this loader's arguments: for progressive sizes, and an
                alpha that changes during a run.

        Raises:
            TypeError, ValueError: ``state`` is not a state of a loader, or of one with other arguments; the message
                names all of them.
        """
        if not isinstance(state, Mapping) or not _STATE.schema.keys() <= state.keys():
            raise TypeError("state: expected a state_dict() of a Loader")
        _STATE.check("state", state)
        differ = _differences(self._settings(), state["settings"], () if strict else _MAKING)
        if differ:
            raise ValueError(f"state: expected one with {'; '.join(differ)}")
        data = self.pipeline.data
        done = _arguments.integer("state: batches", state["batches"], 0, 2**32 * len(self) - 1)
        replaced = _replaced(state["replaced"], 0 if data is None else len(data.records))
        pipeline = self.pipeline.restarted(done, _checkpoint(state["checkpoint"], data is None))
        try:
            pipeline.build()  # a checkpoint that DALI cannot read fails here, not at the first batch
        except RuntimeError as error:
            if data is not None:
                raise
            raise ValueError(f"state: checkpoint: expected one of this DALI and source ({error})") from error
        self._wait_for_start()  # its batch is not the one to resume from
        if data is not None:
            data.replaced = replaced
        self._first = self._before = None
        self.pipeline, self._done, self._failed = pipeline, done, False

    def _settings(self) -> dict[str, Any]:
        return self.pipeline.settings | {_BATCHES: self.pipeline.batches}

    def _run(self) -> Sequence[Any]:
        if self._failed:  # DALI would continue with the batch after the failed one
            raise RuntimeError("the pipeline has failed; create a new one and load a state into its loader")
        data = self.pipeline.data
        if data is None:
            self._before = self.pipeline.checkpoint()
        while True:
            try:
                return self.pipeline.run()
            except BaseException as error:  # also what a source raises: its other outputs are then one batch ahead
                self._failed = True
                if isinstance(error, StopIteration):  # a generator, as __iter__ is, must not let it through
                    raise RuntimeError(
                        "source: expected batches without an end, got one after "
                        f"{plural(self._done, 'batch', 'batches')}; give fn.external_source cycle=True, or a function "
                        "that starts again"
                    ) from error
                if data is None:
                    raise
                if not isinstance(error, Exception):  # an interrupt: the batch may be lost
                    self._restart()
                # DALI's text may be no UTF-8
                if not isinstance(error, (RuntimeError, UnicodeDecodeError, PhotoError)):
                    raise
                # The pipeline prefetches: the broken file may be in a later batch than the requested one.
                steps = range(self._done, self._done + self.pipeline.prefetch_queue_depth + 1)
                broken = self._broken({n for step in steps for n in data.numbers(step)[0].tolist()})
                if not broken:
                    raise
                if self.on_error == "raise":
                    named = "; ".join(broken.values())
                    raise ValueError(f"files: expected images that can be decoded, got {named}") from error
                self._skip(data, broken)
                self._restart()

    def _restart(self) -> None:
        """Replace the pipeline of a data set by a copy that begins with the next batch."""
        self.pipeline, self._failed = self.pipeline.restarted(self._done), False

    def _wait_for_start(self) -> None:
        """Wait for the thread of :meth:`start`, if there is one; its error is for the next loop."""
        if self._first is not None:
            self._first.exception()

    def _wait_for_readers(self) -> None:
        """On a GPU, release all but the last batches, once torch's work on them is done."""
        if self._last is None:
            return
        import torch

        self._held.append((self._last, torch.cuda.current_stream(self.pipeline.device_id).record_event()))
        self._last = None
        while len(self._held) > _MAX_HELD:
            _, read = self._held[0]
            read.synchronize()
            del self._held[0]

    def _skip(self, data: Images, broken: dict[int, str]) -> None:
        """Replace these broken files, and replacements that turn out to be broken too."""
        found = broken
        while found:
            data.replace(list(found))
            found = self._broken({data.replaced[number] for number in found})
            broken = broken | found
        for number, why in broken.items():
            _log.warning("%s; read instead: %s", why, data.records.name(data.replaced[number]))

    def _broken(self, numbers: set[int]) -> dict[int, str]:
        """Which of these images are broken: by index, a message that names the file or shard and says what is wrong."""
        data = self.pipeline.data
        assert data is not None
        return broken_images(data.records, sorted(numbers), self.pipeline.device_id)

    def _batch(self, outputs: Sequence[Any]) -> Batch:
        import torch

        *views, labels, indices = (torch.from_dlpack(out.as_tensor()) for out in outputs)
        if self.pipeline.device_id is not None:
            self._last = outputs
        if self.pipeline.out_layout == "HWC":
            views = [view.permute(0, 3, 1, 2) for view in views]
        count = len(views[0])
        images = views[0] if len(views) == 1 else tuple(views)
        return Batch(images, labels.reshape(count), indices.reshape(count))  # labels of readers have shape [N, 1]


_BATCHES = "batches an epoch"
_MAKING = ("prime", "crop", "output")  # determine how an image is made, and not which one comes next

_STATE = Kind(
    {
        "batches": int, "settings": {"views": int, _BATCHES: int}, "replaced": ([[int]], dict),
        "checkpoint": (None, str, bytes),
    },
    "a state_dict() of a Loader", "load an undamaged one",
)  # fmt: skip
"""In earlier versions ``replaced`` was a dictionary of ints and ``checkpoint`` bytes; both are still accepted."""


def _differences(own: Mapping[str, Any], stored: Mapping[str, Any], free: Sequence[str]) -> list[str]:
    """The arguments of a loader, except ``free``, that a state has otherwise, in words: what was expected and got.

    Batches an epoch follow from other arguments; they are named only if those are the same.
    """
    found: list[str] = []
    for name, value in own.items():
        if name in free or name not in stored or (name == _BATCHES and found):
            continue
        other = stored[name]
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            fields = with_new_names(other) if name == "prime" else other
            found += [
                f"{name}.{field} {one!r}, got {fields.get(field)!r}"
                for field, one in value.items()
                if fields.get(field) != one
            ]
        elif value != other:
            wanted, got = ("a PrimeConfig" if isinstance(one, Mapping) else repr(one) for one in (value, other))
            found.append(f"{name} {wanted}, got {got}")
    return found


def _replaced(given: Any, files: int) -> dict[int, int]:
    """Indices of broken files from a state, each with that of the file read instead.

    Raises:
        ValueError: They are something else, or not indices of this data set.
    """
    try:
        pairs = [(int(broken), int(good)) for broken, good in (given.items() if isinstance(given, dict) else given)]
    except (TypeError, ValueError):
        raise ValueError(f"state: replaced: expected pairs of file indices, got {given!r}") from None
    found = dict(pairs)
    for broken, good in pairs:
        if not (0 <= broken < files and 0 <= good < files) or good in found:
            raise ValueError(
                f"state: replaced: expected indices of {plural(files, 'file')}, each with that of a file that is not "
                f"broken, got {[broken, good]}"
            )
    return found


def _checkpoint(given: Any, wanted: bool) -> bytes | None:
    """DALI's checkpoint from a state; None for a pipeline without one.

    Raises:
        ValueError: It is missing, damaged, or given for a pipeline without one.
    """
    if (given is not None) != wanted:
        kind = "a pipeline of a source" if wanted else "a pipeline of a data set, without one"
        raise ValueError(f"state: checkpoint: expected that of {kind}, got {'none' if given is None else 'one'}")
    try:
        return base64.b64decode(given, validate=True) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"state: checkpoint: expected base64 ({error})") from error
