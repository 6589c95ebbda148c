"""Exponentials of numbers that are never positive, in whole programs: where they are used, and that they are right."""

import functions as F
import numpy as np
import pytest

import redfuser as rf
from redfuser.extract import exponents

RNG = np.random.default_rng(3)
X, Y = (RNG.normal(size=(7, 300)).astype("float32") * 20 for _ in range(2))
Q, K, V = (RNG.normal(size=(2, n, 16)).astype("float32") for n in (40, 70, 70))
MASK = RNG.random((2, 40, 70)) < 0.6
T = np.float32(0.3)


def over(x, axis=-1):
    return x.max(axis=axis, keepdims=True)


def biased_attention(q, k, v, bias):
    s = q @ np.swapaxes(k, -1, -2) * 0.25 + bias
    p = np.exp(s - over(s))
    return (p / p.sum(-1, keepdims=True)) @ v


def base_2(x):
    e = np.exp2(x * 1.4426950408889634 - over(x) * 1.4426950408889634)
    return e / e.sum(-1, keepdims=True)


def softmin(x):
    e = np.exp(-(x - x.min(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(x, y):
    return np.log(np.exp(x - over(x)).sum(-1)) + x.max(-1) - (x * y).sum(-1)


def log_softmax(x):
    return x - over(x) - np.log(np.exp(x - over(x)).sum(-1, keepdims=True))


def masked_softmax(x, y):
    s = np.where(y > 0, x * 0.3, -np.inf)
    e = np.exp(s - over(s))
    return e / e.sum(-1, keepdims=True)


def kernel_average(x, y):
    w = np.exp(-0.5 * (x[:, None] - y[:, :1, None]) ** 2)
    return (w * x[:, None]).sum(-1) / w.sum(-1)


USED = {
    "softmax": (F.softmax, X),
    "softmax over the first axis": (F.softmax_first, X),
    "logsumexp": (F.logsumexp, X),
    "entropy": (F.entropy, X),
    "cross entropy": (cross_entropy, X, Y),
    "log softmax": (log_softmax, X),
    "softmin": (softmin, X),
    "base 2": (base_2, X),
    "masked, scaled": (masked_softmax, X, Y),
    "attention": (F.attention, Q, K, V),
    "masked attention": (F.masked_attention, Q, K, V, MASK),
    "causal attention": (F.causal_attention, K, K, V),
    "attention with a bias": (biased_attention, Q, K, V, RNG.normal(size=(2, 40, 70)).astype("float32")),
    "minus a square": (kernel_average, X, Y),
}

NOT_USED = {
    "the exponential itself": (lambda x: np.exp(x).sum(-1), X / 20),
    "less the mean": (lambda x: np.exp(x - x.mean(-1, keepdims=True)).sum(-1), X),
    "less the maximum of another array": (lambda x, y: np.exp(x - over(y)).sum(-1), X, Y),
    "the maximum less it": (lambda x: np.exp(over(x) - x).sum(-1), X / 20),
    "a factor of unknown sign": (lambda x, t: np.exp((x - over(x)) * t).sum(-1), X, T),
    "less the maximum of some": (lambda x, y: np.exp(x - over(np.where(y > 0, x, -np.inf))).sum(-1), X, Y),
}


def exponentials(lowered) -> tuple[int, int]:
    """How many exponentials of elements are checked for overflow, and how many are of what is never positive."""
    lines = [line for line in str(lowered.tiles).splitlines() if "<-" in line or "_block = " in line]
    lines = [line for line in lines if "_moved" not in line]  # corrections, where lanes lie on columns
    below = sum(line.count("exp_below(") + line.count("exp2_below(") for line in lines)
    return sum(line.count("exp(") + line.count("exp2(") for line in lines), below


@pytest.mark.parametrize("name", USED)
def test_where_it_is_used(name):
    fn, *arguments = USED[name]
    checked, below = exponentials(rf.fuse(fn).lower(*arguments))
    assert below
    assert not checked


@pytest.mark.parametrize("name", NOT_USED)
def test_where_it_is_not(name):
    fn, *arguments = NOT_USED[name]
    checked, below = exponentials(rf.fuse(fn).lower(*arguments))
    assert checked
    assert not below


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*USED, *NOT_USED])
def test_results(name, dtype):
    fn, *arguments = (USED | NOT_USED)[name]
    given = [a.astype(dtype) if a.dtype.kind == "f" else a for a in map(np.asarray, arguments)]
    wanted = fn(*(a.astype("float64") if a.dtype.kind == "f" else a for a in given))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(rf.fuse(fn)(*given), wanted, rtol=600 * eps, atol=60 * eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fn", [F.softmax, F.softmax_first, F.logsumexp, softmin, base_2])
def test_infinite_and_missing_scores(fn, dtype):
    """One such element in every row or column; rows of nothing but -inf are NaN, as in NumPy."""
    x = np.clip(X[:, :40], -60, 60).astype(dtype)
    sign = -1 if fn is softmin else 1
    for value in (-np.inf, np.nan, -2e4):
        given = x.copy()
        given[np.arange(40) % 7, np.arange(40)] = sign * value
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(rf.fuse(fn)(given), fn(given.astype("float64")), rtol=1e-4, atol=1e-6)
    given = np.full((3, 20), -sign * np.inf, dtype)
    if fn is not F.logsumexp:
        assert np.isnan(rf.fuse(fn)(given)).all()


@pytest.mark.parametrize("size", [20, 300, 40_000])
def test_scores_that_are_far_apart(size):
    """From 0 down to what underflows, in every schedule of rows; the weights add up to 1."""
    x = np.linspace(-120, 0, size, dtype="float32")[None] + np.float32(1e3)
    got, wanted = rf.fuse(F.softmax)(x), F.softmax(x.astype("float64"))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-37)
    assert abs(got.sum(dtype="float64") - 1) < 1e-5


def test_a_wrong_claim_shows(monkeypatch):
    """Were everything taken for never positive, what overflows would be some number instead of infinite."""

    def about_mean(x):
        return np.exp(x - x.mean(-1, keepdims=True)).sum(-1)

    x = np.zeros((4, 300), "float32")
    x[:, 7] = [93, 95, 120, 1000]
    assert np.isposinf(rf.fuse(about_mean)(x)).all()
    monkeypatch.setattr(exponents, "never_positive", lambda e, flat: True)
    wrong = rf.fuse(about_mean)
    assert exponentials(wrong.lower(x))[1]
    assert not np.isposinf(wrong(x)).any()
    with np.errstate(all="ignore"):
        assert not np.isposinf(rf.fuse(about_mean, target="interpret")(x)).any()


def scaled_softmax(x, s):
    x = x * s
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 1e10), ("float32", 1e37), ("float64", 1e20)])
def test_products_are_rounded_before_the_maximum_is_subtracted(dtype, largest):
    """As one multiply-add, the difference of a product and its maximum is positive by the rounding of the product."""
    x = (np.random.default_rng(0).uniform(-1, 1, (50, 300)) * largest).astype(dtype)
    scale = np.dtype(dtype).type(0.3)
    for length in (300, 64, 7):
        got = rf.fuse(scaled_softmax)(x[:, :length], scale)
        np.testing.assert_allclose(got, scaled_softmax(x[:, :length], scale), rtol=1e-6, atol=1e-30)
