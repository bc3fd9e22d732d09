"""Names of the corruption benchmarks, in the order in which their tables are printed."""

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
