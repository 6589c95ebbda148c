"""The smallest set of hard inputs, on every kernel of the main job, compiled; the kinds are those users report."""

import functools

import functions as F
import numpy as np
import pytest
from contract import assert_contract

import redfuser as rf

ROWS = ("softmax", "logsumexp", "variance", "layernorm", "entropy")
SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 128, 129, 257, 1009)


@functools.cache
def fused(name, empty="nan"):
    return rf.fuse(getattr(F, name), empty=empty)


def arguments(name, x):
    """The row `x`, and the other arguments a function takes."""
    if name == "layernorm":
        rng = np.random.default_rng(5)
        return x, rng.normal(size=x.shape[-1]).astype(x.dtype), rng.normal(size=x.shape[-1]).astype(x.dtype)
    return (x,)


def rows(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def check(name, x, condition=16.0):
    args = arguments(name, x)
    assert_contract(fused(name)(*args), getattr(F, name), *args, condition=condition)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ROWS)
def test_every_length(name, n, dtype):
    check(name, rows(3, n, dtype=dtype, seed=n))


@pytest.mark.parametrize("n", [100_003, 1 << 16])
@pytest.mark.parametrize("name", ROWS)
def test_rows_longer_than_the_cache(name, n):
    check(name, rows(2, n, seed=n) * 3 + 1)


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "entropy"])
def test_masked_prefix_and_masked_elements(name):
    x = rows(6, 5000)
    x[0, :4097] = -np.inf
    x[1, ::2] = -np.inf
    x[2, 1:] = -np.inf
    x[3, :-1] = -np.inf
    if name == "entropy":  # 0 * -inf is NaN in NumPy, so it is NaN here
        with np.errstate(all="ignore"):
            assert np.isnan(F.entropy(x)[:4]).all()
    check(name, x)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("position", [0, 5, 4999])
@pytest.mark.parametrize("name", ROWS)
def test_one_special_value(name, value, position):
    x = rows(3, 5000)
    x[1, position] = value
    check(name, x)


@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_huge_and_one_hot(name):
    x = rows(4, 300, dtype="float64") * 1e14
    check(name, x)
    x = rows(4, 300) * np.float32(1e14)
    check(name, x)
    x = np.full((2, 300), -3.4e38, np.float32)
    x[0, 7] = 1
    check(name, x)


def test_all_masked_row_of_softmax_follows_the_policy():
    x = rows(3, 50)
    x[1] = -np.inf
    got = fused("softmax")(x)
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 2]].sum(1), 1, rtol=1e-6)
    zero = fused("softmax", "zero")(x)
    assert (zero[1] == 0).all()
    np.testing.assert_array_equal(zero[[0, 2]], got[[0, 2]])


def test_logsumexp_of_nothing_alive_is_minus_infinity():
    x = np.full((2, 70), -np.inf, np.float32)
    assert fused("logsumexp")(x).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("spread", [1e-3, 1e-1, 1.0])
@pytest.mark.parametrize("n", [64, 5000, 200_000])
def test_variance_far_from_zero(n, spread):
    x = (rows(4, n, dtype="float64") * spread + 1e4).astype("float32")
    got = fused("variance")(x)
    assert (got >= 0).all()
    assert_contract(got, F.variance, x, condition=4)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_large_scores(scale):
    q, k = rows(12, 16) * np.float32(scale / 16), rows(40, 16, seed=1) * np.float32(16)
    v = rows(40, 16, seed=2)
    f = rf.fuse(F.attention)
    # an error of eps * |score| in the exponent is inherent in float32 scores
    assert_contract(f(q, k, v), F.attention, q, k, v, condition=4 * scale)


def test_constant_rows():
    x = np.full((3, 1000), 7.25, np.float32)
    for name in ROWS:
        check(name, x)


def test_empty_axes():
    assert fused("softmax")(rows(0, 5)).shape == (0, 5)
    for name, line in (("softmax", r"\n  at .*functions.py:\d+: .*max"), ("logsumexp", "length 0")):
        with pytest.raises(ValueError, match="zero-size array"):
            getattr(F, name)(rows(5, 0))
        with pytest.raises(rf.errors.ShapeError, match=line):
            fused(name)(rows(5, 0))
    assert fused("softmax")(rows(0, 0)).shape == (0, 0)  # no maximum is asked for, in NumPy either
    assert fused("logsumexp")(rows(0, 5)).shape == (0,)
    got = fused("variance")(rows(2, 0))
    assert np.isnan(got).all()


ATTENTION = ("attention", "causal_attention", "masked_attention")


def attention_arguments(name, n, m, d, dtype="float32", batch=(2,)):
    rng = np.random.default_rng(n * m + d)
    args = [rng.normal(size=(*batch, length, d)).astype(dtype) for length in (n, m, m)]
    if name == "masked_attention":
        mask = rng.random((*batch, n, m)) < 0.7
        mask[..., 0] = True
        args.append(mask)
    return args


@pytest.mark.parametrize(
    ("n", "m"), [(1, 1), (1, 7), (7, 1), (6, 16), (5, 17), (13, 255), (97, 257), (96, 256), (31, 513)]
)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_lengths(name, n, m):
    if name == "causal_attention":
        n = min(n, m)
    args = attention_arguments(name, n, m, 8)
    assert_contract(fused(name)(*args), getattr(F, name), *args, condition=16)


@pytest.mark.parametrize("d", [1, 3, 8, 24, 40, 72])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_head_sizes(d, dtype):
    args = attention_arguments("attention", 10, 50, d, dtype)
    assert_contract(fused("attention")(*args), F.attention, *args, condition=16)


def test_attention_with_a_fully_masked_row_and_a_masked_first_tile():
    q, k, v, mask = attention_arguments("masked_attention", 20, 600, 16)
    mask[0, 3] = False
    mask[0, 4, :520] = False
    mask[0, 4, 599] = True
    f, zero = fused("masked_attention"), fused("masked_attention", "zero")
    got = f(q, k, v, mask)
    assert np.isnan(got[0, 3]).all()
    assert np.isfinite(got[0, 4]).all()
    assert_contract(got, F.masked_attention, q, k, v, mask, condition=16)
    filled = zero(q, k, v, mask)
    assert (filled[0, 3] == 0).all()
    np.testing.assert_array_equal(np.delete(filled[0], 3, 0), np.delete(got[0], 3, 0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_attention_with_a_special_value(value):
    q, k, v = attention_arguments("attention", 6, 300, 16)
    k[0, 280, 3] = value
    assert_contract(fused("attention")(q, k, v), F.attention, q, k, v, condition=16)


def test_attention_layouts():
    q, k, v = attention_arguments("attention", 9, 33, 16, batch=(2, 3))
    swapped = [np.ascontiguousarray(np.swapaxes(a, 1, 2)).swapaxes(1, 2) for a in (q, k, v)]
    assert_contract(fused("attention")(*swapped), F.attention, *swapped, condition=16)
    one = [np.broadcast_to(a[:, :1], a.shape) for a in (k, v)]
    assert_contract(fused("attention")(q, *one), F.attention, q, *one, condition=16)
    back = [a[:, :, ::-1, ::-1] for a in (q, k, v)]
    assert_contract(fused("attention")(*back), F.attention, *back, condition=16)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "bool"])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "variance", "entropy"])
def test_other_dtypes_follow_numpy_or_say_what_to_do(name, dtype):
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 6, (3, 50)).astype(dtype)
    if name != "variance" and dtype == "bool":
        with pytest.raises(rf.errors.TraceError, match=r"np\.subtract has no meaning for bool, bool; convert"):
            fused(name)(x)
    else:
        with np.errstate(all="ignore"):  # NumPy computes with bytes in float16
            got, wanted = fused(name)(x), getattr(F, name)(x)
        assert got.dtype == wanted.dtype
        if got.dtype == np.float16:
            top = x.max(1, keepdims=True)
            shifted = (x - top).astype(float)  # unsigned ones wrap around; adding a number moves logsumexp only
            moved = top[:, 0] if name == "logsumexp" else 0
            wanted = (getattr(F, name)(shifted) + moved).astype(np.float16)
        np.testing.assert_allclose(got, wanted, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["complex64", "longdouble", "datetime64[s]"])
def test_dtypes_without_kernels_are_refused_by_name(dtype):
    with pytest.raises(rf.errors.DTypeError, match="argument 'x' of softmax: dtype"):
        fused("softmax")(np.zeros((3, 5), dtype))
