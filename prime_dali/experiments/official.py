"""The augmentation of PRIME's authors, from a clone of their repository, as a peer to compare with ours."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch
from torchvision.transforms import Normalize

from ..training.augmentation import mirrored
from .arguments import OFFICIAL

CONFIGS = {"imagenet": "imagenet_cfg", "cifar": "cifar10_cfg"}


class Official(torch.nn.Module):
    """Replaces :class:`prime_dali.PRIME` in a training run.

    Args:
        folder: A clone of :data:`.arguments.OFFICIAL`.
        preset: ``"imagenet"`` or ``"cifar"``: which of their configuration files to use.
        views: 1: one augmented image each. 3: clean, augmented, augmented, for the Jensen-Shannon loss.
        mean, std: Of the normalization, per channel, on the [0, 1] scale.
        out_dtype: dtype of the output.

    Raises:
        FileNotFoundError: The folder is not such a clone.
        ImportError: A package that it imports is missing.
    """

    def __init__(
        self,
        folder: Path,
        preset: str,
        *,
        views: int,
        mean: Sequence[float],
        std: Sequence[float],
        out_dtype: torch.dtype,
    ) -> None:
        super().__init__()
        if not (folder / "utils" / "prime.py").is_file():
            raise FileNotFoundError(f"official: expected a clone of {OFFICIAL}, with utils/prime.py, got {folder}")
        try:
            self.inner = put_together(folder, preset, views, Normalize(mean, std))
        except ImportError as error:
            raise ImportError(
                f"official: {error}; its packages: pip install einops opt_einsum ml_collections"
            ) from error
        self.out_dtype = out_dtype

    def forward(
        self, images: torch.Tensor, index: torch.Tensor, epoch: object = None, *, flip: torch.Tensor | None = None
    ) -> torch.Tensor:
        """From uint8 ``[N, 3, H, H]`` to normalized ``[views * N, 3, H, H]``; ignores ``index`` and ``epoch``."""
        if flip is not None:
            images = mirrored(images, flip)
        with torch.no_grad():
            out: torch.Tensor = self.inner(images.float() / 255)
        return out.to(self.out_dtype, memory_format=torch.channels_last)


def put_together(folder: Path, preset: str, views: int, normalize: torch.nn.Module) -> torch.nn.Module:
    """The authors' augmentation, built as in their ``train.py``, with the numbers of their own config file.

    From float32 ``[N, 3, H, H]`` in [0, 1] to ``[views * N, 3, H, H]``, normalized by ``normalize``. OSError or
    ImportError if a file of the clone, or a package that it imports, is missing.
    """
    config = _load(folder / "config" / f"{CONFIGS[preset]}.py").get_config()
    files = ("prime", "diffeomorphism", "color_jitter", "rand_filter")
    mixer, spatial, color, spectral = (_load(folder / "utils" / f"{name}.py") for name in files)
    diffeo = {k: config.diffeo[k] for k in ("sT", "rT", "scut", "rcut", "cutmin", "cutmax", "alpha")}
    jitter, kernel = config.color_jit, config.rand_filter
    augmentations = [
        spatial.Diffeo(**diffeo, stochastic=True),
        color.RandomSmoothColor(cut=jitter.cut, T=jitter.T, freq_bandwidth=jitter.max_freqs, stochastic=True),
        spectral.RandomFilter(kernel_size=kernel.kernel_size, sigma=kernel.sigma, stochastic=True),
    ]
    mixture = {k: config.augmix[k] for k in ("mixture_width", "mixture_depth")}
    chain = mixer.PRIMEAugModule(augmentations)
    warnings.filterwarnings("ignore", message="torch.meshgrid")  # their code predates this keyword
    module: torch.nn.Module = mixer.GeneralizedPRIMEModule(normalize, chain, **mixture, no_jsd=views == 1, max_depth=3)
    return module


def _load(path: Path) -> ModuleType:
    """One file under a name of its own: ``utils`` and ``config`` could shadow other packages or be shadowed."""
    spec = importlib.util.spec_from_file_location(f"_official_{path.parent.name}_{path.stem}", path)
    assert spec is not None  # a name that ends in .py has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # their docstrings hold backslashes
        spec.loader.exec_module(module)
    return module
