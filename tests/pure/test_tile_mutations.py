"""Tests of the tests: a program with one planted mistake must fail the comparison with the definition."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from fused_examples import arrays_for, attention, softmax, variance, weighted_variance
from tile_runs import TOLERANCE, definition, error, kernel_for, run, without_repair

from redfuser.codegen import Kernel
from redfuser.codegen.nodes import For, If, LetInt, MatMul, Pack, Set, Stmt, Sweep
from redfuser.derivation.fusion import FusedCascade
from redfuser.errors import CheckError
from redfuser.extract import Options
from redfuser.ir import Const, New, Old, op

Mutate = Callable[[Stmt], Stmt | None]
ROWS = {"p": 3, "n": 37}
TILE = {"h": 2, "i": 13, "p": 13, "n": 29, "k": 5, "d": 6}


def edit(body: tuple[Stmt, ...], f: Callable[[Stmt], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """Replace statements everywhere."""
    return tuple(
        replace(t, body=edit(t.body, f)) if isinstance(t, (For, If)) else t for s in body for t in f(s)
    )


def mutants(kernel: Kernel, f: Callable[[Stmt], tuple[Stmt, ...] | None]) -> Iterator[Kernel]:
    """One kernel per statement that `f` changes, with only that statement changed."""
    total = 0

    def counted(s: Stmt) -> tuple[Stmt, ...]:
        nonlocal total
        total += f(s) is not None
        return (s,)

    for p in kernel.phases:
        edit(p.loop.body, counted)
    for target in range(total):
        position = itertools.count()

        def once(s: Stmt, target: int = target, position: Iterator[int] = position) -> tuple[Stmt, ...]:
            result = f(s)
            return (s,) if result is None or next(position) != target else result

        phases = (replace(p, loop=replace(p.loop, body=edit(p.loop.body, once))) for p in kernel.phases)
        yield replace(kernel, phases=tuple(phases))


def survives(kernel: Kernel, fused: FusedCascade, sizes: dict[str, int]) -> bool:
    """Does the mutant still give the right results?"""
    arrays = arrays_for(fused, sizes)
    arrays = {
        n: a * 3 if a.dtype == np.float32 else a for n, a in arrays.items()
    }  # maxima move in every block
    try:
        with np.errstate(all="ignore"):
            return (
                error(run(kernel, fused, arrays, sizes), definition(fused, arrays))
                <= 10 * TOLERANCE["float32"]
            )
    except (CheckError, KeyError):
        return False


def assert_all_caught(
    kernel: Kernel, fused: FusedCascade, sizes: dict[str, int], f: Callable[[Stmt], tuple[Stmt, ...] | None]
) -> None:
    assert survives(kernel, fused, sizes)
    found = list(mutants(kernel, f))
    assert found
    for mutant in found:
        assert not survives(mutant, fused, sizes), str(mutant)


def correction(s: Stmt) -> tuple[Stmt, ...] | None:
    """Drop an If that moves state."""
    return () if isinstance(s, If) and any(isinstance(t, Set) for t in s.body) else None


def shorter(s: Stmt) -> tuple[Stmt, ...] | None:
    """Off by one: the last element of a block is lost."""
    if isinstance(s, LetInt) and s.name.startswith("b1"):
        return (replace(s, expr=op("sub", s.expr, 1)),)
    return None


def first_element_lost(s: Stmt) -> tuple[Stmt, ...] | None:
    """Off by one at the start of a sweep that sums or stores (losing an element of a max only moves the shift)."""
    if isinstance(s, Sweep) and s.var == "n" and (s.puts or s.reds[0].monoid == "sum"):
        return (replace(s, lo=op("add", s.lo, 1)),)
    return None


def combine(s: Stmt) -> tuple[Stmt, ...] | None:
    """Drop the combination with the block's value (a max that stays dead only leaves the sums unshifted)."""
    combines = isinstance(s, Set) and "block" in str(s.expr) and not str(s.expr).startswith("max")
    return () if combines else None


@pytest.mark.parametrize("make", [softmax, variance, weighted_variance])
@pytest.mark.parametrize("mutation", [correction, shorter, first_element_lost, combine])
def test_rows(make: Callable[[], FusedCascade], mutation: Callable[[Stmt], tuple[Stmt, ...] | None]) -> None:
    fused = make()
    assert_all_caught(kernel_for(fused, ROWS, Options(block=8)), fused, ROWS, mutation)


@pytest.mark.parametrize("mutation", [correction, combine])
def test_merge(mutation: Callable[[Stmt], tuple[Stmt, ...] | None]) -> None:
    fused = weighted_variance()
    kernel = kernel_for(fused, ROWS, Options(block=8, chunk=16))
    split = replace(kernel, phases=kernel.phases[1:])
    assert survives(split, fused, ROWS)
    for mutant in mutants(split, mutation):
        assert not survives(mutant, fused, ROWS)


def product(s: Stmt) -> tuple[Stmt, ...] | None:
    """Drop a matrix product or a packing."""
    return () if isinstance(s, (MatMul, Pack)) else None


def overwritten(s: Stmt) -> tuple[Stmt, ...] | None:
    """Forget to accumulate over blocks."""
    return (replace(s, accumulate=False),) if isinstance(s, MatMul) and s.accumulate else None


def loose_bound(s: Stmt) -> tuple[Stmt, ...] | None:
    """Let rows see one element too many."""
    if isinstance(s, LetInt) and s.name.startswith("row_end"):
        return (replace(s, expr=op("min", op("add", s.expr, 1), op("add", s.expr, 1))),)
    return None


def uncleared(s: Stmt) -> tuple[Stmt, ...] | None:
    """Keep stale weights beyond a row's bound."""
    if isinstance(s, Sweep) and s.var == "n" and s.puts and s.puts[0].expr == Const(0.0):
        return ()
    return None


@pytest.mark.parametrize(
    "mutation", [correction, shorter, combine, product, overwritten, loose_bound, uncleared]
)
def test_tiles(mutation: Callable[[Stmt], tuple[Stmt, ...] | None]) -> None:
    fused = attention(mask="causal", lse=True)
    kernel = kernel_for(fused, TILE, Options(block=8, tile=6, register_tile=(3, 1), pack=True))
    assert_all_caught(without_repair(kernel), fused, TILE, mutation)


@pytest.mark.parametrize(
    "wrong",
    [
        {"l": Old("l")},
        {"l": Old("l") * np.exp(New("m") - Old("m"))},
        {"l": Old("l") * np.exp(Old("m") - New("m")) + 1.0},
    ],
    ids=["dropped", "swapped", "added"],
)
def test_wrong_corrections_of_the_fusion_itself(wrong: dict[str, object]) -> None:
    fused = replace(softmax(), corrections=tuple(wrong.items()))
    assert not survives(kernel_for(fused, ROWS, Options(block=8)), fused, ROWS)  # type: ignore[arg-type]
