"""Every operation, conversion and integer form of the C printer, on every vector width, against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from programs import N, agree, each_variant, elementwise, n, r, row_buffer, row_cell, task_kernel, variants

from redfuser.codegen.nodes import At, Buf, Put, Sweep
from redfuser.ir import OPS, Cast, Const, Expr, Size, Var, op, select
from redfuser.ir.dtypes import numpy_dtype

pytestmark = pytest.mark.usefixtures("session_cache")

VARIANTS = each_variant()
ALL_VARIANTS = each_variant(fallbacks=True)
COMPUTE = pytest.mark.parametrize("compute", ["float32", "float64"])
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    np.inf,
    -np.inf,
    np.nan,
    1e-30,
    3e9,
    -7.25,
    8388609.0,
    0.49999997,
]


def many(exprs: list[Expr], tensors: list[Buf], compute: str, dtypes: list[str]):
    """One kernel with one output per expression."""
    cells = [row_cell(f"y{i}", dtype) for i, dtype in enumerate(dtypes)]
    sweep = Sweep("n", Const(0), N, (), tuple(Put(c, e) for c, e in zip(cells, exprs, strict=True)), 1)
    return task_kernel("many", compute, tensors, [c.buf for c in cells], (sweep,))


def pairs(compute: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special values, as two rows."""
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    return a.reshape(1, -1).astype(compute), b.reshape(1, -1).astype(compute)


@ALL_VARIANTS
@COMPUTE
def test_arithmetic_comparison_and_selection(variant, compute):
    x, z = row_cell("x", compute), row_cell("z", compute)
    reals = [op(f, x, z) for f in ("add", "sub", "mul", "div", "max", "min")]
    reals += [op(f, x) for f in ("neg", "abs", "sign", "sqrt", "floor", "ceil", "rint")]
    reals += [
        op("max", x, 0.25),
        op("min", 0.25, x),
        op("pow", x, 3),
        op("pow", x, -2),
        op("pow", x, 0),
        -(x + z) * x,
    ]
    reals += [
        select(op("lt", x, z), x, 2.0),
        select(op("and", op("le", x, z), op("not", op("eq", x, z))), z, x),
    ]
    tests = [op(f, x, z) for f in ("lt", "le", "gt", "ge", "eq", "ne")]
    tests += [op("or", op("gt", x, 0.0), op("lt", z, 0.0))]
    kernel = many(reals + tests, [x.buf, z.buf], compute, [compute] * len(reals) + ["bool"] * len(tests))
    a, b = pairs(compute)
    agree(kernel, variant, [a, b], {"r": 1, "n": a.size}, rtol=4 * np.finfo(compute).eps)


@ALL_VARIANTS
@COMPUTE
def test_rounding_keeps_the_sign_of_zero(variant, compute):
    x = row_cell("x", compute)
    kernel = many([op(f, x) for f in ("rint", "floor", "ceil")], [x.buf], compute, [compute] * 3)
    values = np.array([[-0.0, -0.3, 0.3, -0.5, 0.5, -0.7, 0.7, 2**22 + 0.5]], compute)
    for got, f in zip(
        agree(kernel, variant, [values], {"r": 1, "n": 8}), (np.rint, np.floor, np.ceil), strict=True
    ):
        assert np.array_equal(np.signbit(got), np.signbit(f(values)))


@VARIANTS
@COMPUTE
def test_functions_of_the_c_library(variant, compute):
    x, z = row_cell("x", compute), row_cell("z", compute)
    exprs = [op(f, x) for f in ("expm1", "log2", "log1p", "tanh", "sin", "cos", "atan")] + [op("pow", x, z)]
    kernel = many(exprs, [x.buf, z.buf], compute, [compute] * len(exprs))
    a, b = pairs(compute)
    a = np.where(np.abs(a) > 1e6, 3.0, a).astype(compute)
    agree(
        kernel,
        variant,
        [a, b],
        {"r": 1, "n": a.size},
        rtol=16 * np.finfo(compute).eps,
        atol=4 * np.finfo(compute).eps,
    )


ALL = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float32",
    "float64",
]


def sample(dtype: str, count: int) -> np.ndarray:
    """A row of values of a dtype, extremes included."""
    rng = np.random.default_rng(5)
    kind = numpy_dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, (1, count)).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        values = rng.integers(
            info.min, info.max, (1, count), dtype=kind if kind != np.uint64 else np.uint64, endpoint=True
        )
        values[0, :3] = info.min, info.max, 1
        return values
    values = rng.normal(size=(1, count)) * 10.0 ** rng.integers(-7, 5, (1, count))
    values[0, :6] = np.inf, -np.inf, np.nan, 0.0, -0.0, 6e-8
    with np.errstate(over="ignore"):
        return values.astype(kind)


@ALL_VARIANTS
@COMPUTE
def test_every_dtype_loads_converted(variant, compute):
    cells = [row_cell(f"x{k}", dtype) for k, dtype in enumerate(ALL)]
    exprs = [Cast(compute, c) if c.buf.dtype == "bool" else c * 1.0 for c in cells]
    kernel = many(exprs, [c.buf for c in cells], compute, [compute] * len(ALL))
    agree(
        kernel, variant, [sample(dtype, 77) for dtype in ALL], {"r": 1, "n": 77}, rtol=np.finfo(compute).eps
    )


STORED = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64", "int8", "int32", "int64", "bool"]


@VARIANTS
@COMPUTE
def test_every_dtype_stores_rounded(variant, compute):
    x, whole = row_cell("x", compute), row_cell("whole", compute)
    exprs = [
        op("gt", x, 0.0) if dtype == "bool" else whole if dtype.startswith("int") else x for dtype in STORED
    ]
    kernel = many(exprs, [x.buf, whole.buf], compute, STORED)
    values = sample(compute, 61)
    small = np.clip(np.nan_to_num(values * 50), -120, 120)
    with np.errstate(over="ignore"):
        agree(kernel, variant, [values, small], {"r": 1, "n": 61}, rtol=0)


@VARIANTS
def test_rounding_to_half_formats_in_place(variant):
    x = row_cell("x", "float32")
    kernel = many(
        [Cast("float16", x), Cast("bfloat16", x), Cast("float32", Cast("float64", x))],
        [x.buf],
        "float32",
        ["float32"] * 3,
    )
    bits = np.random.default_rng(2).integers(0, 2**32, (1, 20_000), dtype=np.uint32)
    x = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        half, brain, same = agree(kernel, variant, [x], {"r": 1, "n": x.size}, rtol=0)
        np.testing.assert_array_equal(half, x.astype(np.float16).astype(np.float32))
        np.testing.assert_array_equal(brain, x.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(same, x)


@ALL_VARIANTS
@COMPUTE
def test_integers_that_follow_the_lane(variant, compute):
    x = row_cell("x", compute)
    i = op("add", n, op("mul", r, Const(3)))
    exprs = [
        select(op("le", n, op("add", r, Const(5))), x, 0.0),
        select(op("gt", op("sub", op("mul", n, Const(2)), r), Const(9)), x, -1.0),
        select(op("lt", op("sub", r, n), Const(-4)), x, 0.5),
        Cast(compute, i) * 0.5,
        select(op("eq", op("imod", i, Const(3)), Const(0)), x, 0.0),
        Cast(compute, op("idiv", op("sub", n, Const(7)), Const(4))),
        select(op("ge", r, Const(1)), x, 3.0),
        select(op("lt", op("mul", n, n), Const(50)), x, 0.0),
        Cast(compute, op("max", n, Const(6))),
    ]
    kernel = many(exprs, [x.buf], compute, [compute] * len(exprs))
    for count in (1, 37):
        agree(kernel, variant, [np.ones((3, count), compute)], {"r": 3, "n": count})


@VARIANTS
@COMPUTE
def test_descending_and_scaled_indices_from_any_start(variant, compute):
    """Later copies of the body and sweeps that start elsewhere substitute a sum for the variable."""
    reals = [op("mul", 0.5, op("sub", r, n)), op("mul", 2, n), op("sub", 7, op("sub", r, n)), op("neg", n)]
    tests = [op("ge", r, n), op("lt", op("sub", 9, n), op("mul", 3, r)), op("le", op("mul", 2, n), 11)]
    cells = [row_cell(f"y{i}", compute) for i in range(len(reals))]
    cells += [row_cell(f"t{i}", "bool") for i in range(len(tests))]
    puts = tuple(Put(c, e) for c, e in zip(cells, [*reals, *tests], strict=True))
    start = op("min", r, N)
    body = (Sweep("n", Const(0), start, (), puts, 1), Sweep("n", start, N, (), puts, 3))
    kernel = task_kernel("descending", compute, [], [c.buf for c in cells], body)
    agree(kernel, variant, [], {"r": 11, "n": 103})


@VARIANTS
@COMPUTE
def test_integer_lanes_never_overflow(variant, compute):
    """Bounds beyond 32 bits, and products of 32-bit elements."""
    x, q = row_cell("x", compute), row_cell("q", "int32")
    far = Size("far")
    exprs = [
        select(op("lt", op("add", n, far), op("add", far, Const(3))), x, 0.0),
        select(op("lt", n, far), x, 0.0),
        select(op("gt", op("sub", far, n), Const(0)), x, 0.0),
        Cast(compute, op("add", n, far)),
        select(op("gt", op("mul", q, q), Const(5)), x, 0.0),
        Cast(compute, op("add", q, q)),
        Cast(compute, op("max", q, Const(3))),
    ]
    cells = [row_cell(f"y{k}", compute) for k in range(len(exprs))]
    sweep = Sweep("n", Const(0), N, (), tuple(Put(c, e) for c, e in zip(cells, exprs, strict=True)), 1)
    kernel = task_kernel("far", compute, [x.buf, q.buf], [c.buf for c in cells], (sweep,), ("r", "n", "far"))
    values = np.array([[2**31 - 1, -(2**31), 65536, 3, 0] * 7], np.int32)
    agree(kernel, variant, [np.ones((1, 35), compute), values], {"r": 1, "n": 35, "far": 1 << 40}, rtol=1e-6)


@VARIANTS
def test_integer_arrays_keep_all_their_bits(variant):
    """Labels that differ only beyond the precision of float32."""
    q = row_cell("q", "int64")
    big = (1 << 40) + 1
    kernel = many(
        [op("eq", q, Const(big)), op("gt", q, Const(big)), select(op("ne", q, Const(0)), q, Const(7))],
        [q.buf],
        "float32",
        ["bool", "bool", "int64"],
    )
    values = np.array([[big - 1, big, big + 1, 0, -big] * 5])
    same, larger, kept = agree(kernel, variant, [values], {"r": 1, "n": 25})
    np.testing.assert_array_equal(same, values == big)
    np.testing.assert_array_equal(larger, values > big)
    np.testing.assert_array_equal(kept, np.where(values != 0, values, 7))


@VARIANTS
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "bool"])
def test_narrow_masks(variant, dtype):
    x, q = row_cell("x", "float32"), row_cell("q", dtype)
    test = q if dtype == "bool" else op("gt", q, Const(0))
    kernel = elementwise(select(test, x, float("-inf")), [x.buf, q.buf])
    values = sample(dtype, 53)
    agree(kernel, variant, [np.ones((1, 53), "float32"), values], {"r": 1, "n": 53})


@VARIANTS
def test_an_index_read_from_an_array(variant):
    """A cell whose address is no affine function of the lane: gathered lane by lane, live lanes only."""
    table, index = Buf("table", (Size("k"),), "global", "float32", 0), row_cell("index", "int64")
    kernel = task_kernel(
        "gather",
        "float32",
        [table, index.buf],
        [row_buffer("y", "float32")],
        (Sweep("n", Const(0), N, (), (Put(row_cell("y", "float32"), At(table, (index,)) * 2.0),), 2),),
        ("r", "n", "k"),
    )
    rng = np.random.default_rng(0)
    for count in (1, 19, 64):
        agree(
            kernel,
            variant,
            [rng.normal(size=9).astype("f4"), rng.integers(0, 9, (2, count))],
            {"r": 2, "n": count, "k": 9},
        )


def test_operations_without_a_c_form_are_known():
    """Each operation of the table appears in one of the tests above."""
    assert set(OPS) == {
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "max",
        "min",
        "neg",
        "abs",
        "sign",
        "sqrt",
        "exp",
        "exp2",
        "exp_below",
        "exp2_below",
        "expm1",
        "log",
        "log2",
        "log1p",
        "tanh",
        "sin",
        "cos",
        "atan",
        "floor",
        "ceil",
        "rint",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "and",
        "or",
        "not",
        "select",
        "idiv",
        "imod",
    }


def test_scalars_follow_numpy():
    """Scalar statements: the same table outside a sweep, in both precisions."""
    from programs import R

    from redfuser.codegen.nodes import LetInt, LetScalar, Set

    x, y = Buf("x", (R,), "global", "float32", 0), Buf("y", (R, Const(12)), "global", "float64", 1)
    a = At(x, (r,))
    exprs = [op(f, Var("w")) for f in ("abs", "sign", "floor", "ceil", "rint", "neg", "exp", "sqrt")]
    exprs += [
        op("max", Var("w"), a),
        op("pow", op("add", Var("w"), 1.0), 2),
        Cast("float16", a),
        select(op("eq", op("imod", Var("i"), Const(2)), Const(0)), Var("w"), 0.1),
    ]
    body = [LetScalar("w", a * 3.0, "float64"), LetInt("i", op("sub", r, Const(4)))]
    body += [Set(At(y, (r, Const(c))), e) for c, e in enumerate(exprs)]
    kernel = task_kernel("scalars", "float32", [x], [y], body, ("r",))
    values = np.array([0.3, -0.3, np.nan, np.inf, -0.0, 1e5, -2.5, 0.5], "float32")
    for variant in variants():
        agree(kernel, variant, [values], {"r": 8}, rtol=1e-6)
