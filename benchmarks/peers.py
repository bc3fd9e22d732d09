"""The augmentations of other libraries that throughput.py measures beside prime_dali.PRIME, on the same uint8 batch.

None of them does what PRIME does: each is what its library offers for making images more varied, with its defaults. A
library that is not installed is named, with the command that installs it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from common import MEAN, SEED, STD, Call
from torchvision.transforms import InterpolationMode, v2

OPERATIONS, MAGNITUDE = 2, 9  # of every RandAugment: the defaults of torchvision
IMAGE = "per image"
BATCH = "per batch"
CHOICE = "operations per batch"  # which ones once for the batch, how strongly for each image


@dataclass(frozen=True)
class Peer:
    """An augmentation: what it does, what one draw serves, and what makes it."""

    note: str
    draws: str
    start: Callable[[torch.Tensor], Call]  # of the batch, uint8 [N, 3, H, W]; nothing here is timed
    module: str = "torchvision"  # that it needs
    packages: str = ""  # to install, for that
    cuda: bool = False  # whether it needs CUDA
    memory: bool = True  # whether what it allocates on CUDA is torch's, and so can be measured

    def absent(self, device: str) -> str:
        """Why it cannot run here; nothing if it can."""
        try:
            found = importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:  # not even the package around it
            found = False
        if not found:
            return f"{self.module} is not installed: pip install {self.packages}"
        return "runs on CUDA alone" if self.cuda and device != "cuda" else ""


def missing(names: Iterable[str], device: str) -> dict[str, str]:
    """Those of the names that cannot run here, and why."""
    reasons = {name: PEERS[name].absent(device) for name in names if name in PEERS}
    return {name: why for name, why in reasons.items() if why}


def one_by_one(transform: torch.nn.Module, images: torch.Tensor) -> Call:
    """A call that calls the function once per image."""
    return lambda: [transform(image) for image in images]


def at_once(transform: torch.nn.Module, images: torch.Tensor) -> Call:
    """A call of the function with the batch."""
    return lambda: transform(images)


def kornia_policy(name: str, *arguments: int, images: torch.Tensor) -> Call:
    """A policy of ``kornia.augmentation.auto``."""
    from kornia.augmentation import auto

    return at_once(getattr(auto, name)(*arguments), images.float() / 255)


def kornia_sequence(compiled: bool, images: torch.Tensor) -> Call:
    """Kornia's nearest to PRIME's primitives: displacement, filter, color and noise, each for half of the images."""
    import kornia.augmentation as kornia

    sequence = kornia.AugmentationSequential(
        kornia.RandomElasticTransform(p=0.5),
        kornia.RandomGaussianBlur((3, 3), (0.1, 2.0), p=0.5),
        kornia.ColorJiggle(0.2, 0.2, 0.2, 0.1, p=0.5),
        kornia.RandomGaussianNoise(std=0.05, p=0.5),
    )
    # dynamic: the number of images that an operation gets is drawn anew in each call
    return at_once(torch.compile(sequence, dynamic=True) if compiled else sequence, images.float() / 255)


def dali(name: str, images: torch.Tensor) -> Call:
    """A policy of ``nvidia.dali.auto_aug`` in a pipeline that has the decoded batch, HWC as DALI's decoders give it."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.auto_aug import auto_augment, rand_augment, trivial_augment

    policies: dict[str, Callable[..., Any]] = {
        "rand": partial(rand_augment.rand_augment, n=OPERATIONS, m=MAGNITUDE),
        "auto": auto_augment.auto_augment,
        "trivial": trivial_augment.trivial_augment_wide,
    }
    policy, decoded = policies[name], images.permute(0, 2, 3, 1).contiguous()
    shape = list(decoded.shape[1:3])
    given = decoded if images.is_cuda else decoded.numpy()  # for torch's tensors DALI asks for CUDA

    @pipeline_def(
        batch_size=len(images), num_threads=torch.get_num_threads(), device_id=images.get_device() if images.is_cuda
        else None, seed=SEED, enable_conditionals=True,
    )  # fmt: skip
    def definition() -> Any:
        device = "gpu" if images.is_cuda else "cpu"
        batch = fn.external_source(source=lambda: given, device=device, layout="HWC", no_copy=True)
        return policy(batch, shape=shape)

    pipeline = definition()
    pipeline.build()

    def run() -> list[torch.Tensor]:
        (out,) = pipeline.run()
        return [torch.from_dlpack(out.as_tensor())]  # torch's stream waits for it

    return run


def triton(images: torch.Tensor) -> Call:
    """Everything that triton-augment's one kernel does, bilinear, and float16 in and out, which it calls the faster."""
    return at_once(triton_augment(), images.half() / 255)


def triton_augment() -> torch.nn.Module:
    """The module."""
    import triton_augment as ta

    ta.enable_autotune()
    augment: torch.nn.Module = ta.TritonFusedAugment(
        horizontal_flip_p=0.5, degrees=30, translate=(0.1, 0.1), scale=(0.8, 1.2), shear=10,
        interpolation=InterpolationMode.BILINEAR, brightness=0.2, contrast=0.2, saturation=0.2, grayscale_p=0.1,
        mean=MEAN, std=STD,
    )  # fmt: skip
    return augment


def _torchvision() -> dict[str, Peer]:
    peers = {}
    for name, transform, draws in (
        ("augmix", v2.AugMix, "operations per batch, weights per image"),
        ("trivial", v2.TrivialAugmentWide, BATCH),
        ("rand", partial(v2.RandAugment, OPERATIONS, MAGNITUDE), BATCH),
    ):
        what = f"torchvision v2.{getattr(transform, 'func', transform).__name__}"
        note = f"{what}, image by image because it draws once per call; uint8 in and out"
        peers[name] = Peer(note, IMAGE, lambda images, make=transform: one_by_one(make(), images))
        note = f"{what} on the whole batch; uint8 in and out"
        peers[f"{name}-batch"] = Peer(note, draws, lambda images, make=transform: at_once(make(), images))
    return peers


def _kornia() -> dict[str, Peer]:
    told = {"module": "kornia", "packages": "kornia"}
    floats = "float32 in [0, 1] in, float32 out"
    policies = {
        "rand": ("RandAugment", OPERATIONS, MAGNITUDE),
        "auto": ("AutoAugment",),
        "trivial": ("TrivialAugment",),
    }
    peers = {
        f"kornia-{name}": Peer(f"kornia.augmentation.auto.{policy[0]}; {floats}", CHOICE,
                               lambda images, policy=policy: kornia_policy(*policy, images=images), **told)
        for name, policy in policies.items()
    }  # fmt: skip
    sequence = "Kornia's elastic transform, blur, color jiggle and noise, each for half of the images"
    peers["kornia-sequence"] = Peer(f"{sequence}; {floats}", IMAGE, partial(kornia_sequence, False), **told)
    # Its policies choose modules in Python at every call, and are compiled anew for each choice: not measured.
    note = "the same under torch.compile"
    peers["kornia-sequence-compiled"] = Peer(note, IMAGE, partial(kornia_sequence, True), **told)
    return peers


def _dali() -> dict[str, Peer]:
    names = {"rand": "rand_augment", "auto": "auto_augment", "trivial": "trivial_augment_wide"}
    return {
        f"dali-{name}": Peer(
            f"DALI's {policy} in a pipeline that has the decoded batch, which works ahead; uint8 in and out", IMAGE,
            partial(dali, name), "nvidia.dali", "nvidia-dali-cuda130", memory=False,
        )
        for name, policy in names.items()
    }  # fmt: skip


# The fastest that was found to fuse operations and can be installed: see NOTES.md.
TRITON = "triton-augment: affine, flip, color jitter, grayscale, normalize in one kernel; float16 in and out"
PEERS: dict[str, Peer] = {
    **_torchvision(),
    **_kornia(),
    **_dali(),
    "triton": Peer(TRITON, IMAGE, triton, "triton_augment", "triton-augment", cuda=True),
}
