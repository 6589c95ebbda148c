"""Matrix products and packing as C, in every form, for ragged sizes, trimmed ranges and several dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from programs import (
    N,
    agree,
    each_variant,
    i_,
    j_,
    k_,
    product_in_place,
    product_packed,
    task_kernel,
    up,
)

from redfuser.codegen.c import CTarget, print_c
from redfuser.codegen.c.shuffles import sum_tree
from redfuser.codegen.nodes import At, Buf, For, MatMul, Put, Sweep
from redfuser.errors import CheckError
from redfuser.ir import Const, Size, Var, op
from redfuser.ir.dtypes import numpy_dtype

pytestmark = pytest.mark.usefixtures("session_cache")

VARIANTS = each_variant()
ALL_VARIANTS = each_variant(fallbacks=True)
SIZES = ((1, 1, 1), (7, 33, 5), (13, 50, 37), (6, 64, 16), (2, 3, 0), (5, 1, 100), (0, 4, 4))


def operands(form: str, m: int, n: int, k: int, dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(m + 10 * n + 100 * k)
    return [
        rng.normal(size=(m, k)).astype(dtype),
        rng.normal(size=(k, n) if form == "panel" else (n, k)).astype(dtype),
    ]


@VARIANTS
@pytest.mark.parametrize(
    ("form", "mr", "nr"),
    [
        ("panel", 6, 16),
        ("panel", 1, 32),
        ("panel", 2, 24),
        ("panel", 3, 8),
        ("dot", 4, 2),
        ("dot", 1, 1),
        ("dot", 3, 5),
    ],
)
def test_products_in_user_memory(variant, form, mr, nr):
    """No element beyond the arrays is read or written, whatever the register tile."""
    for accumulate in (False, True):
        kernel = product_in_place(form, mr, nr, accumulate=accumulate)
        for m, n, k in SIZES:
            agree(kernel, variant, operands(form, m, n, k), {"m": m, "n": n, "k": k}, rtol=1e-4, atol=1e-4)


@ALL_VARIANTS
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("compute", ["float32", "float64"])
def test_packed_panels_and_padded_tiles(variant, transposed, compute):
    kernel = product_packed(6, 32, compute, transposed)
    for m, n, k in SIZES:
        arrays = operands("dot" if transposed else "panel", m, n, k, compute)
        agree(kernel, variant, arrays, {"m": m, "n": n, "k": k}, rtol=1e-4, atol=1e-4)


@VARIANTS
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float64"])
@pytest.mark.parametrize("form", ["panel", "dot"])
def test_operands_of_other_dtypes_convert_on_load(variant, form, dtype):
    kernel = product_in_place(form, 4, 2 if form == "dot" else 16, b_dtype=dtype)
    for m, n, k in ((5, 19, 21), (4, 16, 16)):
        a, b = operands(form, m, n, k)
        b = (b * 10).astype(numpy_dtype(dtype))
        agree(kernel, variant, [a, b], {"m": m, "n": n, "k": k}, rtol=1e-3, atol=1e-2)


@VARIANTS
def test_a_range_along_the_contraction(variant):
    """Depths outside [lo, hi) contribute nothing; an empty range gives zero."""
    lo, hi = op("sub", i_, Const(3)), op("add", i_, Const(2))
    kernel = product_in_place("panel", 2, 16, bound="k", lo=lo, hi=hi)
    for m, n, k in ((9, 20, 5), (4, 16, 9)):
        a, b = operands("panel", m, n, k)
        (y,) = agree_clipped(kernel, variant, a, b)
        for i0 in range(0, m, 2):
            inside = slice(max(0, i0 - 3), max(0, min(k, i0 + 2)))
            rows = slice(i0, min(i0 + 2, m))
            np.testing.assert_allclose(y[rows], a[rows, inside] @ b[inside], rtol=1e-4, atol=1e-5)


def agree_clipped(kernel, variant, a, b):
    """Compiled results only: the interpreter does not clip ranges to the matrix."""
    from programs import compiled

    y = np.full((a.shape[0], b.shape[1]), 77, "float32")
    compiled(kernel, variant).run([a, b], [y], {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]})
    return (y,)


@VARIANTS
@pytest.mark.parametrize("form", ["panel", "dot"])
def test_a_range_of_columns(variant, form):
    """Every column inside [lo, hi) is right; columns far outside are not touched."""
    lo, hi = i_, op("add", i_, Const(7))
    nr = 16 if form == "panel" else 2
    kernel = product_in_place(form, 2, nr, bound="j", lo=lo, hi=hi)
    m, n, k = 8, 90, 6
    a, b = operands(form, m, n, k)
    from programs import compiled

    y = np.full((m, n), 77, "float32")
    compiled(kernel, variant).run([a, b], [y], {"m": m, "n": n, "k": k})
    exact = a @ (b if form == "panel" else b.T)
    for i0 in range(0, m, 2):
        np.testing.assert_allclose(
            y[i0 : i0 + 2, i0 : i0 + 7], exact[i0 : i0 + 2, i0 : i0 + 7], rtol=1e-4, atol=1e-5
        )
        assert (y[i0 : i0 + 2, i0 + 7 + nr :] == 77).all()


@VARIANTS
def test_strided_operands(variant):
    """A broadcast operand may step by any stride along rows and depth."""
    m, k = Size("m"), Size("k")
    a, b, y = (
        Buf("a", (m, k), "global", "float32", None),
        Buf("b", (k, N), "global", "float32", 1),
        Buf("y", (m, N), "global", "float32", 1),
    )
    product = MatMul(At(y, (i_, j_)), At(a, (i_, k_)), At(b, (k_, j_)), m, N, k, 3, 16, "panel", False)
    kernel = task_kernel("strided", "float32", (a, b), (y,), (product,), ("m", "n", "k"), Const(1), "t")
    for view in (
        np.ones((20, 7), "float32").T,
        np.broadcast_to(np.float32(2), (7, 20)),
        np.arange(140, dtype="float32").reshape(7, 20)[::-1, ::-1],
    ):
        b_array = np.random.default_rng(0).normal(size=(20, 21)).astype("f4")
        agree(kernel, variant, [view, b_array], {"m": 7, "n": 21, "k": 20}, rtol=1e-4, atol=1e-3)


@VARIANTS
def test_specialised_depth_and_prefetch(variant):
    """A depth known when compiled, and cells fetched ahead of their use."""
    m = Size("m")
    a, b, y = (
        Buf(name, (rows, Const(width)), "global", "float32", 1)
        for name, rows, width in (("a", m, 24), ("b", N, 24), ("y", m, 24))
    )
    scores = Buf("scores", (up(m, 4), up(N, 2)), "local", "float32")
    ahead = ((At(b, (Const(0), Const(0))), N),)
    first = MatMul(
        At(scores, (i_, j_)),
        At(a, (i_, k_)),
        At(b, (j_, k_)),
        m,
        N,
        Const(24),
        4,
        2,
        "dot",
        False,
        ahead=ahead,
    )
    second = MatMul(
        At(y, (i_, j_)),
        At(scores, (i_, k_)),
        At(b, (k_, j_)),
        m,
        Const(24),
        N,
        4,
        8,
        "panel",
        False,
        ahead=ahead,
    )
    kernel = task_kernel(
        "two", "float32", (a, b), (y,), (first, second), ("m", "n"), Const(1), "t", local=(scores,)
    )
    for rows, length in ((4, 2), (5, 9), (1, 1), (8, 40)):
        rng = np.random.default_rng(rows)
        agree(
            kernel,
            variant,
            [rng.normal(size=(rows, 24)).astype("f4"), rng.normal(size=(length, 24)).astype("f4")],
            {"m": rows, "n": length},
            rtol=1e-3,
            atol=1e-3,
        )


@VARIANTS
def test_a_product_into_the_middle_of_scratch(variant):
    """Offsets in every operand, and rows computed in a loop."""
    m = Size("m")
    a, y = Buf("a", (m, N), "global", "float32", 1), Buf("y", (m, Const(16)), "global", "float32", 1)
    b = Buf("b", (N, Const(16)), "global", "float32", 1)
    total = Buf("total", (Const(3), Const(4), Const(16)), "local", "float32")
    row = Var("g")
    product = MatMul(
        At(total, (Const(1), i_, j_)),
        At(a, (op("add", row, i_), k_)),
        At(b, (k_, j_)),
        op("min", Const(4), op("sub", m, row)),
        Const(16),
        N,
        4,
        16,
        "panel",
        False,
    )
    copy = For(
        "q",
        Const(0),
        op("min", Const(4), op("sub", m, row)),
        Const(1),
        (
            Sweep(
                "j",
                Const(0),
                Const(16),
                (),
                (
                    Put(
                        At(y, (op("add", row, Var("q")), Var("j"))), At(total, (Const(1), Var("q"), Var("j")))
                    ),
                ),
            ),
        ),
    )
    loop = For("g", Const(0), m, Const(4), (product, copy))
    kernel = task_kernel(
        "middle", "float32", (a, b), (y,), (loop,), ("m", "n"), Const(1), "t", local=(total,)
    )
    rng = np.random.default_rng(0)
    for rows in (1, 4, 11):
        agree(
            kernel,
            variant,
            [rng.normal(size=(rows, 9)).astype("f4"), rng.normal(size=(9, 16)).astype("f4")],
            {"m": rows, "n": 9},
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize(("lanes", "block"), [(4, 4), (8, 4), (16, 4), (2, 2), (4, 2), (8, 2)])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13, 20])
def test_sum_tree_adds_every_lane_once(lanes, block, count):
    """The statements, carried out on vectors whose lanes are distinct powers of two."""
    vectors = {f"v{i}": [{(i, lane)} for lane in range(lanes)] for i in range(count)}
    statements, places = sum_tree(list(vectors), lanes, block)
    for statement in statements:
        name, text = statement.removeprefix("const vec ").rstrip(";").split(" = ")
        parts = []
        for part in text.split(" + "):
            a, b, *index = part.removeprefix("SHUFFLE(").removesuffix(")").split(", ")
            both = vectors[a] + vectors[b]
            parts.append([both[int(i)] for i in index])
        assert not any(x & y for x, y in zip(*parts, strict=True))
        vectors[name] = [x | y for x, y in zip(*parts, strict=True)]
    for i, (name, lane) in enumerate(places):
        assert vectors[name][lane] == {(i, k) for k in range(lanes)}


def test_operands_that_are_not_contiguous_are_refused():
    a, b, y = (Buf(name, (N, N), "global", "float32", unit) for name, unit in (("a", 1), ("b", 0), ("y", 1)))
    product = MatMul(At(y, (i_, j_)), At(a, (i_, k_)), At(b, (k_, j_)), N, N, N, 4, 16, "panel", False)
    kernel = task_kernel("bad", "float32", (a, b), (y,), (product,), ("n",), Const(1), "t")
    with pytest.raises(CheckError, match="needs b contiguous along j_"):
        print_c(kernel, CTarget(32))
