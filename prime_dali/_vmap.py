"""``torch.vmap`` over the operators: one call for all examples, whose images follow one another, unless those of each
example share draws."""

from __future__ import annotations

from typing import Any

import torch

from .config import Distributions

_Dims = tuple[Any, ...]
"""By argument of an operator: the dimension of the examples; None: all examples share it."""


def _by_example(tensor: torch.Tensor, dim: int | None, examples: int) -> torch.Tensor:
    """``[examples, ...]``."""
    return tensor.expand(examples, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _rows_by_example(rows: torch.Tensor, views: int, examples: int) -> torch.Tensor:
    """Rows of all images, view by view, as ``[examples, rows of an example, ...]``."""
    return rows.reshape(views, examples, -1, *rows.shape[1:]).transpose(0, 1).flatten(1, 2)


def _sample(
    info: Any, in_dims: _Dims, index: torch.Tensor, epoch: torch.Tensor, *settings: Any
) -> tuple[torch.Tensor, int]:
    examples = info.batch_size
    index, epoch = _by_example(index, in_dims[0], examples), _by_example(epoch, in_dims[1], examples)
    epoch = epoch.reshape(examples, -1).expand_as(index)
    *_, views, distributions = settings
    if Distributions(*distributions).batch_draws:  # the images of each example share theirs
        each = zip(index.unbind(), epoch.unbind(), strict=True)
        rows = [torch.ops.prime_dali.sample(one.contiguous(), of.contiguous(), *settings) for one, of in each]
        return torch.stack(rows), 0
    rows = torch.ops.prime_dali.sample(index.flatten().contiguous(), epoch.flatten().contiguous(), *settings)
    return _rows_by_example(rows, len(views), examples), 0


def _apply(
    info: Any, in_dims: _Dims, images: torch.Tensor, plan: torch.Tensor, flip: torch.Tensor | None, *settings: Any
) -> tuple[torch.Tensor, int]:
    examples = info.batch_size
    images, plan = _by_example(images, in_dims[0], examples), _by_example(plan, in_dims[1], examples)
    if flip is not None:
        flip = _by_example(flip, in_dims[2], examples).flatten().contiguous()
    views = max(plan.shape[1] // max(images.shape[1], 1), 1)  # no images have no rows
    rows = plan.reshape(examples, views, -1, plan.shape[2]).transpose(0, 1).flatten(0, 2).contiguous()
    out = torch.ops.prime_dali.apply(images.flatten(0, 1), rows, flip, *settings)
    return _rows_by_example(out, views, examples), 0


def register() -> None:
    """Give torch these rules. The operators must be loaded."""
    torch.library.register_vmap("prime_dali::sample", _sample)
    torch.library.register_vmap("prime_dali::apply", _apply)
