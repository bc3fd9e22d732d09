"""Checks that arrays and tensors are fully described by an address, a shape, strides and a dtype, as the kernels need.

Arrays with more than that raise an error that says what to do: a mask, a sparse or nested layout, a tensor that wraps
others. No attribute may be lost silently, and no invalid address may reach a kernel.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def numpy_array(argument: str, array: Any) -> np.ndarray:
    """``array`` as a plain NumPy array: memory maps, other subclasses and lists are converted; TypeError for one with
    a mask."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{argument}: expected an array without a mask, got a MaskedArray; call .filled(value)")
    return np.asarray(array)


def aligned(array: Any, xp: Any) -> Any:
    """``array``, a NumPy or CuPy one (``xp``), with aligned elements: a copy if they are unaligned, as in a field of a
    packed record. The kernels count strides in elements."""
    steps = [step for step, side in zip(array.strides, array.shape, strict=True) if side > 1]
    if array.size == 0 or not any(number % array.itemsize for number in (address(array), *steps)):
        return array
    if xp is np:
        return np.array(array)
    # A GPU cannot read unaligned elements, but it can read their bytes.
    packed = xp.ndarray((*array.shape, array.itemsize), np.uint8, array.data, (*array.strides, 1))
    return packed.copy(order="C").view(array.dtype)[..., 0]


def address(array: Any) -> int:
    """The address of the first element of a NumPy or CuPy array."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def check_tensor(argument: str, tensor: Any) -> None:
    """TypeError unless a torch tensor is dense and wraps no other; ``torch.compile`` ensures that itself."""
    import torch

    if torch.compiler.is_compiling():
        return

    def refuse(what: str, remedy: str) -> None:
        raise TypeError(f"{argument}: expected a dense torch.Tensor, got {what}; {remedy}")

    if tensor.is_nested:
        refuse("a nested one", "pad it (torch.nested.to_padded_tensor), or pass its parts one by one (unbind)")
    if tensor.layout != torch.strided:
        refuse(f"layout {tensor.layout}", "call .to_dense()")
    if tensor.is_quantized:
        refuse(f"the quantized {tensor.dtype}", "call .dequantize()")
    kind = type(tensor)
    # torch itself traces with the classes of torch._subclasses.
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and "torch._subclasses" not in kind.__module__:
        refuse(f"a {kind.__name__}", "pass the tensor inside it (to_local() of a DTensor, get_data() of a masked one)")


def lendable(argument: str, tensor: Any) -> Any:
    """A torch tensor that can be passed through DLPack: its memory contains its values, without lazy operations."""
    import torch

    check_tensor(argument, tensor)
    if torch._C._functorch.is_batchedtensor(tensor):
        raise TypeError(f"{argument}: expected a dense torch.Tensor, got one inside torch.vmap; call it outside")
    if tensor.requires_grad:
        raise ValueError(f"{argument}: expected no gradient (PRIME is not differentiable); call .detach()")
    if tensor.is_neg() or tensor.is_conj() or torch._is_zerotensor(tensor):  # its memory holds other values
        return torch.zeros_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)
    return tensor


def from_dlpack(argument: str, array: Any) -> np.ndarray:
    """A CPU array with DLPack as a NumPy array, without a copy. bfloat16, which NumPy does not support, gets the dtype
    of ``ml_dtypes``."""
    if is_tensor(array):
        import torch

        if array.dtype == torch.bfloat16:
            return np.from_dlpack(array.view(torch.uint16)).view(bfloat16(argument))
    try:
        return np.from_dlpack(array)
    except Exception as error:
        if hasattr(array, "__array__") and "bfloat16" in str(getattr(array, "dtype", "")):
            return np.asarray(array)  # JAX and TensorFlow use ml_dtypes
        kind = f"{type(array).__name__} of {getattr(array, 'dtype', 'an unknown dtype')}"
        raise TypeError(f"{argument}: NumPy cannot read this {kind} through DLPack: {error}") from error


def bfloat16(argument: str) -> np.dtype:
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(f"{argument}: bfloat16 in NumPy needs ml_dtypes: pip install ml_dtypes") from error
    return np.dtype(ml_dtypes.bfloat16)
