"""Bad input: the right exception, naming the argument, what was expected and what came."""

from __future__ import annotations

import copy
import dataclasses
import re

import numpy as np
import pytest
import torch
from conftest import CUDA, make_images

import prime_dali
from prime_dali import PRIME, Plan, PrimeConfig, arrays, preset, reference

SIZE = (16, 20)
INDEX = torch.arange(2)


def images() -> torch.Tensor:
    return make_images(2, *SIZE)


def plan(**changes) -> Plan:
    return dataclasses.replace(prime_dali.sample("cifar", INDEX, size=SIZE), **changes)


def changed(**fields) -> Plan:
    """A plan past its constructor, as pickles and assignments get."""
    drawn = plan()
    for name, value in fields.items():
        object.__setattr__(drawn, name, value)
    return drawn


def apply(pixels=None, drawn=None, **arguments):
    return prime_dali.apply(images() if pixels is None else pixels, plan() if drawn is None else drawn, **arguments)


def sample(index=INDEX, config="cifar", size=SIZE, **arguments):
    return prime_dali.sample(config, index, size=size, **arguments)


def array_apply(array=None, drawn=None, **arguments):
    drawn = plan().numpy() if drawn is None else drawn
    return arrays.apply(images().numpy() if array is None else array, drawn, **arguments)


def spoiled(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    pixels = images().to(dtype)
    pixels[1, 2, 3, 4] = value
    return pixels


CASES = {
    # configuration
    "unknown preset": (lambda: preset("imagnet"), ValueError, "preset: expected one of 'imagenet', 'cifar', got 'imagnet'; did you mean 'imagenet'?"),
    "preset type": (lambda: sample(config=3), TypeError, "config: expected a PrimeConfig or the name of a preset, got int"),
    "unknown field": (lambda: preset("cifar").replace(widht=2), TypeError, "got 'widht'; did you mean 'width'?"),
    "unknown primitive": (lambda: PrimeConfig(primitives=("spectral", "colour")), ValueError, "got 'colour'; did you mean 'color'?"),
    "field of PRIME": (lambda: PRIME("cifar", alpha=2), TypeError, "alpha: expected as preset(NAME).replace(alpha=...), got a keyword of PRIME()"),
    "field of sample": (lambda: sample(width=2), TypeError, "width: expected as preset(NAME).replace(width=...), got a keyword of sample()"),
    "field of preset": (lambda: preset("cifar", alpha=2), TypeError, "alpha: expected as preset(NAME).replace(alpha=...), got a keyword of preset()"),
    "primitive string": (lambda: PrimeConfig(primitives="spectral"), TypeError, "primitives: expected a tuple of names, got 'spectral'"),
    "primitive twice": (lambda: PrimeConfig(primitives=("color", "color")), ValueError, "primitives: expected each name once"),
    "unknown mixing": (lambda: PrimeConfig(mixing="papers"), ValueError, "mixing: expected one of 'paper', 'official', 'none', got 'papers'; did you mean 'paper'?"),
    "unknown distribution": (lambda: PrimeConfig(spatial_distribution="arcsin"), ValueError, "did you mean 'arcsine'?"),
    "old name": (lambda: PrimeConfig(spatial_law="arcsine"), TypeError, "spatial_law: is called spatial_distribution now"),
    "old name of a change": (lambda: preset("cifar").replace(spatial_law="arcsine"), TypeError, "spatial_law: is called spatial_distribution now"),
    "unknown blend": (lambda: PrimeConfig(blend="betas"), ValueError, "did you mean 'beta'?"),
    "width 0": (lambda: PrimeConfig(width=0), ValueError, "width: expected 1 to 255, got 0"),
    "depth 0": (lambda: PrimeConfig(depth=0), ValueError, "depth: expected 1 to 255, got 0"),
    "depth type": (lambda: PrimeConfig(depth=2.0), TypeError, "depth: expected an int, got float (2.0)"),
    "width bool": (lambda: PrimeConfig(width=True), TypeError, "width: expected an int, got bool"),
    "even filter": (lambda: PrimeConfig(spectral_size=4), ValueError, "spectral_size: expected an odd number, got 4"),
    "negative alpha": (lambda: PrimeConfig(alpha=-1), ValueError, "alpha: expected a finite number >= 0, got -1"),
    "nan alpha": (lambda: PrimeConfig(alpha=float("nan")), ValueError, "alpha: expected a finite number >= 0, got nan"),
    "infinite std": (lambda: PrimeConfig(spectral_std_max=float("inf")), ValueError, "spectral_std_max: expected a finite number"),
    "text variance": (lambda: PrimeConfig(color_variance_max="0.1"), TypeError, "color_variance_max: expected a number, got str"),
    "negative variance": (lambda: PrimeConfig(color_variance_max=-0.1), ValueError, "color_variance_max: expected a finite number >= 0"),
    "large alpha": (lambda: PrimeConfig(alpha=1e300), ValueError, "alpha: expected 0 to 1e+06, got 1e+300"),
    "huge alpha": (lambda: PrimeConfig(alpha=10**400), ValueError, "alpha: expected a finite number >= 0"),
    "large spectral": (lambda: PrimeConfig(spectral_std_max=1e39), ValueError, "spectral_std_max: expected 0 to 1e+06, got 1e+39"),
    "large variance": (lambda: PrimeConfig(color_variance_max=1e300), ValueError, "color_variance_max: expected 0 to 1e+06, got 1e+300"),
    "large noise": (lambda: PrimeConfig(primitives=("noise",), noise_std=1e7), ValueError, "noise_std: expected 0 to 1e+06, got 10000000.0"),
    "std without noise": (lambda: preset("cifar").replace(noise_std=0.5), ValueError, "noise_std: expected None without 'noise' among the primitives, got 0.5; primitives=('spectral', 'spatial', 'color', 'noise')"),
    "std of a change without noise": (lambda: preset("cifar").replace(primitives=("color",), noise_std=0.5), ValueError, "noise_std: expected None without 'noise' among the primitives, got 0.5"),
    "noise without std": (lambda: PrimeConfig(primitives=("noise",)), ValueError, "noise_std: expected a number"),
    "largest cut": (lambda: PrimeConfig(spatial_cut_max=2), ValueError, "spatial_cut_max: expected 3 to 4094, got 2"),
    "cut": (lambda: PrimeConfig(spatial_cut=1), ValueError, "spatial_cut: expected 2 to 4094, got 1"),
    "color cut": (lambda: PrimeConfig(color_cut_max=0), ValueError, "color_cut_max: expected 1 to 1024, got 0"),
    "color band": (lambda: PrimeConfig(color_band=0), ValueError, "color_band: expected 1 to 1024, got 0"),
    "identity flag": (lambda: PrimeConfig(include_identity=1), TypeError, "include_identity: expected True, False or None, got 1"),
    # sample
    "index type": (lambda: sample([0, 1]), TypeError, "index: expected a NumPy or CuPy array, or an object with DLPack"),
    "index dtype": (lambda: sample(INDEX.int()), TypeError, "index: expected int64 [N], got torch.int32 [2]; convert integers with index.long()"),
    "index shape": (lambda: sample(INDEX[None]), TypeError, "index: expected int64 [N], got torch.int64 [1, 2]"),
    "index dtype numpy": (lambda: sample(np.arange(2.0)), TypeError, "index: expected int64 [N], got float64 [2]"),
    "index meta": (lambda: sample(INDEX.to("meta")), ValueError, "index: expected a CPU or CUDA tensor, got one on meta"),
    "size type": (lambda: sample(size="224"), TypeError, "size: expected (height, width) or an int, got '224'"),
    "size length": (lambda: sample(size=[16, 20, 3]), TypeError, "size: expected (height, width) or an int, got [16, 20, 3]"),
    "size fraction": (lambda: sample(size=(16, 20.0)), TypeError, "size: width: expected an int, got float (20.0)"),
    "size bool": (lambda: sample(size=True), TypeError, "size: expected (height, width) or an int, got True"),
    "size square": (lambda: sample(size=7), ValueError, "size: expected 8 to 4096, got 7"),
    "size small": (lambda: sample(size=(7, 20)), ValueError, "size: height: expected 8 to 4096, got 7"),
    "size large": (lambda: sample(size=(8, 4097)), ValueError, "size: width: expected 8 to 4096, got 4097"),
    "seed type": (lambda: sample(seed=1.5), TypeError, "seed: expected an int, got float (1.5)"),
    "seed bool": (lambda: sample(seed=np.bool_(True)), TypeError, "seed: expected an int, got bool"),
    "seed tensor": (lambda: sample(seed=torch.tensor([3])), TypeError, "seed: expected an int, got Tensor (tensor([3]))"),
    "seed array": (lambda: sample(seed=np.array([3])), TypeError, "seed: expected an int, got ndarray (array([3]))"),
    "seed range": (lambda: sample(seed=2**63), ValueError, "seed: expected"),
    "epoch range": (lambda: sample(epoch=-1), ValueError, "epoch: expected 0 to 4294967295, got -1"),
    "epoch values": (lambda: sample(epoch=torch.tensor([3, -1])), ValueError, "epoch: expected 0 to 4294967295, got -1"),
    "epoch value": (lambda: sample(epoch=torch.tensor(2**32)), ValueError, "epoch: expected 0 to 4294967295, got 4294967296"),
    "epoch values numpy": (lambda: sample(np.arange(2), epoch=np.array([0, 2**32])), ValueError, "epoch: expected 0 to 4294967295, got 4294967296"),
    "epoch value numpy": (lambda: sample(np.arange(2), epoch=np.array(-1)), ValueError, "epoch: expected 0 to 4294967295, got -1"),
    "epoch bool numpy": (lambda: sample(np.arange(2), epoch=True), TypeError, "epoch: expected an int, got bool"),
    "epoch fraction numpy": (lambda: sample(np.arange(2), epoch=np.array(1.0)), TypeError, "epoch: expected an int, got ndarray"),
    "index int32 numpy": (lambda: sample(np.arange(2, dtype=np.int32)), TypeError, "index: expected int64 [N], got int32 [2]; convert integers with numpy.asarray(index, 'int64')"),
    "epoch int32 numpy": (lambda: sample(np.arange(2), epoch=np.zeros(2, np.int32)), TypeError, "epoch: expected an int, or int64 [] or [2], got int32 [2]"),
    "epoch length numpy": (lambda: sample(np.arange(2), epoch=np.arange(3)), TypeError, "epoch: expected an int, or int64 [] or [2], got int64 [3]"),
    "epoch dtype": (lambda: sample(epoch=torch.tensor(1.0)), TypeError, "epoch: expected an int, or int64 [] or [2], got torch.float32"),
    "epoch length": (lambda: sample(epoch=torch.arange(3)), TypeError, "epoch: expected an int, or int64 [] or [2], got torch.int64 [3]"),
    "view": (lambda: sample(view="clear"), TypeError, "view: expected an int, got str ('clear')"),
    "view below 0": (lambda: sample(view=-1), ValueError, "view: expected 0 to 4294967295, got -1"),
    "no views": (lambda: sample(view=()), ValueError, "view: expected 1 to 16 views, got 0"),
    # apply
    "images type": (lambda: apply(images().numpy()), TypeError, "images: expected a torch.Tensor, got ndarray"),
    "images dtype": (lambda: apply(images().double()), TypeError, "images: expected uint8, uint16, float16, bfloat16 or float32, got torch.float64"),
    "images int64": (lambda: apply(images().long()), TypeError, "images: expected uint8, uint16, float16, bfloat16 or float32, got torch.int64; convert pixels to uint8 in 0..255, or to float32 in [0, 1]"),
    "one channel": (lambda: apply(images()[:, :1]), ValueError, "plan: drawn for images of 3 channels, got 1; sample it with channels=1"),
    "17 channels": (lambda: apply(torch.rand(2, 17, 16, 20)), ValueError, "images: expected [N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to 16 channels, got [2, 17, 16, 20]"),
    "channels last axis": (lambda: apply(images().permute(0, 2, 3, 1)), ValueError, "images: expected [N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to 16 channels, got [2, 16, 20, 3], which looks like NHWC: use .permute(0, 3, 1, 2)"),
    "one image, channels last axis": (lambda: apply(images()[0].permute(1, 2, 0)), ValueError, "images: expected [N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to 16 channels, got [16, 20, 3], which looks like HWC: use .permute(2, 0, 1)"),
    "six axes": (lambda: apply(images()[None, None]), ValueError, "images: expected [N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to 16 channels, got [1, 1, 2, 3, 16, 20]"),
    "clips": (lambda: apply(images()[None]), ValueError, "plan: drawn for 2 images, got 1"),
    "clips, channels last axis": (lambda: apply(images().movedim(1, -1)[None]), ValueError, "got [1, 2, 16, 20, 3], which looks like NTHWC: use .permute(0, 1, 4, 2, 3)"),
    "gradient": (lambda: apply(images().requires_grad_()), ValueError, "images: expected no gradient"),
    "small image": (lambda: apply(torch.rand(2, 3, 7, 20)), ValueError, "images: height: expected 8 to 4096, got 7"),
    "nan": (lambda: apply(spoiled(float("nan"))), ValueError, "images: expected finite values in [0, 1] (up to 1/512 outside is rounding, and clamped), got 1 outside, NaN; scale images to [0, 1] first"),
    "infinite": (lambda: apply(spoiled(float("inf"))), ValueError, "got 1 outside, inf;"),
    "above 1": (lambda: apply(spoiled(1.5, torch.float16)), ValueError, "got 1 outside, 1.5;"),
    "below 0": (lambda: apply(spoiled(-0.25, torch.bfloat16)), ValueError, "got 1 outside, -0.25;"),
    "plan type": (lambda: prime_dali.apply(images(), "cifar"), TypeError, "plan: expected a Plan, got str"),
    "plan size": (lambda: apply(make_images(2, 20, 16)), ValueError, "plan: drawn for images of 16 x 20, got 20 x 16"),
    "plan batch": (lambda: apply(make_images(3, *SIZE)), ValueError, "plan: drawn for 2 images, got 3"),
    "plan of arrays": (lambda: apply(drawn=plan().numpy()), TypeError, "plan: expected a plan of torch tensors, got ndarray"),
    "plan views": (lambda: apply(images()[0], sample(INDEX[:1], view=(0, 1))), ValueError, "plan: expected one view for a [C, H, W] image, got 2"),
    "plan rows": (lambda: plan(depth=4), ValueError, "rows: expected int32 [1 * batch, 56] for 3 chains of depth 4, got int32 [2, 44]"),
    "plan rows of views": (lambda: plan(rows=plan().rows[[0, 1, 0]], views=2), ValueError, "rows: expected int32 [2 * batch, 44] for 3 chains of depth 3, got int32 [3, 44]"),
    "plan waves": (lambda: plan(waves=1), TypeError, "waves: expected True or False, got 1"),
    "plan dtype": (lambda: plan(rows=plan().rows.long()), TypeError, "rows: expected int32 [1 * batch, 44], got torch.int64 [2, 44]; convert it to int32 first"),
    "plan dtype numpy": (lambda: plan(rows=np.zeros((2, 44), np.int8)), TypeError, "rows: expected int32 [1 * batch, 44], got int8 [2, 44]"),
    "plan byte order": (lambda: plan(rows=plan().numpy().rows.astype(">i4")), TypeError, "got >i4 [2, 44]"),
    "plan list": (lambda: plan(rows=[[0] * 44]), TypeError, "rows: expected int32 [1 * batch, 44] of NumPy, CuPy or torch, got list"),
    "plan masked": (lambda: plan(rows=np.ma.zeros((2, 44), np.int32)), TypeError, "rows: expected an array without a mask, got a MaskedArray"),
    "plan sparse": (lambda: plan(rows=plan().rows.to_sparse()), TypeError, "rows: expected a dense torch.Tensor, got layout torch.sparse_coo; call .to_dense()"),
    "plan filter 0": (lambda: plan(filter_size=0), ValueError, "filter_size: expected 1 to 31, got 0"),
    "plan filter even": (lambda: plan(filter_size=4), ValueError, "filter_size: expected an odd number, got 4"),
    "plan filter large": (lambda: plan(filter_size=40000), ValueError, "filter_size: expected 1 to 31, got 40000"),
    "plan cut": (lambda: plan(max_cut=2**31 - 1), ValueError, "max_cut: expected 0 to 4094, got 2147483647"),
    "plan band": (lambda: plan(max_band=-1), ValueError, "max_band: expected 0 to 1024, got -1"),
    "plan chains": (lambda: plan(chains=256), ValueError, "chains: expected 1 to 255, got 256"),
    "plan depth": (lambda: plan(depth=0), ValueError, "depth: expected 1 to 255, got 0"),
    "plan of no views": (lambda: plan(views=0), ValueError, "views: expected 1 to 16, got 0"),
    "plan chains type": (lambda: plan(chains=3.0), TypeError, "chains: expected an int, got float (3.0)"),
    "plan size range": (lambda: plan(size=(16, 5000)), ValueError, "size: width: expected 8 to 4096, got 5000"),
    "plan changed": (lambda: apply(drawn=changed(filter_size=0)), ValueError, "filter_size: expected 1 to 31, got 0"),
    "array plan changed": (lambda: array_apply(drawn=changed(rows=np.zeros((2, 44), np.int8))), TypeError, "rows: expected int32 [1 * batch, 44], got int8 [2, 44]"),
    "reference plan changed": (lambda: reference.apply(images(), changed(max_cut=5000)), ValueError, "max_cut: expected 0 to 4094, got 5000"),
    "out_dtype": (lambda: apply(out_dtype=torch.float64), TypeError, "out_dtype: expected uint8, uint16, float16, bfloat16 or float32, got torch.float64"),
    "out_dtype name": (lambda: PRIME("cifar", out_dtype="float64"), TypeError, "out_dtype: expected uint8, uint16, float16, bfloat16 or float32, got 'float64'"),
    "uint8 normalized": (lambda: apply(out_dtype=torch.uint8, mean=(0,) * 3, std=(1,) * 3), ValueError, "out_dtype: expected a floating dtype"),
    "mean alone": (lambda: apply(mean=(0.5, 0.5, 0.5)), ValueError, "std: expected three numbers because mean is given, got None"),
    "std alone": (lambda: apply(std=(0.5, 0.5, 0.5)), ValueError, "mean: expected three numbers because std is given, got None"),
    "two means": (lambda: apply(mean=(0.5, 0.5), std=(1, 1, 1)), ValueError, "mean: expected three finite numbers, one per channel"),
    "zero std": (lambda: apply(mean=(0, 0, 0), std=(1, 0, 1)), ValueError, "std: expected three finite numbers > 0, one per channel"),
    "one mean": (lambda: PRIME(mean=[0.5], std=[0.2])(torch.zeros(2, 3, 32, 32)), ValueError, "mean: expected three finite numbers, one per channel, got (0.5,); give [0.5, 0.5, 0.5] to treat all channels alike"),
    "one std": (lambda: PRIME(mean=[0.5] * 3, std=[0.2]), ValueError, "mean, std: expected as many numbers each, got 3 and 1; give one per channel to both"),
    "one mean alone": (lambda: PRIME(mean=[0.5]), ValueError, "because mean is given, got None; give both or neither"),
    "four stds": (lambda: apply(mean=[0.5] * 3, std=[0.5] * 4), ValueError, "got [0.5, 0.5, 0.5, 0.5], which are 4; give one for each of the images' channels"),
    "mean number": (lambda: apply(mean=0.5, std=0.5), TypeError, "mean: expected three numbers, one per channel, got 0.5"),
    "mean text": (lambda: apply(mean="123", std="123"), TypeError, "mean: expected three numbers, one per channel, got '123'"),
    "mean texts": (lambda: apply(mean=["0", "0", "0"], std=[1, 1, 1]), TypeError, "mean: expected three numbers, one per channel"),
    "mean bools": (lambda: array_apply(mean=[True, np.bool_(True), 0], std=[1, 1, 1]), TypeError, "mean: expected three numbers, one per channel"),
    "mean set": (lambda: array_apply(mean={0.1, 0.2, 0.3}, std=[1, 1, 1]), TypeError, "mean: expected three numbers, one per channel"),
    "mean complex": (lambda: apply(mean=np.ones(3, np.complex64), std=[1, 1, 1]), TypeError, "mean: expected three numbers, one per channel"),
    "mean matrix": (lambda: apply(mean=np.ones((3, 1)), std=[1, 1, 1]), TypeError, "mean: expected three numbers, one per channel"),
    "mean large": (lambda: apply(mean=(0, -1e39, 0), std=(1, 1, 1)), ValueError, "mean: expected numbers from -8.5e+37 on (float32), got (0, -1e+39, 0)"),
    "mean of 0 to 255": (lambda: PRIME("cifar", mean=(123, 116, 103), std=(58, 57, 57)), ValueError, "mean: expected numbers up to 1, on the [0, 1] scale, got (123, 116, 103); divide mean and std of the 0 to 255 scale by 255"),
    "std large": (lambda: array_apply(mean=(0, 0, 0), std=(1, 1, 1e39)), ValueError, "std: expected numbers from 1.2e-38 to 8.5e+37 (float32), got (1, 1, 1e+39)"),
    "std small": (lambda: PRIME("cifar", mean=(0, 0, 0), std=(1, 1e-50, 1)), ValueError, "std: expected numbers from 1.2e-38 to 8.5e+37"),
    "alpha bool": (lambda: PrimeConfig(alpha=np.bool_(True)), TypeError, "alpha: expected a number, got bool"),
    "channels_last": (lambda: apply(channels_last=1), TypeError, "channels_last: expected True, False or None, got 1"),
    "flip type": (lambda: apply(flip=[True, False]), TypeError, "flip: expected a bool torch.Tensor, got list"),
    "flip dtype": (lambda: apply(flip=torch.tensor([1, 0])), TypeError, "flip: expected bool [2], got torch.int64 [2]"),
    "flip length": (lambda: apply(flip=torch.tensor([True])), TypeError, "flip: expected bool [2], got torch.bool [1]"),
    # module
    "views bool": (lambda: PRIME("cifar", views=True), ValueError, "views: expected 1, 2 (clean, augmented) or 3 (clean, augmented, augmented), got True"),
    "views": (lambda: PRIME("cifar", views=4), ValueError, "views: expected 1, 2 (clean, augmented) or 3 (clean, augmented, augmented), got 4"),
    "module index": (lambda: PRIME("cifar")(images(), [0, 1]), TypeError, "index: expected an int64 torch.Tensor, got list"),
    "module index number": (lambda: PRIME("cifar")(images(), 3), TypeError, "index: expected an int64 torch.Tensor, got int"),
    "module index length": (lambda: PRIME("cifar")(images(), torch.arange(3)), ValueError, "index: expected one number for each of 2 images, got 3"),
    "module index scalar": (lambda: PRIME("cifar")(images(), torch.tensor(3)), ValueError, "index: expected one number for each of 2 images, got 1"),
    "module index device": (lambda: PRIME("cifar")(images(), INDEX.to("meta")), ValueError, "index: expected on cpu like images, got meta"),
    "module index float": (lambda: PRIME("cifar")(images()[0], 3.0), TypeError, "index: expected an int, got float (3.0)"),
    "module images": (lambda: PRIME("cifar")(np.zeros((2, 3, 16, 20))), TypeError, "images: expected a torch.Tensor, got ndarray"),
    "module axes": (lambda: PRIME("cifar")(torch.zeros(16, 20)), ValueError, "images: expected [N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to 16 channels, got [16, 20]"),
    "module channels last axis": (lambda: PRIME("cifar")(images().permute(0, 2, 3, 1), INDEX), ValueError, "images: expected [N, C, H, W] or [C, H, W] (or clips [N, T, C, H, W]) of 1 to 16 channels, got [2, 16, 20, 3], which looks like NHWC: use .permute(0, 3, 1, 2)"),
    "module small images": (lambda: PRIME("cifar")(torch.rand(2, 3, 7, 20), INDEX), ValueError, "images: height: expected 8 to 4096, got 7"),
    "module sparse": (lambda: PRIME("cifar")(images().to_sparse()), TypeError, "images: expected a dense torch.Tensor, got layout torch.sparse_coo"),
    "module dtype": (lambda: PRIME("cifar", out_dtype=torch.int32), TypeError, "out_dtype: expected uint8, uint16, float16"),
    # arrays
    "array type": (lambda: array_apply([[1]]), TypeError, "array: expected a NumPy or CuPy array, or an object with DLPack or the CUDA array interface, got list; numpy.asarray makes one of it"),
    "array dtype": (lambda: array_apply(images().double().numpy()), TypeError, "array: expected uint8, uint16, float16, bfloat16, float32 in native byte order"),
    "array byte order": (lambda: array_apply(images().numpy().astype(">f4")), TypeError, "in native byte order, got >f4 (float32); swap the bytes with .astype(array.dtype.newbyteorder('='))"),
    "array layout": (lambda: array_apply(layout="NHWC"), ValueError, "array: expected [N, H, W, C] of 1 to 16 channels for this layout, got [2, 3, 16, 20]; if they are NCHW, give layout='NCHW'"),
    "layout name": (lambda: array_apply(layout="HWC"), ValueError, "layout: expected one of 'NCHW', 'NHWC', 'NTCHW', 'NTHWC', got 'HWC'; did you mean 'NHWC'?"),
    "array nan": (lambda: array_apply(spoiled(float("nan")).numpy()), ValueError, "array: expected finite values in [0, 1]"),
    "array gradient": (lambda: array_apply(images().requires_grad_()), ValueError, "array: expected no gradient (PRIME is not differentiable); call .detach()"),
    "array plan": (lambda: array_apply(drawn=plan()), ValueError, "plan: expected a plan of numpy arrays like the images, got Tensor"),
    "array batch": (lambda: array_apply(make_images(3, *SIZE).numpy()), ValueError, "plan: drawn for 2 images, got 3"),
    "array threads": (lambda: array_apply(threads=0), ValueError, "threads: expected 1 to 4096, got 0"),
    "array flip": (lambda: array_apply(flip=np.zeros(2)), TypeError, "flip: expected bool [2], got float64 [2]"),
    # plans by hand and the reference
    "slot name": (lambda: Plan.build([[[("specral", 1.0)]]], size=SIZE), ValueError, "got 'specral'; did you mean 'spectral'?"),
    "slot cut": (lambda: Plan.build([[[("spatial", 1.0, 1)]]], size=SIZE), ValueError, "slots[0][0][0]: cut: expected 2 to 4094, got 1"),
    "slot too strong": (lambda: Plan.build([[[("noise", 1e21)]]], size=SIZE), ValueError, "slots[0][0][0]: strength: expected 0 to 1e+20, got 1e+21"),
    "slot numbers": (lambda: Plan.build([[[("spatial", 1.0)]]], size=SIZE), ValueError, "slots[0][0][0]: expected 1 integers after the strength"),
    "slot of one": (lambda: Plan.build([[[("noise",)]]], size=SIZE), TypeError, "slots[0][0][0]: expected (primitive, strength, ...), got ('noise',)"),
    "slot text": (lambda: Plan.build([[["noise"]]], size=SIZE), TypeError, "slots[0][0][0]: expected (primitive, strength, ...), got 'noise'"),
    "slot strength": (lambda: Plan.build([[[("spectral", -1.0)]]], size=SIZE), ValueError, "slots[0][0][0]: strength: expected a finite number >= 0"),
    "slot band": (lambda: Plan.build([[[("color", 1.0, 5, 4)]]], size=SIZE), ValueError, "first frequency: expected 1 to 4, got 5"),
    "build filter": (lambda: Plan.build([[[]]], size=SIZE, filter_size=2), ValueError, "filter_size: expected an odd number, got 2"),
    "build weights": (lambda: Plan.build([[[]]], size=SIZE, weights=[[1.0]]), ValueError, "weights[0]: expected 2 numbers, got 1"),
    "build weights count": (lambda: Plan.build([[[]]], size=SIZE, weights=[[0, 1]] * 2), ValueError, "weights: expected those of 1 image, got 2"),
    "build weight nan": (lambda: Plan.build([[[]]], size=SIZE, weights=[[float("nan"), 1]]), ValueError, "weights[0]: expected a finite number >= 0, got nan"),
    "build weight negative": (lambda: Plan.build([[[]]], size=SIZE, weights=[[2, -1]]), ValueError, "weights[0]: expected 0 to 1.00195, got 2"),
    "build weight below 0": (lambda: Plan.build([[[]]], size=SIZE, weights=[[1, -0.1]]), ValueError, "weights[0]: expected a finite number >= 0, got -0.1"),
    "build weight sum": (lambda: Plan.build([[[]]] * 2, size=SIZE, weights=[[0.5, 0.5], [0.5, 0.4]]), ValueError, "plan: row 1: expected weights >= 0 that sum to 1 within 1/512, got a minimum of 0 and a sum of 0.9"),
    "build strength": (lambda: Plan.build([[[("spectral", 1e30)]]], size=SIZE), ValueError, "slots[0][0][0]: strength: expected 0 to 1e+20, got 1e+30"),
    "build seed": (lambda: Plan.build([[[]]], size=SIZE, seed=2**64), ValueError, "seed: expected"),
    "build size": (lambda: Plan.build([[[]]], size=(16, 7)), ValueError, "size: width: expected 8 to 4096, got 7"),
    "reference int64": (lambda: reference.apply(images().long(), plan()), TypeError, "images: expected uint8, uint16 or a floating dtype, got int64"),
    "reference masked": (lambda: reference.apply(np.ma.array(images().numpy()), plan()), TypeError, "images: expected an array without a mask"),
    "reference sparse": (lambda: reference.apply(images().to_sparse(), plan()), TypeError, "images: expected a dense torch.Tensor, got layout torch.sparse_coo"),
    "reference plan": (lambda: reference.apply(images(), "cifar"), TypeError, "plan: expected a Plan, got str"),
    "reference shape": (lambda: reference.apply(make_images(3, *SIZE), plan()), ValueError, "images: expected shape [2, 3, 16, 20] for this plan, got [3, 3, 16, 20]; sample it with the size= and channels= of the images"),
    "plan of an image": (lambda: plan()[0], TypeError, "plan[...]: expected a slice of images, got int"),
    "describe row": (lambda: plan().describe(2), ValueError, "row: expected 0 to 1, got 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case: str) -> None:
    call, exception, message = CASES[case]
    with pytest.raises(exception, match=re.escape(message)) as caught:
        call()
    assert type(caught.value) is exception


def test_the_ends_of_ranges_are_good() -> None:
    largest = {
        "width": 255, "depth": 255, "spectral_size": 31, "spatial_cut": 4094, "spatial_cut_max": 4094,
        "color_cut": 1024, "color_cut_max": 1024, "color_band": 1024, "alpha": 1e6, "spectral_std_max": 1e6,
        "color_variance_max": 1e6, "wave_strength": 1e6,
    }  # fmt: skip
    smallest = {name: 0 if isinstance(most, float) else 1 for name, most in largest.items()}
    smallest |= {"spatial_cut": 2, "spatial_cut_max": 3}
    for ends in (smallest, largest):
        config = PrimeConfig(**ends)
        assert {name: getattr(config, name) for name in ends} == ends
    for seed in (-(2**63), 2**63 - 1):
        assert PRIME(mean=(1, 1, 1), std=(1, 1, 1), seed=seed).seed == seed
    for side in (8, 4096):
        assert sample(size=(side, 8)).size == (side, 8)


def test_numbers_of_other_kinds_are_kept_as_pythons() -> None:
    """Whatever kind they came in, and an iterator is read once."""
    halves = (0.5, 0.5, 0.5)
    given = zip(
        (np.full(3, 0.5), torch.full((3,), 0.5), iter(halves), [np.float32(0.5)] * 3),
        (3, np.int64(3), np.array(3), torch.tensor(3)),
        strict=True,
    )
    for mean, views in given:
        module = PRIME(mean=mean, std=np.ones(3, int), views=views)
        assert (module.mean, module.std, module.views) == (halves, (1.0, 1.0, 1.0), 3)
        assert {type(n) for n in (*module.mean, *module.std)} == {float}
        assert type(module.views) is int


def test_plans_compare_by_what_they_say() -> None:
    drawn = plan()
    assert drawn == drawn.numpy() == copy.deepcopy(drawn)
    edited = drawn.numpy()
    edited.strength[1, 0, 0] += 1
    assert drawn != edited
    another = edited.torch()
    another.strength[1, 0, 0] += 1  # of its own: neither of numpy() nor of torch() shares memory
    assert another != edited
    assert drawn != plan(max_cut=drawn.max_cut - 1)
    assert drawn != 3
    assert drawn != plan(channels=1)
    defaults = {"weights": [[0, 1]], "filter_size": 3, "channels": 3, "seed": 0, "waves": None}
    for first, last in ((2, 9), (1, 1024)):
        built = Plan.build([[[("color", 0.5, first, last), ("spatial", 0.1, 20)]]], size=SIZE)
        assert (built.max_band, built.max_cut) == (last - first + 1, 20)
    assert Plan.build([[[]]], size=SIZE) == Plan.build([[[]]], size=SIZE, **defaults)
    with pytest.raises(TypeError, match="unhashable type: 'Plan'"):
        hash(drawn)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_slices_of_plans(kind: str) -> None:
    drawn = getattr(prime_dali.sample("cifar", torch.arange(5), size=SIZE, view=(0, 1)), kind)()
    for images in (slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2), slice(9, None)):
        numbers = torch.arange(5)[list(range(5))[images]]
        assert drawn[images] == prime_dali.sample("cifar", numbers, size=SIZE, view=(0, 1))


@pytest.mark.parametrize("device", [CUDA])
def test_mixed_devices(device: str) -> None:
    with pytest.raises(ValueError, match="plan: expected on cuda:0 like images, got cpu"):
        prime_dali.apply(images().to(device), plan())
    with pytest.raises(ValueError, match="index: expected on cuda:0 like images, got cpu"):
        PRIME("cifar")(images().to(device), INDEX)
    with pytest.raises(ValueError, match="flip: expected on cuda:0 like images, got cpu"):
        prime_dali.apply(images().to(device), plan().torch(device), flip=torch.tensor([True, False]))
    with pytest.raises(ValueError, match="epoch: expected a tensor on cuda:0 like index, got one on cpu"):
        sample(INDEX.to(device), epoch=torch.tensor(1))


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Prime'"):
        prime_dali.Prime  # noqa: B018


def test_config_is_frozen_and_orders_primitives() -> None:
    config = PrimeConfig(primitives=("color", "spectral"))
    assert config.primitives == ("spectral", "color")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 2
    assert config.replace(width=2).width == 2
    assert hash(config) == hash(PrimeConfig(primitives=("spectral", "color")))


def test_a_pickle_of_an_earlier_version() -> None:
    """Another name, a deviation of noise that is not among the primitives, and neither ``draws`` nor waves."""
    config = PrimeConfig(spatial_distribution="arcsine")
    pickled = {name: value for name, value in vars(config).items() if name not in ("draws", "wave_strength")}
    pickled |= {"spatial_law": pickled.pop("spatial_distribution"), "noise_std": 0.1}
    restored = PrimeConfig.__new__(PrimeConfig)
    restored.__setstate__(pickled)
    assert restored == config
