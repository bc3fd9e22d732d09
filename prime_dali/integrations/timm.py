"""PRIME in timm's training loader, and in timm's own training script.

:func:`augment_loader` works on what ``timm.data.create_loader`` returns. The module is also a command, which runs
timm's ``train.py`` as it is, with PRIME in its training loader::

    python -m prime_dali.integrations.timm train.py DATA --model resnet50 ...
    torchrun --nproc-per-node=8 -m prime_dali.integrations.timm --mixing official train.py DATA --model resnet50 ...
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import _extras

with _extras.importing("prime_dali.integrations.timm", "timm"):
    import timm.data
    import torch
    from timm.data import FastCollateMixup
    from timm.data.distributed_sampler import OrderedDistributedSampler
    from timm.data.loader import PrefetchLoader

from .. import _arguments, _command, _options, torch_ops
from .._counting import rank_indices
from .._distributed import rank_and_ranks
from ..config import PrimeConfig, as_config, takes_config

__all__ = ["AugmentedLoader", "augment_loader"]


@takes_config
def augment_loader(loader: PrefetchLoader, config: PrimeConfig | str = "imagenet", *, seed: int = 0) -> AugmentedLoader:
    """Let PRIME augment the batches of a training loader of timm, on their device, before they are normalized.

    With the splits of ``AugMixDataset`` (``--aug-splits``) the first split stays clean and every other one gets draws
    of its own, as timm's ``JsdCrossEntropy`` expects. timm's mixup and CutMix come before PRIME where they are the
    loader's collate function, and random erasing comes after it.

    Args:
        loader: What ``timm.data.create_loader(..., is_training=True)`` returns; with the prefetcher, which is timm's
            default and also works on the CPU. It becomes part of the result: use that alone.
        config: The distributions, or the name of a preset.
        seed: The run's seed, an int of 64 bits.

    Returns:
        A loader of the same batches: images (of the loader's dtype, normalized by its mean and standard deviation) and
        targets.

    Raises:
        TypeError: ``loader`` has no prefetcher; or ``config`` is of another type.
        UserWarning: ``loader`` does not shuffle, as one for validation (``is_training=False``).
        ValueError: Mixup and splits exclude each other, the loader has PRIME already, or ``seed`` is out of range.

    Examples:
        >>> import timm.data
        >>> from prime_dali.integrations.timm import augment_loader
        >>> data, cpu = timm.data.ImageDataset("train"), torch.device("cpu")
        >>> loader = timm.data.create_loader(data, 32, batch_size=2, is_training=True, device=cpu)
        >>> images, targets = next(iter(augment_loader(loader, "cifar", seed=1)))
        >>> images.shape, images.dtype
        (torch.Size([2, 3, 32, 32]), torch.float32)
    """
    if not isinstance(loader, PrefetchLoader):
        raise TypeError(
            f"loader: expected timm's PrefetchLoader, got {type(loader).__name__}; PRIME needs images that are not "
            "normalized yet, so use create_loader(use_prefetcher=True), or train.py without --no-prefetcher"
        )
    if isinstance(loader.sampler, (torch.utils.data.SequentialSampler, OrderedDistributedSampler)):
        warnings.warn(
            "loader: expected a training loader, got one that does not shuffle, as create_loader(is_training=False) "
            "makes it; validation images must not be augmented",
            stacklevel=2,
        )
    return AugmentedLoader(loader, as_config(config), _arguments.seed(seed))


class AugmentedLoader:
    """A loader of timm whose images PRIME augments; :func:`augment_loader` makes it.

    It has the attributes of the loader within: ``sampler``, ``mixup_enabled`` and others.

    Draws depend on the seed, the epoch, and the image's place in the epoch over all ranks. Epochs are the passes over
    the loader, from 0, unless :meth:`set_epoch` names them. timm's script does, so a resumed run goes on with the draws
    of its epoch.

    Examples:
        >>> import timm.data
        >>> data, cpu = timm.data.ImageDataset("train"), torch.device("cpu")
        >>> loader = timm.data.create_loader(data, 32, batch_size=2, is_training=True, device=cpu)
        >>> loader = prime_dali.integrations.timm.augment_loader(loader, "cifar")
        >>> loader.set_epoch(3)  # when a run is resumed
        >>> len(loader)
        2
    """

    loader: PrefetchLoader

    def __init__(self, loader: PrefetchLoader, config: PrimeConfig, seed: int) -> None:
        splits = getattr(loader.dataset, "num_splits", 1)
        if splits > 1 and isinstance(loader.loader.collate_fn, FastCollateMixup):
            raise ValueError(
                "loader: expected splits with hard labels, or mixup without splits, got a FastCollateMixup and "
                f"{splits} splits, whose clean and augmented images it would mix"
            )
        if getattr(loader, "has_prime", False):
            raise ValueError(
                "loader: expected one without PRIME, got one that has it; use what augment_loader returned"
            )
        loader.has_prime = True  # type: ignore[attr-defined]
        # Through __dict__, because assignments go to the loader within.
        self.__dict__.update(loader=loader, config=config, seed=seed, splits=splits, epoch=0)
        self.__dict__["mean"] = (loader.mean.float().flatten() / 255).tolist()
        self.__dict__["std"] = (loader.std.float().flatten() / 255).tolist()
        self.__dict__["erasing"] = loader.random_erasing
        # The loader within only scales to [0, 1]; it would normalize and erase before PRIME, this one does it after.
        loader.random_erasing = None  # type: ignore[assignment]
        loader.mean, loader.std = torch.zeros_like(loader.mean), torch.full_like(loader.std, 255)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass, here and for the sampler.

        Args:
            epoch: From 0 to 2^32 - 1.

        Raises:
            TypeError, ValueError: It is no such int.
        """
        self.__dict__["epoch"] = _arguments.epoch(epoch)
        for told in (self.loader.dataset, self.loader.batch_sampler, self.loader.sampler):
            if hasattr(told, "set_epoch"):
                told.set_epoch(epoch)

    @property
    def dataset(self) -> _Dataset:
        """The data set within, whose ``set_epoch``, which timm's script calls, tells this loader too."""
        return _Dataset(self)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        epoch = self.epoch
        self.__dict__["epoch"] = epoch + 1
        rank, ranks = rank_and_ranks()
        seen = 0
        for images, targets in self.loader:
            count = images.shape[0] // self.splits
            index = rank_indices(seen, count, rank, ranks, images.device)
            seen += count
            plan = torch_ops.sample(
                self.config,
                index,
                size=images.shape[2:],
                channels=images.shape[1],
                seed=self.seed,
                epoch=epoch,
                view=0 if self.splits == 1 else (_arguments.CLEAN, *range(self.splits - 1)),
            )
            # timm's splits follow one another, as a plan's views do, but each has images of its own.
            out = torch_ops.apply(images, replace(plan, views=1), mean=self.mean, std=self.std)
            yield (out if self.erasing is None else self.erasing(out)), targets

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["loader"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.loader, name, value)


class _Dataset:
    """A data set as it is, whose epoch is that of a loader."""

    def __init__(self, loader: AugmentedLoader) -> None:
        self._data, self.set_epoch = loader.loader.dataset, loader.set_epoch

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: Any) -> Any:
        return self._data[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_data"], name)


def parser() -> _command.Parser:
    """The options of the command, which come before the script."""
    out = _command.Parser(
        prog="python -m prime_dali.integrations.timm",
        description="Run timm's train.py, or another script that uses timm.data.create_loader, with PRIME in its "
        "training loader. Options of this command come before the script.",
        add_help=False,  # with --debug, which would do nothing: errors of the script keep their traceback
    )
    out.add_argument("-h", "--help", action="help", help="show this help message and exit")
    _options.add_distributions(out)
    out.add_argument("--prime-seed", type=_command.whole(0, 2**63 - 1), default=0, help="seed of PRIME's draws")
    out.add_argument("script", type=Path, help="timm's train.py")
    out.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    return out


@contextlib.contextmanager
def _augmenting(config: PrimeConfig, seed: int) -> Iterator[list[AugmentedLoader]]:
    """While this lasts, timm makes training loaders with PRIME; yields those that it made."""
    made: list[AugmentedLoader] = []
    create, create_naflex = timm.data.create_loader, timm.data.create_naflex_loader

    def create_loader(*args: Any, **kwargs: Any) -> Any:
        loader = create(*args, **kwargs)
        if not _is_training(create, args, kwargs):
            return loader
        made.append(augment_loader(loader, config, seed=seed))
        return made[-1]

    def create_naflex_loader(*args: Any, **kwargs: Any) -> Any:
        if _is_training(create_naflex, args, kwargs):
            raise ValueError("loader: expected one of create_loader, got a NaFlex one, whose batches are patches")
        return create_naflex(*args, **kwargs)

    timm.data.create_loader, timm.data.create_naflex_loader = create_loader, create_naflex_loader
    try:
        yield made
    finally:
        timm.data.create_loader, timm.data.create_naflex_loader = create, create_naflex


def _is_training(create: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether these arguments of a function of timm ask for a training loader."""
    return bool(inspect.signature(create).bind(*args, **kwargs).arguments.get("is_training", False))


@contextlib.contextmanager
def _arguments_of(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` of a script."""
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *arguments], [str(script.resolve().parent), *path]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path


def main(words: Sequence[str] | None = None) -> None:
    """Run a script of timm with PRIME in its training loader."""
    known = parser()
    options, unknown = known.parse_known_args(words)
    if unknown:
        known.error(f"{unknown[0]}: no such option; those of the script come after it")
    if not options.script.is_file():
        known.error(f"script: expected a file, got {str(options.script)!r}")
    try:
        config = _options.distributions(options)
    except ValueError as error:
        known.error(known.as_option(str(error)))
    with _augmenting(config, options.prime_seed) as made, _arguments_of(options.script, options.arguments):
        runpy.run_path(str(options.script), run_name="__main__")
    if not made:
        raise RuntimeError(
            f"{options.script}: expected a training loader from timm.data.create_loader, got none, so nothing was "
            "augmented"
        )


if __name__ == "__main__":
    main()
