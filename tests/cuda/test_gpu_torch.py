"""Fused functions on CUDA tensors of PyTorch, on stand-ins for PyTorch and CuPy."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from standin_cupy import Cuda
from standin_torch import torch_on
from test_gpu_calls import softmax

import redfuser as rf
from redfuser.errors import ArgumentError, DTypeError
from redfuser.ir.dtypes import numpy_dtype
from redfuser.runtime.cuda.errors import NoDevice

X = np.random.default_rng(3).standard_normal((5, 70)).astype("float32")


@pytest.fixture
def machine(host, monkeypatch):
    """(CuPy's machine, torch)."""
    cuda = Cuda()
    torch = torch_on(cuda)
    monkeypatch.setitem(sys.modules, "cupy", cuda.cupy)
    monkeypatch.setitem(sys.modules, "torch", torch)
    yield cuda, torch
    cuda.close()


def tensor(machine, array, device=0):
    cuda, torch = machine
    return torch.Tensor(cuda.put(array)._np, device)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_stay_tensors(machine, dtype):
    cuda, torch = machine
    f, x = rf.fuse(softmax), X.astype(numpy_dtype(dtype))
    given = tensor(machine, x)
    y = f(given)
    assert (type(y), y.dtype.name, y.device.index) == (torch.Tensor, dtype, 0)
    wanted = softmax(x.astype("float32"))
    np.testing.assert_allclose(y.array.astype("float32"), wanted, atol=1e-6 if dtype == "float32" else 4e-3)
    out = tensor(machine, np.zeros_like(x))
    cuda.log.clear()
    assert f(given, out=out) is out
    assert cuda.log == [("launch", "softmax_phase0", 55, 0)]  # torch's stream, torch's memory
    assert (out.array == y.array).all()


def test_results_that_are_views_of_their_tensors(machine):
    f = rf.fuse(lambda x: (x.sum(axis=-1, keepdims=True), x.max(axis=-1)))
    total, most = f(tensor(machine, X))
    assert total.shape == (5, 1)
    np.testing.assert_allclose(total.array[:, 0], X.sum(axis=-1), rtol=1e-4)
    assert (most.array == X.max(axis=-1)).all()


def test_what_is_refused(machine, monkeypatch):
    x = tensor(machine, X)
    both = rf.fuse(lambda x, y: (x * y).sum(axis=-1))
    with pytest.raises(ArgumentError, match=r"'y' is a tensor on the CPU, and 'x' is on device 0; pass y.cuda\(\)"):
        both(x, tensor(machine, X, None))
    with pytest.raises(ArgumentError, match="'y' is on device 1, and 'x' is on device 0"):
        both(x, tensor(machine, X, 1))
    with pytest.raises(ArgumentError, match=r"'y' is a NumPy array.*torch.as_tensor\(y, device='cuda:0'\)"):
        both(x, X)
    with pytest.raises(ArgumentError, match="arrays of one library"):
        both(x, machine[0].put(X))
    with pytest.raises(DTypeError, match=r"argument 'x' of softmax: dtype torch.complex64"):
        rf.fuse(softmax)(tensor(machine, X.astype("complex64")))
    grown = tensor(machine, X)
    grown.requires_grad = True
    with pytest.raises(ArgumentError, match="requires a gradient"):
        rf.fuse(softmax)(grown)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NoDevice, match="CuPy cannot be imported"):
        rf.fuse(softmax)(x)
