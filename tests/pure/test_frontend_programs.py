"""Whole programs through the frontend: the trace's replay, the term and the partition all equal the NumPy function."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from redfuser.frontend import Spec, Trace, lower_with_sources, trace
from redfuser.frontend.structure import flatten
from redfuser.ir import check_term, run_term
from redfuser.ir.partition import partition

Array = np.ndarray[Any, Any]


def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Array]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def assert_same(actual: Any, wanted: Any) -> None:
    """Equal structure, shapes and dtypes; values up to float32 rounding."""
    actual_leaves, actual_template = flatten(actual, lambda x: isinstance(x, (np.ndarray, np.generic, int, float)))
    wanted_leaves, wanted_template = flatten(wanted, lambda x: isinstance(x, (np.ndarray, np.generic, int, float)))
    assert actual_template == wanted_template
    for a, w in zip(actual_leaves, wanted_leaves, strict=True):
        assert np.shape(a) == np.shape(w)
        if not isinstance(w, (int, float)):
            assert a.dtype == w.dtype
        np.testing.assert_allclose(a, w, rtol=2e-5, atol=2e-6)


def check_program(fn: Callable[..., Any], args: Sequence[Any]) -> Trace:
    """Trace at other sizes than those of `args`, then compare all levels on `args`."""
    traced = trace(fn, [_other_sizes(Spec.of(a)) for a in args])
    named = dict(zip(traced.arguments, args, strict=True))
    assert traced.mismatch({name: Spec.of(a) for name, a in named.items()}) is None
    with np.errstate(all="ignore"):
        wanted = fn(*args)
    assert_same(traced.run(named), wanted)
    lowering = lower_with_sources(traced)
    check_term(lowering.term)
    tensors = lowering.arrays(named)
    names = [o.name for o in lowering.term.outs]
    by_definition = run_term(lowering.term, tensors)
    assert_same(traced.unflatten([by_definition[n] for n in names]), wanted)
    by_cascades = partition(lowering.term).run(tensors)
    assert_same(traced.unflatten([by_cascades[n] for n in names]), wanted)
    return traced


def _other_sizes(spec: Spec) -> Spec:
    return Spec(tuple(n if n in (0, 1) or isinstance(n, str) else n + 2 for n in spec.shape), spec.dtype, spec.weak)


SCALE = 0.25
OFFSETS = np.linspace(0, 1, 6).astype("float32")


def scaled(x):
    return x * SCALE


def softmax(x):
    m = x.max(axis=-1, keepdims=True)
    e = np.exp(x - m)
    return e / e.sum(axis=-1, keepdims=True)


def softmax_columns(x):
    e = np.exp(x - np.max(x, 0))
    return e / np.sum(e, 0)


def logsumexp(x):
    m = x.max(-1)
    return m + np.log(np.exp(x - m[:, None]).sum(-1))


def attention(q, k, v):
    scores = scaled(q @ k.swapaxes(-1, -2))
    return softmax(scores) @ v


def causal_attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    rows, columns = scores.shape[-2:]
    mask = np.arange(rows)[:, None] >= np.arange(columns)[None, :]
    return softmax(np.where(mask, scores, -np.inf)) @ v


def tri_attention(q, k, v):
    s = np.einsum("...ik,...jk->...ij", q, k) / math.sqrt(q.shape[-1])
    s = np.where(np.tri(s.shape[-2], s.shape[-1], dtype=bool), s, -np.inf)
    return np.einsum("...ij,...jd->...id", softmax(s), v)


def masked_attention(q, k, v, mask):
    s = np.where(mask, q @ k.T, np.float32(-1e9))
    return softmax(s) @ v


def layernorm(x, weight, bias, eps=1e-5):
    mu = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return (x - mu) / np.sqrt(var + eps) * weight + bias


def layernorm_softmax(x, weight, bias):
    return softmax(layernorm(x, weight, bias))


def rmsnorm_matmul(x, g, w):
    return (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * g) @ w


def cosine(x, y):
    return (x * y).sum(-1) / (np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))


def mean_absolute_deviation(x):
    return np.abs(x - x.mean(-1, keepdims=True)).mean(-1)


def column_then_row(x):
    return (x - x.mean(0)).max(1)


def normalised_matmul(x, y):
    xn = x / np.sqrt(np.square(x).sum(-1, keepdims=True))
    return xn @ y.T


def self_attention(x):
    return softmax(x @ x.T) @ x


def sinkhorn(x):
    e = np.exp(x - x.max())
    e = e / e.sum(1, keepdims=True)
    return e / e.sum(0, keepdims=True)


def qk_norm_attention(q, k, v):
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    return softmax(q @ k.T) @ v


def attention_with_weights(q, k, v):
    p = softmax(q @ k.T)
    return {"out": p @ v, "weights": p}


def chain(a, b, c):
    return a @ b @ c


def relu_mlp(x, a, b):
    return np.maximum(x @ a, 0) @ b


def in_place(x):
    y = x - x.mean(0)
    y *= 2
    y /= y.max(0) + 10
    return y


def many_outputs(x, y):
    return [x.sum(), (x.min(1), y + 1), {"n": x.shape[0], "max": y.max(-1, keepdims=True)}]


def scalars(x, scale, shift):
    return softmax(x * (scale * 2) + shift)


def positions(x):
    i, j = np.indices((x.shape[0], x.shape[1]))
    return (x * (i - j)).sum(1) + np.arange(1, x.shape[0] + 1)


def pick(x):
    return x[:, 0] - x[..., 1:2][:, 0] + np.exp(x).sum(1)


def captured(x):
    return (x * OFFSETS).sum(1)


def entropy(x):
    p = softmax(x)
    return -(p * np.log(p)).sum(-1)


def double_softmax(x):
    return softmax(softmax(x))


def batched(q, k):
    return np.matmul(q[:, None], k[None].transpose(0, 1, 3, 2)).max((2, 3))


def diagonal_free(x):
    return (x * (1 - np.eye(x.shape[0], dtype=x.dtype))).sum(0) + np.trace(x)


def bool_sums(x):
    positive = x > 0
    return positive.sum(1), positive.any(0), np.all(positive), np.count_nonzero(x, 1), (positive * x).sum()


def moments(x):
    return x.mean(), x.var(ddof=1), np.std(x, axis=(0, 1)), np.ptp(x, 0), x.prod(1), np.average(x, 1)


def where_sums(x):
    keep = x > 0
    return (np.sum(x, 1, where=keep), np.mean(x, 1, where=x < 9), np.max(x, 1, initial=0.5),
            np.max(x, 1, where=keep, initial=-np.inf))


def elementwise(x):
    y = np.clip(x, -1, 1) ** 3 + np.abs(x) ** 0.5 + np.tanh(x) - np.sign(x) + np.log1p(np.exp(-np.abs(x)))
    return y + np.trunc(x) + np.nan_to_num(1 / x) + np.isfinite(x) + np.log10(x * x + 1) + np.reciprocal(x) + 2.0**x


def shapes(x):
    y = np.expand_dims(x, (0, 2)).squeeze(0).reshape(x.shape[0], 1, -1)
    y = np.moveaxis(y, 1, 0).reshape(1, x.shape[0], x.shape[1])
    return np.broadcast_to(y, (1, *x.shape)), np.zeros_like(x) + 1, np.full(x.shape, 3.0), np.transpose(y, (2, 0, 1))


def integers(x, n):
    return x.sum(0), (x // 3) % 2, x.max() + n, x / 2, x.mean(1), x.astype("float32").sum()


PROGRAMS: list[tuple[Callable[..., Any], list[Any]]] = [
    (softmax, arrays((3, 5))), (softmax_columns, arrays((3, 5))), (logsumexp, arrays((3, 5))),
    (attention, arrays((3, 4), (5, 4), (5, 2))), (attention, arrays((2, 3, 4), (2, 5, 4), (2, 5, 6))),
    (attention, arrays((2, 1, 3, 4), (1, 5, 5, 4), (1, 5, 5, 2))),
    (causal_attention, arrays((2, 2, 4, 3), (2, 2, 5, 3), (2, 2, 5, 3))),
    (tri_attention, arrays((4, 3), (5, 3), (5, 2))),
    (masked_attention, [*arrays((3, 4), (5, 4), (5, 2)), arrays((3, 5))[0] > 0]),
    (layernorm, arrays((3, 5), (5,), (5,))), (layernorm_softmax, arrays((3, 5), (5,), (5,))),
    (rmsnorm_matmul, arrays((3, 5), (5,), (5, 4))), (cosine, arrays((3, 5), (3, 5))),
    (mean_absolute_deviation, arrays((3, 5))), (column_then_row, arrays((3, 5))),
    (normalised_matmul, arrays((3, 5), (4, 5))), (self_attention, arrays((4, 3))), (sinkhorn, arrays((3, 4))),
    (qk_norm_attention, arrays((3, 4), (5, 4), (5, 2))), (attention_with_weights, arrays((3, 4), (5, 4), (5, 2))),
    (chain, arrays((3, 4), (4, 5), (5, 2))), (relu_mlp, arrays((3, 4), (4, 5), (5, 2))), (in_place, arrays((3, 5))),
    (many_outputs, arrays((3, 5), (3, 5))), (scalars, [*arrays((3, 5)), 0.5, 3]), (positions, arrays((3, 5))),
    (pick, arrays((3, 5))), (entropy, arrays((3, 5))), (double_softmax, arrays((3, 5))),
    (batched, arrays((2, 4, 3), (5, 6, 3))), (diagonal_free, arrays((4, 4))), (bool_sums, arrays((3, 5))),
    (moments, arrays((3, 5))), (where_sums, arrays((3, 5))), (elementwise, arrays((3, 5))), (shapes, arrays((3, 5))),
    (integers, [np.arange(12).reshape(3, 4), 3]), (integers, [np.arange(12, dtype="int32").reshape(3, 4), 3]),
    (softmax, arrays((3, 1))), (layernorm, arrays((1, 5), (5,), (5,))), (softmax, arrays((3, 5), dtype="float64")),
    (attention, arrays((1, 4), (5, 4), (5, 2))), (softmax_columns, arrays((5, 0))), (moments, arrays((1, 4))),
]


@pytest.mark.parametrize(("fn", "args"), PROGRAMS, ids=[f"{f.__name__}-{i}" for i, (f, _) in enumerate(PROGRAMS)])
def test_program(fn: Callable[..., Any], args: list[Any]) -> None:
    check_program(fn, args)


class Pair(NamedTuple):
    low: Any
    high: Any


def test_named_tuples_are_kept() -> None:
    (x,) = arrays((3, 5))
    traced = trace(lambda x: Pair(x.min(1), x.max(1)), [Spec((3, 5), "float32")])
    result = traced.run({"x": x})
    assert isinstance(result, Pair)
    np.testing.assert_array_equal(result.high, x.max(1))


def test_captured_array_is_an_input() -> None:
    (x,) = arrays((3, 6))
    traced = trace(captured, [Spec((3, 6), "float32")])
    assert list(traced.captured) == ["OFFSETS"]
    assert traced.captured["OFFSETS"] is OFFSETS
    np.testing.assert_allclose(traced.run({"x": x}), captured(x), rtol=1e-6)


def test_string_sizes_name_the_axes() -> None:
    traced = trace(attention, [Spec(("row", "head")), Spec(("key", "head")), Spec(("key", "value"))])
    term = lower_with_sources(traced).term
    assert {a.name for a in term.axes} == {"row", "head", "key", "value"}
    cascade, = partition(term).cascades
    assert cascade.axis == "key"


def test_let_names_and_sources_come_from_the_user() -> None:
    lowering = lower_with_sources(trace(layernorm_softmax, [Spec((3, 5)), Spec((5,)), Spec((5,))]))
    names = [x.name for x in lowering.term.lets]
    assert names[:2] == ["mu_sum", "var_sum"]
    assert "m" in names
    assert "m = x.max(axis=-1, keepdims=True)" in lowering.sources["m"]


def test_axis_names_follow_their_roles() -> None:
    term = lower_with_sources(trace(causal_attention, [Spec((2, 7, 3)), Spec((2, 5, 3)), Spec((2, 5, 4))])).term
    q, k, v = term.tensors
    assert q.axes[:2] == ("h", "i")
    assert k.axes[1] == v.axes[1] == "n"
    assert v.axes[2] == "d"
    assert "k" not in {a.name for a in term.axes}  # an argument has that name
