"""Reshapes that merge and split axes: what is recorded, what stays symbolic, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import ShapeError, TraceError
from redfuser.frontend import Spec, Trace, trace
from redfuser.frontend.lower import lower_with_sources
from redfuser.ir import run_term
from redfuser.ir.partition import partition

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(2)


def draw(*shape: int) -> Array:
    return RNG.normal(size=shape)


def normalised(y: Any, axes: Any) -> Any:
    m = y.mean(axis=axes, keepdims=True)
    return (y - m) / np.sqrt(y.var(axis=axes, keepdims=True) + 1e-5)


def group_norm(x: Any, g: Any) -> Any:
    z = normalised(x.reshape(x.shape[0], 3, -1), -1)
    return z.reshape(x.shape) * g[:, None, None]


def group_norm5(x: Any, g: Any) -> Any:
    n, c, h, w = x.shape
    return normalised(x.reshape(n, 3, c // 3, h, w), (2, 3, 4)).reshape(n, c, h, w) * g[:, None, None]


def heads(x: Any, w: Any) -> Any:
    t, d = x.shape
    q = (x @ w).reshape(t, 4, d // 4).transpose(1, 0, 2)
    s = q @ q.transpose(0, 2, 1)
    return (s / s.sum(-1, keepdims=True) @ q).transpose(1, 0, 2).reshape(t, d)


def blocks(x: Any) -> Any:
    b = x.reshape(x.shape[0], -1, 8)
    a = np.abs(b).max(-1, keepdims=True)
    return np.rint(b / a * 127).reshape(x.shape), a[..., 0]


def positions(x: Any) -> Any:
    f = x.reshape(-1)
    return (f * np.arange(f.shape[0])).sum() / f.size


def merged_weights(x: Any, g: Any) -> Any:
    return (x.reshape(x.shape[0], -1) * g).sum(-1)


def units(x: Any) -> Any:
    return x.reshape(1, -1, 1).max(1) + x.ravel()[None, :].sum(-1, keepdims=True)


def product(x: Any, w: Any) -> Any:
    return np.einsum("ij,jk->ik", x.reshape(x.shape[0], -1), w.reshape(-1, w.shape[-1]))


def kept(x: Any) -> Any:
    m = x.reshape(x.shape[0], -1).max(axis=-1, keepdims=True)
    return x - m[:, :, None]


def choices(x: Any) -> Any:
    f = x.flatten()
    return np.where(f > 0, f, 0.0).reshape(x.shape[0], x.shape[1])


def again(x: Any) -> Any:
    """Split, merged elsewhere, split once more."""
    return x.reshape(2, 3, -1).sum(1).reshape(2, 2, -1).max(-1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "group norm": (group_norm, (draw(2, 6, 5, 7), draw(6))),
    "group norm in five axes": (group_norm5, (draw(2, 6, 5, 7), draw(6))),
    "heads": (heads, (draw(9, 16), draw(16, 16))),
    "blocks": (blocks, (draw(3, 32),)),
    "positions": (positions, (draw(6, 7),)),
    "merged weights": (merged_weights, (draw(3, 5, 7), draw(35))),
    "size 1": (units, (draw(3, 5),)),
    "product": (product, (draw(3, 2, 5), draw(2, 5, 4))),
    "kept": (kept, (draw(3, 2, 5),)),
    "choices": (choices, (draw(3, 5),)),
    "again": (again, (draw(6, 4),)),
}


def traced(fn: Callable[..., Any], args: tuple[Array, ...]) -> Trace:
    return trace(fn, [Spec(a.shape, "float64") for a in args])


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_level_means_what_numpy_does(name: str) -> None:
    fn, args = PROGRAMS[name]
    t = traced(fn, args)
    assert not any(n.op == "reshape" for n in t.nodes)
    named = dict(zip(t.arguments, args, strict=True))
    wanted = fn(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    lowering = lower_with_sources(t)
    given = lowering.arrays(named)
    replayed = t.run(named)
    replayed = replayed if isinstance(replayed, tuple) else (replayed,)
    for results in (run_term(lowering.term, given), partition(lowering.term).run(given)):
        found = t.unflatten(list(results.values()))
        for got, again_, want in zip(found if isinstance(found, tuple) else (found,), replayed, wanted, strict=True):
            assert np.shape(got) == np.shape(want) == np.shape(again_)
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(again_, want, rtol=1e-10, atol=1e-12)


def fixed(t: Trace) -> list[int | None]:
    return [s.value for s in t.sizes if s.fixed]


def test_merged_sizes_stay_symbolic() -> None:
    x = draw(3, 5, 7)
    assert fixed(traced(lambda x: x.reshape(x.shape[0], -1).sum(-1), (x,))) == []
    assert fixed(traced(lambda x: x.ravel().max(), (x,))) == []


def test_numbers_and_splits_are_static() -> None:
    x = draw(4, 6)
    assert fixed(traced(lambda x: x.reshape(4, 2, -1).sum(-1), (x,))) == [4, 6, 2, 3]
    assert fixed(traced(lambda x: x.reshape(x.shape[0], 2, -1).sum(-1), (x,))) == [6, 2, 3]


def test_another_split_is_another_program() -> None:
    f = rf.fuse(group_norm, target="interpret")
    for shape in ((2, 6, 3, 5), (3, 6, 4, 4), (2, 9, 3, 5)):
        x, g = draw(*shape), draw(shape[1])
        np.testing.assert_allclose(f(x, g), group_norm(x, g), rtol=1e-9)
    assert f.stats.derivations == 2  # six channels, nine channels


def test_group_norm_is_one_cascade() -> None:
    parts = partition(lower_with_sources(traced(group_norm, (draw(2, 6, 5, 7), draw(6)))).term)
    [c] = parts.cascades
    assert len(c.reductions) == 2


def test_split_inputs_are_views_not_copies() -> None:
    x = draw(2, 6, 5, 7)
    t = traced(group_norm, (x, draw(6)))
    given = lower_with_sources(t).arrays({"x": x, "g": draw(6)})
    assert given["x"].shape == (2, 3, 2, 5, 7)
    assert np.shares_memory(given["x"], x)


@pytest.mark.parametrize(
    ("fn", "shape", "error", "message"),
    [
        (lambda x: x.reshape(5, 3), (3, 5), TraceError, "cuts across"),
        (lambda x: x.reshape(4, -1), (3, 5), ShapeError, "15 elements"),
        (lambda x: x.reshape(-1, -1), (3, 5), ShapeError, "15 elements"),
        (lambda x: x.reshape(-1), (0, 5), TraceError, "other than 0"),
        (lambda x: x.reshape(-1, order="F").sum(), (3, 5), TraceError, "order='F'"),
        (lambda x: x.reshape(2, -1).sum() + x.reshape(3, -1).sum(), (6,), TraceError, "cuts across"),
        (lambda x: x.reshape(-1)[3], (3, 5), TraceError, "element 3 of merged axes"),
        (lambda x: x.reshape(-1)[0], (3, 5), None, ""),
        (lambda x: x.reshape(3, -1)[1].sum(), (6,), None, ""),
        (lambda x: x.reshape(3, 2).reshape(-1)[3], (6,), None, ""),
        (lambda x: np.argmax(x.reshape(-1)), (3, 5), None, ""),
        (lambda x: np.argmin(x.reshape(2, -1) ** 2, axis=1), (2, 3, 5), None, ""),
    ],
)
def test_what_cannot_be_recorded_says_so(fn: Any, shape: tuple[int, ...], error: Any, message: str) -> None:
    x = draw(*shape)
    if error is None:
        t = traced(fn, (x,))
        np.testing.assert_allclose(t.run({next(iter(t.arguments)): x}), fn(x))
        return
    with pytest.raises(error, match=message):
        traced(fn, (x,))


def test_a_call_whose_merged_length_does_not_fit_is_refused() -> None:
    t = traced(merged_weights, (draw(3, 5, 7), draw(35)))
    assert t.size_values({"x": (3, 4, 7), "g": (28,)})
    with pytest.raises(ShapeError, match="28 is expected"):
        t.size_values({"x": (3, 4, 7), "g": (35,)})
