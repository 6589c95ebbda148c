"""Exponentials and logarithms of the C prelude over their whole range, in units in the last place."""

from __future__ import annotations

import numpy as np
import pytest
from programs import each_variant, elementwise, row_cell

from redfuser.ir import op

pytestmark = pytest.mark.usefixtures("session_cache")

VARIANTS = each_variant()
ALL_VARIANTS = each_variant(fallbacks=True)
COMPUTE = pytest.mark.parametrize("compute", ["float32", "float64"])


def ulps(got: np.ndarray, exact: np.ndarray, dtype: str) -> np.ndarray:
    """Error in units in the last place of the exact value."""
    return np.abs(got.astype(np.longdouble) - exact) / np.spacing(np.abs(exact).astype(dtype)).astype(
        np.longdouble
    )


def spread(low: float, high: float, dtype: str, count: int = 40_000) -> np.ndarray:
    return np.random.default_rng(1).uniform(low, high, count).astype(dtype).reshape(1, -1)


def unary(function: str, x: np.ndarray, variant) -> np.ndarray:
    """The function of a row, computed by a compiled kernel."""
    from programs import compiled

    cell = row_cell("x", x.dtype.name)
    y = np.empty_like(x)
    compiled(elementwise(op(function, cell), [cell.buf], x.dtype.name), variant).run(
        [x], [y], {"r": 1, "n": x.size}
    )
    return y


EXP_LIMITS = {"float32": (-125.4, 128.0), "float64": (-1021.4, 1024.0)}


@VARIANTS
@COMPUTE
@pytest.mark.parametrize(
    ("function", "base"), [("exp", np.log(np.longdouble(2))), ("exp2", np.longdouble(1))]
)
def test_exponentials_over_the_whole_range(variant, compute, function, base):
    low, high = (float(v * base) for v in EXP_LIMITS[compute])
    for x in (
        spread(low, np.nextafter(np.dtype(compute).type(high), 0), compute),
        spread(-1, 1, compute),
        spread(-1e-6, 1e-6, compute),
    ):
        exact = getattr(np, function)(x.astype(np.longdouble))
        finite = exact < np.finfo(compute).max
        assert ulps(unary(function, x, variant), exact, compute)[finite].max() <= 2.6
    edges = np.array([[-np.inf, np.inf, np.nan, 0.0, -0.0, -1e30, 1e30, low - 2, high + 0.01]], compute)
    np.testing.assert_array_equal(
        unary(function, edges, variant)[0], [0, np.inf, np.nan, 1, 1, 0, np.inf, 0, np.inf]
    )


@ALL_VARIANTS
@COMPUTE
@pytest.mark.parametrize(
    ("function", "base"), [("exp", np.log(np.longdouble(2))), ("exp2", np.longdouble(1))]
)
def test_exponentials_of_what_is_never_positive(variant, compute, function, base):
    """As accurate as the others; a rounding above 0 does no harm, nor does anything up to the overflow."""
    low, high = (float(v * base) for v in EXP_LIMITS[compute])
    dense = np.linspace(1.05 * low, 0, 120_001).astype(compute).reshape(1, -1)
    excess = np.concatenate([np.geomspace(1e-9, 1, 2000), np.linspace(1, 0.9999 * high, 2000)])
    for x in (dense, excess.astype(compute).reshape(1, -1)):
        exact, got = getattr(np, function)(x.astype(np.longdouble)), unary(f"{function}_below", x, variant)
        normal = exact >= 2 ** np.longdouble(EXP_LIMITS[compute][0])
        assert ulps(got, exact, compute)[normal].max() <= (2.5 if compute == "float32" else 1.5)
        tiny = np.longdouble(2) ** (EXP_LIMITS[compute][0] + 0.1)
        assert ((got[~normal] == 0) | (np.abs(got[~normal] - exact[~normal]) < tiny)).all()
        assert (got >= 0).all()
    edges = np.array([[-np.inf, 0.0, -0.0, 1.05 * low, 1000 * low, -1e30]], compute)
    np.testing.assert_array_equal(unary(f"{function}_below", edges, variant)[0], [0, 1, 1, 0, 0, 0])


NANS = {
    "float32": ("u4", [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FC000FF, 0xFFC12345, 0x7FABCDEF]),
    "float64": ("u8", [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 2**64 - 1, (0xFFF8 << 48) + 0x7FF]),
}


@ALL_VARIANTS
@COMPUTE
def test_every_nan_stays_one(variant, compute):
    bits, patterns = NANS[compute]
    x = np.array([patterns], bits).view(compute)
    for function in ("exp", "exp2", "exp_below", "exp2_below"):
        assert np.isnan(unary(function, x, variant)).all()


@ALL_VARIANTS
@COMPUTE
def test_logarithm_over_the_whole_range(variant, compute):
    info = np.finfo(compute)
    wide = np.exp2(
        spread(np.log2(float(info.smallest_subnormal)) + 1, np.log2(float(info.max)), "float64", 20_000)
    )
    for x in (wide.astype(compute), spread(0.5, 2, compute), spread(1 - 1e-3, 1 + 1e-3, compute)):
        exact = np.log(x.astype(np.longdouble))
        away = exact != 0
        assert ulps(unary("log", x, variant), exact, compute)[away].max() <= 2.6
    edges = np.array([[0.0, -0.0, -1.0, -np.inf, np.inf, np.nan, 1.0, info.smallest_subnormal]], compute)
    expected = [
        -np.inf,
        -np.inf,
        np.nan,
        np.nan,
        np.inf,
        np.nan,
        0,
        np.log(np.float64(info.smallest_subnormal)),
    ]
    np.testing.assert_allclose(unary("log", edges, variant)[0], expected, rtol=4 * info.eps)
