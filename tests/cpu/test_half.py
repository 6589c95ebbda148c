"""float16 and bfloat16 arrays: stored as such, computed with in float32, rounded once where an output is stored."""

import random
import subprocess
import sys
import warnings

import functions as F
import ml_dtypes
import numpy as np
import pytest

import redfuser as rf
from redfuser.frontend.record import promote_dtypes
from redfuser.ir.dtypes import computed_in, expr_dtype, finfo, is_float, numpy_dtype
from redfuser.ir.expr import Cast, Load
from redfuser.testing import check_fusion
from redfuser.testing.grammar import draw_cascade
from redfuser.testing.text import arrays_text

pytestmark = pytest.mark.usefixtures("session_cache")

BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = [pytest.param(np.dtype("float16"), id="float16"), pytest.param(BF16, id="bfloat16")]
SIZES = (1, 2, 3, 17, 33, 1000)
both = pytest.mark.parametrize("dtype", HALVES)


def attention(q, k, v):
    return F.attention(q, k, v).astype(q.dtype)


def layernorm(x, weight, bias):
    return F.layernorm(x, weight, bias).astype(x.dtype)


def top(x):
    return rf.topk(F.softmax(x), 1)


def absmax(x):
    largest = np.abs(x).max(axis=-1, keepdims=True)
    return largest[..., 0], x / largest


def cross_entropy(x, labels):
    m = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - m).sum(axis=-1)) + m[:, 0] - x[np.arange(x.shape[0]), labels]


def squares(x):
    return (x * x).sum(axis=-1)


KERNELS = {f: rf.fuse(f) for f in (F.softmax, F.logsumexp, F.variance, attention, layernorm, top, absmax,
                                   cross_entropy, squares)}
FUNCTIONS = [pytest.param(f, id=f.__name__) for f in KERNELS]


def normal(dtype, *shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def arguments(fn, dtype, n, rows=3):
    x = normal(dtype, rows, n)
    if fn is attention:
        return normal(dtype, rows, 16), normal(dtype, n, 16, seed=1), normal(dtype, n, 16, seed=2)
    if fn is layernorm:
        return x, normal(dtype, n, seed=1), normal(dtype, n, seed=2)
    return (x, np.arange(rows) % max(n, 1)) if fn is cross_entropy else (x,)


def wide(args):
    """Arguments in float64: what the definition is evaluated on."""
    return [a.astype(float) if isinstance(a, np.ndarray) and is_float(a.dtype) else a for a in args]


def flat(results):
    return results if isinstance(results, tuple) else (results,)


def assert_rounded_once(got, want, condition):
    """`got` is `want`, off by what accumulation in float32 may do to it, and rounded to its dtype.

    `condition`: magnitude of what float32 rounds on the way (sum of |terms|, |score|).
    """
    assert got.shape == want.shape
    working = 16 * 2.0**-23 * (np.abs(want) + condition)
    with np.errstate(all="ignore"):
        low, high = (want - working).astype(got.dtype), (want + working).astype(got.dtype)
        inside = (low <= got) & (got <= high)
    same = np.isinf(want) & (got == want) | np.isnan(got) & np.isnan(want)
    assert (inside | same).all(), (got, want)


def check(fn, *args, condition=4.0):
    """The kernel against the definition in float64; dtypes are those that NumPy gives."""
    got = flat(KERNELS[fn](*args))
    with np.errstate(all="ignore"):
        wanted, plain = flat(fn(*wide(args))), flat(fn(*args))
    for g, w, p in zip(got, wanted, plain, strict=True):
        assert np.asarray(g).dtype == np.asarray(p).dtype
        if is_float(np.asarray(g).dtype):
            assert_rounded_once(np.asarray(g), np.asarray(w), condition)
        else:
            np.testing.assert_array_equal(g, w)
    return got


@both
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_within_half_an_ulp_and_float32(fn, dtype):
    for n in SIZES:
        check(fn, *arguments(fn, dtype, n))
    assert check(fn, *arguments(fn, dtype, 5, rows=0))[0].shape[0] == 0


@both
def test_results_have_the_dtype_of_the_arrays(dtype):
    for fn in KERNELS:
        assert flat(KERNELS[fn](*arguments(fn, dtype, 7)))[0].dtype == dtype


@both
def test_nothing_to_reduce(dtype):
    assert np.isnan(KERNELS[F.variance](np.zeros((3, 0), dtype))).all()
    assert (KERNELS[squares](np.zeros((3, 0), dtype)) == 0).all()
    for fn in (F.softmax, F.logsumexp, absmax):
        with pytest.raises(rf.errors.ShapeError, match="at least one element"):
            KERNELS[fn](np.zeros((3, 0), dtype))


@both
@pytest.mark.parametrize("fn", [pytest.param(f, id=f.__name__) for f in (F.softmax, F.variance, absmax)])
def test_layouts(fn, dtype):
    x = normal(dtype, 6, 66)
    for view in (x[:, ::2], x[:, ::-1], x[::-2, ::-3], np.asfortranarray(x), np.broadcast_to(x[:1], (4, 66)),
                 x.reshape(2, 3, 66)[:, ::-1]):
        check(fn, view)
    check(fn, x.astype(dtype.newbyteorder(">")))


@both
def test_layouts_of_matrix_products(dtype):
    q, k, v = arguments(attention, dtype, 33)
    check(attention, q[:, ::-1], k[::-1, ::-1], v[::-1])
    check(attention, np.asfortranarray(q), np.asfortranarray(k), np.asfortranarray(v))
    out = np.empty((3, 32), dtype)[:, ::2]
    assert KERNELS[attention](q, k, v, out=out) is out
    np.testing.assert_array_equal(out, KERNELS[attention](q, k, v))


@both
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities(special, dtype):
    for fn in (F.softmax, F.variance, absmax, layernorm):
        args = arguments(fn, dtype, 20)
        args[0][1, 7] = special
        check(fn, *args)
    x = normal(dtype, 3, 20)
    x[1, :15] = -np.inf
    check(F.softmax, x)
    check(F.logsumexp, x)


@both
def test_subnormal_numbers(dtype):
    tiny = float(finfo(dtype).smallest_subnormal)
    x = (np.arange(1, 40) % 7 * tiny).astype(dtype).reshape(1, -1)
    if dtype == np.float16:  # ordinary numbers of float32; those of bfloat16 are subnormal there too
        check(absmax, x, condition=0)
        halved = rf.fuse(lambda x: (x * 0.5).max(axis=-1))
        assert halved(np.array([[3 * tiny]], dtype))[0] == 2 * tiny  # a tie goes to even
    assert KERNELS[absmax](x)[0] == 6 * tiny


@both
def test_sums_neither_stall_nor_overflow_before_the_end(dtype):
    f = rf.fuse(lambda x: (x.sum(axis=-1), x.mean(axis=-1), np.sqrt((x * x).mean(axis=-1))))
    ones = np.ones((1, 3072), dtype)  # a half accumulator stays at 2048 or 256
    assert [float(r[0]) for r in f(ones)] == [3072, 1, 1]
    large = np.full((1, 1000), 300, dtype)  # squares and their sum exceed float16
    total, mean, root = (float(r[0]) for r in f(large))
    assert (mean, root) == (300, 300)
    assert total == (np.inf if dtype == np.float16 else float(np.asarray(300_000, dtype)))


@both
def test_overflow_on_output_is_infinite(dtype):
    largest = float(finfo(dtype).max)
    double, twice = rf.fuse(lambda x: x * 2 - x.max()), np.array([largest, -largest, 0, largest / 4], dtype)
    np.testing.assert_array_equal(double(twice), [largest, -np.inf, -largest, -largest / 2])
    if dtype == np.float16:
        check(squares, np.array([[200, 200], [181, 181], [-300, 0]], dtype))


@both
def test_a_float64_kernel_rounds_once(dtype):
    """Just above the middle of two halves, and in the middle of two floats: by way of float it rounds down twice."""
    eps = float(finfo(dtype).eps)
    x = np.array([[1, eps / 2, 2.0**-24]], dtype)
    for fn in (lambda x: x.sum(axis=-1), lambda x: x.sum(axis=-1, keepdims=True) + np.zeros_like(x)):
        got = rf.fuse(fn, numerics="reference")(x)
        assert got.dtype == dtype
        assert (got == 1 + eps).all()


# ---- dtypes


def test_mixed_dtypes_are_those_of_numpy():
    half, brain, single = (normal(d, 3, 20) for d in ("float16", BF16, "float32"))
    small, labels, mask = np.ones((3, 20), np.int8), np.ones((3, 20), np.int32), half > 0
    mixes = [(half, single), (brain, single), (half, brain), (half, small), (brain, small), (half, labels),
             (brain, labels), (half, mask), (brain, 2), (half, 0.1), (brain, 0.1), (half, np.float32(3)),
             (brain, np.float64(3)), (half, np.float16(3)), (brain, brain[0, 0])]
    f = rf.fuse(lambda x, y: (x * y).sum(axis=-1))
    for x, y in mixes:
        got, plain = f(x, y), f.__wrapped__(x, y)
        assert got.dtype == plain.dtype
        y = y.astype(float) if isinstance(y, (np.ndarray, np.generic)) else y
        assert_rounded_once(got, (x.astype(float) * y).sum(axis=-1), condition=20.0)


def test_matrix_products_follow_matmul():
    x, y = normal(BF16, 3, 5), normal("float16", 5, 4)
    for f in (lambda x, y: x @ x.T, lambda x, y: y.T @ y, lambda x, y: x @ y, lambda x, y: x.dot(x.T)):
        assert rf.fuse(f)(x, y).dtype == f(x, y).dtype


def test_reductions_that_leave_elements_out():
    x = normal(BF16, 3, 20)
    x[0, :3] = x[2] = np.nan
    for f in (lambda x: np.nanmax(x, axis=-1), lambda x: np.nanvar(x, axis=-1, ddof=1),
              lambda x: x.max(axis=-1, where=x > 0, initial=0.5), lambda x: x.sum(axis=-1, where=x > 0, initial=0.5)):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            plain, wanted = f(x), f(x.astype(float))
        got = rf.fuse(f)(x)
        assert got.dtype == plain.dtype
        assert_rounded_once(got, wanted, condition=20.0)


def test_dtypes_have_the_common_one_that_numpy_finds():
    """ml_dtypes gives bfloat16 and int64 a common dtype from 0.7 on; before, NumPy has none and neither have we.

    In a process of its own: casts that were made before decide what NumPy finds for dtypes of other packages.
    """
    code = """
import ml_dtypes, numpy as np, redfuser as rf
f, inputs = lambda x, n: np.where(x > 0, x, n).sum(), (np.ones(3, ml_dtypes.bfloat16), np.ones(3, np.int64))
try:
    wanted = f(*inputs)
except TypeError:
    wanted = None
try:
    got = rf.fuse(f)(*inputs)
    assert (got.dtype, got) == (wanted.dtype, wanted)
except rf.errors.TraceError as error:
    assert wanted is None
    assert "NumPy has no common dtype for bfloat16, int64; convert with" in str(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_dtypes_without_a_common_one_are_an_error_as_in_numpy():
    with pytest.raises(rf.errors.TraceError, match="NumPy has no common dtype for float32, datetime64; convert with"):
        promote_dtypes(np.dtype("float32"), np.dtype("datetime64"))


@both
def test_a_number_argument_is_not_rounded_to_half(dtype):
    x = np.ones((2, 9), dtype)
    got = rf.fuse(lambda x, scale: (x.astype(np.float32) * scale).sum(axis=-1))(x, 0.1)
    np.testing.assert_allclose(got, 0.9, rtol=1e-6)


@both
def test_conversions(dtype):
    x = normal(dtype, 3, 40)
    single = rf.fuse(lambda x: F.softmax(x.astype(np.float32)))
    np.testing.assert_allclose(single(x), F.softmax(x.astype(np.float32)), rtol=1e-5)
    assert single(x).dtype == np.float32
    assert rf.fuse(lambda x: x.sum(axis=-1, dtype=np.float64))(x).dtype == np.float64
    assert rf.fuse(lambda x: F.softmax(x).astype(dtype))(x.astype(float)).dtype == dtype
    rounded = rf.fuse(lambda x: x.astype(dtype).sum(axis=-1))  # a conversion on the way does round
    thirds = np.full((2, 3), 1 / 3, np.float32)
    assert (rounded(thirds) == (3 * thirds[0, 0].astype(dtype).astype(np.float32)).astype(dtype)).all()


def test_storage_and_arithmetic():
    x = Load("x", ("n",))
    for dtype in ("float16", "bfloat16"):
        assert computed_in(dtype) == np.float32
        assert expr_dtype(x, {"x": dtype}) == expr_dtype(Cast(dtype, x), {"x": "int8"}) == "float32"
        assert is_float(dtype)
        assert numpy_dtype(dtype).itemsize == 2
    for dtype in ("float32", "float64", "int8", "bool"):
        assert computed_in(dtype).name == dtype


@pytest.mark.parametrize(("dtype", "remedy"), [
    ("complex64", "real and imaginary parts"), ("longdouble", r"x\.astype\(np\.float32\)"),
    (ml_dtypes.float8_e4m3fnuz, r"float8_e4m3fnuz is not supported; convert with x\.astype\(np\.float32\)"),
    (ml_dtypes.int4, "pass numbers: an array of .*float16, bfloat16, float8_e4m3fn, float8_e5m2, float32"),
])
def test_other_dtypes_are_refused_with_a_remedy(dtype, remedy):
    with pytest.raises(rf.errors.DTypeError, match=f"argument 'x' of softmax: .*{remedy}"):
        KERNELS[F.softmax](np.zeros((3, 5), dtype))


def test_bfloat16_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(rf.errors.DTypeError, match="bfloat16 arrays need the package ml_dtypes: pip install ml-dtypes"):
        rf.spec((3,), "bfloat16")


def test_the_package_is_not_imported_unasked():
    text = ("import sys, numpy as np, redfuser as rf\n"
            "rf.fuse(lambda x: np.exp(x - x.max()).sum())(np.ones(9, np.float16))\n"
            "assert 'ml_dtypes' not in sys.modules")
    subprocess.run([sys.executable, "-c", text], check=True)


# ---- every level


@both
def test_every_level_knows_the_dtype(dtype):
    """Trace, definitions, streams, merges, tile program and kernel; NaN, masks and large numbers among the inputs."""
    for fn in (F.logsumexp, F.variance):
        found = check_fusion(fn, rf.spec((2, 5), dtype), trials=6, thorough=False)
        assert found.ok, found
    args = arguments(attention, dtype, 9)
    replayed = KERNELS[attention].lower(*args).trace.run(dict(zip("qkv", args, strict=True)))
    assert replayed.dtype == dtype
    assert_rounded_once(replayed, attention(*wide(args)), condition=4.0)
    interpreted = rf.fuse(attention, target="interpret")(*args)
    assert_rounded_once(interpreted, attention(*wide(args)), condition=4.0)


@both
def test_random_cascades(dtype):
    for seed in (1, 4):
        cascade = draw_cascade(random.Random(seed), 3, f"drawn{seed}", (dtype.name,))
        found = check_fusion(cascade, trials=4, kinds=("normal", "far", "nan", "masked"), thorough=False)
        assert found.ok, found


def test_a_counterexample_can_be_pasted():
    x = normal(BF16, 3)
    scope = {"np": np}
    exec(arrays_text({"x": x}), scope)
    np.testing.assert_array_equal(scope["arrays"]["x"], x)


@both
def test_streams_keep_their_state_in_float32(dtype):
    n = rf.axes("n")
    x = rf.tensor("x", n)
    c = rf.Cascade("logsumexp", axis=n)
    m = c.max("m", x)
    c.sum("total", np.exp(x - m))
    fusion = rf.derive(c)
    data, state = normal(dtype, 50), fusion.init()
    for piece in np.split(data, 5):
        state = fusion.update(state, x=piece)
    assert state["total"].dtype == np.float32
    wanted = np.exp(data.astype(float) - data.astype(float).max()).sum()
    np.testing.assert_allclose(fusion.finalize(state)["total"], wanted, rtol=1e-6)
