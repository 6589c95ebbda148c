"""Reductions of what is not NaN give what NumPy gives, and the variance of the rest is one pass."""

import warnings

import numpy as np
import pytest

import redfuser as rf

pytestmark = pytest.mark.usefixtures("session_cache")
SIZES = (0, 1, 2, 3, 17, 100)
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}
FUNCTIONS = {
    "nansum": lambda x: np.nansum(x, axis=-1),
    "nanprod": lambda x: np.nanprod(x, axis=-1),
    "nanmax": lambda x: np.nanmax(x, axis=-1),
    "nanmin": lambda x: np.nanmin(x, axis=-1, keepdims=True),
    "nanmean": lambda x: np.nanmean(x, axis=-1),
    "nanvar": lambda x: np.nanvar(x, axis=-1),
    "nanvar_ddof": lambda x: np.nanvar(x, axis=-1, ddof=1, keepdims=True),
    "nanstd": lambda x: np.nanstd(x, axis=-1),
    "columns": lambda x: np.nanmean(x, axis=0),
    "all": lambda x: np.nanvar(x),
    "initial": lambda x: np.nanmax(x, axis=-1, initial=0.25),
    "where": lambda x: np.nansum(x, axis=-1, where=x > 0),
    "where_mean": lambda x: np.nanmean(x, axis=-1, where=np.logical_not(x > 1)),
    "dtype": lambda x: np.nansum(x, axis=-1, dtype="float64"),
    "dtype_mean": lambda x: np.nanmean(x, axis=-1, dtype="float64"),
}
FUSED = {name: rf.fuse(fn) for name, fn in FUNCTIONS.items()}


def by_numpy(fn, x):
    """NumPy's result; it warns of rows without a number, and computes what is left out."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return fn(x)


def rows(size, dtype):
    """Rows without NaN, with some, with nothing else, and with infinities."""
    x = np.random.default_rng(size).normal(size=(7, size)).astype(dtype)
    x[1, ::3] = np.nan
    x[2] = np.nan
    x[3, 1:] = np.nan
    x[4, :1], x[4, 1:2] = np.inf, np.nan
    x[5, :1], x[5, 1:2] = -np.inf, np.inf
    x[6] = np.where(np.arange(size) % 2, np.nan, -np.inf)
    return x


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_numpy(name, dtype):
    for size in SIZES:
        if size == 0 and name in ("nanmax", "nanmin", "initial"):
            continue  # refused, as extremes of nothing are
        x = rows(size, dtype)
        wanted, got = by_numpy(FUNCTIONS[name], x), FUSED[name](x)
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=str(size))


@pytest.mark.parametrize("name", ["nanmax", "nanmin"])
def test_no_extreme_of_nothing(name):
    with pytest.raises(ValueError, match="axis of length 0"):
        FUSED[name](np.ones((3, 0)))


@pytest.mark.parametrize("function", [np.nansum, np.nanmax, np.nanmean, np.nanvar])
def test_integers_are_never_nan(function):
    def over(x):
        return function(x, axis=1)

    x = np.arange(12).reshape(3, 4)
    got, wanted = rf.fuse(over)(x), over(x)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("name", ["nansum", "nanmax", "nanmean", "nanvar", "nanvar_ddof", "nanstd"])
def test_one_pass(name):
    report = FUSED[name].explain(rf.spec(("m", "n"), "float32"))
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)


@pytest.mark.parametrize("length", [1000, 40_000])
def test_far_from_zero(length):
    """As accurate as the masked variance, in rows that stay in cache and in rows that stream."""
    x = 1e4 + 1e-3 * np.random.default_rng(1).normal(size=(4, length))
    x[:, ::7] = np.nan
    x[1, : length // 2] = np.nan
    masked = rf.fuse(lambda x: np.var(x, axis=-1, where=~np.isnan(x)))
    centred = np.nanvar(x - 1e4, axis=-1)
    np.testing.assert_allclose(FUSED["nanvar"](x), centred, rtol=1e-8)
    np.testing.assert_array_equal(FUSED["nanvar"](x), masked(x))
    single = x.astype("float32")
    np.testing.assert_allclose(FUSED["nanvar"](single), np.nanvar(single.astype("float64"), axis=-1), rtol=0.02)


def test_where_needs_initial_for_extremes():
    with pytest.raises(rf.errors.TraceError, match="initial"):
        rf.fuse(lambda x: np.nanmax(x, axis=1, where=x > 0))(np.ones((2, 3)))
