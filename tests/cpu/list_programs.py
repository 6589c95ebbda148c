"""Tile programs that keep sorted lists, what they must give by the definition, and rows that are hard for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from programs import Array, N, R, Variant, agree, n, r, row_cell, task_kernel

from redfuser.codegen.nodes import At, Buf, For, Insert, Kernel, LetInt, Put, Red, Set, Stmt, Sweep
from redfuser.ir import Const, Expr, Var, op

place, z_ = Var("place"), Var("z_")


def listing(
    compute: str,
    k: int,
    largest: bool,
    unroll: int = 2,
    key: Expr | None = None,
    index: Expr = n,
    tensors: Iterable[Buf] = (),
    block: int = 0,
    puts: tuple[Put, ...] = (),
    local: tuple[Buf, ...] = (),
) -> Kernel:
    """The k best of every row with their indices, and its sum in the same sweep; in blocks if they have a size."""
    x = row_cell("x", compute)
    keys, indices = Buf("keys", (Const(k),), "local", compute), Buf("places", (Const(k),), "local", "int64")
    total = At(Buf("total", (), "reg", compute))
    insert = Insert(At(keys, (z_,)), At(indices, (z_,)), x if key is None else key, index, largest)
    y, i, s = (Buf(b, shape, "global", d, len(shape) - 1)
               for b, shape, d in (("y", (R, Const(k)), compute), ("i", (R, Const(k)), "int64"), ("s", (R,), compute)))
    nothing = Const(-np.inf if largest else np.inf)
    lo, hi = (Var("b0"), Var("b1")) if block else (Const(0), N)
    counted = x if key is None else key
    sweep: list[Stmt] = [Sweep("n", lo, hi, (Red("part", "sum", counted),), puts, unroll, inserts=(insert,)),
                         Set(total, op("add", total, Var("part")))]
    if block:
        end = LetInt("b1", op("min", op("add", lo, Const(block)), N))
        sweep = [For("b0", Const(0), N, Const(block), (end, *sweep))]
    body = [
        Set(total, Const(0.0)),
        Sweep("place", Const(0), Const(k), (), (
            Put(At(keys, (place,)), nothing), Put(At(indices, (place,)), Const(-1)),
        )),
        *sweep,
        Set(At(s, (r,)), total),
        Sweep("place", Const(0), Const(k), (), (Put(At(y, (r, place)), At(keys, (place,))),)),
        Sweep("place", Const(0), Const(k), (), (Put(At(i, (r, place)), At(indices, (place,))),)),
    ]
    return task_kernel("listing", compute, tuple(tensors) or [x.buf], [y, i, s], body, local=(keys, indices, *local))


def expected(x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    """By the definition: a stable sort with NaN first, empty places at the end."""
    score = np.where(np.isnan(x), 0, -x if largest else x)
    order = np.lexsort((np.arange(x.shape[1]) + np.zeros(x.shape, int), score, ~np.isnan(x)), axis=-1)[:, :k]
    values = np.full((len(x), k), -np.inf if largest else np.inf, x.dtype)
    indices = np.full((len(x), k), -1)
    values[:, : order.shape[1]] = np.take_along_axis(x, order, -1)
    indices[:, : order.shape[1]] = order
    return values, indices


def check(kernel: Kernel, variant: Variant, x: Array, k: int, largest: bool, key: Array | None = None) -> None:
    """The kernel, its interpreter and the definition agree to the bit; `key` is what is listed, `x` unless said."""
    got = agree(kernel, variant, [x], {"r": len(x), "n": x.shape[1]}, rtol=1e-4, atol=1e-4)
    values, indices = expected(x if key is None else key, k, largest)
    np.testing.assert_array_equal(got[1], indices)
    whole = f"u{values.itemsize}"
    np.testing.assert_array_equal(got[0].view(whole), values.view(whole))


def hard_rows(length: int, dtype: str, rng: np.random.Generator) -> Iterator[Array]:
    """Ties, orders, NaN, infinities, zeros of both signs, the best elements in one lane of all vectors."""
    numbers, ramp = rng.normal(size=length), np.arange(length) - length / 2
    least = np.nextafter(np.zeros((), dtype), np.ones((), dtype))
    yield numbers
    yield ramp
    yield -ramp
    yield np.ones(length)
    yield np.full(length, -np.inf)
    yield np.full(length, np.inf)
    yield ramp // 5  # sorted, with ties
    yield -ramp // 5
    yield rng.integers(0, 3, length)
    yield rng.integers(0, 2, length) * np.sign(numbers)
    yield rng.choice([0.0, -0.0, least, -least, 2 * least], length)
    yield np.where(rng.random(length) < 0.1, np.nan, numbers)
    yield np.where(rng.random(length) < 0.1, np.nan, ramp)
    yield np.where(rng.random(length) < 0.8, np.nan, 1.0)
    yield np.where(rng.random(length) < 0.9, -np.inf, numbers)
    yield np.where(rng.random(length) < 0.9, np.inf, numbers)
    yield rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], length)
    yield np.where(np.arange(length) % 16 == 3, 5 + numbers, numbers)
    yield np.where(np.arange(length) % 16 == 3, -5 + numbers, numbers)
    yield np.where(np.arange(length) < 20, 5 + numbers, numbers)
    yield np.where(np.arange(length) >= length - 20, 5.0, numbers)


def hard(length: int, dtype: str, seed: int) -> Array:
    """All of them, as one array."""
    return np.stack([*hard_rows(length, dtype, np.random.default_rng(seed))]).astype(dtype)
