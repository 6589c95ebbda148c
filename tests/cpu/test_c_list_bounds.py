"""What lets few elements near a sorted list: bounds, waiting elements, merges. Everything is compared to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from list_programs import check, hard, listing, place, z_
from programs import N, R, agree, each_variant, n, portable, r, row_buffer, row_cell, task_kernel

from redfuser.codegen.c import lists
from redfuser.codegen.nodes import At, Buf, Insert, Put, Sweep
from redfuser.ir import Const, op, select

pytestmark = pytest.mark.usefixtures("session_cache")

VARIANTS = each_variant()


@VARIANTS
@pytest.mark.parametrize(("k", "largest", "unroll"), [
    (1, True, 2), (2, False, 1), (3, True, 3), (7, False, 4), (8, True, 4), (9, False, 2), (16, True, 1),
])
def test_short_rows(variant, k, largest, unroll):
    """Lists longer than the row, partial vectors, groups of every size; even lengths where k is odd, and odd ones."""
    kernel = listing("float32", k, largest, unroll)
    for length in range(1 + k % 2, 41, 2):
        check(kernel, variant, hard(length, "float32", length), k, largest)


@VARIANTS
@pytest.mark.parametrize(("k", "largest", "unroll"), [(4, True, 2), (11, False, 4)])
def test_short_rows_in_double_precision(variant, k, largest, unroll):
    kernel = listing("float64", k, largest, unroll)
    for length in range(1, 41, 2):
        check(kernel, variant, hard(length, "float64", length), k, largest)


@VARIANTS
@pytest.mark.parametrize(("compute", "k", "largest", "unroll"), [
    ("float32", 1, True, 4), ("float64", 2, False, 4), ("float32", 8, True, 4), ("float64", 16, False, 3),
    ("float32", 40, True, 4),
])
def test_rows_longer_than_what_is_looked_at_beforehand(variant, compute, k, largest, unroll):
    """The best elements may all come later, in order or not."""
    kernel = listing(compute, k, largest, unroll)
    for length in (63, 64, 130, 257, lists.LOOK_AHEAD * k + 77):
        check(kernel, variant, hard(length, compute, k), k, largest)


@VARIANTS
@pytest.mark.parametrize(("compute", "k", "block", "largest"), [
    ("float32", 1, 16, False), ("float64", 3, 7, True), ("float32", 8, 32, True), ("float64", 8, 100, False),
    ("float32", 20, 64, False),
])
def test_a_list_is_carried_from_block_to_block(variant, compute, k, block, largest):
    """A block finds a list that is empty, partly filled or full."""
    kernel = listing(compute, k, largest, 2, block=block)
    for length in (0, 1, 33, 100, 301):
        check(kernel, variant, hard(length, compute, k), k, largest)


@pytest.mark.parametrize("variant", portable(), ids=[str(width) for width, _ in portable()])
@pytest.mark.parametrize(("compute", "unroll"), [("float64", 5), ("float32", 9)])
def test_vectors_wider_than_the_machine_and_more_than_one_word(variant, compute, unroll):
    kernel = listing(compute, 8, True, unroll)
    for length in (1, 40, 300, 2100):
        check(kernel, variant, hard(length, compute, 8), 8, True)


@VARIANTS
@pytest.mark.parametrize(("compute", "largest"), [("float32", True), ("float64", False)])
def test_masked_elements(variant, compute, largest):
    """An element that a mask hides is the worst number, and still has its place among equals."""
    x, nothing = row_cell("x", compute), -np.inf if largest else np.inf
    kernel = listing(compute, 8, largest, 4, key=select(op("gt", x, 0.5), x, Const(nothing)))
    for length in (5, 40, 333):
        values = np.abs(hard(length, compute, 3))
        check(kernel, variant, values, 8, largest, np.where(values > 0.5, values, np.array(nothing, compute)))


@VARIANTS
def test_keys_that_cannot_be_computed_twice(variant):
    """Costly ones, and those that the sweep itself stores, in place of the input of the next step."""
    x, y = row_cell("x", "float32"), At(Buf("stored", (op("add", N, 64),), "local", "float32"), (n,))
    rows = np.stack([np.random.default_rng(0).integers(-9, 9, 700), np.arange(700) - 350, np.ones(700)]).astype("f4")
    for length in (3, 40, 700):
        given = rows[:, :length]
        costly = listing("float32", 8, True, 4, key=op("rint", op("exp", op("mul", x, 0.01))))
        check(costly, variant, given, 8, True, np.rint(np.exp(given * np.float32(0.01))))
        stored = listing("float32", 8, True, 4, key=y, puts=(Put(y, op("mul", x, 2.0)),), local=(y.buf,))
        check(stored, variant, given, 8, True, given * 2)


@VARIANTS
def test_rows_with_a_stride(variant):
    x = row_cell("x", "float32", None)
    kernel = listing("float32", 8, True, 4, key=x, tensors=[x.buf])
    for length in (7, 40, 500):
        check(kernel, variant, np.asfortranarray(hard(length, "float32", 4)), 8, True)
        check(kernel, variant, np.repeat(hard(length, "float32", 5), 3, 1)[:, ::3], 8, True)


@VARIANTS
@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_integers(variant, dtype):
    """They are keys like any other, computed in the kernel's own type."""
    x = At(row_buffer("x", dtype), (r, n))
    kernel = listing("float64", 8, False, 4, key=x, tensors=[x.buf])
    rng = np.random.default_rng(7)
    for length in (4, 40, 300):
        values = np.stack([rng.integers(0, 200, length), rng.integers(0, 3, length), np.arange(length) % 251])
        check(kernel, variant, values.astype(dtype), 8, False, values.astype("f8"))


@VARIANTS
@pytest.mark.parametrize("largest", [True, False])
def test_two_lists_of_one_sweep_and_their_merge(variant, largest):
    """The first half of a row has a list, the second has another; the second is inserted into the first."""
    k, x = 5, row_cell("x", "float32")
    bufs = [(Buf(f"keys{i}", (Const(k),), "local", "float32"), Buf(f"places{i}", (Const(k),), "local", "int64"))
            for i in range(2)]
    cells = [(At(a, (z_,)), At(b, (z_,))) for a, b in bufs]
    nothing = Const(-np.inf if largest else np.inf)
    half = op("idiv", N, 2)
    y, i = Buf("y", (R, Const(k)), "global", "float32", 1), Buf("i", (R, Const(k)), "global", "int64", 1)
    body = [
        Sweep("place", Const(0), Const(k), (), tuple(
            Put(At(b, (place,)), e) for pair in bufs for b, e in zip(pair, (nothing, Const(-1)), strict=True)
        )),
        Sweep("n", Const(0), half, unroll=2, inserts=(Insert(*cells[0], x, n, largest),)),
        Sweep("n", half, N, unroll=2, inserts=(Insert(*cells[1], x, n, largest),)),
        Sweep("place", Const(0), Const(k), inserts=(
            Insert(*cells[0], At(bufs[1][0], (place,)), At(bufs[1][1], (place,)), largest),
        )),
        Sweep("place", Const(0), Const(k), (), (Put(At(y, (r, place)), At(bufs[0][0], (place,))),
                                                Put(At(i, (r, place)), At(bufs[0][1], (place,))))),
    ]
    kernel = task_kernel("merging", "float32", [x.buf], [y, i], body, local=tuple(b for pair in bufs for b in pair))
    for length in (0, 1, 3, 9, 40, 200):
        check(kernel, variant, hard(length, "float32", 8), k, largest)


@VARIANTS
def test_a_sweep_with_the_best_and_the_worst(variant):
    """Two lists of different order in one loop."""
    x = row_cell("x", "float32")
    both = []
    for name, largest in (("top", True), ("low", False)):
        keys, places = Buf(name, (Const(2),), "local", "float32"), Buf(f"{name}_at", (Const(2),), "local", "int64")
        both.append((keys, places, Insert(At(keys, (z_,)), At(places, (z_,)), x, n, largest)))
    outs = [Buf(f"{kind}{i}", (R, Const(2)), "global", d, 1)
            for i in range(2) for kind, d in (("y", "float32"), ("i", "int64"))]
    scratch = [b for keys, places, _ in both for b in (keys, places)]
    start = [Const(-np.inf), Const(-1), Const(np.inf), Const(-1)]
    body = [
        Sweep("place", Const(0), Const(2), (), tuple(
            Put(At(b, (place,)), e) for b, e in zip(scratch, start, strict=True)
        )),
        Sweep("n", Const(0), N, unroll=2, inserts=tuple(i for *_, i in both)),
        *(Sweep("place", Const(0), Const(2), (), (Put(At(o, (r, place)), At(b, (place,))),))
          for o, b in zip(outs, scratch, strict=True)),
    ]
    kernel = task_kernel("both", "float32", [x.buf], outs, body, local=tuple(scratch))
    for length in (1, 9, 70):
        rows = hard(length, "float32", 9)
        agree(kernel, variant, [rows], {"r": len(rows), "n": length})
