"""The Python array API standard: functions written for its namespace, arrays of other libraries in and out."""

import array_api_strict as xp
import numpy as np
import pytest

import redfuser as rf


def softmax(x):
    """As the standard has it: functions of the namespace of the argument, and nothing else."""
    xp = x.__array_namespace__()
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def standardise(x, eps=1e-5):
    xp = x.__array_namespace__()
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.var(x, axis=-1, correction=0, keepdims=True) + eps)


def cosine(x, y):
    xp = x.__array_namespace__()
    return xp.vecdot(x, y) / (xp.linalg.vector_norm(x, axis=-1) * xp.linalg.vector_norm(y, axis=-1))


def attention(q, k, v):
    xp = q.__array_namespace__()
    return xp.matmul(softmax(xp.matmul(q, xp.matrix_transpose(k)) / 8), v)


def confident(x):
    xp = x.__array_namespace__()
    p = softmax(xp.astype(x, xp.float32))
    return {"class": xp.argmax(p, axis=-1), "sure": xp.any(p > 0.5, axis=-1), "p": xp.max(p, axis=-1)}


def numpy_softmax(x):
    """As people write it for NumPy: strict arrays refuse this, the fused function does not."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def given(*shape, dtype="float64"):
    return xp.asarray(np.random.default_rng(len(shape)).normal(size=shape).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("fn", "shapes"), [
    (softmax, [(4, 9)]), (standardise, [(3, 17)]), (cosine, [(5, 8)] * 2), (attention, [(6, 4), (9, 4), (9, 3)]),
])
def test_strict_arrays_in_and_out(fn, shapes, dtype):
    arguments = [given(*s, dtype=dtype) for s in shapes]
    got, wanted = rf.fuse(fn)(*arguments), fn(*arguments)
    assert type(got) is type(wanted)
    assert got.dtype == wanted.dtype
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(np.from_dlpack(got), np.from_dlpack(wanted), rtol=tolerance, atol=tolerance)


def test_structures_truth_values_and_positions():
    x = given(5, 12)
    got, wanted = rf.fuse(confident)(x), confident(x)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_allclose(np.from_dlpack(got[name]), np.from_dlpack(array), rtol=1e-6)


def test_numpy_text_on_arrays_of_the_standard():
    x = given(4, 9)
    got = rf.fuse(numpy_softmax)(x)
    assert type(got) is type(x)
    np.testing.assert_allclose(np.from_dlpack(got), np.from_dlpack(softmax(x)), rtol=1e-12)


def test_the_namespace_of_numpy_arrays():
    x = np.random.default_rng(0).normal(size=(4, 9))
    got = rf.fuse(softmax)(x)
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, softmax(x), rtol=1e-12)


def test_arrays_of_numpy_may_go_along():
    q, k, v = given(6, 4), given(9, 4), given(9, 3)
    got = rf.fuse(attention)(q, np.from_dlpack(k), v)
    assert type(got) is type(q)


def test_the_memory_is_not_copied():
    from redfuser.api.standard import standard_array

    x = np.arange(12.0).reshape(3, 4)
    assert np.shares_memory(standard_array(xp.from_dlpack(x), "x"), x)


def test_results_are_on_the_device_of_the_argument():
    x = xp.asarray([[1.0, 2.0]], device=xp.Device("device1"))
    assert rf.fuse(softmax)(x).device == x.device


class Elsewhere:
    """An array on a device that NumPy cannot read."""

    device = "gpu:0"

    def __array_namespace__(self, *, api_version=None):
        return xp

    def __dlpack__(self, **_):
        raise BufferError("not on the CPU")

    def __dlpack_device__(self):
        return 2, 0


def test_an_array_on_another_device():
    with pytest.raises(rf.errors.ArgumentError, match=r"'x' of softmax is .* on the device gpu:0, which NumPy cannot"):
        rf.fuse(softmax)(Elsewhere())


def test_complex_numbers():
    x = xp.asarray([[1j, 2.0]])
    with pytest.raises(rf.errors.DTypeError, match="'x' of softmax"):
        rf.fuse(softmax)(x)


def test_two_libraries():
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install a CPU build of torch to run this)")
    with pytest.raises(rf.errors.ArgumentError, match="'y' of cosine is an array of torch, another argument one of "
                                                      "array_api_strict"):
        rf.fuse(cosine)(given(5, 8), torch.zeros(5, 8))
