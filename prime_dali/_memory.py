"""Arrays and tensors that an address, a shape, strides and a dtype describe; the kernels read no others.

What claims to be an array and is more than that is refused by name, with what to do: a mask, a sparse or nested layout,
a tensor that wraps others. An unknown attribute must not be lost silently, and an address that is no address is worse.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def numpy_array(argument: str, array: Any) -> np.ndarray:
    """``array`` as NumPy's own class, as memory maps, other subclasses and lists can be; TypeError for one with a
    mask."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{argument}: expected an array without a mask, got a MaskedArray; call .filled(value)")
    return np.asarray(array)


def aligned(array: Any, xp: Any) -> Any:
    """``array``, a NumPy or CuPy one (``xp``), with elements at multiples of their size: a copy where they lie
    elsewhere, as a field of a packed record does. The kernels count strides in elements."""
    steps = [step for step, side in zip(array.strides, array.shape, strict=True) if side > 1]
    if array.size == 0 or not any(number % array.itemsize for number in (address(array), *steps)):
        return array
    if xp is np:
        return np.array(array)
    # A GPU cannot read such elements, but their bytes.
    packed = xp.ndarray((*array.shape, array.itemsize), np.uint8, array.data, (*array.strides, 1))
    return packed.copy(order="C").view(array.dtype)[..., 0]


def address(array: Any) -> int:
    """Where the first element of a NumPy or CuPy array is."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def check_tensor(argument: str, tensor: Any) -> None:
    """TypeError unless a torch tensor is dense and its own; under ``torch.compile`` the compiler sees to that."""
    import torch

    if torch.compiler.is_compiling():
        return

    def refuse(what: str, remedy: str) -> None:
        raise TypeError(f"{argument}: expected a dense torch.Tensor, got {what}; {remedy}")

    if tensor.is_nested:
        refuse("a nested one", "pad it (torch.nested.to_padded_tensor), or take its parts one by one (unbind)")
    if tensor.layout != torch.strided:
        refuse(f"layout {tensor.layout}", "call .to_dense()")
    if tensor.is_quantized:
        refuse(f"the quantized {tensor.dtype}", "call .dequantize()")
    kind = type(tensor)
    # Those of torch._subclasses are what torch itself traces with.
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and "torch._subclasses" not in kind.__module__:
        refuse(f"a {kind.__name__}", "pass the tensor inside it (to_local() of a DTensor, get_data() of a masked one)")


def lendable(argument: str, tensor: Any) -> Any:
    """A torch tensor whose memory can be lent through DLPack, with the values that it stands for."""
    import torch

    check_tensor(argument, tensor)
    if torch._C._functorch.is_batchedtensor(tensor):
        raise TypeError(f"{argument}: expected a dense torch.Tensor, got one inside torch.vmap; call it outside")
    if tensor.requires_grad:
        raise ValueError(f"{argument}: expected no gradient (PRIME is not differentiable); call .detach()")
    if tensor.is_neg() or tensor.is_conj() or torch._is_zerotensor(tensor):  # values that its memory does not hold
        return torch.zeros_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)
    return tensor


def from_dlpack(argument: str, array: Any) -> np.ndarray:
    """An array of the CPU that speaks DLPack, as NumPy and without a copy. bfloat16, which NumPy's reader does not
    know, comes as the dtype of ``ml_dtypes``."""
    if is_tensor(array):
        import torch

        if array.dtype == torch.bfloat16:
            return np.from_dlpack(array.view(torch.uint16)).view(_bfloat16(argument))
    try:
        return np.from_dlpack(array)
    except Exception as error:
        if hasattr(array, "__array__") and "bfloat16" in str(getattr(array, "dtype", "")):
            return np.asarray(array)  # JAX and TensorFlow know ml_dtypes
        kind = f"{type(array).__name__} of {getattr(array, 'dtype', 'an unknown dtype')}"
        raise TypeError(f"{argument}: NumPy cannot read this {kind} through DLPack: {error}") from error


def _bfloat16(argument: str) -> np.dtype:
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(f"{argument}: bfloat16 in NumPy needs ml_dtypes: pip install ml_dtypes") from error
    return np.dtype(ml_dtypes.bfloat16)
