"""Tensors of PyTorch in and out, on the memory they have. These tests need torch (a CPU build is enough)."""

import subprocess
import sys

import numpy as np
import pytest

import redfuser as rf

torch = pytest.importorskip("torch", reason="torch is not installed (pip install a CPU build of torch to run these)")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


fused = rf.fuse(softmax)


@pytest.mark.parametrize("make", [
    lambda t: t,
    lambda t: t.T,
    lambda t: t[:, ::2],
    lambda t: t[1:, 3],
    lambda t: t.expand(2, 6, 8),
    lambda t: t.to(torch.float64),
    lambda t: torch.nn.Parameter(t).detach(),
])
def test_tensors_in_and_out(make):
    t = make(torch.randn(6, 8))
    got = fused(t)
    assert isinstance(got, torch.Tensor)
    assert got.dtype == t.dtype
    torch.testing.assert_close(got, torch.softmax(t, -1))


def test_no_copy_is_made_of_a_tensor():
    from redfuser.api.tensors import tensor_array

    t = torch.randn(4, 6)
    for view in (t, t.T, t[:, ::3]):
        assert np.shares_memory(tensor_array(view, "x"), t.numpy())


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64"])
def test_dtypes(dtype):
    t = torch.ones((2, 3), dtype=getattr(torch, dtype))
    got = rf.fuse(lambda x: x.max(-1), target="interpret")(t)
    assert got.dtype == t.dtype


def test_zero_dimensional_tensors_in_and_out():
    f = rf.fuse(lambda x, s: (x * s).sum())
    t = torch.randn(5)
    got = f(t, torch.tensor(2.0))
    assert got.shape == ()
    torch.testing.assert_close(got, (t * 2).sum())


def test_one_tensor_makes_all_results_tensors():
    f = rf.fuse(lambda x, d: {"a": x.sum(-1) + d["w"], "b": (np.stack([x.max(-1), x.min(-1)]), x.sum())})
    x, w = np.ones((2, 3)), np.ones(2)
    for got in (f(torch.from_numpy(x), {"w": w}), f(x, {"w": torch.from_numpy(w)})):
        assert all(isinstance(r, torch.Tensor) for r in (got["a"], *got["b"]))
        assert got["a"].tolist() == [4.0, 4.0]
        assert got["b"][0].shape == (2, 2)
    assert isinstance(f(x, {"w": w})["a"], np.ndarray)


def test_gradients_are_refused_unless_they_are_off():
    t = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(rf.errors.ArgumentError, match=r"argument 'x' of softmax requires a gradient.* x\.detach\(\)"):
        fused(t)
    with torch.no_grad():
        torch.testing.assert_close(fused(t), torch.softmax(t, -1))
    torch.testing.assert_close(fused(t.detach()), torch.softmax(t.detach(), -1))


@pytest.mark.parametrize(("make", "message"), [
    (lambda t: t.to("meta"), r"argument 'x' of softmax is on the device meta; .* x\.cpu\(\)"),
    (lambda t: t.to_sparse(), r"argument 'x' of softmax has the layout torch.sparse_coo; pass x\.to_dense\(\)"),
    (lambda t: t.to(torch.complex64), r"argument 'x' of softmax: dtype torch.complex64 .* x\.real and x\.imag"),
])
def test_tensors_without_an_array_are_refused_by_name(make, message):
    with pytest.raises(TypeError, match=message):
        fused(make(torch.ones(3, 4)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_read_and_written_in_place(dtype):
    pytest.importorskip("ml_dtypes")
    t = torch.randn(4, 66).to(dtype)
    for x in (t, t[:, ::2], t.T):
        got = fused(x)
        assert got.dtype == dtype
        torch.testing.assert_close(got, torch.softmax(x.float(), -1).to(dtype))
    out = torch.empty_like(t)
    assert fused(t, out=out) is out
    torch.testing.assert_close(out, fused(t))
    assert rf.fuse(lambda x: x.sum())(t).dtype == dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.gpu
def test_tensors_on_a_gpu_are_refused_by_name():
    with pytest.raises(rf.errors.ArgumentError, match=r"argument 'x' of softmax is on the device cuda:0"):
        fused(torch.ones(3, 4, device="cuda"))


def test_the_error_names_a_leaf():
    f = rf.fuse(lambda d: d["x"][0].sum())
    with pytest.raises(rf.errors.ArgumentError, match=r"argument d\['x'\]\[0\] of .* meta"):
        f({"x": [torch.ones(3, device="meta")]})


def test_out_may_be_a_tensor():
    t, out = torch.randn(3, 4), torch.empty(3, 4)
    assert fused(t, out=out) is out
    torch.testing.assert_close(out, torch.softmax(t, -1))


def test_explain_and_lower_take_tensors():
    assert fused.explain(torch.randn(3, 4)).passes == 1
    assert fused.lower(torch.randn(3, 4)).trace.name == "softmax"


def test_torch_is_not_imported_for_arrays():
    program = ("import sys, numpy as np, redfuser as rf\n"
               "rf.fuse(lambda x, d: (x * d['w']).sum(-1), target='interpret')(np.ones((2, 3)), {'w': np.ones(3)})\n"
               "assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", program], check=True)
