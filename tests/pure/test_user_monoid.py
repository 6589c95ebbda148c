"""rf.monoid: laws are sampled at definition; use in equations and in traced functions."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

import redfuser as rf
from redfuser import pipeline
from redfuser.derivation import derive_cascade, run_fused
from redfuser.errors import ArgumentError, LawViolation, ShapeError, TraceError
from redfuser.frontend import Spec
from redfuser.ir import run_cascade


def affine_combine(f, g):
    """f first, then g, for f(x) = a x + b."""
    return f[0] * g[0], g[0] * f[1] + g[1]


AFFINE = rf.monoid("affine", identity=(1.0, 0.0), combine=affine_combine, parts=("a", "b"))
ROOT = rf.monoid("root_of_squares", identity=0.0, combine=lambda a, b: np.sqrt(a * a + b * b), commutative=True,
                 draw=lambda rng: abs(rng.gauss(0, 3)))


def test_plain_meaning_is_the_fold_from_the_left():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 1.5, (3, 11)), rng.standard_normal((3, 11))
    state = (np.ones(3), np.zeros(3))
    for n in range(11):
        state = affine_combine(state, (a[:, n], b[:, n]))
    np.testing.assert_allclose(AFFINE(a, b), state, rtol=1e-12)
    assert AFFINE(a, b, axis=0)[0].shape == (11,)
    assert ROOT(a, keepdims=True).shape == (3, 1)
    np.testing.assert_allclose(ROOT(a), np.sqrt((a * a).sum(axis=-1)))
    assert ROOT(np.ones((2, 0))).tolist() == [0.0, 0.0]
    assert ROOT(a.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(("law", "options"), [
    ("associative", {"identity": 0.0, "combine": lambda a, b: a - b}),
    ("associative", {"identity": 0.0, "combine": lambda a, b: (a + b) / 2}),
    ("neutral on the left of its identity", {"identity": 1.0, "combine": lambda a, b: a + b}),
    ("neutral on the right of its identity", {"identity": 0.0, "combine": lambda a, b: b}),
    ("commutative", {"identity": (1.0, 0.0), "combine": affine_combine, "parts": ("a", "b"), "commutative": True}),
    ("neutral on the left of its identity", {"identity": 0.0, "combine": lambda a, b: np.sqrt(a * a + b * b)}),
    ("associative", {"identity": 0.0, "combine": lambda a, b: a + b + a * a * b}),
])
def test_broken_laws_are_refused_with_a_counterexample(law, options):
    with pytest.raises(LawViolation, match=law) as caught:
        rf.monoid("broken", **options)
    assert caught.value.law == law
    assert caught.value.counterexample
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.law, again.counterexample, str(again)) == (law, caught.value.counterexample, str(caught.value))


def test_a_law_that_only_rounding_breaks_is_no_violation():
    rf.monoid("addition", identity=0.0, combine=lambda a, b: a + b, commutative=True,
              draw=lambda rng: rng.gauss(0, 1) * 10 ** rng.randint(-3, 3))


def test_a_law_that_holds_over_the_reals_but_not_in_floats_is_one():
    with pytest.raises(LawViolation, match="float64"):
        rf.monoid("far_addition", identity=-1e17, combine=lambda a, b: (a + 1e17) + b, commutative=False)


def test_partial_combinations_need_draw():
    with pytest.raises(LawViolation, match="draw="):
        rf.monoid("logs", identity=1.0, combine=lambda a, b: np.exp(np.log(a) + np.log(b)),
                  draw=lambda rng: -1.0 - rng.random())


def test_what_definitions_refuse():
    with pytest.raises(TraceError, match="identifier"):
        rf.monoid("no name", identity=0.0, combine=lambda a, b: a + b)
    with pytest.raises(TraceError, match="2 numbers for 1 parts"):
        rf.monoid("pair", identity=(0.0, 0.0), combine=lambda a, b: a)
    with pytest.raises(ArgumentError, match="'identity' of monoid 'letter'"):
        rf.monoid("letter", identity="a", combine=lambda a, b: a + b)
    with pytest.raises(ArgumentError, match="'identity' of monoid 'none'"):
        rf.monoid("none", identity=None, combine=lambda a, b: a + b)
    with pytest.raises(ArgumentError, match="'draw' of monoid 'pair' gives 2 numbers for 1 parts"):
        rf.monoid("pair", identity=0.0, combine=lambda a, b: a + b, draw=lambda rng: (1.0, 2.0))
    with pytest.raises(ArgumentError, match="'draw' of monoid 'letter'"):
        rf.monoid("letter", identity=0.0, combine=lambda a, b: a + b, draw=lambda rng: "a")
    with pytest.raises(TraceError, match="3 values for 2 parts"):
        rf.monoid("pair", identity=(0.0, 0.0), parts=("p", "q"), combine=lambda a, b: (*a, b[0]))
    with pytest.raises(TraceError, match="truth value"):
        rf.monoid("branch", identity=0.0, combine=lambda a, b: a if a > b else b)
    with pytest.raises(ShapeError, match="2 arrays"):
        AFFINE(np.ones(3))


def test_the_same_definition_has_the_same_name_and_another_does_not():
    again = rf.monoid("affine", identity=(1.0, 0.0), combine=affine_combine, parts=("a", "b"))
    other = rf.monoid("affine", identity=(1.0, 0.0), parts=("a", "b"),
                      combine=lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1] + 0))
    assert again.definition == AFFINE.definition
    assert other.definition.name != AFFINE.definition.name
    assert other.name == AFFINE.name == "affine"


def test_in_equations_streamed_and_merged():
    n, d = rf.axes("n d")
    x, v = rf.tensor("x", n), rf.tensor("v", n, d)
    c = rf.Cascade("recurrence", axis=n)
    m = c.max("m", abs(x))
    a, b = c.reduce(AFFINE, "h", (0.9, v))
    c.sum("s", x * x / m)
    assert a.axes == b.axes == ()
    fusion = rf.derive(c)
    assert fusion.passes == 1
    assert fusion.certificate.valid
    rng = np.random.default_rng(1)
    data, vectors = rng.standard_normal(30), rng.standard_normal((30, 2))
    parts = []
    for start, stop in ((0, 4), (4, 5), (5, 21), (21, 30)):
        state = fusion.update(fusion.init(), x=data[start:stop], v=vectors[start:stop])
        parts.append(pickle.loads(pickle.dumps(state)))
    rng = random.Random(0)
    while len(parts) > 1:
        i = rng.randrange(len(parts) - 1)
        parts[i : i + 2] = [fusion.merge(parts[i], parts[i + 1])]
    expected = np.zeros(2)
    for row in vectors:
        expected = 0.9 * expected + row
    result = fusion.finalize(parts[0])
    np.testing.assert_allclose(result["h"]["b"], expected, rtol=1e-12)
    np.testing.assert_allclose(result["h"]["a"], 0.9**30, rtol=1e-12)


def test_traced_and_fused():
    def program(x):
        scale = np.abs(x).max(axis=-1, keepdims=True)
        return AFFINE(0.9, x / scale)[1], ROOT(np.abs(x), keepdims=True) / scale

    traced = pipeline.trace_step(program, {"x": Spec(("i", "n"), "float64")}, "program")
    x = np.random.default_rng(2).standard_normal((3, 17))
    for got, want in zip(traced.run({"x": x}), program(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    parts = pipeline.partition_step(pipeline.term_step(traced))
    for c in parts.cascades:
        fused = derive_cascade(c).fused
        expected = run_cascade(c, {"x": x})
        for tree in (None, 0, 1):
            for key, value in run_fused(fused, {"x": x}, chunks=5, tree=tree).items():
                np.testing.assert_allclose(value, expected[key], rtol=1e-10)


@pytest.mark.parametrize("axis", [(0, 2), (-1, 0), None, (1,), -2])
@pytest.mark.parametrize("keepdims", [False, True])
def test_several_axes_are_reduced_in_the_order_of_memory(axis, keepdims):
    affine = rf.monoid("affine", identity=(1.0, 0.0), parts=("a", "b"),
                       combine=lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4, 5))
    axes = range(3) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, 3)
    order = [*(i for i in range(3) if i not in axes), *sorted(axes)]
    kept = [a.shape[i] for i in range(3) if i not in axes]
    rows = [x.transpose(order).reshape(*kept, -1) for x in (a, b)]
    wanted = affine(*rows)
    shape = [1 if i in axes else n for i, n in enumerate(a.shape)] if keepdims else kept
    for call in (affine, rf.fuse(lambda a, b, axis, keepdims: affine(a, b, axis=axis, keepdims=keepdims),
                                 static_argnames=("axis", "keepdims"))):
        for got, right in zip(call(a, b, axis=axis, keepdims=keepdims), wanted, strict=True):
            assert np.shape(got) == tuple(shape)
            np.testing.assert_allclose(got, right.reshape(shape), rtol=1e-9)


@pytest.mark.parametrize(("axis", "error"), [("n", ArgumentError), (1.5, ArgumentError), (3, ShapeError),
                                             ((0, 0), ShapeError)])
def test_an_axis_that_is_none(axis, error):
    product = rf.monoid("product_of", identity=1.0, combine=lambda a, b: a * b)
    with pytest.raises(error, match="axis"):
        product(np.ones((2, 3)), axis=axis)
