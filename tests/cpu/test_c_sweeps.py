"""Sweeps as C: reductions of every length, layouts, partial vectors at the end of memory, streaming stores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import (
    LENGTHS,
    N,
    R,
    agree,
    all_reductions,
    compiled,
    each_variant,
    elementwise,
    n,
    r,
    row_buffer,
    row_cell,
    task_kernel,
    unwritten,
)

from redfuser.codegen.c import CTarget, print_c
from redfuser.codegen.nodes import At, Buf, LetScalar, Put, Red, Set, Sweep
from redfuser.ir import Const, Var, op

pytestmark = pytest.mark.usefixtures("session_cache")

VARIANTS = each_variant()
ALL_VARIANTS = each_variant(fallbacks=True)
COMPUTE = pytest.mark.parametrize("compute", ["float32", "float64"])


@VARIANTS
@COMPUTE
@pytest.mark.parametrize("unroll", [1, 3])
def test_reductions_of_every_length(variant, compute, unroll):
    kernel = all_reductions(compute, unroll)
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        x = rng.uniform(0.97, 1.03, (3, length)).astype(compute)
        x[1:2, length // 2 : length // 2 + 1] = 2.5
        agree(kernel, variant, [x], {"r": 3, "n": length}, rtol=length * np.finfo(compute).eps + 1e-7)


@ALL_VARIANTS
@COMPUTE
def test_nan_and_infinities_in_reductions(variant, compute):
    """A NaN anywhere makes max and min NaN; infinities are ordinary values."""
    kernel = all_reductions(compute, 2)
    for length in (1, 5, 16, 33, 70):
        for position in {0, length // 2, length - 1}:
            for value in (np.nan, -np.nan, np.inf, -np.inf):
                x = np.ones((2, length), compute)
                x[0, position] = value
                got = agree(kernel, variant, [x], {"r": 2, "n": length})
                assert got[0][1] == length
    x = np.full((1, 40), -np.inf, compute)
    assert agree(kernel, variant, [x], {"r": 1, "n": 40})[2][0] == -np.inf


@ALL_VARIANTS
@COMPUTE
def test_loose_extremes(variant, compute):
    """Of numbers the same; over a NaN, NaN or one of them."""
    x = row_cell("x", compute)
    reds = [Red(m, m, x, loose=True) for m in ("max", "min")]
    outs = [Buf(f"y_{q.name}", (R,), "global", compute, 0) for q in reds]
    sets = [Set(At(b, (r,)), Var(q.name)) for b, q in zip(outs, reds, strict=True)]
    kernel = task_kernel("loose", compute, [x.buf], outs, [Sweep("n", Const(0), N, tuple(reds), (), 2), *sets])
    rng = np.random.default_rng(0)
    for length in (1, 5, 16, 33, 70):
        values = rng.normal(size=(2, length)).astype(compute)
        agree(kernel, variant, [values], {"r": 2, "n": length})
        values[0, length // 2] = np.nan
        given = [unwritten(b, {"r": 2, "n": length}) for b in outs]
        compiled(kernel, variant).run([values], given, {"r": 2, "n": length})
        for got, of_numbers in zip(given, (np.max, np.min), strict=True):
            assert got[1] == of_numbers(values[1])
            assert np.isnan(got[0]) or np.isinf(got[0]) or got[0] in values[0]


@VARIANTS
def test_an_empty_range_leaves_the_identity(variant):
    x, y = row_cell("x", "float32"), Buf("y", (R,), "global", "float32", 0)
    body = [Sweep("n", Const(5), op("min", N, Const(3)), (Red("m", "max", x),)), Set(At(y, (r,)), Var("m"))]
    kernel = task_kernel("empty", "float32", [x.buf], [y], body)
    assert agree(kernel, variant, [np.ones((2, 9), "float32")], {"r": 2, "n": 9})[0].tolist() == [
        -np.inf,
        -np.inf,
    ]


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """The values of x in several memory layouts."""
    rows, length = x.shape
    wide = np.zeros((rows, 3 * length + 1), x.dtype)
    wide[:, : 3 * length : 3] = x
    backwards = x[:, ::-1].copy()[:, ::-1]
    return {
        "contiguous": x,
        "transposed": np.asfortranarray(x),
        "every third": wide[:, : 3 * length : 3],
        "backwards": backwards,
        "upside down": x[::-1].copy()[::-1],
        "one row repeated": np.broadcast_to(x[:1], x.shape),
        "one column repeated": np.broadcast_to(x[:, :1], x.shape),
    }


@VARIANTS
@COMPUTE
def test_any_strides(variant, compute):
    x, z = row_cell("x", compute, None), row_cell("z", "float32", None)
    y = row_cell("y", compute, None)
    body = [
        Sweep("n", Const(0), N, (Red("s", "sum", x * z),), (), 2),
        Sweep("n", Const(0), N, (), (Put(y, x * 2.0 + Var("s")),), 2),
    ]
    kernel = compiled(task_kernel("strided", compute, [x.buf, z.buf], [y.buf], body), variant)
    rng = np.random.default_rng(3)
    for length in (1, 7, 40):
        a = rng.normal(size=(3, length)).astype(compute)
        b = rng.normal(size=(3, length)).astype("float32")
        for name, view in layouts(a).items():
            for target in (
                np.zeros((3, length), compute),
                np.zeros((length, 3), compute).T,
                np.zeros((3, 2 * length), compute)[:, ::-2],
            ):
                kernel.run([view, b], [target], {"r": 3, "n": length})
                expected = view * 2 + (view * b).sum(1, keepdims=True)
                np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-5, err_msg=name)


@VARIANTS
def test_negative_and_zero_strides_along_the_lanes_of_a_unit_kernel_are_refused(variant):
    from redfuser.errors import ShapeError

    x = row_cell("x", "float32")
    kernel = compiled(elementwise(x * 2.0, [x.buf]), variant)
    with pytest.raises(ShapeError, match="'x' is not contiguous along dimension 1"):
        kernel.run([np.ones((3, 8), "float32")[:, ::-1]], [np.empty((3, 8), "float32")], {"r": 3, "n": 8})


@VARIANTS
def test_stored_values_are_seen_by_later_expressions(variant):
    x, y, z = row_cell("x", "float32"), row_cell("y", "float32"), row_cell("z", "float16")
    puts = (Put(y, op("exp", x)), Put(z, y * 0.1), Put(y, y + z))
    body = [
        Sweep("n", Const(0), N, (Red("s", "sum", y * z),), puts, 2),
        LetScalar("q", op("div", 1.0, Var("s")), "float64"),
        Sweep("n", Const(0), N, (), (Put(y, y * Var("q")),), 2),
    ]
    kernel = task_kernel("forward", "float32", [x.buf], [y.buf, z.buf], body)
    agree(
        kernel,
        variant,
        [np.random.default_rng(0).normal(size=(2, 45)).astype("f4")],
        {"r": 2, "n": 45},
        rtol=2e-3,
    )


@VARIANTS
@COMPUTE
def test_streaming_stores_from_any_alignment(variant, compute):
    """The first elements, up to an aligned address, are written as a partial vector."""
    x = row_cell("x", compute)
    kernel = compiled(elementwise(x * 2.0, [x.buf], compute, unroll=2, stream=True), variant)
    assert "store_stream(" in kernel.source
    for length in (1, 5, 16, 100):
        for shift in range(17):
            a = np.arange(3 * length, dtype=compute).reshape(3, length)
            memory = np.full(3 * length + 40, -1, compute)
            target = memory[shift : shift + 3 * length].reshape(3, length)
            kernel.run([a], [target], {"r": 3, "n": length})
            np.testing.assert_array_equal(target, 2 * a)
            assert (memory[:shift] == -1).all()
            assert (memory[shift + 3 * length :] == -1).all()


@VARIANTS
def test_constant_extents_and_prefetch(variant):
    x = row_cell("x", "float32")
    for lo, hi in ((0, 16), (3, 40), (5, 5), (1, 64), (2, 129)):
        ahead = (At(x.buf, (op("add", r, Const(1)), n)),)
        y = Buf("y", (R,), "global", "float32", 0)
        body = [
            Sweep("n", Const(lo), Const(hi), (Red("s", "sum", x),), (), 4, ahead),
            Set(At(y, (r,)), Var("s")),
        ]
        agree(
            task_kernel("fixed", "float32", [x.buf], [y], body),
            variant,
            [np.random.default_rng(0).normal(size=(3, 130)).astype("f4")],
            {"r": 3, "n": 130},
            rtol=1e-4,
            atol=1e-5,
        )


def test_sweeps_share_the_lines_they_fetch():
    """Each fetches its half of the row, a line a trip where one alone fetches two; a trip of one line is the first's.
    """
    x = row_cell("x", "float32")
    ahead = (At(x.buf, (op("add", r, Const(1)), n)),)
    target = CTarget(32)

    def fetched(turn, unroll):
        sweep = Sweep("n", Const(0), N, (Red("s", "sum", x),), (), unroll, ahead, turn)
        y = Buf("y", (R,), "global", "float32", 0)
        kernel = task_kernel("shared", "float32", [x.buf], [y], [sweep, Set(At(y, (r,)), Var("s"))])
        text = print_c(kernel, target)
        half = bool(re.search(r"far0 = .* \+ count / 2;", text))
        return half, re.findall(r"__builtin_prefetch\(\w+ \+ (.*), 0, 2\)", text)

    assert fetched((0, 1), 4) == (False, ["at", "at + 16"])
    assert fetched((0, 2), 4) == (False, ["at / 2"])
    assert fetched((1, 2), 4) == (True, ["at / 2"])
    assert fetched((1, 2), 8) == (True, ["at / 2", "at / 2 + 16"])
    assert fetched((0, 2), 1)[1] + fetched((1, 2), 1)[1] == ["at"]


@VARIANTS
def test_scratch_rows_do_not_run_into_each_other(variant):
    """A partial vector in the middle of scratch leaves its neighbours alone."""
    x, y = row_cell("x", "float32"), row_cell("y", "float32")
    wide = Buf("wide", (Const(3), N), "local", "float64")
    near = Buf("near", (Const(3), N), "local", "float32")
    body = []
    for buf in (near, wide):
        body += [
            Sweep("n", Const(0), N, (), (Put(At(buf, (Const(row), n)), x + float(row)),), 1)
            for row in (2, 1, 0)
        ]
    total = sum(
        (At(buf, (Const(row), n)) for buf in (near, wide) for row in range(1, 3)),
        start=At(near, (Const(0), n)),
    )
    body.append(Sweep("n", Const(0), N, (), (Put(y, total),), 2))
    kernel = task_kernel("scratch", "float32", [x.buf], [y.buf], body, local=(near, wide))
    for length in (1, 13, 37):
        agree(
            kernel,
            variant,
            [np.random.default_rng(0).normal(size=(4, length)).astype("f4")],
            {"r": 4, "n": length},
            rtol=1e-5,
            atol=1e-6,
        )


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from programs import *
from redfuser.ir import op, Const

libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
keep = []

def guarded(shape, dtype, at_end, fill):
    '''An array that ends (or begins) exactly at a page that may not be touched.'''
    dtype = numpy_dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    pages = -(-size // PAGE) + 2
    memory = mmap.mmap(-1, pages * PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages - 1):
        assert libc.mprotect(ctypes.c_void_p(base + page * PAGE), PAGE, 0) == 0
    keep.append(memory)
    start = (pages - 1) * PAGE - size if at_end else PAGE
    array = np.frombuffer(memory, np.uint8, size, start).view(dtype).reshape(shape)
    array[...] = fill
    return array

def check(kernel, variant, sizes):
    program = compiled(kernel, variant)
    for at_end in (False, True):
        shape = lambda b: [e.value if isinstance(e, Const) else sizes[e.axis] for e in b.shape]
        bits = lambda b: np.random.default_rng(0).integers(0, 2, shape(b))
        inputs = [guarded(shape(b), b.dtype, at_end, bits(b)) for b in kernel.tensors]
        outs = [guarded(shape(b), b.dtype, at_end, 0) for b in kernel.outs]
        expected = interpreted(kernel, inputs, outs, sizes)
        program.run(inputs, outs, sizes)
        for got, want in zip(outs, expected):
            np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=1e-5)

for variant in variants():
    for length in (1, 17, 67):
        for dtype in ("float32", "float64", "bfloat16", "float16", "int8"):
            x = row_cell("x", dtype)
            sizes = {"r": 3, "n": length}
            out = "float16" if dtype == "float16" else "float32"
            check(elementwise(x * 2.0, [x.buf], "float32", out), variant, sizes)
            check(reduction("sum", x, [x.buf], "float64" if dtype == "float64" else "float32"), variant, sizes)
        strided = row_cell("x", "float32", None)
        check(elementwise(strided * 2.0, [strided.buf], unit=None, stream=True), variant, {"r": 3, "n": length})
    for m, columns, depth in ((1, 1, 1), (7, 33, 5), (5, 19, 21)):
        sizes = {"m": m, "n": columns, "k": depth}
        check(product_in_place("panel", 4, 32), variant, sizes)
        check(product_in_place("panel", 3, 24, accumulate=True), variant, sizes)
        check(product_in_place("dot", 3, 2), variant, sizes)
        check(product_packed(4, 32), variant, sizes)
        check(product_packed(4, 32, transposed=True), variant, sizes)
print("untouched")
"""


def test_no_byte_outside_the_arrays_is_touched():
    """Arrays that end, or begin, at a page without access: one byte too far kills the process."""
    done = subprocess.run(
        [sys.executable, "-c", GUARDED],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "untouched"


@VARIANTS
def test_one_element_axes_and_no_rows(variant):
    kernel = all_reductions("float32", 4)
    agree(kernel, variant, [np.ones((0, 5), "float32")], {"r": 0, "n": 5})
    agree(kernel, variant, [np.ones((1, 1), "float32")], {"r": 1, "n": 1})


def test_row_buffers_are_what_the_tests_think():
    assert row_buffer("x", "float32").unit == 1
