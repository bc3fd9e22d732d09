"""Features of images in a layer of a trained network."""

from __future__ import annotations

import argparse
import difflib
import hashlib
from typing import Any

import torch
from torch import nn

from .. import _devices, _tables
from ..data.cifar import SIDE
from ..evaluation import predicting, report
from ..models import networks
from .samples import Draw


class Features:
    """A network up to one of its layers, in evaluation mode and float32 (no bfloat16, no TF32).

    Args:
        classifier: Its network is moved to ``device``.
        device: Where it runs.
        side: Side length of the images in pixels.
        layer: Dotted name of a module, whose output is taken (that of its last call). None: the input of the final
            classifier layer, the last linear or convolution layer that gives the logits; of most networks, that is the
            pooled features. Maps ``[N, C, H, W]`` are averaged over positions, and tokens ``[N, T, C]`` over tokens.

    Attributes:
        layer: Description of the layer.
        width: Length of a feature vector.

    Raises:
        ValueError: There is no such module (the message has the nearest names), the forward pass does not run it, or
            the network does not accept such images.
    """

    def __init__(
        self, classifier: networks.Classifier, device: torch.device, side: int, layer: str | None = None
    ) -> None:
        self.classifier, self.device = classifier, device
        self._network = classifier.network.to(device).eval()
        self._normalized = predicting.normalization(classifier.statistics, device)
        self._caught: torch.Tensor | None = None
        probe = torch.zeros(1, 3, side, side, device=device)
        if layer is None:
            name = self._final_layer(probe)
            self._module(name).register_forward_pre_hook(lambda _, given: self._catch(given[0]))
            self.layer = f"input of {name}"
        else:
            self._module(layer).register_forward_hook(lambda _, __, out: self._catch(out))
            self.layer = f"output of {layer}"
        self.width = self(probe).shape[1]

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Features of normalized images.

        Args:
            images: float32 ``[N, 3, H, W]``, on the device.

        Returns:
            float32 ``[N, width]``.

        Raises:
            ValueError: Features are not finite, or are not vectors, maps or tokens.
        """
        self._caught = None
        self._forward(images)
        out, self._caught = self._caught, None
        if not isinstance(out, torch.Tensor) or not 2 <= out.dim() <= 4:
            what = "no call of it" if out is None else list(out.shape) if hasattr(out, "shape") else type(out).__name__
            raise ValueError(f"layer: expected [N, C], [N, T, C] or [N, C, H, W] from the {self.layer}, got {what}")
        if out.dim() == 4:
            out = out.mean((2, 3))
        elif out.dim() == 3:
            out = out.mean(1)
        if not out.isfinite().all():
            raise ValueError(f"backbone: expected finite features, got others in the {self.layer}")
        return out.float()

    def batched(self, images: torch.Tensor, batch: int) -> torch.Tensor:
        """Features of uint8 images ``[N, 3, H, W]``, normalized for the network, at most ``batch`` per forward pass."""
        parts = (self._normalized(part.to(self.device)) for part in images.split(batch))
        return torch.cat([self(part.contiguous()) for part in parts])  # as augmented images are in memory

    def augmented(self, draw: Draw, image: torch.Tensor, number: int, count: int, batch: int) -> torch.Tensor:
        """Features ``[count, width]`` of the first ``count`` samples of an image, the arguments of ``draw``."""
        parts = (range(count)[start : start + batch] for start in range(0, count, batch))
        return torch.cat([self(draw(image, number, part)) for part in parts])

    def about(self) -> dict[str, Any]:
        """Network, layer and weights, for a file of results."""
        digest = hashlib.sha256()
        for name, value in self._network.state_dict().items():
            digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        own = {name: getattr(self.classifier, name) for name in ("source", "name", "num_classes", "stem")}
        normalization = {"mean": list(self.classifier.mean), "std": list(self.classifier.std)}
        measure = {"layer": self.layer, "width": self.width, "weights_sha256": digest.hexdigest()}
        return own | normalization | measure

    def _catch(self, value: Any) -> None:
        self._caught = value

    def _forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            try:
                return self._network(images)
            except AssertionError as error:  # timm's error for a wrong size
                raise ValueError(
                    f"backbone: expected a network of {list(images.shape[2:])} images ({error})"
                ) from error

    def _module(self, name: str) -> nn.Module:
        modules = {known: module for known, module in self._network.named_modules() if known}
        if name not in modules:
            near = difflib.get_close_matches(name, modules, n=3, cutoff=0.3)
            hint = f"; nearest: {', '.join(map(repr, near))}" if near else ""
            raise ValueError(f"layer: expected a module of {self.classifier.name}, got {name!r}{hint}")
        return modules[name]

    def _final_layer(self, probe: torch.Tensor) -> str:
        """Name of the last layer with weights whose output has the logits' width."""
        calls: list[tuple[str, Any]] = []
        hooks = [
            module.register_forward_hook(lambda _, __, out, name=name: calls.append((name, out.shape)))
            for name, module in self._network.named_modules()
            if name and isinstance(module, (nn.Linear, nn.Conv2d))
        ]
        try:
            logits = self._forward(probe)
        finally:
            for hook in hooks:
                hook.remove()
        final = [name for name, shape in calls if len(shape) in (2, 4) and shape[1] == logits.shape[1]]
        if not final:
            raise ValueError(
                f"layer: expected a network that ends in a linear or convolution layer, got {self.classifier.name}; "
                "name the layer"
            )
        return final[-1]


def load(options: argparse.Namespace, side: int) -> Features:
    """The network that the options of :mod:`.arguments` name, for images of this side (pixels).

    Raises:
        ValueError, FileNotFoundError, ImportError: As for :func:`prime_dali.models.networks.load` and
            :class:`Features`; or the network is for CIFAR's image size and the images are larger, or the reverse.
        RuntimeError: The selected GPU is not available.
    """
    device = _devices.torch_device(options.device)
    classifier = networks.load(
        options.backbone, network=options.network, num_classes=options.num_classes, stem=options.stem,
        mean=options.mean, std=options.std,
    )  # fmt: skip
    if (classifier.size == SIDE) != (side == SIDE):
        raise ValueError(
            f"backbone: expected a network of {side} x {side} images, got {options.backbone} of size {classifier.size}"
        )
    return Features(classifier, device, side, options.layer)


def environment(device: torch.device) -> dict[str, Any]:
    """Date, hardware and versions, for a file of results."""
    return {
        "date": _tables.now(), "device": str(device), "hardware": _devices.hardware(device),
        "versions": report.versions(),
    }  # fmt: skip
