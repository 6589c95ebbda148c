"""What visibly has a finite state is never held for infinite, whatever a table of finite size says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from redfuser.derivation import Cascade as Build
from redfuser.derivation import Verdict, axes, derive_cascade, tensor
from redfuser.derivation.evidence import free_skeleton, growth
from redfuser.derivation.finite import is_finite_extreme
from redfuser.ir import Load, Ref
from redfuser.rules.language import STREAM

N = axes("n")
X = tensor("x", N)


def centered(*names):
    """A cascade with the means of some inputs, and the inputs less them."""
    c = Build("c", axis=N)
    return c, [tensor(k, N) - c.sum(f"mean_{k}", tensor(k, N) / c.size) for k in names]


HIGH_MOMENTS = {  # degrees that no table of these sizes tells from none
    "float power": lambda u, v: u**13.0,
    "even power of magnitudes": lambda u, v: abs(u) ** 14,
    "root": lambda u, v: np.sqrt(u**28),
    "fraction": lambda u, v: (u**2) ** Fraction(13, 2) * (u**2) ** Fraction(1, 2),
    "reciprocal": lambda u, v: 1 / (1 / u**13),
    "powers of a product": lambda u, v: (u * v) ** 4.0,
    "squares of squares": lambda u, v: np.square(np.square(abs(u) * v)),
    "magnitudes": lambda u, v: abs(u) ** 4 * abs(v) ** 4,
    "waves": lambda u, v: np.cos(u) ** 15,
    "logarithm": lambda u, v: np.log(np.exp(u) ** 3) ** 13,
    "exponentials": lambda u, v: (np.exp(u) ** 0.5 - 1) ** 15,
}


@pytest.mark.parametrize("name", HIGH_MOMENTS)
def test_finite_sums_are_never_held_for_infinite(name):
    c, (u, v) = centered("x", "y")
    c.sum("r", HIGH_MOMENTS[name](u, v))
    ranks = growth(c.build(), "r")
    assert ranks is not None
    assert not ranks.growing


@pytest.mark.parametrize("body", [lambda u: abs(u) ** 13, lambda u: np.sqrt(u**26), lambda u: abs(u) ** 2.5,
                                  lambda u: abs(u) / u * u**4, lambda u: np.log(1 + u**2)])
def test_odd_powers_of_magnitudes_are_infinite(body):
    c, (u,) = centered("x")
    c.sum("r", body(u))
    assert growth(c.build(), "r").growing  # type: ignore[union-attr]


LARGEST = {
    "L1": ("max", lambda u, v, w, z: abs(u) + abs(v) + abs(w) + abs(z)),
    "weighted": ("max", lambda u, v, w, z: abs(u) + abs(v) / 2 + 3 * abs(w) + abs(z)),
    "below": ("min", lambda u, v, w, z: -abs(u) - abs(v) - (abs(w) + abs(z))),
    "hinges": ("max", lambda u, v, w, z: np.maximum(u, 0) + np.maximum(v, -u) - np.minimum(w, 1) + abs(z - v)),
    "increasing": ("max", lambda u, v, w, z: np.exp(abs(u) + abs(v) + abs(w) + abs(z)) + 1),
    "squared": ("min", lambda u, v, w, z: -2 * (abs(u) + abs(v) + abs(w) + abs(z)) ** 3),
}


@pytest.mark.parametrize("name", LARGEST)
def test_finitely_many_linear_pieces_are_never_held_for_infinite(name):
    monoid, body = LARGEST[name]
    c, moments = centered(*"xywz")
    c.reduce(monoid, "r", body(*moments))
    d = derive_cascade(c.build())
    assert d.verdict in (Verdict.NOT_FOUND, Verdict.FUSIBLE)
    assert not any(stage.evidence for stage in d.stages)


@pytest.mark.parametrize(("largest", "body"), [
    (False, lambda x, d: abs(x - d)), (True, lambda x, d: -abs(x - d)), (True, lambda x, d: np.cos(x - d)),
    (False, lambda x, d: abs(x - d) + abs(x + d)), (True, lambda x, d: abs(abs(x - d) - abs(x + d))),
    (True, lambda x, d: d - np.maximum(x - d, 0)), (False, lambda x, d: (x - d) ** 2)])
def test_other_extremes_are_not_visibly_finite(largest, body):
    assert not is_finite_extreme(body(Load("x", (STREAM,)), Ref("d")), largest)


def test_a_rank_above_twelve_is_not_held_for_infinite():
    """|x - max x| is max x - x: a power of it has a binomial rule that no look at the expression shows."""
    c = Build("c", axis=N)
    c.sum("r", abs(X - c.max("m", X)) ** 13)
    ranks = growth(c.build(), "r")
    assert ranks is not None
    assert ranks.rank == 14
    assert not ranks.growing


def above_mean(name):
    c = Build("c" + name, axis=N)
    s = c.sum("s" + name, X)
    c.sum(name, np.maximum(X - s + 1, 0))
    return c.build()


def test_ranks_do_not_depend_on_names():
    assert len({str(growth(above_mean(name), name)) for name in ("r", "q", "hinge", "b")}) == 1


def test_every_thread_has_its_own_skeleton():
    cascade = above_mean("r")
    assert free_skeleton(cascade) is free_skeleton(cascade)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(free_skeleton, cascade).result() is not free_skeleton(cascade)
