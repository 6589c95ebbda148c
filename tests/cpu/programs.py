"""Small tile programs for the tests of the C printer, and the machinery that runs one on every vector width."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from redfuser.codegen.c import CTarget
from redfuser.codegen.check import check_kernel
from redfuser.codegen.interpret import run_kernel
from redfuser.codegen.nodes import At, Buf, For, Kernel, MatMul, Pack, Phase, Put, Red, Set, Stmt, Sweep
from redfuser.ir import Const, Expr, Size, Var, op
from redfuser.ir.dtypes import numpy_dtype
from redfuser.runtime import CompiledKernel, compile_kernel, find_compiler
from redfuser.runtime.arrays import length

Array = np.ndarray[Any, Any]

LENGTHS = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 1000, 1009)

_X86_LEVELS = {16: "-march=x86-64", 32: "-march=x86-64-v3", 64: "-march=x86-64-v4"}


Variant = tuple[int, tuple[str, ...]]
"""Vector bytes, and the compiler flags that go with them."""


@cache
def variants() -> tuple[Variant, ...]:
    """Each vector width that this machine can run, with the instructions made for it."""
    compiler = find_compiler()
    if platform.machine() != "x86_64":
        return tuple((width, ()) for width in (16, 32, 64))
    macros = compiler.macros(compiler.native_flags())
    able = {16: True, 32: "__AVX2__" in macros and "__FMA__" in macros, 64: "__AVX512VL__" in macros}
    return tuple((width, (flag,)) for width, flag in _X86_LEVELS.items() if able[width])


@cache
def portable() -> tuple[Variant, ...]:
    """The portable fallbacks: the wider vectors on the plainest CPU. Slow to compile, so only some tests use them."""
    return ((32, ("-march=x86-64",)), (64, ("-march=x86-64",))) if platform.machine() == "x86_64" else ()


def each_variant(*, fallbacks: bool = False) -> pytest.MarkDecorator:
    """Parametrize a test by `variant`."""
    cases = [*variants(), *(portable() if fallbacks else ())]
    return pytest.mark.parametrize("variant", cases, ids=[f"{width}{''.join(flags)}" for width, flags in cases])


@cache
def compiled(kernel: Kernel, variant: Variant, threads: int = 2) -> CompiledKernel:
    """The kernel for one variant; warnings of the compiler are errors. Each is loaded once per process."""
    width, flags = variant
    check_kernel(kernel)
    return compile_kernel(
        kernel, threads=threads, target=CTarget(width), flags=(*flags, "-Wall", "-Wextra", "-Werror")
    )


def interpreted(
    kernel: Kernel, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]
) -> list[Array]:
    """What the interpreter computes into copies of `outs`."""
    results = [np.array(o) for o in outs]
    run_kernel(
        kernel,
        {b.name: a for b, a in zip(kernel.tensors, arrays, strict=True)},
        {b.name: r for b, r in zip(kernel.outs, results, strict=True)},
        sizes,
    )
    return results


def unwritten(buf: Buf, sizes: Mapping[str, int], value: float = 77) -> Array:
    """An output array filled with a recognisable value."""
    shape = [length(e, sizes) for e in buf.shape]
    return np.full(shape, value, numpy_dtype(buf.dtype))


def agree(
    kernel: Kernel,
    variant: Variant,
    arrays: Sequence[Array],
    sizes: Mapping[str, int],
    rtol: float = 1e-5,
    atol: float = 0.0,
) -> list[Array]:
    """Run compiled and interpreted; assert that they agree, NaN and infinities included."""
    outs = [unwritten(b, sizes) for b in kernel.outs]
    expected = interpreted(kernel, arrays, outs, sizes)
    compiled(kernel, variant).run(arrays, outs, sizes)
    for got, want in zip(outs, expected, strict=True):
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=rtol, atol=atol, equal_nan=True)
    return outs


# ---- one row, one stream axis

R, N = Size("r"), Size("n")
r, n = Var("r"), Var("n")


def row_buffer(name: str, dtype: str, unit: int | None = 1) -> Buf:
    """An array [r, n]."""
    return Buf(name, (R, N), "global", dtype, unit)


def row_cell(name: str, dtype: str, unit: int | None = 1) -> At:
    """Its element at the current row and lane."""
    return At(row_buffer(name, dtype, unit), (r, n))


def task_kernel(
    name: str,
    compute: str,
    tensors: Sequence[Buf],
    outs: Sequence[Buf],
    body: Sequence[Stmt],
    sizes: tuple[str, ...] = ("r", "n"),
    tasks: Expr = R,
    var: str = "r",
    **extra: Any,
) -> Kernel:
    """A kernel of one phase: `body` for every row."""
    local = extra.pop("local", ())
    loop = For(var, Const(0), tasks, Const(1), tuple(body), "task")
    return Kernel(name, compute, tuple(tensors), tuple(outs), sizes, (), (Phase(loop, local),), **extra)


def elementwise(
    expr: Expr,
    tensors: Sequence[Buf],
    compute: str = "float32",
    out: str | None = None,
    unroll: int = 2,
    unit: int | None = 1,
    stream: bool = False,
) -> Kernel:
    """y[r, n] = expr."""
    y = row_cell("y", out or compute, unit)
    sweep = Sweep("n", Const(0), N, (), (Put(y, expr, stream),), unroll)
    return task_kernel("elementwise", compute, tensors, (y.buf,), (sweep,))


def reduction(
    monoid: str, expr: Expr, tensors: Sequence[Buf], compute: str = "float32", unroll: int = 4
) -> Kernel:
    """y[r] = reduction of expr over n."""
    y = Buf("y", (R,), "global", "bool" if monoid in ("any", "all") else compute, 0)
    sweep = Sweep("n", Const(0), N, (Red("total", monoid, expr),), (), unroll)
    return task_kernel("reduction", compute, tensors, (y,), (sweep, Set(At(y, (r,)), Var("total"))))


# ---- matrix products

i_, j_, k_, l_, c_ = (Var(v) for v in ("i_", "j_", "k_", "l_", "c_"))


def up(e: Expr, multiple: int) -> Expr:
    """`e` rounded up to a multiple."""
    return op("mul", op("idiv", op("add", e, Const(multiple - 1)), Const(multiple)), Const(multiple))


def product_in_place(
    form: str,
    mr: int,
    nr: int,
    compute: str = "float32",
    b_dtype: str | None = None,
    accumulate: bool = False,
    **bound: Any,
) -> Kernel:
    """y[m, n] (+)= a[m, k] b, all operands in user memory; b is [k, n] (panel) or [n, k] (dot)."""
    m, k = Size("m"), Size("k")
    a, y = Buf("a", (m, k), "global", compute, 1), Buf("y", (m, N), "global", compute, 1)
    panel = form == "panel"
    b = Buf("b", (k, N) if panel else (N, k), "global", b_dtype or compute, 1)
    cells = At(y, (i_, j_)), At(a, (i_, k_)), At(b, (k_, j_) if panel else (j_, k_))
    product = MatMul(*cells, m, N, k, mr, nr, form, accumulate, **bound)
    return task_kernel("product", compute, (a, b), (y,), (product,), ("m", "n", "k"), Const(1), "t")


def product_packed(mr: int, nr: int, compute: str = "float32", transposed: bool = False) -> Kernel:
    """y[m, n] = a[m, k] b[k, n] through padded scratch and a packed panel operand in shared memory."""
    m, k = Size("m"), Size("k")
    a, y = Buf("a", (m, k), "global", compute, 1), Buf("y", (m, N), "global", compute, 1)
    b = Buf("b", (N, k) if transposed else (k, N), "global", compute, 1)
    panels = op("idiv", op("add", N, Const(nr - 1)), Const(nr))
    packed = Buf("packed", (panels, k, Const(nr)), "shared", compute)
    rows, total = (
        Buf("rows", (up(m, mr), k), "local", compute),
        Buf("total", (up(m, mr), up(N, nr)), "local", compute),
    )

    def panel(lane: Expr, depth: Expr) -> At:
        return At(packed, (op("idiv", lane, Const(nr)), depth, op("imod", lane, Const(nr))))

    pack = Pack(
        panel(l_, c_),
        At(b, (l_, c_) if transposed else (c_, l_)),
        Var("p"),
        op("add", Var("p"), Const(1)),
        N,
        k,
        nr,
    )
    copy = For(
        "i",
        Const(0),
        m,
        Const(1),
        (Sweep("k", Const(0), k, (), (Put(At(rows, (Var("i"), Var("k"))), At(a, (Var("i"), Var("k")))),)),),
    )
    product = MatMul(At(total, (i_, j_)), At(rows, (i_, k_)), panel(j_, k_), m, N, k, mr, nr, "panel", False)
    result = For(
        "i2",
        Const(0),
        m,
        Const(1),
        (Sweep("n", Const(0), N, (), (Put(At(y, (Var("i2"), n)), At(total, (Var("i2"), n))),)),),
    )
    phases = (
        Phase(For("p", Const(0), panels, Const(1), (pack,), "task")),
        Phase(For("t", Const(0), Const(1), Const(1), (copy, product, result), "task"), (rows, total)),
    )
    return Kernel("packed", compute, (a, b), (y,), ("m", "n", "k"), (), phases, (packed,))


def fresh_cache(path: os.PathLike[str]) -> dict[str, str]:
    """Environment for a subprocess whose kernels go to `path`."""
    return {**os.environ, "REDFUSER_CACHE_DIR": os.fspath(path)}


def all_reductions(compute: str, unroll: int):
    """y_k[r] for every monoid, in one sweep."""
    x = row_cell("x", compute)
    reds = [Red(m, m, x) for m in ("sum", "prod", "max", "min")] + [
        Red("any", "any", op("gt", x, 2.0)),
        Red("all", "all", op("lt", x, 1.5)),
    ]
    outs = [
        Buf(f"y_{q.name}", (R,), "global", "bool" if q.name in ("any", "all") else compute, 0) for q in reds
    ]
    sets = [Set(At(b, (r,)), Var(q.name)) for b, q in zip(outs, reds, strict=True)]
    return task_kernel(
        "reductions", compute, [x.buf], outs, [Sweep("n", Const(0), N, tuple(reds), (), unroll), *sets]
    )
