"""Assignment to elements, out=, parts of an axis, number types: the trace replays to what NumPy computes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend import Spec, trace
from redfuser.frontend.structure import flatten

X = np.random.default_rng(0).normal(size=(6, 4))
LABELS = np.array([0, 3, -1, 2, 2, 1])


def leaves(result: Any) -> list[Any]:
    return flatten(result, lambda x: isinstance(x, (np.ndarray, np.generic, bool, int, float)))[0]


def check(fn: Callable[..., Any], *args: Any) -> None:
    """Types, dtypes, shapes and values are NumPy's."""
    traced = trace(fn, [Spec.of(a) for a in args])
    kept = [np.copy(a) for a in args]
    found, wanted = leaves(traced.run(dict(zip(traced.arguments, args, strict=True)))), leaves(fn(*args))
    assert [type(f) for f in found] == [type(w) for w in wanted]
    for f, w in zip(found, wanted, strict=True):
        assert (np.shape(f), np.asarray(f).dtype) == (np.shape(w), np.asarray(w).dtype)
        np.testing.assert_allclose(f, w, rtol=1e-13)
    for a, before in zip(args, kept, strict=True):
        np.testing.assert_array_equal(a, before)


def masks(x):
    z = x.copy()
    z[z > 1] = 0
    z[~(z < 0.5)] = -1.0
    z[x.sum(1) > 0] = x.max(0)
    return z, z.sum(1)


def positions(x):
    z = x * 2
    z[:, 0] = 1
    z[..., 1] = x.sum(1)
    z[2] = 0
    z[-1:] = np.arange(4)
    z[0, 3] = x[1, 1]
    return z


def whole(x):
    z = np.zeros_like(x)
    z[:] = x
    z[...] = z * 2
    z[:] += x.max(0)
    w = np.empty_like(x)
    w.fill(3)
    return z, w


def columns(x):
    z = np.zeros((x.shape[0], 2))
    z[:, 0], z[:, 1] = x.min(1), x.max(1)
    for i in range(2):
        z[:, i] -= i
    return z


def through_views(x):
    z = x * 2
    z[0] += 1
    z[:, 1] *= 3
    last = z[-1]
    last -= x.sum()
    return z


def labels(x, y):
    p = np.exp(x)
    p[np.arange(len(y)), y] -= 1
    q = x + 0
    q[range(x.shape[0]), y] = x.max(1)
    return p, q


def into(x):
    z = np.empty_like(x)
    np.exp(x, out=z)
    np.multiply(z, 2, z)
    np.add(z, x, out=z, where=x > 0)
    np.copyto(z, 0, where=x > 1)
    np.putmask(z, x < -1, 9.0)
    return z, np.divide(1, x.sum(1), out=np.full(x.shape[0], 7.0), where=x.sum(1) > 0)


def integers(x):
    z = (x > 0).astype(int)
    z[x > 0.5] = 2.7
    z += 1
    return z


def copies(x):
    z = x * 2
    a, b, c, d = z.copy(), np.array(z), z.astype(z.dtype), z.flatten()
    z += 1
    same = np.asarray(z)
    same[same > 1] = 0
    e = z[:, [0, 2]]
    e += 1
    f = np.take(z, 0, axis=1)
    f -= 1
    return a, b, c, d, z, same, e, f


def temporary_views(x):
    z = x * 2
    total = z.T.sum(0) + z[:, None].max(1).sum(1) + z.reshape(-1).max()
    z[z > 0] = 0
    return z, total


def halves(x):
    d = x.shape[1] // 2
    a, b = x[:, :d], x[:, d:]
    c, e, f = np.split(x, 3)
    return a * b, x[..., -2:] - a, np.concatenate([-b, a], axis=1), c + e - f, np.hsplit(x, 4)[1], x[2:4].max()


def reversed_positions(x):
    n = x.shape[1]
    return x @ 0.9 ** np.arange(n)[::-1], np.flip(np.arange(n)) * x, np.where(np.arange(n)[::-1] > 1, x, 0)


def chosen(x):
    return x[:, [0, 2]], np.take(x, [1, 1], axis=1), np.take(x, 2, axis=0), x.take([0], axis=1), x[[1, 3]]


def one_hot(y):
    return np.eye(4)[y], np.eye(4, dtype=np.float32)[y].sum(0), (np.eye(4) * 2)[0], np.eye(3)[1], np.identity(4)[y]


def numbers(x):
    return (float(x.mean()), int((x > 0).sum()), x.sum().item(), float(x.shape[0]), int(x.shape[1]), x.shape[0] - 1,
            np.float32(x.sum()), np.float32(x), np.int64((x > 0).sum()), x * np.float32(x[0, 0]), x / float(x.std()),
            2.5)


def types(x):
    assert isinstance(1.5, float)
    assert isinstance(np.float32(2), np.float32)
    assert np.issubdtype(x.dtype, np.float64)
    assert x.dtype == float
    assert np.dtype(np.float32).itemsize == 4
    assert {np.int64: 1}[np.int64] == 1
    return np.zeros(3, float), np.ones(x.shape, dtype=np.int32), x.astype(float), x.astype(int), x.sum(dtype=np.float32)


def two_shapes(x):
    return np.ravel(x), x, x.reshape(2, -1), (x * 2).reshape(-1), x.nbytes


@pytest.mark.parametrize("fn", [
    masks, positions, whole, columns, through_views, into, integers, copies, temporary_views, halves,
    reversed_positions, chosen, numbers, types, two_shapes,
])
def test_as_numpy(fn: Callable[..., Any]) -> None:
    check(fn, X)


def test_labels() -> None:
    check(labels, X, LABELS)
    check(one_hot, LABELS)


def test_broadcast_copies_keep_their_values() -> None:
    def stale(x):
        z = x * 2
        wide = np.broadcast_to(z, (3, 6, 4))
        z += 1
        return z, wide

    with pytest.raises(TraceError, match="another name holds a view of"):
        trace(stale, [Spec.of(X)])


def held_view(x):
    z = x * 2
    v = z.T
    z[z > 0] = 0
    return v


def held_reshape(x):
    z = x * 2
    w = z.reshape(-1)
    w += 1
    return z


def argument(x):
    x[x > 0] = 0
    return x


def repeated(x, y):
    z = x * 1
    z[y] = 0
    return z


def selected(x):
    z = x * 1
    z[x > 0] = x[x > 0]
    return z


def other_shape(x):
    z = x * 1
    z[x > 0] = np.ones(3)
    return z


def wrong_mask(x):
    z = x * 1
    z[x[:, :1] > 0] = 0
    return z


def slice_of(x):
    z = x * 1
    z[1:] = 0
    return z


def real_array(x):
    z = np.zeros(5)
    z[2] = x.sum()
    return z


def without_out(x):
    return np.log(x, where=x > 0)


@pytest.mark.parametrize(("fn", "error", "message"), [
    (held_view, TraceError, r"another name holds a view of.*x = x\.copy\(\)"),
    (held_reshape, TraceError, r"another name holds a view of.*write w = w \+ 1"),
    (argument, TraceError, r"changes of an argument.*x = x\.copy\(\).*np\.where\(condition, new, old\)"),
    (selected, TraceError, r"mask.*np\.where"),
    (other_shape, TraceError, r"np\.where\(mask, new, old\)"),
    (wrong_mask, ShapeError, "a mask of shape"),
    (slice_of, TraceError, r"the slice 1: .*np\.arange of the length"),
    (real_array, TraceError, r"np\.zeros_like\(x\) and np\.zeros\(x\.shape\)"),
    (without_out, TraceError, r"where= and no out=.*out=np\.zeros_like\(x\)"),
    (lambda x: np.split(x, 4), ShapeError, "6 into 4 parts"),
    (lambda x: int(x[0, 0]), TraceError, r"np\.trunc\(x\)\.astype\(int\)"),
])
def test_refusals(fn: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        trace(fn, [Spec.of(X)])


def test_labels_that_may_repeat() -> None:
    with pytest.raises(TraceError, match=r"labels that may repeat.*np\.arange"):
        trace(repeated, [Spec.of(X), Spec.of(LABELS)])
