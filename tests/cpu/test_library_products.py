"""Matrix products that the algebra leaves plain are computed by BLAS, with kernels before and after them."""

import numpy as np
import pytest
from functions import attention

import redfuser as rf
from redfuser.api.products import LibraryPlan
from redfuser.errors import ShapeError
from redfuser.extract import choose
from redfuser.extract.profile import Profile


def data(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def rmsnorm(x, w):
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) @ w


def quantised(x, w):
    scale = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-12) / 8
    return (np.rint(x / scale) @ w) * scale


def transposed(x, w):
    return (x / np.sqrt((x * x).mean(0, keepdims=True))).T @ w


def by_columns(x, w):
    return (x / np.abs(x).max(-1, keepdims=True)) @ w.T


def several(x, w):
    p = x @ w
    return p, (x * x).sum(-1), p * 2


def two_products(x, w):
    r = np.sqrt((x * x).mean(-1, keepdims=True))
    return (x / r) @ w, (x / r) @ (w.T @ w)


def elementwise_before(x, w):
    return np.exp(x) @ w


def scaled_where_positive(x, w):
    s = (x * x).sum(-1, keepdims=True)
    return np.where(s > 500, (x @ w) / s, 0)


def plain(x, w):
    return x @ w


X, W = data(400, 520), data(520, 450, seed=1)
CASES = [(rmsnorm, X, W), (quantised, X, W), (plain, X, W), (several, X, W), (elementwise_before, X, W),
         (scaled_where_positive, X, W), (transposed, data(520, 400), W), (by_columns, X, data(450, 520)),
         (rmsnorm, data(3, 200, 520), W), (rmsnorm, data(3, 200, 520), data(3, 520, 410)),
         (rmsnorm, data(2, 3, 100, 520), W), (rmsnorm, X.astype("float64"), W.astype("float64")),
         (rmsnorm, X.astype("float16"), W), (rmsnorm, X[:, ::-1], W[::-1]),
         (rmsnorm, np.asfortranarray(X), W.T.copy().T)]


def flat(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(("fn", "x", "w"), CASES, ids=lambda v: getattr(v, "__name__", None))
def test_results_are_those_of_numpy(fn, x, w):
    fused = rf.fuse(fn)
    plans = fused.lower(x, w).plan
    assert any(isinstance(p, LibraryPlan) for p in plans), plans
    expected = flat(fn(x.astype("float64"), w.astype("float64")))
    first, second = flat(fused(x, w)), flat(fused(x, w))
    inside = flat(rf.fuse(fn, target="interpret")(x, w))
    for e, a, b, c in zip(expected, first, second, inside, strict=True):
        assert a.dtype == c.dtype
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, e, rtol=0, atol=3e-5 * np.abs(e).max())
        np.testing.assert_allclose(c, e, rtol=0, atol=3e-5 * np.abs(e).max())


def test_the_plan_and_the_report_say_so():
    fused = rf.fuse(rmsnorm)
    (plan,) = fused.lower(X, W).plan
    assert "sum1[i,d] = x[i,n] . w[n,d] by BLAS" in str(plan)
    report = fused.explain(X, W)
    assert "by BLAS, through NumPy" in str(report)
    assert [k.name for k in report.kernels] == ["rmsnorm_before", "rmsnorm_after"]
    assert fused.lower(X, W).source().count("int kernel_") == 2


def test_other_lengths_take_the_faster_way_again():
    fused = rf.fuse(rmsnorm)
    for rows in (400, 3, 400, 1, 390):
        np.testing.assert_allclose(fused(X[:rows], W), rmsnorm(X[:rows], W), rtol=1e-3, atol=1e-4)
    assert isinstance(fused.lower(X, W).plan[0], LibraryPlan)
    assert not isinstance(fused.lower(X[:3], W).plan[0], LibraryPlan)


def test_products_that_change_with_the_loop_stay_in_it():
    q = data(4, 512, 64)
    assert not any(isinstance(p, LibraryPlan) for p in rf.fuse(attention).lower(q, q, q).plan)


def test_arrays_of_the_caller():
    fused = rf.fuse(rmsnorm)
    expected = rmsnorm(X.astype("float64"), W.astype("float64"))
    close = {"rtol": 0, "atol": 3e-5 * np.abs(expected).max()}
    wide = np.zeros((400, 900), np.float32)
    for out in (np.empty((400, 450), np.float32), np.empty((450, 400), np.float32).T, wide[:, ::2], wide[:, :450]):
        assert fused(X, W, out=out) is out
        np.testing.assert_allclose(out, expected, **close)
    square = data(450, 450)
    again = square.copy()
    fused(again, square, out=again)
    np.testing.assert_allclose(again, rmsnorm(square, square), rtol=1e-3, atol=1e-3)
    pair = np.empty((400, 450), np.float32)
    with pytest.raises(ShapeError, match="share memory"):
        rf.fuse(several)(X, W, out=(pair, np.empty(400, np.float32), pair))


def test_not_a_number_and_infinity_pass_as_in_numpy():
    x, w = X.copy(), W.copy()
    x[3, 5], x[7, 9], w[11, 13] = np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = rmsnorm(x, w)
    got = rf.fuse(rmsnorm)(x, w)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))


def test_when_a_library_pays():
    profile = Profile.generic(32).with_fields(threads=2)
    assert choose.library_pays(profile, 4, 1, 1024, 4096, 4096)
    assert not choose.library_pays(profile, 4, 1, 1, 4096, 4096)
    assert not choose.library_pays(profile, 4, 1, 4096, 4096, 8)
    assert not choose.library_pays(profile, 4, 1, 64, 64, 64)
    assert choose.library_pays(profile, 4, 8, 512, 512, 512)


def test_kernels_around_a_product_are_not_tuned_and_say_so(empty_cache):
    fused = rf.fuse(rmsnorm, tune=rf.Tuning(1, 20))
    for _ in range(2):
        text = str(fused.explain(X, W))
        assert "kernels around products by a library are not tuned" in text
        assert "not tuned yet" not in text
        fused(X, W)
    assert fused.stats.tunings == 0
    assert "not tuned" not in str(rf.fuse(rmsnorm).explain(X, W))


def below_the_diagonal(x, w):
    rows, columns = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])[None, :]
    return np.where(columns <= rows, x, 0) @ w


def ranked(x, w):
    return x @ w, x.argmax(-1)


def product_of_a_product(x, w):
    return np.exp(x @ w) @ w.T


@pytest.mark.parametrize(("fn", "why"), [(below_the_diagonal, "a mask ends the stream early"),
                                         (ranked, "positions or sorted lists"),
                                         (product_of_a_product, "another product feeds the stream")])
def test_a_large_product_that_stays_says_why(fn, why):
    x, w = data(500, 500), data(500, 500, seed=1) * np.float32(0.01)
    fused = rf.fuse(fn)
    plans = fused.lower(x, w).plan
    assert not any(isinstance(p, LibraryPlan) for p in plans)
    assert f"no product by a library, although one is large: {why}" in str(fused.explain(x, w))


def test_one_factor_must_be_an_array():
    def taken(fn):
        return any(isinstance(p, LibraryPlan) for p in rf.fuse(fn).lower(X, W).plan)

    assert taken(lambda x, w: x @ np.exp(w))
    assert taken(lambda x, w: np.exp(x) @ w)
    assert not taken(lambda x, w: np.exp(x) @ np.exp(w))
