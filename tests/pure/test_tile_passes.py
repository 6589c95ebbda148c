"""Passes on tile programs: hoisting, sharing, pruning, prefetch, unrolling; dtypes at the edges of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from fused_examples import attention, softmax
from tile_runs import assert_runs, kernel_for, run

from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, LetScalar, MatMul, Put, Red, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prefetch import prefetch
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.share import share
from redfuser.codegen.passes.unroll import unroll
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.extract import Options, Profile
from redfuser.ir import Axis, Cascade, Const, Expr, Load, Out, Reduction, Ref, Size, Tensor, Var, op

N, LANE, ROW = Size("n"), Var("n"), Var("r")
X = At(Buf("x", (N,), "global", "float32", 0), (LANE,))
OUT = At(Buf("o", (N,), "global", "float32", 0), (LANE,))
G = At(Buf("g", (N,), "global", "float32", 0), (ROW,))
STATE = At(Buf("m", (), "reg", "float32"))


def sweep(put: Expr | None = None, **reds: Expr) -> Sweep:
    kept = tuple(Red(name, "sum", e) for name, e in reds.items())
    return Sweep("n", Const(0), N, kept, (Put(OUT, put),) if put is not None else ())


def texts(body: tuple[Stmt, ...]) -> list[str]:
    return [line for s in body for line in str(s).split("\n")]


# -------------------------------- hoist


def test_invariants_become_scalars_once_per_scope() -> None:
    body = hoist((sweep(a=X * np.exp(G)), sweep(b=X + np.exp(G))), Names(), "float32")
    assert texts(body)[0] == "c:float32 = exp(g[r])"
    assert [type(s) for s in body] == [LetScalar, Sweep, Sweep]


def test_mutable_cells_are_read_again_by_every_sweep() -> None:
    body = hoist((sweep(a=X * STATE), Set(STATE, Const(1.0)), sweep(b=X * STATE)), Names(), "float32")
    assert [type(s) for s in body] == [LetScalar, Sweep, Set, LetScalar, Sweep]


def test_wide_scalars_are_converted_before_the_sweep() -> None:
    names = Names()
    mean = names.scalar("mean", "float64")
    assert texts(hoist((sweep(a=X - mean),), names, "float32"))[0] == "c:float32 = mean"


def test_division_becomes_multiplication_where_rounding_is_free() -> None:
    assert "/" not in texts(hoist((sweep(X / G),), Names(), "float32"))[-1]
    for kept in (np.rint(X / G), op("select", X / G > 1.0, X, 0.0), np.floor(X / G)):
        assert "/" in texts(hoist((sweep(kept),), Names(), "float32"))[-1]


def test_varying_divisors_and_constants_stay() -> None:
    assert "/" in texts(hoist((sweep(G / X),), Names(), "float32"))[-1]
    assert "/ 3" in texts(hoist((sweep(X / 3.0),), Names(), "float32"))[-1]


def test_integers_stay_integers() -> None:
    body = hoist((sweep(op("select", op("add", ROW, 1) >= LANE, X, 0.0)),), Names(), "float32")
    assert isinstance(body[0], LetInt)


# -------------------------------- share


def test_a_costly_term_of_two_sweeps_is_stored_by_the_first() -> None:
    extent = (op("add", N, 64),)
    shared = share((sweep(a=np.exp(X)), sweep(b=np.exp(X) * X)), "n", extent, Names(), "float32")
    assert [b.name for b in shared.scratch] == ["kept"]
    assert [t.count("exp(") for t in texts(shared.body)] == [0, 1, 0, 0, 0]
    assert shared.terms == (np.exp(X),)


def test_cheap_terms_and_other_ranges_are_not_shared() -> None:
    extent = (op("add", N, 64),)
    other = Sweep("n", Const(1), N, (Red("b", "sum", np.exp(X)),))
    for body in ((sweep(a=X * X), sweep(b=X * X)), (sweep(a=np.exp(X)), other)):
        assert share(body, "n", extent, Names(), "float32").scratch == ()


def test_an_output_row_is_a_home_only_for_its_own_dtype() -> None:
    extent = (op("add", N, 64),)
    half = At(Buf("h", (N,), "global", "float16", 0), (LANE,))
    last = Sweep("n", Const(0), N, (), (Put(half, np.exp(X) * 2.0),))
    assert share((sweep(a=np.exp(X)), last), "n", extent, Names(), "float32").scratch
    last = Sweep("n", Const(0), N, (), (Put(OUT, np.exp(X) * 2.0),))
    assert share((sweep(a=np.exp(X)), last), "n", extent, Names(), "float32").scratch == ()


# -------------------------------- prune, prefetch, unroll


def test_prune_removes_chains_of_unread_names() -> None:
    dead = (LetInt("i", N), LetScalar("c", Var("i") * 2.0, "float32"), sweep(unused=X * Var("c")))
    live = sweep(X * 1.0)
    assert prune((*dead, live)) == (live,)


def test_prune_keeps_what_nested_bodies_read() -> None:
    body = (LetInt("i", N), For("j", Const(0), Var("i"), Const(1), (sweep(X * 1.0),)))
    assert prune(body) == body


def test_prefetch_goes_to_the_first_costly_sweep() -> None:
    body = (sweep(a=X * X), sweep(b=np.exp(X)), sweep(c=np.exp(X)))
    chosen = prefetch(body, "n", [X])
    assert [s.ahead for s in chosen if isinstance(s, Sweep)] == [(), (X,), ()]


def test_cheap_sweeps_share_the_lines_and_spare_the_one_that_writes() -> None:
    writer = Sweep("n", Const(0), N, (), (Put(OUT, X * 2.0),))
    three = prefetch((sweep(a=X * X), sweep(b=X), sweep(c=X), writer), "n", [X])
    assert [(bool(s.ahead), s.turn) for s in three if isinstance(s, Sweep)] == [
        (False, (0, 1)), (True, (0, 2)), (True, (1, 2)), (False, (0, 1))]
    two = prefetch((sweep(a=X * X), writer), "n", [X])
    assert [s.ahead for s in two if isinstance(s, Sweep)] == [(X,), ()]


@pytest.mark.parametrize("body", [(sweep(a=X * X),), (Sweep("n", Const(0), N, (), (Put(OUT, X * 2.0),)),)])
def test_a_cheap_sweep_alone_is_left_to_the_machine(body) -> None:
    assert prefetch(body, "n", [X]) == body


def test_unroll_stops_at_short_constant_ranges() -> None:
    short = Sweep("n", Const(0), Const(16), (Red("a", "sum", X * 1.0),))
    body = unroll((sweep(a=X * 1.0), short), Profile.generic(32), "float32")
    assert [s.unroll for s in body if isinstance(s, Sweep)] == [4, 2]


def test_operands_read_in_place_are_fetched_ahead() -> None:
    kernel = kernel_for(attention(), {"h": 2, "i": 1, "n": 99, "k": 16, "d": 16})
    products = [s for p in kernel.phases for s in nested(p.loop.body) if isinstance(s, MatMul)]
    assert [[cell.buf.name for cell, _ in s.ahead] for s in products] == [["v"], ["kk"]]


# -------------------------------- dtypes of arrays


def test_half_inputs_and_outputs_compute_in_float32() -> None:
    fused = softmax("float16")
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float16)
    for options in (Options(), Options(block=8)):
        kernel = kernel_for(fused, {"p": 3, "n": 40}, options)
        got = run(kernel, fused, {"x": x}, {"p": 3, "n": 40})["o"]
        assert got.dtype == np.float16
        e = np.exp(x.astype(float) - x.max(-1, keepdims=True).astype(float))
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=2e-3)


def test_half_operands_of_matrix_products() -> None:
    for options in (Options(), Options(block=8, tile=3, pack=True)):
        fused = attention("float16")
        sizes = {"h": 2, "i": 5, "n": 19, "k": 8, "d": 6}
        rng = np.random.default_rng(0)
        arrays = {
            t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(np.float16)
            for t in fused.cascade.tensors
        }
        kernel = kernel_for(fused, sizes, options)
        got = run(kernel, fused, arrays, sizes)["out"]
        q, k, v = (arrays[n].astype(float) for n in ("q", "kk", "v"))
        s = 0.3 * q @ k.transpose(0, 2, 1)
        e = np.exp(s - s.max(-1, keepdims=True))
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) @ v, rtol=2e-3, atol=2e-3)


def test_integers_are_exact_in_float64() -> None:
    """Sums of int32 beyond 2**24 and a comparison of integers."""
    x = Load("x", ("p", "n"))
    bodies = {"s": x, "c": op("eq", x, 3)}
    cascade = Cascade(
        "integers", "n", (Axis("p"), Axis("n")), (Tensor("x", ("p", "n"), "int32"),), (),
        tuple(Reduction(n, "sum", e, ("p",)) for n, e in bodies.items()),
        tuple(Out(f"o{n}", ("p",), Ref(n, ("p",)), "int64") for n in bodies),
    )  # fmt: skip
    fused = FusedCascade(
        cascade,
        tuple(Accumulator(n, "sum", e, ("p",)) for n, e in bodies.items()),
        (),
        (),
        tuple((n, Ref(n, ("p",))) for n in bodies),
        passes=(("s", "c"),),
    )
    data = np.random.default_rng(0).integers(-(2**30), 2**30, (3, 50)).astype(np.int32)
    data[:, ::7] = 3
    kernel = kernel_for(fused, {"p": 3, "n": 50}, Options(block=8), "float64")
    got = run(kernel, fused, {"x": data}, {"p": 3, "n": 50})
    np.testing.assert_array_equal(got["os"], data.sum(1, dtype=np.int64))
    np.testing.assert_array_equal(got["oc"], (data == 3).sum(1))


def test_float64_inputs_of_a_float32_kernel_are_converted() -> None:
    fused = softmax("float64")
    assert_runs(fused, {"p": 3, "n": 20}, arrays={"x": np.random.default_rng(0).standard_normal((3, 20))})
