"""Streams over several axes, nested cascades and long chains, from plain NumPy code to compiled kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redfuser as rf
from redfuser.api import Fused
from redfuser.errors import ShapeError

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("session_cache")
RNG = np.random.default_rng(11)


def draw(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def softmax(x: Any, axes: Any = -1) -> Any:
    e = np.exp(x - x.max(axis=axes, keepdims=True))
    return e / e.sum(axis=axes, keepdims=True)


def normalised(x: Any, axes: Any = -1) -> Any:
    mu = x.mean(axis=axes, keepdims=True)
    return (x - mu) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


def rms(x: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def check(fn: Callable[..., Any], *args: Array, f: Fused | None = None, rtol: float = 2e-4) -> Fused:
    """Compare two calls (the second repeats the first) with NumPy in float64."""
    f = rf.fuse(fn) if f is None else f
    wanted = fn(*(a.astype(np.float64) if a.dtype == np.float32 else a for a in args))
    for _ in range(2):
        found = f(*args)
        pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
        for got, want in pairs:
            assert np.shape(got) == np.shape(want)
            np.testing.assert_allclose(got, want, rtol=rtol, atol=3e-5)
    return f


def streams(f: Fused, *args: Array) -> list[tuple[str | None, int]]:
    """Stream axis and passes of every cascade."""
    pieces = f.lower(*args).program.pieces
    return [(p.cascade.axis, p.derivation.passes if p.derivation else 0) for p in pieces]


# ---- several axes at once


def variance(x):
    return x.var()


def whole_softmax(x):
    return softmax(x, None)


def instance_norm(x):
    return normalised(x, (-2, -1))


def channels_last(x):
    return normalised(x, (1, 2))


def batch_norm(x, g):
    return normalised(x, (0, 2, 3)) * g[:, None, None]


def group_norm(x, g):
    """x[b, group, channel of the group, h, w]"""
    return normalised(x, (2, 3, 4)) * g[:, :, None, None]


def layer_norm(x, g, b):
    return normalised(x, (1, 2)) * g + b


def soft_argmax(x):
    p = softmax(x, None)
    return (p * np.arange(x.shape[0])[:, None]).sum(), (p * np.arange(x.shape[1])).sum()


def lower_triangle(x):
    rows, columns = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])
    return softmax(np.where(columns <= rows, x, -np.inf), None)


def window(x, w):
    mass = (w * np.ones_like(x)).sum()
    mu = (w * x).sum() / mass
    return (w * (x - mu) ** 2).sum() / mass


def several(x):
    return x.mean(), x.max(), whole_softmax(x), x.std()


PLANES: list[tuple[Callable[..., Any], tuple[Array, ...], int]] = [
    (variance, (draw(37, 53),), 0),
    (whole_softmax, (draw(37, 53),), 0),
    (whole_softmax, (draw(5, 7, 11),), 0),
    (instance_norm, (draw(3, 17, 19),), 0),
    (instance_norm, (draw(2, 3, 17, 19),), 0),
    (channels_last, (draw(2, 17, 19, 3),), 0),
    (batch_norm, (draw(4, 3, 5, 7), draw(3)), 1),
    (group_norm, (draw(2, 3, 4, 5, 7), draw(3, 4)), 1),
    (layer_norm, (draw(4, 9, 11), draw(9, 11), draw(9, 11)), 0),
    (soft_argmax, (draw(13, 29),), 0),
    (lower_triangle, (draw(13, 29),), 0),
    (window, (draw(13, 29), abs(draw(29))), 1),
    (several, (draw(13, 29),), 0),
]


@pytest.mark.parametrize(("fn", "args", "copies"), PLANES, ids=[f"{f.__name__}-{a[0].ndim}d" for f, a, _ in PLANES])
def test_several_axes_take_one_pass(fn: Callable[..., Any], args: tuple[Array, ...], copies: int) -> None:
    f = check(fn, *args)
    assert [passes for axis, passes in streams(f, *args) if axis is not None] == [1]
    assert f.stats.copies == 2 * copies  # two calls


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (1, 1), (2, 3), (31, 33), (64, 1024), (3, 70001)])
def test_lengths_of_planes(shape: tuple[int, int]) -> None:
    x = draw(*shape)
    check(variance, x)
    check(whole_softmax, x)


def test_planes_of_no_elements() -> None:
    f = rf.fuse(lambda x: x.sum())
    assert f(np.zeros((0, 5), np.float32)) == 0 == f(np.zeros((5, 0), np.float32))
    assert np.isnan(rf.fuse(variance)(np.zeros((0, 5), np.float32)))


@pytest.mark.parametrize("target", ["c", "interpret"])
@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[::3], lambda x: x[::-1, ::-1],
     lambda x: np.broadcast_to(x[:1], x.shape)],
    ids=["transposed", "every second", "rows", "backwards", "broadcast"],
)
def test_strided_planes(target: str, view: Callable[[Array], Array]) -> None:
    x = view(draw(12, 18))
    check(variance, x, f=rf.fuse(variance, target=target))
    check(soft_argmax, x, f=rf.fuse(soft_argmax, target=target))
    check(lower_triangle, x, f=rf.fuse(lower_triangle, target=target))


def test_results_go_into_the_arrays_of_the_caller() -> None:
    x = draw(6, 8)
    f = rf.fuse(whole_softmax)
    for out in (np.empty((6, 8), np.float32), np.empty((6, 16), np.float32)[:, ::2], np.empty((8, 6), np.float32).T):
        assert f(x, out=out) is out
        np.testing.assert_allclose(out, whole_softmax(x), rtol=1e-5)


def test_a_plane_far_from_zero() -> None:
    x = (1e4 + 1e-3 * RNG.standard_normal((64, 64))).astype(np.float32)
    exact = x.astype(np.float64).var()
    assert abs(rf.fuse(variance)(x) - exact) < 1e-5 * exact


# ---- several contractions, several widths


def differential(q, k, r, m, v):
    return (softmax(q @ k.T) - 0.5 * softmax(r @ m.T)) @ v


def masked_differential(q, k, r, m, v):
    keep = np.arange(k.shape[0])[None, :] <= np.arange(q.shape[0])[:, None]
    first, second = (softmax(np.where(keep, s, -np.inf)) for s in (q @ k.T, r @ m.T))
    return (first - 0.5 * second) @ v


def unequal_depths(q, k, r, m, v):
    return softmax(q @ k.T + r @ m.T) @ v


def two_widths(q, k, v, w):
    p = softmax(q @ k.T)
    return p @ v, p @ w


@pytest.mark.parametrize("n", [1, 5, 33, 150])
@pytest.mark.parametrize("fn", [differential, masked_differential, unequal_depths], ids=lambda f: f.__name__)
def test_two_products_in_one_sweep_of_tiles(fn: Callable[..., Any], n: int) -> None:
    depth = 24 if fn is unequal_depths else 8
    args = (draw(n, 8), draw(n, 8), draw(n, depth), draw(n, depth), draw(n, 16))
    f = check(fn, *args)
    if n > 1:  # with a single key there is no stream
        assert [passes for _, passes in streams(f, *args)] == [1]
        assert [p.strategy for p in f.lower(*args).plan] == ["tiles"]


def test_what_both_masks_remove_leaves_no_trace() -> None:
    args = [draw(40, 8), draw(40, 8), draw(40, 8), draw(40, 8), draw(40, 16)]
    f = rf.fuse(masked_differential)
    clean = f(*args)
    args[4][39] = np.nan  # seen by the last row only
    spoiled = f(*args)
    np.testing.assert_allclose(spoiled[:39], clean[:39], rtol=1e-4, atol=1e-5)
    assert np.isnan(spoiled[39]).all()


def test_two_widths_in_one_sweep() -> None:
    args = (draw(33, 8), draw(70, 8), draw(70, 16), draw(70, 5))
    f = check(two_widths, *args)
    assert [passes for _, passes in streams(f, *args)] == [1]


# ---- nests and chains


def normalised_queries(q, k, v):
    return softmax(rms(q) @ k.T) @ v


def normalised_both(q, k, v):
    return softmax(rms(q) @ rms(k).T) @ v


def over_heads(q, k, v):
    return softmax(softmax(q @ k.transpose(0, 2, 1)) @ v, 0)


def two_layers(q, k, v, m, w):
    return softmax(softmax(q @ k.T) @ v @ m.T) @ w


def five_stages(x):
    p = softmax(normalised(x))
    return -(p * np.log(p)).sum(-1)


def six_stages(x, v):
    p = softmax(normalised(x) * 0.1)
    return p @ v, (p * p).sum(-1)


def side_by_side(x):
    return x.mean(-1), x.max(-1), softmax(x), x.var(-1), np.log(np.exp(x).sum(-1))


def both_ways(x):
    return softmax(x, 0) + softmax(x, 1)


def lengths_apart(x, y):
    return softmax(x), y.var(-1), x.sum(-1) * y.sum(-1)


def contrastive(q, k):
    s = q @ k.T
    rows, columns = (np.log(np.exp(s - s.max(a, keepdims=True)).sum(a)) + s.max(a) for a in (1, 0))
    d = (q * k).sum(-1)
    return (rows - d).mean() + (columns - d).mean()


def balanced(x):
    p = np.exp(x - x.max())
    p = p / p.sum(1, keepdims=True)
    return p / p.sum(0, keepdims=True)


def weighted(x, w):
    a = np.average(x, axis=-1, weights=w)
    return a, np.average((x - a[:, None]) ** 2, axis=-1, weights=w)


def chosen(x, m):
    return np.var(x, axis=-1, where=m), np.max(x, axis=-1, where=m, initial=-np.inf), np.mean(x, axis=-1, where=m)


NESTS: list[tuple[Callable[..., Any], tuple[Array, ...], list[int]]] = [
    (normalised_queries, (draw(9, 8), draw(33, 8), draw(33, 5)), [1, 1]),
    (normalised_both, (draw(9, 8), draw(33, 8), draw(33, 5)), [1, 1, 1]),
    (over_heads, (draw(4, 9, 8), draw(4, 33, 8), draw(4, 33, 5)), [1, 1]),
    (two_layers, (draw(9, 4), draw(11, 4), draw(11, 6), draw(13, 6), draw(13, 3)), [1, 1]),
    (five_stages, (draw(7, 41),), [2]),  # exp(x / s) with a running s has infinite rank
    (six_stages, (draw(7, 41), draw(41, 3)), [2]),
    (side_by_side, (draw(7, 41),), [1]),
    (both_ways, (draw(17, 23),), [1, 1]),
    (lengths_apart, (draw(5, 40), draw(5, 23)), [1, 1]),
    (contrastive, (draw(9, 4), draw(9, 4)), [1, 1, 1, 1]),
    (balanced, (draw(17, 23),), [1, 1, 1]),
    (weighted, (draw(5, 30), abs(draw(5, 30))), [1]),
    (chosen, (draw(5, 30), RNG.random((5, 30)) < 0.7), [1]),
]


@pytest.mark.parametrize(("fn", "args", "passes"), NESTS, ids=[f.__name__ for f, _, _ in NESTS])
def test_nests_and_chains(fn: Callable[..., Any], args: tuple[Array, ...], passes: list[int]) -> None:
    f = check(fn, *args)
    assert [p for _, p in streams(f, *args)] == passes


# ---- axes merged and split


def grouped(x, g):
    z = normalised(x.reshape(x.shape[0], 3, -1))
    return z.reshape(x.shape) * g[:, None, None]


def several_heads(x, wq, wk, wv):
    t, d = x.shape
    q, k, v = ((x @ w).reshape(t, 4, d // 4).transpose(1, 0, 2) for w in (wq, wk, wv))
    return (softmax(q @ k.transpose(0, 2, 1)) @ v).transpose(1, 0, 2).reshape(t, d)


def quantised_blocks(x):
    b = x.reshape(x.shape[0], -1, 8)
    return np.abs(b).max(-1), (b / np.abs(b).max(-1, keepdims=True)).reshape(x.shape)


def flat_position(x):
    f = x.ravel()
    return (softmax(f) * np.arange(f.shape[0])).sum()


def flat_softmax(x):
    return softmax(x.reshape(x.shape[0], -1))


RESHAPED: list[tuple[Callable[..., Any], tuple[Array, ...], list[int]]] = [
    (grouped, (draw(2, 6, 5, 7), draw(6)), [1]),
    (several_heads, (draw(9, 16), draw(16, 16), draw(16, 16), draw(16, 16)), [1, 1]),
    (quantised_blocks, (draw(3, 32),), [1]),
    (flat_position, (draw(6, 7),), [1]),
    (flat_softmax, (draw(3, 5, 7),), [1]),
]


@pytest.mark.parametrize(("fn", "args", "passes"), RESHAPED, ids=[f.__name__ for f, _, _ in RESHAPED])
def test_merged_and_split_axes(fn: Callable[..., Any], args: tuple[Array, ...], passes: list[int]) -> None:
    f = check(fn, *args)
    assert [p for axis, p in streams(f, *args) if axis is not None] == passes


def test_results_with_merged_axes_go_into_the_arrays_of_the_caller() -> None:
    x = draw(3, 5, 7)
    f = rf.fuse(flat_softmax)
    wide = np.empty((3, 70), np.float32)
    for out in (np.empty((3, 35), np.float32), wide[:, ::2], np.empty((35, 3), np.float32).T):
        assert f(x, out=out) is out
        np.testing.assert_allclose(out, flat_softmax(x), rtol=1e-5)
    with pytest.raises(ShapeError):
        f(x, out=np.empty((5, 21), np.float32))


def test_merged_lengths_compile_nothing_new_and_split_ones_do() -> None:
    f = rf.fuse(flat_softmax)
    for shape in ((3, 5, 7), (2, 9, 4), (4, 2, 2)):
        check(flat_softmax, draw(*shape), f=f)
    assert f.stats.derivations == 1
    g = rf.fuse(grouped)
    for shape in ((2, 6, 5, 7), (3, 6, 2, 2), (2, 9, 5, 7)):
        check(grouped, draw(*shape), draw(shape[1]), f=g)
    assert g.stats.derivations == 2
