"""``prime_dali.recipes``, which ``training``, ``models`` and ``data`` were before: old imports still work."""

from __future__ import annotations

import importlib
import sys
import warnings

_MOVED = {
    "training": ("augmix", "checkpoint", "config", "data", "losses", "ranks", "replay", "train", "trainer"),
    "models": ("networks",),
    "data": ("cifar",),
}

warnings.warn(
    "prime_dali.recipes: its modules are now in prime_dali.training, prime_dali.models and prime_dali.data",
    FutureWarning,
    stacklevel=2,
)
for _package, _names in _MOVED.items():
    for _name in _names:
        globals()[_name] = sys.modules[f"{__name__}.{_name}"] = importlib.import_module(
            f"prime_dali.{_package}.{_name}"
        )
