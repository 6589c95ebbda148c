"""Every kernel that people write around reductions, on every kind of input that breaks kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from kernels_of_users import KERNELS, cross_entropy_of_labels, softmax

import redfuser as rf
from redfuser.derivation.derive import dependent_stages
from redfuser.ir.ops import PIVOT
from redfuser.testing import check_fusion
from redfuser.testing.inputs import KINDS

ROUNDED = ("absmax_dot", "asymmetric_dot")
"""Those that round and may round elsewhere: they differ from the definition by a step per element at most."""
LENGTHS = (1, 2, 3, 16, 17, 31, 1009)


@cache
def fused(name, empty="nan"):
    return rf.fuse(KERNELS[name].fn, allow=KERNELS[name].allow, empty=empty)


def arguments(name, n, dtype="float32", rows=3):
    rng = np.random.default_rng(n)
    sizes = {"rows": rows, "n": n, "m": 5, "images": 2, "channels": 3}
    return [rng.normal(size=[sizes[a] for a in axes]).astype(dtype) for axes in KERNELS[name].specs]


def leaves(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", KERNELS)
def test_one_pass_with_few_accumulators(name):
    report = fused(name).lower(*(rf.spec(axes, "float32") for axes in KERNELS[name].specs))
    chained = [f for f in report.fusion if dependent_stages(f.cascade) > 1] or report.fusion[:1]
    assert [len(f.passes) for f in chained] == [1]
    own = [a for a in chained[0].accumulators if not a.counts and a.monoid != PIVOT]
    assert len(own) <= KERNELS[name].accumulators


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in KERNELS if n not in ROUNDED and n != "softmax_top3"])
def test_every_kind_of_input(name, dtype):
    found = check_fusion(fused(name), *(rf.spec(axes, dtype) for axes in KERNELS[name].specs), trials=len(KINDS),
                         targets=("c",), thorough=False, shrink=False)
    assert found.ok, found.counterexample


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool"])
@pytest.mark.parametrize("name", KERNELS)
def test_whole_numbers(name, dtype):
    """NumPy's results and dtypes on the same numbers: products of int8 wrap around."""
    given = [np.round(10 * x) for x in arguments(name, 33)]
    given = [x > 0 if dtype == "bool" else x.astype(dtype) for x in given]
    try:
        wanted = leaves(KERNELS[name].fn(*given))
    except TypeError:  # NumPy subtracts no truth values
        with pytest.raises(rf.errors.TraceError, match=r"convert with \.astype"):
            fused(name)(*given)
        return
    for got, expected in zip(leaves(fused(name)(*given)), wanted, strict=True):
        assert got.dtype == expected.dtype
        tolerance = 2e-3 if expected.dtype == np.float16 else 1e-9
        np.testing.assert_allclose(got.astype("float64"), expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", KERNELS)
def test_lengths_and_layouts(name, n):
    """Contiguous, reversed, with gaps and repeated rows: the same numbers, the same bits on repetition."""
    given = arguments(name, n)
    if name == "softmax_top3" and n < 3:
        with pytest.raises(rf.errors.ShapeError, match="3"):
            fused(name)(*given)
        return
    first = leaves(fused(name)(*given))
    layouts = {
        "again": given,
        "with gaps": [np.repeat(x, 2, axis=-1)[..., ::2] for x in given],
        "reversed": [np.ascontiguousarray(x[..., ::-1])[..., ::-1] for x in given],
        "transposed": [np.asfortranarray(x) for x in given],
    }
    for layout, arrays in layouts.items():
        for got, wanted in zip(leaves(fused(name)(*arrays)), first, strict=True):
            if layout == "again":
                np.testing.assert_array_equal(got, wanted)
            else:
                np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5, err_msg=layout)
    repeated = [np.broadcast_to(x[:1], x.shape) if axes[0] == "rows" else x
                for x, axes in zip(given, KERNELS[name].specs, strict=True)]
    for got in leaves(fused(name)(*repeated)):
        if KERNELS[name].specs[0][0] == "rows":
            np.testing.assert_allclose(got[1:], np.broadcast_to(got[:1], got[1:].shape), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if k.specs[0][0] == "rows"])
def test_no_rows(name):
    got = leaves(fused(name)(*arguments(name, 17, rows=0)))
    wanted = leaves(KERNELS[name].fn(*arguments(name, 17, rows=0)))
    assert [np.shape(x) for x in got] == [np.shape(x) for x in wanted]


MASS = {"softmax_top3": 0, "weighted_variance": 1, "softmax_variance": 0}
"""Kernels that divide by the mass of a softmax, and the argument that holds the scores."""


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", MASS)
def test_a_row_without_mass(name, dtype):
    """NaN as in NumPy; 0 for those who ask for it. Other rows are the same bits."""
    given = arguments(name, 33, dtype)
    given[MASS[name]][1] = -np.inf
    with np.errstate(all="ignore"):
        by_numpy = leaves(KERNELS[name].fn(*given))[0]
        plain, zero = (leaves(fused(name, empty)(*given)) for empty in ("nan", "zero"))
    assert np.isnan(by_numpy[1]).all()
    assert np.isnan(plain[0][1]).all()
    assert not zero[0][1].any()
    for a, b in zip(plain, zero, strict=True):
        np.testing.assert_array_equal(a[[0, 2]], b[[0, 2]])


@pytest.mark.parametrize("target", ["c", "interpret"])
def test_averages_without_mass(target):
    """Location, spread and what is made of them, on shifted data."""
    def moments(x, v):
        p = softmax(x)
        mu = (p * v).sum(axis=-1, keepdims=True)
        return mu[..., 0], (p * (v - mu) ** 2).sum(axis=-1), 2 * mu[..., 0] + 1

    x, v = np.full((3, 9), -np.inf), np.random.default_rng(0).normal(size=(3, 9)) + 5
    x[[0, 2]] = 1
    with np.errstate(all="ignore"):
        mu, spread, line = rf.fuse(moments, empty="zero", target=target)(x, v)
        expected = moments(x, v)
    assert (mu[1], spread[1], line[1]) == (0, 0, 1)
    for got, wanted in zip((mu, spread, line), expected, strict=True):
        np.testing.assert_allclose(got[[0, 2]], wanted[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("name", ["log_softmax", "entropy", "cross_entropy"])
def test_what_is_no_quotient_stays_undefined(name):
    """A score of -inf less a maximum of -inf is no number under either policy."""
    given = arguments(name, 33)
    given[0][1] = -np.inf
    with np.errstate(all="ignore"):
        for empty in ("nan", "zero"):
            assert np.isnan(leaves(fused(name, empty)(*given))[0][1]).all()


@pytest.mark.parametrize("name", KERNELS)
def test_float64(name):
    given = arguments(name, 33, "float64")
    tolerance = {"rtol": 0.02, "atol": 0.5} if name in ROUNDED else {"rtol": 1e-9, "atol": 1e-11}
    for got, wanted in zip(leaves(fused(name)(*given)), leaves(KERNELS[name].fn(*given)), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, **tolerance)


@pytest.mark.parametrize("name", ["log_softmax", "softmax_top3", "entropy", "cross_entropy"])
def test_huge_logits(name):
    given = arguments(name, 64)
    given[0] = given[0] * np.float32(1e14)
    with np.errstate(all="ignore"):
        wanted = leaves(KERNELS[name].fn(*(x.astype(np.float64) for x in given)))
    got = leaves(fused(name)(*given))  # positions among weights that are 0 by rounding are those of the scores
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROUNDED)
def test_zero_rows_are_quantised_to_zero(name):
    given = arguments(name, 64)
    given[0][1] = 0
    got = np.asarray(fused(name)(*given))
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got[1], np.zeros_like(got[1]))


@pytest.mark.parametrize("n", [3, 17, 1009])
def test_cross_entropy_of_labels(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(6, n)).astype(np.float32)
    labels = rng.integers(0, n, 6)
    labels[::3] = -100
    f = rf.fuse(cross_entropy_of_labels)
    np.testing.assert_allclose(f(x, labels), cross_entropy_of_labels(x, labels), rtol=1e-5)
    nothing = np.full(6, -100)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(f(x, nothing), cross_entropy_of_labels(x, nothing))  # a mean of nothing: NaN
    chained = [c for c in f.lower(x, labels).fusion if dependent_stages(c.cascade) > 1]
    assert [len(c.passes) for c in chained] == [1]
