"""Ufuncs that are formulas over others: the values of NumPy, with infinities, NaN and numbers near overflow."""

import math

import numpy as np
import pytest

import redfuser as rf
from redfuser.testing import check_fusion

pytestmark = pytest.mark.usefixtures("session_cache")
FUNCTIONS = {
    "logaddexp": lambda a, b: np.logaddexp(a, b),
    "logaddexp2": lambda a, b: np.logaddexp2(a, b),
    "hypot": lambda a, b: np.hypot(a, b),
    "sinh": lambda a: np.sinh(a),
    "cosh": lambda a: np.cosh(a),
    "arctanh": lambda a: np.arctanh(a),
    "arcsinh": lambda a: np.arcsinh(a),
    "cbrt": lambda a: np.cbrt(a),
    "fmax": lambda a, b: np.fmax(a, b),
    "fmin": lambda a, b: np.fmin(a, b),
    "heaviside": lambda a, b: np.heaviside(a, b),
    "arctan": lambda a: np.arctan(a),
    "arctan2": lambda a, b: np.arctan2(a, b),
    "arcsin": lambda a: np.arcsin(a),
    "arccos": lambda a: np.arccos(a),
    "copysign": lambda a, b: np.copysign(a, b),
    "signbit": lambda a: np.signbit(a),
}


def values(dtype):
    limits = np.finfo(dtype)
    top = np.log(limits.max)
    near = [0.0, -0.0, 0.5, 1.0, 1e-5, 0.999, 3.0, 50.0, top - 0.5, top + 0.5, top + 2, limits.max, limits.tiny]
    return np.array([*near, *(-v for v in near), np.inf, -np.inf, np.nan], dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_numpy(name, dtype):
    fn, v = FUNCTIONS[name], values(dtype)
    binary = fn.__code__.co_argcount == 2
    args = [np.ascontiguousarray(g) for g in np.meshgrid(v, v)] if binary else [v]
    with np.errstate(all="ignore"):
        wanted = fn(*args)
    got = rf.fuse(fn)(*args)
    assert got.dtype == wanted.dtype
    limits = np.finfo(dtype)
    # a sum of logarithms near 0 is a difference, in NumPy as well
    atol = 2 * limits.eps if name.startswith("log") else 2 * limits.tiny
    np.testing.assert_allclose(got, wanted, rtol=16 * limits.eps, atol=atol)
    if name in ("arctan", "arctan2", "arcsin", "arccos", "copysign"):
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(wanted)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 17, 100])
@pytest.mark.parametrize("name", ["logaddexp", "hypot"])
def test_sizes_numbers_and_integers(name, size):
    fn, rng = FUNCTIONS[name], np.random.default_rng(size)
    a, k = rng.normal(size=size).astype("float32"), rng.integers(-5, 5, size)
    fused = rf.fuse(fn)
    for args in ((a, a[::-1]), (a, np.float32(0.5)), (k, k), (a[:, None], a)):
        got, wanted = fused(*args), fn(*args)
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_python_number_does_not_widen():
    fused = rf.fuse(lambda a: np.logaddexp(a, 0))
    assert fused(np.ones(3, "float32")).dtype == np.float32


def test_a_softplus_loss_is_one_pass():
    report = rf.fuse(lambda z: np.logaddexp(0, z).sum(axis=-1)).explain(rf.spec(("m", "n"), "float32"))
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)


@pytest.mark.parametrize("shape", [(2, 1), (3, 5), (2, 70_000)])
@pytest.mark.parametrize("statistic", [np.mean, np.max])
@pytest.mark.parametrize("axis", [0, -1])
def test_conditions_on_a_statistic(statistic, axis, shape):
    """What is selected by a condition on a running value alone is a truth value that the loop carries."""
    def length(x):
        return np.hypot(x, statistic(x, axis=axis, keepdims=True)).sum(axis=axis)

    x = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(rf.fuse(length)(x), length(x), rtol=1e-9)


def circular_mean(x):
    return np.arctan2(np.sin(x).mean(-1), np.cos(x).mean(-1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_circular_mean_is_one_pass(dtype):
    report = rf.fuse(circular_mean).explain(rf.spec((4, "n"), dtype))
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)
    for n in (1, 2, 17, 1000):
        x = (np.arange(-2, 3)[:, None] * 1.3 + 0.2 * np.random.default_rng(n).normal(size=(5, n))).astype(dtype)
        np.testing.assert_allclose(rf.fuse(circular_mean)(x), circular_mean(x.astype("float64")),
                                   rtol=64 * np.finfo(dtype).eps, atol=64 * np.finfo(dtype).eps)
    assert check_fusion(circular_mean, rf.spec((3, "n"), dtype), trials=6, thorough=False)


def test_an_increasing_angle_has_the_extreme_of_its_operand():
    report = rf.fuse(lambda x: np.arctan(x - x.mean(-1, keepdims=True)).max(-1)).explain(rf.spec((4, "n"), "float64"))
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)


def test_angles_of_python_numbers_and_integers():
    f = rf.fuse(lambda x, side: x * math.atan(side) + np.arctan2(side, x) + np.arctan2(1, 2))
    x = np.arange(-2, 3)
    np.testing.assert_allclose(f(x, 3), x * math.atan(3) + np.arctan2(3, x) + np.arctan2(1, 2))
