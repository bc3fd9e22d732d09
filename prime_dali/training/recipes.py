"""The recipes: settings in which each differs from the defaults of :class:`.config.TrainConfig`."""

from __future__ import annotations

from typing import Any

_IMAGENET = {"stem": "imagenet", "size": 224, "resize": 256, "batch": 256, "weight_decay": 1e-4, "severity": 1}
_TINY = {**_IMAGENET, "size": 64, "resize": 64, "crop_area": 0.25}

# The settings that DeiT (Touvron et al., ICML 2021) and ConvNeXt (Liu et al., CVPR 2022) have in common, without their
# RandAugment and random erasing, which PRIME replaces.
_ADAMW = {
    "stem": "imagenet", "optimizer": "adamw", "schedule": "cosine", "lr": 1e-3, "momentum": (0.9, 0.9),
    "weight_decay": 0.05, "exclude_1d": True, "clip": 0.0, "jsd": False, "label_smoothing": 0.1, "mixup": 0.8,
    "cutmix": 1.0, "drop_path": 0.1, "ema_decay": 0.9999,
}  # fmt: skip
# Of small networks and images: gradients are clipped, as in the other recipes, and averages are shorter.
_SMALL = {**_ADAMW, "epochs": 200, "warmup": 0.05, "clip": 1.0, "ema_decay": 0.999}
_LARGE = {**_IMAGENET, **_ADAMW, "epochs": 300, "batch": 1024}

_CIFAR_VIT = {**_SMALL, "network": "timm:vit_tiny_patch16_224:img_size=32,patch_size=4"}
_CIFAR_CONVNEXT = {**_SMALL, "network": "timm:convnext_femto:patch_size=1"}

# Log lines, which wait for the GPU, once an epoch; validation at the end alone; cuDNN's fastest algorithms.
_FAST = {
    "network": "resnet11_pooled", "epochs": 84, "batch": 512, "optimizer": "muon", "schedule": "linear", "lr": 0.04,
    "warmup": 0.15, "momentum": (0.9, 0.9), "clip": 0.0, "jsd": False, "ema_decay": 0.999, "mixing": "official",
    "alpha": 1.3, "deterministic": False, "log_every": 97, "validate_every": 84,
}  # fmt: skip

RECIPES: dict[str, dict[str, Any]] = {
    "cifar10": {},
    "cifar100": {},
    "in100": {**_IMAGENET, "jsd": True},
    "imagenet": {
        **_IMAGENET, "network": "resnet50", "weights": "torchvision:resnet50:IMAGENET1K_V1", "lr": 0.01, "warmup": 0.1,
        "clip": 0.0, "jsd": False,
    },
    "tinyimagenet": {**_TINY, "stem": "cifar", "weight_decay": 5e-4, "jsd": True},
    "cifar10-fast": _FAST,
    "cifar10-vit": _CIFAR_VIT,
    "cifar10-convnext": _CIFAR_CONVNEXT,
    "cifar100-vit": _CIFAR_VIT,
    "cifar100-convnext": _CIFAR_CONVNEXT,
    "imagenet-vit": {**_LARGE, "network": "timm:vit_small_patch16_224", "warmup": 0.02},
    "imagenet-convnext": {**_LARGE, "network": "timm:convnext_tiny", "warmup": 0.067},
    "tinyimagenet-vit": {
        **_TINY, **_SMALL, "network": "timm:vit_small_patch16_224:img_size=64,patch_size=8", "batch": 512,
    },
    "tinyimagenet-convnext": {**_TINY, **_SMALL, "network": "timm:convnext_pico:patch_size=2", "batch": 512},
}  # fmt: skip
"""``cifar10`` to ``imagenet`` are those of the paper's appendix C (docs/METHOD.md, "Training"). ``tinyimagenet`` has
the settings of CIFAR with the batch of ImageNet-100. ``imagenet-vit`` and ``imagenet-convnext`` have those of DeiT-S
and of ConvNeXt-T at batch 1024, and the other vision transformers and ConvNeXts are scaled down from them."""
