"""What a pipeline reads: a data set, or a source of other DALI operators; checked when it is created."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from nvidia.dali.data_node import DataNode

from .. import _arguments, _distributed
from ..data.folders import SPLITS
from ..data.records import Records
from .settings import assign

LAST_BATCH = ("drop", "partial", "fill")


@dataclass(frozen=True, kw_only=True)
class _Shared:
    """What :class:`Reader` and :class:`Source` have in common: how an epoch is divided."""

    last_batch: str | None = None
    shard_id: int | None = None
    num_shards: int | None = None

    def __post_init__(self) -> None:
        if self.last_batch is not None:
            _arguments.one_of("last_batch", self.last_batch, LAST_BATCH)
            assign(self, last_batch=str(self.last_batch))
        if (self.shard_id is None) != (self.num_shards is None):
            missing = "shard_id" if self.shard_id is None else "num_shards"
            raise ValueError(f"{missing}: expected shard_id and num_shards together, or neither, got None")
        if self.num_shards is not None:
            count = _arguments.integer("num_shards", self.num_shards, 1, 2**31 - 1)
            assign(self, num_shards=count, shard_id=_arguments.integer("shard_id", self.shard_id, 0, count - 1))

    def shard(self) -> tuple[int, int]:
        """Shard and number of shards: as given, or rank and world size of torch.distributed, or 0 and 1."""
        if self.shard_id is not None and self.num_shards is not None:
            return self.shard_id, self.num_shards
        return _distributed.rank_and_ranks()


@dataclass(frozen=True, eq=False)
class Reader(_Shared):
    """Which data set a pipeline reads, and in which order.

    Attributes:
        folder: The data set: a folder with one subfolder of images per class, as for
            ``torchvision.datasets.ImageFolder``; or shards of WebDataset, TFRecord, Parquet, or of Hugging Face's
            ``save_to_disk``: their folder, one of them, or a pattern with ``*``, ``?``, ``{0000..0099}`` or ``{a,b}``;
            or what :func:`prime_dali.data.formats.open_records` returned.
        files, labels: Paths of images, and an int for each, instead of ``folder``.
        split: ``"train"`` or ``"val"``: this part of a data set whose parts are subfolders or shards of such names in
            ``folder``. None: ``folder`` is the part itself.
        label: Where shards have the label: the extension of a member or a field of ``json`` (WebDataset), a feature,
            or a column. None: the usual names. Class names are sorted and numbered, as those of folders, unless the
            data set itself numbers them.
        shuffle: Whether every epoch is shuffled. None: True in training. Validation keeps the order of the list.
        last_batch: What to do if the batch size and the shards do not divide the number of images. ``"drop"``: skip
            the end of the epoch; ``"fill"``: repeat images of its beginning. Both give every shard the same number of
            full batches. ``"partial"``: a smaller last batch, and every image exactly once over all shards, of which
            some may have one batch more than others. None: ``"drop"`` in training, ``"partial"`` in validation.
        shard_id, num_shards: The part of the epoch of this process, whatever the files. None: rank and world size of
            torch.distributed if it is initialized.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> prime_dali.dali.Reader("train", last_batch="partial", shard_id=0, num_shards=2).shard()
        (0, 2)
        >>> prime_dali.dali.Reader("imagenet", split="train").split  # imagenet/train-00000-of-01024 and so on
        'train'
        >>> prime_dali.dali.Reader("train", files=["train/cat/0.jpg"], labels=[0])
        Traceback (most recent call last):
        ValueError: folder: expected either folder or files, got both
    """

    folder: str | os.PathLike[str] | Records | None = None
    _: KW_ONLY
    files: Sequence[str | os.PathLike[str]] | None = None
    labels: Sequence[int] | None = None
    split: str | None = None
    label: str | None = None
    shuffle: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.folder is None) == (self.files is None):
            got = "neither" if self.folder is None else "both"
            raise ValueError(f"folder: expected either folder or files, got {got}")
        if self.folder is not None:
            if self.labels is not None:
                raise ValueError("labels: expected None with folder, whose class folders or shards determine them")
        else:
            _check_list(self.files, self.labels)
        if self.split is not None:
            _arguments.one_of("split", self.split, tuple(SPLITS))
        for name in ("split", "label"):
            if getattr(self, name) is not None and not isinstance(self.folder, (str, os.PathLike)):
                raise ValueError(f"{name}: expected None without a path in folder, got {getattr(self, name)!r}")
        if self.shuffle is not None:
            assign(self, shuffle=_boolean("shuffle", self.shuffle))


def _boolean(argument: str, value: Any) -> bool:
    """``value`` as a bool, if it is one, also of NumPy; TypeError otherwise: the text "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{argument}: expected True or False, got {type(value).__name__} ({value!r})")
    return bool(value)


def _check_list(files: Any, labels: Any) -> None:
    """TypeError or ValueError unless these are paths and one int each."""
    if labels is None:
        raise ValueError("labels: expected one int per file, got None")
    for name, given, what in (("files", files, "paths"), ("labels", labels, "ints")):
        # A set has another order in every process; keys of a dictionary are in order.
        if isinstance(given, (str, bytes, set, frozenset, Mapping)) or not hasattr(given, "__len__"):
            raise TypeError(f"{name}: expected a list of {what}, got {type(given).__name__}")
    for place, file in enumerate(files):
        if not isinstance(file, (str, os.PathLike)):
            raise TypeError(f"files: expected paths, got {type(file).__name__} at place {place}")
    if not len(files):
        raise ValueError("files: expected at least one path, got none")
    if len(labels) != len(files):
        raise ValueError(f"labels: expected one per file, {len(files)}, got {len(labels)}")
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"labels: expected ints, got {array.dtype} of shape {list(array.shape)}")
    if int(array.max()) >= 2**63:
        raise ValueError(f"labels: expected ints that fit int64, got {array.max()}")


@dataclass(frozen=True)
class Source(_Shared):
    """Images from other DALI operators: LMDB, videos, a cache. Shards of images need none, see :class:`Reader`.

    Attributes:
        function: Called in the pipeline definition; returns DataNodes of images, labels (integers) and image indices
            (integers) or None. With None, numbers from DALI's generator key crops, flips and PRIME. Labels and indices
            of type uint8 and one dimension are text of decimal digits, as WebDataset's ``cls``. Every batch must have
            ``batch_size`` images, without an end, as of DALI's readers. The function itself shuffles and shards.
            States of a :class:`Loader` have the positions of DALI's readers and random generators, and that of
            ``fn.external_source`` if it calls a function of ``SampleInfo`` or ``BatchInfo``, not that of generators.
        num_images: Images per epoch on this shard.
        decoded: True: the images are uint8 HWC, of three channels, or of 1 to 16 where :class:`Output` has no mean and
            std. False: encoded, on the CPU.
        last_batch: ``"drop"`` or ``"fill"``, as for :class:`Reader`. None: ``"drop"`` in training, ``"fill"`` in
            validation.
        shard_id, num_shards: As for :class:`Reader`.

    Raises:
        TypeError, ValueError: A field is invalid; the message names it.

    Examples:
        >>> from nvidia.dali import fn
        >>> def images():
        ...     jpegs, labels = fn.readers.file(file_root="val", name="reader")
        ...     return jpegs, labels, None
        >>> data = prime_dali.dali.Source(images, num_images=4)
        >>> execution = prime_dali.dali.Execution("cpu")
        >>> prime_dali.dali.val_pipeline(data, batch_size=2, execution=execution).batches
        2
    """

    function: Callable[[], tuple[DataNode, DataNode, DataNode | None]]
    _: KW_ONLY
    num_images: int
    decoded: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise TypeError(f"function: expected a function without arguments, got {type(self.function).__name__}")
        if self.last_batch == "partial":
            raise ValueError("last_batch: expected 'drop' or 'fill' with a Source, got 'partial'")
        assign(self, num_images=_arguments.integer("num_images", self.num_images, 1, 2**62))
        assign(self, decoded=_boolean("decoded", self.decoded))


def reader(data: Any) -> Reader | Source:
    """The argument ``data`` of a pipeline as a group."""
    if isinstance(data, (str, os.PathLike, Records)):
        return Reader(data)
    if not isinstance(data, (Reader, Source)):
        raise TypeError(f"data: expected a folder, a Reader or a Source, got {type(data).__name__}")
    return data
