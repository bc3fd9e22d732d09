"""PRIME in the ``Trainer`` of Hugging Face's transformers.

For ``datasets`` nothing is needed but :class:`prime_dali.v2.PRIME`, which ``with_transform`` calls in the workers.
There is no collator, because ``Trainer`` has one for training and evaluation, and both would be augmented.
"""

from __future__ import annotations

from typing import Any

from .. import _extras

with _extras.importing(__name__, "huggingface"):
    import torch
    from transformers import Trainer

from .. import _arguments
from .._counting import rank_indices
from .._distributed import rank_and_ranks
from ..module import PRIME
from ..training.losses import jsd_loss

__all__ = ["PRIMETrainer"]

_REMOVED = "; Trainer removes columns that the model does not take, unless remove_unused_columns=False"


class PRIMETrainer(Trainer):
    """A ``Trainer`` that augments the images of each training batch on their device. Evaluation sees the clean images.

    Draws depend on the seed of ``augment``, the epoch, and the image's index: the one in the batch with ``index_key``,
    else its place in the run, from the number of steps. Either way a run that is resumed from a checkpoint goes on with
    the same draws; nothing is saved for that.

    Args:
        augment: What to do, and how to normalize, with the same ``mean`` and ``std`` as the images of the evaluation.
            With V = 2 or 3 views the images become ``[V * N, C, H, W]``, and the loss is the cross entropy and the
            Jensen-Shannon divergence (``prime_dali.training.losses.jsd_loss``) of the model's ``logits``, unless
            ``compute_loss_func`` is given.
        image_key: The entry of a batch with the images, uint8 or float in [0, 1], ``[N, C, H, W]``.
        index_key: The entry with each image's index in the data set, int64 ``[N]``; it is taken out before the model
            sees the batch. ``Trainer`` removes columns that the model does not know, unless
            ``remove_unused_columns=False``. None: images are counted.
        arguments, keywords: Those of ``Trainer``.

    Raises:
        TypeError, ValueError: ``augment`` is no :class:`prime_dali.PRIME`, a batch has no such entry, or labels of
            several views are missing, or not as ``jsd_loss`` takes them.

    Examples:
        >>> from prime_dali.integrations.huggingface import PRIMETrainer
        >>> augment = prime_dali.PRIME("cifar", seed=1, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        >>> model = torch.nn.Linear(2, 2)  # any model that Trainer takes
        >>> trainer = PRIMETrainer(model, augment=augment)  # and args=, train_dataset=, eval_dataset=
        >>> trainer.augment.views
        1
    """

    def __init__(
        self,
        *arguments: Any,
        augment: PRIME,
        image_key: str = "pixel_values",
        index_key: str | None = None,
        **keywords: Any,
    ) -> None:
        if not isinstance(augment, PRIME):
            raise TypeError(f"augment: expected a prime_dali.PRIME, got {type(augment).__name__}")
        self.augment, self.image_key, self.index_key = augment, image_key, index_key
        if augment.views > 1 and keywords.get("compute_loss_func") is None:
            keywords["compute_loss_func"] = _jsd
        super().__init__(*arguments, **keywords)
        self._step = (-1, 0)  # the optimizer's step, and the batches of it so far

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *arguments: Any, **keywords: Any) -> Any:
        """One batch, augmented; the arguments are those of ``Trainer.training_step``."""
        inputs = self._prepare_inputs(inputs)
        images = _arguments.entry("image_key", inputs, self.image_key, hint=_REMOVED)
        if self.index_key is None:
            index = self._places(images)
        else:
            index = _arguments.entry("index_key", inputs, self.index_key, hint=_REMOVED)
        out = self.augment(images, index, int(self.state.epoch or 0))
        inputs = {**self._for_model(inputs), self.image_key: out}
        return super().training_step(model, inputs, *arguments, **keywords)

    def prediction_step(self, model: torch.nn.Module, inputs: dict[str, Any], *arguments: Any, **keywords: Any) -> Any:
        """One batch of the evaluation, as it is; the arguments are those of ``Trainer.prediction_step``."""
        return super().prediction_step(model, self._for_model(inputs), *arguments, **keywords)

    def _for_model(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in inputs.items() if name != self.index_key}

    def _places(self, images: torch.Tensor) -> torch.Tensor:
        """Numbers for images without an index, int64 ``[N]``: a function of the step, so that resumed runs agree."""
        step, batch = self._step
        batch = batch + 1 if step == self.state.global_step else 0
        self._step = (self.state.global_step, batch)
        # A batch may be smaller than others, the last of an epoch for one, but not larger.
        first = (self.state.global_step * self.args.gradient_accumulation_steps + batch) * self._train_batch_size
        return rank_indices(first, images.shape[0], *rank_and_ranks(), images.device)


def _jsd(outputs: Any, labels: torch.Tensor | None, num_items_in_batch: Any = None) -> torch.Tensor:
    """The loss of several views of labeled images, and of the single one that an evaluation has.

    It is a mean; with the number of images in an accumulated batch, this batch's part of that mean.
    """
    logits = outputs["logits"]
    if labels is None:
        raise ValueError("labels: expected a batch with labels for the loss of several views, got one without")
    if logits.shape[0] == labels.shape[0]:
        return torch.nn.functional.cross_entropy(logits, labels)
    loss = jsd_loss(logits, labels)
    return loss if num_items_in_batch is None else loss * labels.shape[0] / num_items_in_batch
