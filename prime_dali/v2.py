"""PRIME as a transform of ``torchvision.transforms.v2``."""

from __future__ import annotations

from typing import Any

from . import _extras

with _extras.importing(__name__, "torchvision"):
    import PIL.Image
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten
    from torchvision import tv_tensors
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional

from . import _arguments, _counting, _distributed, torch_ops
from ._epochs import Epochs
from ._wording import plural
from .config import PrimeConfig, as_config, takes_config

__all__ = ["PRIME"]

# Pillow's modes whose channels are brightnesses. Others are numbers of a palette, or colors that must not be mixed
# with a clean image by channel: they are converted by the user, who knows what they mean.
_MODES = ("RGB", "L", "RGBA", "LA")
_IMAGES = (tv_tensors.Image, tv_tensors.Video, PIL.Image.Image)


class PRIME(Epochs, v2.Transform):
    """Augments the images of a sample with PRIME; labels, and ``tv_tensors`` that are boxes, masks or keypoints, pass
    unchanged.

    It stands in a ``v2.Compose``, before any normalization, and takes what torchvision's own transforms take: a PIL
    image, a tensor, a ``tv_tensors.Image`` or ``Video``, or tuples, lists and dicts that contain them. A plain tensor
    is an image only where the sample has no other, and then only the first, as for every transform of ``v2``. Type,
    size and dtype are kept: uint8 in, uint8 out; PIL in, PIL out. The alpha channel of a PIL image (RGBA, LA) is kept
    as it is, as by ``v2.ColorJitter``; in a tensor every channel is one of the image.

    A mask is a ``tv_tensors.Mask``: torchvision's ``wrap_dataset_for_transforms_v2`` makes its data sets return them.
    As a PIL image it cannot be told from a photograph, and would be augmented.

    An image of ``[C, H, W]`` gets one draw, and so does a video of ``[T, C, H, W]``, for all its frames; in a batch of
    images (``[N, C, H, W]``) or videos (``[N, T, C, H, W]``), on the CPU or a GPU, every image or video gets a draw of
    its own. Images of one sample share their draw.

    Without ``index_key`` the draws come from torch's generator, as those of torchvision's transforms: one number from
    the CPU's generator in each call, together with the rank of ``torch.distributed``. ``DataLoader`` seeds the
    generator of each worker anew in every epoch, so draws differ over samples, epochs, workers and ranks, also where
    all ranks have the same seed, and repeat with the same ``torch.manual_seed`` and the same number of workers and
    ranks. With ``index_key`` they depend only on the seed, the image's index and the epoch, and are those of
    :class:`prime_dali.PRIME`.

    Args:
        config: The distributions, or the name of a preset.
        seed: The run's seed, an int of 64 bits; part of the key of every draw.
        index_key: Where a sample has the image's index in the data set: the key of a dict or the position in a tuple,
            as ``"index"`` or ``2``. The index is an int or int64 ``[]``, in a batch int64 ``[N]``. Call
            :meth:`set_epoch` before each epoch: otherwise an image is augmented in the same way in all of them, of
            which a warning tells where indices are on the CPU. None: draws come from torch's generator.

    Raises:
        TypeError, ValueError: An argument is wrong, a sample has no image or index, or images that PRIME does not take
            (:func:`prime_dali.apply`); the message says which.

    Examples:
        >>> from torchvision.transforms import v2
        >>> transform = v2.Compose([v2.RandomCrop(32), prime_dali.v2.PRIME("cifar"), v2.ToDtype(torch.float32, True)])
        >>> image, label = transform(torch.randint(0, 256, (3, 40, 40), dtype=torch.uint8), 7)
        >>> image.shape, image.dtype, label
        (torch.Size([3, 32, 32]), torch.float32, 7)

        With an index, an image is the same in any batch, here and from ``prime_dali.PRIME``:

        >>> images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> transform = prime_dali.v2.PRIME("cifar", seed=1, index_key="index")
        >>> batch = transform({"image": images, "index": torch.arange(4)})
        >>> torch.equal(batch["image"], prime_dali.PRIME("cifar", seed=1)(images, torch.arange(4), epoch=0))
        True
        >>> torch.equal(batch["image"][2], transform({"image": images[2], "index": 2})["image"])
        True
    """

    _transformed_types = (*_IMAGES, v2._utils.is_pure_tensor)

    @takes_config
    def __init__(
        self, config: PrimeConfig | str = "imagenet", *, seed: int = 0, index_key: str | int | None = None
    ) -> None:
        super().__init__()
        self.config = as_config(config)
        self.seed = _arguments.seed(seed)
        self.index_key = None if index_key is None else _arguments.entry_key("index_key", index_key)
        self._rank = 0

    def forward(self, *inputs: Any) -> Any:
        """Augment the images of a sample.

        Args:
            inputs: An image, or a structure with images, or several of these.

        Returns:
            The same structure.
        """
        sample = inputs[0] if len(inputs) == 1 else inputs
        index = self._index(sample)
        leaves, structure = tree_flatten(sample)
        others = [None if leaf is index else leaf for leaf in leaves]  # no index is taken for an image
        chosen = self._needs_transform_list(others)  # type: ignore[operator]
        images = [leaf for leaf, is_image in zip(leaves, chosen, strict=True) if is_image]
        count = _batch(images)
        if index is None:
            params = self.make_params(images)
        else:
            numbers = _numbers(index, count)
            self.notice_repeats(numbers)
            params = {"first": None, "index": numbers, "epoch": self.epoch_number}
        changed = [
            self.transform(leaf, params) if is_image else leaf for leaf, is_image in zip(leaves, chosen, strict=True)
        ]
        return tree_unflatten(changed, structure)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a sample's number from torch's generator: images of a batch have this number and those that follow.

        Args:
            flat_inputs: The images of the sample.

        Returns:
            The number, no indices, and in place of the epoch the rank. :meth:`transform` takes them.
        """
        if _counting.generator_is_a_copy() and _distributed.process_group() is None:
            _counting.ask_for_index(
                "in a forked process, whose copy of torch's generator would draw the same numbers as those of other "
                "processes; use index_key=, or seed torch in each process (torch.seed(), or a number of its own)"
            )
        rank = _distributed.rank(self._rank)  # a worker that was not forked has no process group, and this came with it
        # Up to 2^62, so that the numbers of a batch do not overflow.
        return {"first": int(torch.randint(2**62, ())), "index": None, "epoch": torch.tensor(rank)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Augment one input with the parameters of :meth:`make_params`."""
        if isinstance(inpt, PIL.Image.Image):
            pixels = _from_pil(inpt)
            colors = len(pixels) - inpt.mode.endswith("A")
            out = torch.cat([self._augmented(pixels[:colors], params), pixels[colors:]])
            return functional.to_pil_image(out, inpt.mode)
        out = self._augmented(inpt.as_subclass(torch.Tensor), params, isinstance(inpt, tv_tensors.Video))
        return tv_tensors.wrap(out, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else out

    def _augmented(self, images: torch.Tensor, params: dict[str, Any], video: bool = False) -> torch.Tensor:
        """``images``, with one draw for each image, or for each video of ``[T, C, H, W]``."""
        single = images.dim() == 3 + video
        if single and self.config.draws == "batch":
            raise ValueError("draws: expected 'image' for a single image or video, got 'batch'; give batches")
        batch, size = torch_ops.as_batch(images)
        batch = batch[None] if single and video else batch  # a single image is a batch already
        index = params["index"]
        if index is None:
            # An arange from a number: nothing is copied to the GPU.
            index = torch.arange(params["first"], params["first"] + len(batch), device=images.device)
        plan = torch_ops.sample(
            self.config,
            index.to(images.device),
            size=size,
            seed=self.seed,
            epoch=_counting.on_device(params["epoch"], images.device),
            view=0,
            channels=batch.shape[-3],
        )
        out = torch_ops.apply_batch(
            batch, size, plan, out_dtype=None, mean=None, std=None, channels_last=None, flip=None
        )
        return out[0] if single else out

    def _index(self, sample: Any) -> Any:
        """The entry of a sample with its index, as it is there; None without ``index_key``."""
        if self.index_key is None:
            return None
        return _arguments.entry("index_key", sample, self.index_key, "sample")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if (group := _distributed.process_group()) is not None:
            state["_rank"] = group[0]
        return state

    def extra_repr(self) -> str:
        """The settings, for ``print(transform)``."""
        key = "" if self.index_key is None else f", index_key={self.index_key!r}"
        return f"{self.config}, seed={self.seed}{key}"


def _from_pil(image: PIL.Image.Image) -> torch.Tensor:
    if image.mode not in _MODES:
        # v2.RGB() would clip images of 16 bits to 255.
        deep = image.mode.startswith(("I", "F"))
        remedy = "v2.ToImage() makes a tensor of it, which is uint16 for I;16" if deep else "use v2.RGB() before PRIME"
        if image.mode in ("P", "1"):
            remedy = f"if it is a mask, give it as tv_tensors.Mask, which passes unchanged; if a photograph, {remedy}"
        raise ValueError(f"image: expected a PIL image of mode {', '.join(_MODES)}, got {image.mode}; {remedy}")
    return functional.pil_to_tensor(image)


def _batch(images: list[Any]) -> int | None:
    """How many images or videos each of ``images`` contains: None for single ones."""
    if not images:
        raise TypeError(
            "sample: expected an image (PIL, torch.Tensor, tv_tensors.Image or Video), got none; v2.ToImage() before "
            "PRIME makes one of a NumPy array"
        )
    counts = []
    for image in images:
        single = 4 if isinstance(image, tv_tensors.Video) else 3
        dims = single if isinstance(image, PIL.Image.Image) else image.dim()
        if dims not in (single, single + 1):
            one = "[T, C, H, W]" if single == 4 else "[C, H, W]"
            hint = "; a video is a tv_tensors.Video" if dims == 5 else ""
            first = "; of plain tensors the first in the sample is the image" if dims < 3 else ""
            raise ValueError(
                f"{type(image).__name__}: expected {one} or [N, {one[1:]}, got {list(image.shape)}{hint}{first}"
            )
        counts.append(None if dims == single else int(image.shape[0]))
    if len(set(counts)) > 1:
        said = ", ".join("a single one" if count is None else f"a batch of {count}" for count in counts)
        raise ValueError(f"sample: expected single images, or batches of one size, got {said}")
    return counts[0]


def _numbers(index: Any, count: int | None) -> torch.Tensor:
    """A sample's index as int64 ``[1]``, or ``[N]`` for a batch."""
    if isinstance(index, torch.Tensor) and index.dtype == torch.int64 and index.dim() <= 1:
        numbers = index.reshape(-1)
        if (index.dim() == 0) != (count is None):
            wanted = "one number for a single image" if count is None else f"int64 [{count}] for a batch"
            raise ValueError(f"index: expected {wanted}, got int64 {list(index.shape)}")
        if count is not None and numbers.shape[0] != count:
            raise ValueError(f"index: expected one number for each of {plural(count, 'image')}, got {numbers.shape[0]}")
        return numbers
    if count is not None or isinstance(index, torch.Tensor):
        got = f"{index.dtype} {list(index.shape)}" if isinstance(index, torch.Tensor) else repr(index)
        raise TypeError(f"index: expected {'an int' if count is None else f'int64 [{count}]'}, got {got}")
    return torch.tensor([_arguments.integer("index", index, -(2**63), 2**63 - 1)])
