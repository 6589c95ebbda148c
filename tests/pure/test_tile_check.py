"""The checker refuses broken programs; the interpreter shows what a printer may not be shown to get away with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fused_examples import TILES, attention, softmax
from tile_runs import kernel_for

from redfuser.codegen import Kernel, check_kernel, run_kernel
from redfuser.codegen.nodes import (
    At,
    Buf,
    For,
    If,
    LetInt,
    LetScalar,
    MatMul,
    Pack,
    Phase,
    Put,
    Red,
    Set,
    Stmt,
    Sweep,
)
from redfuser.errors import CheckError
from redfuser.extract import Options
from redfuser.ir import Const, Expr, Load, Size, Var, op, select

N = Size("n")
IN, OUT = Buf("x", (N,), "global", "float32", 0), Buf("o", (N,), "global", "float32", 0)
MASK = Buf("mask", (N,), "global", "bool", 0)
T, LANE = Var("t"), Var("n")
ONE = Const(1)


def program(*body: Stmt, local: tuple[Buf, ...] = (), hi: Expr = ONE, kind: str = "task") -> Kernel:
    loop = For("t", Const(0), hi, Const(1), body, kind)
    return Kernel("k", "float32", (IN, MASK), (OUT,), ("n",), (), (Phase(loop, local),))


def sweep(cell: At, e: Expr, **more: object) -> Sweep:
    return Sweep("n", Const(0), N, (), (Put(cell, e),), **more)  # type: ignore[arg-type]


GOOD = sweep(At(OUT, (LANE,)), At(IN, (LANE,)) * 2.0)
S = Buf("s", (Const(8), Const(16)), "local", "float32")
ROW, COLUMN, DEPTH = Var("i_"), Var("j_"), Var("k_")


def product(dst: Buf, a: Buf, b: Buf, mr: int = 4, nr: int = 8) -> MatMul:
    cells = At(dst, (ROW, COLUMN)), At(a, (ROW, DEPTH)), At(b, (DEPTH, COLUMN))
    return MatMul(*cells, Const(5), Const(9), Const(3), mr, nr, "panel", False)


def local(name: str, *shape: int, dtype: str = "float32") -> Buf:
    return Buf(name, tuple(map(Const, shape)), "local", dtype)


BROKEN: dict[str, tuple[Callable[[], Kernel], str]] = {
    "unbound variable": (lambda: program(sweep(At(OUT, (LANE,)), Var("ghost") * 2.0)), "ghost is used before"),
    "bound twice": (lambda: program(LetInt("a", Const(1)), LetInt("a", Const(2))), "a is bound twice"),
    "shadowed loop": (
        lambda: program(For("n", Const(0), N, Const(1), (GOOD,))), "loop variable n is bound already"
    ),
    "out of scope": (
        lambda: program(If(op("gt", N, 0), (LetInt("a", N),)), sweep(At(OUT, (LANE,)), Var("a") * 1.0)),
        "a is used before",
    ),
    "reduction read early": (
        lambda: program(Sweep("n", Const(0), N, (Red("r", "sum", Var("r") * 1.0),))), "r is used before"
    ),
    "undeclared buffer": (lambda: program(sweep(At(S, (T, LANE)), Const(1.0))), "buffer s is not declared"),
    "rank": (lambda: program(sweep(At(OUT, (LANE, T)), Const(1.0))), "2 indices"),
    "input written": (lambda: program(sweep(At(IN, (LANE,)), Const(1.0))), "input x is written"),
    "lanes collide": (lambda: program(sweep(At(OUT, (T,)), Const(1.0))), "all lanes of n store"),
    "real index": (lambda: program(sweep(At(OUT, (op("mul", LANE, 1.0),)), Const(1.0))), "is real, expected int"),
    "truth in arithmetic": (
        lambda: program(sweep(At(OUT, (LANE,)), At(MASK, (LANE,)) * 2.0)), "operands of kind bool"
    ),
    "number as condition": (lambda: program(If(N, ())), "is int, expected bool"),
    "mixed select": (
        lambda: program(sweep(At(OUT, (LANE,)), select(At(MASK, (LANE,)), At(MASK, (LANE,)), 1.0))), "operands of kind"
    ),
    "truth stored as number": (lambda: program(sweep(At(OUT, (LANE,)), At(MASK, (LANE,)))), "expected int or real"),
    "register read early": (
        lambda: program(sweep(At(OUT, (LANE,)), At(Buf("m", (), "reg", "float32")) * 1.0)), "m is read before it is set"
    ),
    "unknown size": (lambda: program(sweep(At(OUT, (LANE,)), Size("q") * 1.0)), r"\|q\| is not an argument"),
    "term-level leaf": (lambda: program(sweep(At(OUT, (LANE,)), Load("x", ("n",)))), "term-level"),
    "outer loop": (lambda: program(GOOD, kind="seq"), "not 'task'"),
    "nested task": (lambda: program(For("u", Const(0), N, Const(1), (GOOD,), "task")), "inside a task"),
    "scratch home": (lambda: program(GOOD, local=(Buf("s", (N,), "shared", "float32"),)), "not 'local'"),
    "unroll": (lambda: program(sweep(At(OUT, (LANE,)), Const(1.0), unroll=0)), "unroll 0"),
    "monoid": (lambda: program(Sweep("n", Const(0), N, (Red("r", "median", Const(1.0)),))), "unknown monoid"),
    "padded rows": (
        lambda: program(product(local("c", 5, 16), local("a", 8, 3), local("b", 3, 16)),
                        local=(local("c", 5, 16), local("a", 8, 3), local("b", 3, 16))),
        "not padded to 4 along i_",
    ),
    "padded columns": (
        lambda: program(product(local("c", 8, 9), local("a", 8, 3), local("b", 3, 16)),
                        local=(local("c", 8, 9), local("a", 8, 3), local("b", 3, 16))),
        "not padded to 8 along j_",
    ),
    "matmul index": (
        lambda: program(replace(product(S, S, S), a=At(S, (COLUMN, DEPTH))), local=(S,)), "uses j_"
    ),
    "matmul bound": (lambda: program(replace(product(S, S, S), bound="j"), local=(S,)), "bounds need an index"),
}  # fmt: skip


def test_a_good_program_passes() -> None:
    check_kernel(program(GOOD, LetScalar("c", Const(1.0), "float32"), hi=N))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_programs_are_refused(name: str) -> None:
    make, message = BROKEN[name]
    with pytest.raises(CheckError, match=message):
        check_kernel(make())


def test_panels_must_be_as_wide_as_the_register_tile() -> None:
    kernel = kernel_for(attention(), {"h": 1, "i": 5, "n": 9, "k": 4, "d": 4}, Options(pack=True))

    def widen(s: Stmt) -> Stmt:
        if isinstance(s, MatMul):
            return replace(s, nr=2 * s.nr)
        return replace(s, body=tuple(map(widen, s.body))) if isinstance(s, For) else s

    phases = tuple(replace(p, loop=widen(p.loop)) for p in kernel.phases)
    with pytest.raises(CheckError, match="not padded"):
        check_kernel(replace(kernel, phases=phases))  # type: ignore[arg-type]


# -------------------------------- the interpreter


def interpret(kernel: Kernel, x: list[float]) -> np.ndarray:
    out = np.full(len(x), 77, np.float32)
    arrays = {"x": np.array(x, np.float32), "mask": np.ones(len(x), bool)}
    run_kernel(kernel, arrays, {"o": out}, {"n": len(x)})
    return out


def test_scratch_starts_as_nan() -> None:
    s = Buf("s", (op("add", N, 8),), "local", "float32")
    assert np.isnan(
        interpret(program(sweep(At(OUT, (LANE,)), At(s, (LANE,)) * 1.0), local=(s,)), [1, 2])
    ).all()


def test_scratch_does_not_survive_a_task() -> None:
    s = Buf("s", (Const(8),), "local", "float32")
    first = If(op("eq", T, 1), (Set(At(s, (Const(0),)), Const(3.0)),))
    body = (first, Set(At(OUT, (T,)), At(s, (Const(0),))))
    out = interpret(program(*body, local=(s,), hi=N), [0, 0, 0])
    np.testing.assert_array_equal(out, [np.nan, 3, np.nan])


def test_a_later_put_sees_the_earlier_one() -> None:
    s = Buf("s", (op("add", N, 8),), "local", "float32")
    at = At(s, (LANE,))
    both = Sweep(
        "n",
        Const(0),
        N,
        (Red("r", "sum", at),),
        (Put(at, At(IN, (LANE,)) * 2.0), Put(At(OUT, (LANE,)), at + 1.0)),
    )
    np.testing.assert_array_equal(interpret(program(both, local=(s,)), [1, 2]), [3, 5])


def test_all_lanes_are_read_before_one_is_stored() -> None:
    s = Buf("s", (op("add", N, 8),), "local", "float32")
    fill = sweep(At(s, (LANE,)), At(IN, (LANE,)) * 1.0)
    reverse = sweep(At(s, (LANE,)), At(s, (op("sub", op("sub", N, 1), LANE),)) * 1.0)
    back = sweep(At(OUT, (LANE,)), At(s, (LANE,)) * 1.0)
    np.testing.assert_array_equal(interpret(program(fill, reverse, back, local=(s,)), [1, 2, 3]), [3, 2, 1])


def test_an_index_outside_a_buffer_raises() -> None:
    with pytest.raises(CheckError, match="outside a dimension of 2"):
        interpret(program(sweep(At(OUT, (op("add", LANE, 1),)), Const(1.0))), [1, 2])
    with pytest.raises(CheckError, match="outside"):
        interpret(program(sweep(At(OUT, (LANE,)), At(IN, (op("sub", LANE, 1),)) * 1.0)), [1, 2])


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(CheckError, match="'mask' has shape"):
        run_kernel(
            program(GOOD),
            {"x": np.ones(2, np.float32), "mask": np.ones(3, bool)},
            {"o": np.ones(2)},
            {"n": 2},
        )


def test_padding_of_products_is_poisoned() -> None:
    c, a = local("c", 8, 16), local("a", 8, 3)
    b = local("b", 3, 16)

    def ones(buf: Buf, height: int, width: int) -> For:
        put = Put(At(buf, (Var("r"), Var("z"))), Const(1.0))
        return For("r", Const(0), Const(height), ONE, (Sweep("z", Const(0), Const(width), (), (put,)),))

    zero = (ones(a, 8, 3), ones(b, 3, 16))
    read = sweep(At(OUT, (LANE,)), At(c, (LANE, op("add", LANE, 4))) * 1.0)
    out = interpret(program(*zero, product(c, a, b), read, local=(c, a, b)), [0] * 8)
    np.testing.assert_array_equal(out, [3, 3, 3, 3, 3, np.nan, np.nan, np.nan])


def test_packing_fills_the_last_panel_with_zeros() -> None:
    p = local("p", 2, 3, 4)
    at = At(p, (op("idiv", Var("l_"), 4), Var("c_"), op("imod", Var("l_"), 4)))
    pack = Pack(
        at,
        At(IN, (op("add", op("mul", Var("c_"), 5), Var("l_")),)),
        Const(0),
        Const(2),
        Const(5),
        Const(3),
        4,
    )
    read = sweep(
        At(OUT, (LANE,)), At(p, (op("imod", op("idiv", LANE, 4), 2), Const(0), op("imod", LANE, 4))) * 1.0
    )
    out = interpret(program(pack, read, local=(p,)), list(range(15)))
    np.testing.assert_array_equal(out[:8], [0, 1, 2, 3, 4, 0, 0, 0])


def test_the_text_shows_every_decision() -> None:
    text = str(kernel_for(softmax(), {"p": 4, "n": 100}))
    for part in (
        "kernel softmax",
        "note rows: one task per row",
        "phase 1 when |n| >",
        "sweep n in b0 .. b1",
        "factor:float32",
    ):
        assert part in text
    for name in TILES:
        assert "matmul[" in str(
            kernel_for(TILES[name]("float32"), {"h": 2, "i": 5, "p": 5, "n": 9, "k": 8, "d": 8})
        )
