"""Sorted lists and monoids of several parts as C: every length, ties, NaN, empty places, order."""

from __future__ import annotations

import numpy as np
import pytest
from list_programs import check, listing, z_
from programs import LENGTHS, N, R, agree, each_variant, n, portable, r, row_cell, task_kernel

from redfuser.codegen.check import check_kernel
from redfuser.codegen.nodes import At, Buf, Fold, Insert, Set, Sweep
from redfuser.errors import CheckError
from redfuser.ir import Const, Var, op, rewrite, select
from redfuser.ir.monoids import parts_monoid

pytestmark = pytest.mark.usefixtures("session_cache")

VARIANTS = each_variant()
COMPUTE = pytest.mark.parametrize("compute", ["float32", "float64"])

@VARIANTS
@COMPUTE
@pytest.mark.parametrize(("k", "largest", "unroll"), [(1, True, 4), (3, False, 2), (8, True, 1), (20, False, 3)])
def test_lists_of_every_length(variant, compute, k, largest, unroll):
    """Random numbers, many ties, already sorted both ways, all equal."""
    kernel = listing(compute, k, largest, unroll)
    rng = np.random.default_rng(k)
    for length in LENGTHS:
        x = np.stack([
            rng.normal(size=length), rng.integers(0, 4, length), np.arange(length), -np.arange(length), np.ones(length)
        ])
        check(kernel, variant, x.astype(compute), k, largest)


@VARIANTS
@COMPUTE
@pytest.mark.parametrize("largest", [True, False])
def test_nan_comes_first_and_empty_places_last(variant, compute, largest):
    kernel = listing(compute, 3, largest)
    rng = np.random.default_rng(1)
    for length in (1, 2, 3, 17, 70):
        x = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], (40, length)).astype(compute)
        x[0], x[1] = -np.inf, np.inf
        check(kernel, variant, x, 3, largest)


@pytest.mark.parametrize("variant", portable(), ids=[str(width) for width, _ in portable()])
def test_vectors_without_instructions_of_their_own(variant):
    """The plain C of every step, on vectors wider than the machine's."""
    kernel = listing("float32", 5, True, 2)
    rng = np.random.default_rng(6)
    for length in (1, 7, 40, 100):
        check(kernel, variant, rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (20, length)).astype("f4"), 5, True)


@VARIANTS
def test_elements_of_a_negative_index_are_skipped(variant):
    """A list is inserted into another one: its empty places do not count."""
    kernel = listing("float32", 4, True, index=select(op("lt", n, 3), n, -1))
    x = np.arange(40, dtype="f4").reshape(2, 20)
    values, indices, _ = agree(kernel, variant, [x], {"r": 2, "n": 20})
    np.testing.assert_array_equal(indices, [[2, 1, 0, -1]] * 2)
    np.testing.assert_array_equal(values[0], [2, 1, 0, -np.inf])


def test_a_list_that_is_not_scratch_is_refused():
    y, i = Buf("y", (R, Const(2)), "global", "float32", 1), Buf("i", (R, Const(2)), "global", "int64", 1)
    x = row_cell("x", "float32")
    sweep = Sweep("n", Const(0), N, inserts=(Insert(At(y, (r, z_)), At(i, (r, z_)), x, n, True),))
    with pytest.raises(CheckError, match="no list of constant length"):
        check_kernel(task_kernel("bad", "float32", [x.buf], [y, i], [sweep]))


# ---- monoids of several parts


def folding(compute: str, dtypes, elements, identity, combine, ordered: bool, unroll: int):
    """The folded state of every row."""
    x = row_cell("x", compute)
    count = len(dtypes)
    names, left, right = (tuple(f"{s}{j}" for j in range(count)) for s in ("state", "left", "right"))
    fold = Fold(names, dtypes, elements(x), identity, left, right, combine(left, right), ordered)
    outs = [Buf(f"y{j}", (R,), "global", d, 0) for j, d in enumerate(dtypes)]
    sets = [Set(At(b, (r,)), Var(v)) for b, v in zip(outs, names, strict=True)]
    return task_kernel("folding", compute, [x.buf], outs,
                       [Sweep("n", Const(0), N, (), (), unroll, folds=(fold,)), *sets])


@VARIANTS
@COMPUTE
@pytest.mark.parametrize("unroll", [1, 3])
@pytest.mark.parametrize("ordered", [True, False])
def test_best_element_with_its_index_and_a_flag(variant, compute, unroll, ordered):
    """Parts of three types; the index decides ties, so the result is the same in any order."""

    def combine(left, right):
        (a, i, f), (b, j, g) = map(Var, left), map(Var, right)
        wins = op("and", op("ge", j, 0),
                  op("or", op("lt", i, 0), op("or", op("gt", b, a), op("and", op("eq", a, b), op("lt", j, i)))))
        return select(wins, b, a), select(wins, j, i), op("or", f, g)

    kernel = folding(compute, (compute, "int64", "bool"), lambda x: (x, n, op("gt", x, 2.5)),
                     (Const(-np.inf), Const(-1), Const(False)), combine, ordered, unroll)
    rng = np.random.default_rng(2)
    for length in LENGTHS:
        x = rng.integers(0, 4, (3, length)).astype(compute)
        best, index, flag = agree(kernel, variant, [x], {"r": 3, "n": length})
        if length:
            np.testing.assert_array_equal(best, x.max(1))
            np.testing.assert_array_equal(index, x.argmax(1))
            np.testing.assert_array_equal(flag, (x > 2.5).any(1))
        else:
            assert (index == -1).all()


@VARIANTS
@COMPUTE
def test_an_ordered_monoid_keeps_its_order(variant, compute):
    """Affine maps t -> m t + c, composed: not commutative."""

    def combine(left, right):
        (m, c), (p, q) = map(Var, left), map(Var, right)
        return op("mul", m, p), op("add", op("mul", p, c), q)

    kernel = folding(compute, (compute, compute), lambda x: (op("mul", x, 0.5), x), (Const(1.0), Const(0.0)),
                     combine, True, 3)
    rng = np.random.default_rng(3)
    for length in LENGTHS:
        x = rng.uniform(-1, 1, (2, length)).astype(compute)
        _, last = agree(kernel, variant, [x], {"r": 2, "n": length}, rtol=1e-5, atol=1e-6)
        want = np.zeros(2)
        for column in x.T.astype("f8"):
            want = 0.5 * column * want + column
        np.testing.assert_allclose(last, want, rtol=1e-4, atol=1e-5)


def test_the_law_of_a_fold_reads_its_two_states_only():
    x = row_cell("x", "float32")
    kernel = folding("float32", ("float32",), lambda e: (e,), (Const(0.0),),
                     lambda left, right: (op("add", Var(left[0]), x),), False, 1)
    with pytest.raises(CheckError, match="more than the two states"):
        check_kernel(kernel)


@VARIANTS
def test_the_built_in_law_of_argmax_fits_a_fold(variant):
    """What the monoid itself states, folded, is NumPy's argmax."""
    law = parts_monoid("argmax")

    def combine(left, right):
        given = dict(zip(("a_value", "a_index", "b_value", "b_index"), map(Var, (*left, *right)), strict=True))
        return tuple(rewrite(e, lambda v: given.get(v.name) if isinstance(v, Var) else None) for e in law.combine)

    kernel = folding("float32", ("float32", "int64"), lambda x: (x, n), (Const(-np.inf), Const(-1)), combine, False, 2)
    x = np.random.default_rng(4).choice([np.nan, 1.0, 2.0, -np.inf], (30, 45)).astype("f4")
    _, index = agree(kernel, variant, [x], {"r": 30, "n": 45})
    np.testing.assert_array_equal(index, x.argmax(1))
