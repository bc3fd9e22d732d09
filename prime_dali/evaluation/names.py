"""Names of the benchmarks and of what is in them, in the order in which their tables are printed."""

from __future__ import annotations

CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
"""The fifteen that every mean includes (Hendrycks and Dietterich, 2019)."""

EXTRA_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The extra ones, which no mean includes."""

GROUPS = {
    "noise": CORRUPTIONS[:3],
    "blur": CORRUPTIONS[3:7],
    "weather": CORRUPTIONS[7:11],
    "digital": CORRUPTIONS[11:],
}
"""The paper's groups: brightness is weather, contrast and elastic transform are digital."""

SEVERITIES = (1, 2, 3, 4, 5)

CORRUPTIONS_3D = (
    "near_focus", "far_focus", "fog_3d", "flash", "color_quant", "low_light", "xy_motion_blur", "z_motion_blur",
    "iso_noise", "bit_error", "h265_abr", "h265_crf",
)  # fmt: skip
"""The twelve of ImageNet-3DCC, in the order of its download script (Kar et al., CVPR 2022)."""

PERTURBATIONS = (
    "gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "brightness", "translate", "rotate", "tilt",
    "scale",
)  # fmt: skip
"""The ten of ImageNet-P that every mean includes (Hendrycks and Dietterich, 2019)."""

EXTRA_PERTURBATIONS = (
    "speckle_noise", "gaussian_blur", "spatter", "shear",
    *(f"{name}_noise_{difficulty}" for name in ("gaussian", "shot", "speckle") for difficulty in (2, 3)),
)  # fmt: skip
"""Those meant for validation, and the stronger noises; no mean includes them."""

CIFAR_PERTURBATIONS = tuple("spatter" if name == "snow" else name for name in PERTURBATIONS)
"""The ten of CIFAR-10-P and CIFAR-100-P: the published evaluation has spatter in place of snow."""

CIFAR_SETS = ("cifar-c", "cifar-c-bar", "cifar-p")
"""Options of ``prime-dali evaluate`` for networks of 32 x 32 images."""

IMAGENET_SETS = (
    "imagenet-c", "imagenet-c-bar", "imagenet-3dcc", "imagenet-r", "imagenet-a", "imagenet-sketch", "imagenet-v2",
    "imagenet-v2-threshold", "imagenet-v2-top", "stylized", "imagenet-p",
)  # fmt: skip
"""Options of ``prime-dali evaluate`` for other networks."""

SETS = (*CIFAR_SETS, *IMAGENET_SETS)
"""All of them; beside these there is ``clean``."""

C_SETS = ("cifar-c", "imagenet-c")
"""Benchmarks of :data:`CORRUPTIONS`, whose mean corruption error can be relative to a reference's errors."""

C_BAR_SETS = ("cifar-c-bar", "imagenet-c-bar")
"""Benchmarks of :data:`C_BAR_CORRUPTIONS` other corruptions."""

C_BAR_CORRUPTIONS = 10

P_SETS = ("cifar-p", "imagenet-p")
"""Benchmarks of perturbation sequences."""

HEADINGS = {
    "clean": "clean", "cifar-c": "CIFAR-C", "cifar-c-bar": "CIFAR-C-bar", "cifar-p": "CIFAR-P",
    "imagenet-c": "ImageNet-C", "imagenet-c-bar": "ImageNet-C-bar", "imagenet-3dcc": "ImageNet-3DCC",
    "imagenet-r": "ImageNet-R", "imagenet-a": "ImageNet-A", "imagenet-sketch": "ImageNet-Sketch",
    "imagenet-v2": "ImageNetV2 (matched frequency)", "imagenet-v2-threshold": "ImageNetV2 (threshold 0.7)",
    "imagenet-v2-top": "ImageNetV2 (top images)", "stylized": "Stylized ImageNet", "imagenet-p": "ImageNet-P",
}  # fmt: skip
"""What tables and help call each set."""

LOADERS = ("pillow", "dali")
"""Decoders of image files."""
