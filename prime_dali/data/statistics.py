"""Normalization constants of known data sets."""

from __future__ import annotations

IMAGENET_STATISTICS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation per channel on the [0, 1] scale."""
CIFAR_STATISTICS = {
    10: ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""The same by number of classes (docs/METHOD.md, "Training")."""
