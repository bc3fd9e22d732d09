"""How a run computes: bit-identical results in every run on the same machine, or the fastest algorithms."""

from __future__ import annotations

import os

import torch
from torch import nn


def choose(deterministic: bool) -> None:
    """Choose for this process, before it communicates with others."""
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cudnn.deterministic = deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS: one workspace per stream
        os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # no choices by measured time
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # switches add gradients in any order


def choose_attention(network: nn.Module, device: torch.device, deterministic: bool) -> None:
    """Choose for the attention of vision transformers on a GPU, whose gradients are else sums in any order.

    torch's flash attention has deterministic gradients if torch is asked for nothing but deterministic algorithms; the
    other fused kernels have none. Networks without attention are left alone, and those that resize their position
    embeddings, whose gradients have no such algorithm in torch, are not bit-identical (docs/training.md).
    """
    attends = any(getattr(module, "fused_attn", False) or isinstance(module, nn.MultiheadAttention)
                  for module in network.modules())  # fmt: skip
    if not (deterministic and attends and device.type == "cuda"):
        return
    resizes = any(getattr(module, "dynamic_img_size", False) for module in network.modules())
    torch.use_deterministic_algorithms(True, warn_only=resizes)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # only for debugging
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
