"""Optional dependencies: which extra installs each of them, and whether they are installed."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

PACKAGES = {
    "torch": {"torch": "torch"},
    "demo": {"matplotlib": "matplotlib", "PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn",
             "tqdm": "tqdm"},
    "train": {
        "cv2": "opencv-python", "imagecorruptions": "imagecorruptions-imaug", "matplotlib": "matplotlib",
        "PIL": "pillow", "scipy": "scipy", "skimage": "scikit-image", "tensorboard": "tensorboard", "timm": "timm",
        "torchvision": "torchvision", "tqdm": "tqdm", "yaml": "pyyaml",
    },
    "formats": {"google_crc32c": "google-crc32c", "pyarrow": "pyarrow"},
    "torchvision": {"torchvision": "torchvision", "PIL": "pillow"},
    "timm": {"timm": "timm"},
    "lightning": {"lightning": "lightning"},
    "huggingface": {"accelerate": "accelerate", "datasets": "datasets", "transformers": "transformers"},
    "dali-cuda13": {"nvidia.dali": "nvidia-dali-cuda130"},
    "cupy-cuda13": {"cupy": "cupy-cuda13x"},
    "ray": {"ray": "ray"},
}  # fmt: skip
"""By extra: names of modules, and of the packages that contain them."""

INCLUDED = {
    "torchvision": "torch",
    "timm": "torchvision",
    "lightning": "torch",
    "huggingface": "torchvision",
    "train": "torch",
}
"""By extra: another one that it includes."""

_OF_DEMO = ("demo", "gallery", "augment")


def install(extra: str) -> str:
    """The command that installs an extra."""
    other = f" (CUDA 12: {extra.replace('13', '12')})" if extra.endswith("cuda13") else ""
    return f"pip install 'prime-dali[{extra}]'{other}"


def missing(extra: str) -> list[str]:
    """The packages of an extra, and of what it includes, that are not installed."""
    lacking = missing(INCLUDED[extra]) if extra in INCLUDED else []
    return lacking + [package for module, package in PACKAGES[extra].items() if not there(module)]


@contextlib.contextmanager
def importing(what: str, extra: str) -> Iterator[None]:
    """Let an ImportError in the block, where the module ``what`` imports the packages of an extra, say how to install
    it."""
    try:
        yield
    except ImportError as error:
        lacking = ", ".join(missing(extra)) or "another package"
        needs = f"{what} needs {lacking} ({error}): {install(extra)}"
        raise ImportError(needs, name=error.name) from error


def there(module: str) -> bool:
    """Whether a module can be found. A folder of its name without code, of data or what an uninstalled package left, is
    none, though Python imports it."""
    try:
        spec = importlib.util.find_spec(module)
        return spec is not None and spec.origin is not None
    except (ImportError, ValueError):  # its parent package is missing, or was inserted into sys.modules by hand
        return False


def advice(module: str, command: str = "") -> str:
    """What to do if a command needs a missing module; empty: no extra contains it."""
    top = module if module.startswith("nvidia.dali") else module.partition(".")[0]
    known = [extra for extra, modules in PACKAGES.items() if top in modules]
    if not known:
        return ""
    own = "demo" if any(name in command.split() for name in _OF_DEMO) else "train"
    all_need_it = top == "torch" and own == "train" and command  # the extra's requirements begin with those of torch
    extra = own if own in known or all_need_it else known[0]
    return f"needs {PACKAGES[known[0]][top]}, which is not installed: {install(extra)}"
