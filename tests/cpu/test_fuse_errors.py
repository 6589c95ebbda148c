"""Wrong options and arguments: errors that name them."""

import functools

import functions as F
import numpy as np
import pytest

import redfuser as rf


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def qkv(batch, n, m, d, dtype):
    return tuple(normal(*batch, length, d, dtype=dtype, seed=i) for i, length in enumerate((n, m, m)))


@functools.cache
def fused(name):
    return rf.fuse(getattr(F, name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "fortran"}, "target='fortran' is not one of"),
        ({"numerics": "sloppy"}, "numerics='sloppy'"),
        ({"empty": "one"}, "empty='one'"),
        ({"require": "two-pass"}, "require='two-pass'"),
        ({"acc_dtype": "float16"}, "acc_dtype='float16'"),
    ({"acc_dtype": "float32"}, "acc_dtype='float32'"),
    ],
)
def test_unknown_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        rf.fuse(F.softmax, **options)


def test_wrong_arguments_are_named():
    f = fused("attention")
    q, k, v = qkv((), 5, 9, 8, "float64")
    with pytest.raises(rf.errors.ShapeError, match=r"9|10"):
        f(q, k, normal(10, 8))
    with pytest.raises(rf.errors.DTypeError, match="argument 'q'"):
        f(q.astype(object), k, v)
    with pytest.raises(rf.errors.DTypeError, match="argument 'x'"):
        fused("softmax")(np.zeros((2, 2), complex))
    with pytest.raises(TypeError, match="missing a required argument"):
        f(q, k)
    with pytest.raises(rf.errors.ShapeError, match="out"):
        fused("softmax")(normal(3, 4), out=np.zeros((3, 5)))
    with pytest.raises(rf.errors.DTypeError, match="out has dtype float32"):
        fused("softmax")(normal(3, 4), out=np.zeros((3, 4), "float32"))
    frozen = np.zeros((3, 4))
    frozen.flags.writeable = False
    with pytest.raises(rf.errors.ShapeError, match="out is read-only"):
        fused("softmax")(normal(3, 4), out=frozen)


@pytest.mark.parametrize("out", [3, "x", {"out": np.zeros((3, 4))}, np.float64(3), iter(())])
def test_out_takes_arrays(out):
    f = fused("softmax")
    for _ in range(2):  # at the first call, and beside one that is known
        with pytest.raises(rf.errors.ArgumentError, match=rf"out= is a {type(out).__name__}; give an array, or a list"):
            f(normal(3, 4), out=out)
        f(normal(3, 4))
    with pytest.raises(rf.errors.DTypeError, match="out is a int; pass a NumPy array"):
        f(normal(3, 4), out=[3])
