"""Derived forms keep their digits on data far from zero, and verdicts about what the search did not find are honest."""

from __future__ import annotations

import numpy as np
import pytest

from redfuser.derivation import Verdict, derive_cascade, run_fused
from redfuser.ir import Axis, Cascade, Load, Reduction, Ref, Size, Tensor


def far_from_zero(body, location):
    """A cascade of the sum of squared differences of data and their mean, and its relative error in float32 at mean
    1e3 when computed in chunks."""
    n = Axis("n")
    load = Load("x", ("n",))
    data = body(load)
    s = Reduction("s", "sum", data, ())
    mean = Ref("s", ()) / Size("n")
    v = Reduction("v", "sum", location(data, mean) ** 2, ())
    cascade = Cascade("far", "n", (n,), (Tensor("x", ("n",), "float32"),), (), (s, v), ())
    found = derive_cascade(cascade)
    x = (1e3 + np.random.default_rng(0).normal(size=2000)).astype(np.float32)
    got = run_fused(found.fused, {"x": x}, chunks=7)["v"]
    exact = np.asarray(body(x.astype(np.float64)))
    want = ((exact - exact.mean()) ** 2).sum()
    return found, abs(got - want) / want


@pytest.mark.parametrize("body", [lambda x: x, lambda x: x * 0.5, lambda x: x + x * 0.25])
@pytest.mark.parametrize("location", [lambda x, b: x - b, lambda x, b: b - x, lambda x, b: x + (-b)])
def test_squared_differences_of_any_data_are_centred(body, location):
    """sum x^2 - (sum x)^2 / n would lose every digit here."""
    found, error = far_from_zero(body, location)
    assert found.verdict == Verdict.FUSIBLE
    assert error < 1e-5


def test_spread_around_a_weighted_mean_of_the_data_itself():
    """The weights e^(x - max x) do not move with the data, so neither do they in the shifted twin."""
    x, m, mass, mu = Load("x", ("n",)), Ref("m", ()), Ref("l", ()), Ref("mu", ())
    weight = np.exp(x - m)
    stages = (Reduction("m", "max", x, ()), Reduction("l", "sum", weight, ()),
              Reduction("mu", "sum", weight / mass * x, ()), Reduction("v", "sum", weight / mass * (x - mu) ** 2, ()))
    found = derive_cascade(Cascade("own_weights", "n", (Axis("n"),), (Tensor("x", ("n",)),), (), stages, ()))
    assert found.verdict == Verdict.FUSIBLE
    assert found.certificate.valid
    assert "pivot" in {a.monoid for a in found.fused.accumulators}
    data = (1e3 + np.random.default_rng(0).normal(size=500)).astype(np.float32)
    got = run_fused(found.fused, {"x": data}, chunks=6)["v"]
    wide = data.astype(np.float64)
    w = np.exp(wide - wide.max())
    want = (w / w.sum() * (wide - (w / w.sum() * wide).sum()) ** 2).sum()
    assert abs(got - want) < 1e-4 * want


@pytest.mark.parametrize("powers", [(8, 0), (4, 4)])
def test_a_polynomial_is_never_called_not_fusible(powers):
    """(x - a)^8 has rank 9 and (x - a)^4 (y - b)^4 rank 25: more than the table shows, and yet finite."""
    x, y = Load("x", ("n",)), Load("y", ("n",))
    a, b = Ref("s", ()) / Size("n"), Ref("t", ()) / Size("n")
    stages = (Reduction("s", "sum", x, ()), Reduction("t", "sum", y, ()),
              Reduction("v", "sum", (x - a) ** powers[0] * (y - b) ** powers[1], ()))
    cascade = Cascade("moment", "n", (Axis("n"),), (Tensor("x", ("n",)), Tensor("y", ("n",))), (), stages, ())
    assert derive_cascade(cascade).verdict in (Verdict.FUSIBLE, Verdict.NOT_FOUND)


def test_absolute_deviation_of_a_product_is_shown_not_fusible():
    x, w = Load("x", ("n",)), Load("w", ("n",))
    stages = (Reduction("s", "sum", x * w, ()), Reduction("v", "sum", abs(x * w - Ref("s", ()) / Size("n")), ()))
    cascade = Cascade("mad", "n", (Axis("n"),), (Tensor("x", ("n",)), Tensor("w", ("n",))), (), stages, ())
    found = derive_cascade(cascade)
    assert found.verdict == Verdict.NOT_FUSIBLE
    assert "separation rank 20 with 20 elements" in found.stages[0].evidence


def test_a_large_first_round_does_not_end_a_search():
    """Growth is measured against what the search started with, not against nothing."""
    n = Axis("n")
    x, y = Load("x", ("n",)), Load("y", ("n",))
    stages = [Reduction("s", "sum", x * y, ()), Reduction("t", "sum", x + y, ())]
    a, b = x * y - Ref("s", ()) / Size("n"), x + y - Ref("t", ()) / Size("n")
    stages += [Reduction("u", "sum", a * a, ()), Reduction("v", "max", abs(a), ()), Reduction("c", "sum", b * a, ())]
    cascade = Cascade("many", "n", (n,), (Tensor("x", ("n",)), Tensor("y", ("n",))), (), tuple(stages), ())
    found = derive_cascade(cascade)
    assert found.verdict == Verdict.FUSIBLE
    assert "pivot" in {a.monoid for a in found.fused.accumulators}
    assert not any("corrections" in s.name and s.outcome == "limit" and s.iterations == 1 for s in found.timeline)


def test_rules_of_a_search_that_asked_for_accumulators_late():
    """Centred max |x - mean| asks for accumulators; repeating that search finds the same and is not long."""
    x, mean = Load("x", ("n",)) * 0.5, Ref("s", ()) / Size("n")
    stages = (Reduction("s", "sum", x, ()), Reduction("v", "sum", (x - mean) ** 2, ()),
              Reduction("d", "max", abs(x - mean), ()))
    found = derive_cascade(Cascade("far", "n", (Axis("n"),), (Tensor("x", ("n",)),), (), stages, ()))
    assert {"telescope", "max-of-distance", "binomial-2"} <= set(found.rules)
    assert len(found.rules) < 30
