"""Lengths of what NumPy makes between kernels: concluded at one call, right at every other."""

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import ShapeError

pytestmark = pytest.mark.usefixtures("session_cache")
RNG = np.random.default_rng(1)


def normal(*shape):
    return RNG.standard_normal(shape)


def joined_twice(x):
    c = np.stack([x, x])
    d = np.stack([c, c])
    c += 1
    return d


def joined_and_summed(x):
    c = np.stack([x, x])
    d = np.stack([c, c])
    c += 1
    return d.sum(0)


def rotary(x, c, s):
    h = x.shape[-1] // 2
    a, b = x[..., :h], x[..., h:]
    return (np.concatenate([-b, a], -1) * s + x * c).sum(-1)


def robust_scale(x):
    q = np.percentile(x, [25, 75], axis=0)
    return (x - q[0]) / (q[1] - q[0])


def fitted(n, columns):
    return normal(n, n) + 2 * n * np.eye(n), normal(n, columns)


CASES = [
    (lambda x: np.cumsum(x.reshape(2, -1), axis=-1), (normal(6),), (normal(8),)),
    (lambda x: np.median(x.reshape(2, -1), axis=-1), (normal(6),), (normal(8),)),
    (lambda x: np.median(x.reshape(x.shape[0], 2, -1), -1).sum(0), (normal(3, 6),), (normal(4, 8),)),
    (lambda x: x[::14] * 2, (normal(20000),), (normal(300),)),
    (lambda x: (x[::16] ** 2).sum(), (normal(16),), (normal(64),)),
    (lambda x: (x[:, ::32] ** 2).sum(1), (normal(200, 640),), (normal(20, 64),)),
    (lambda x, y: x[::14] + y, (normal(28000), normal(2000)), (normal(28), normal(2))),
    (lambda x: x[::2] * 2 if x[::2].size > 10 else x[::2] * 3, (normal(20000),), (normal(5),), (normal(40),)),
    (lambda x: sum(x[::2][i] for i in range(x[::2].shape[0])), (normal(20),), (normal(10),)),
    (lambda x: x[100:233] * 2 if x[100:233].size else x, (normal(20000),), (normal(50),)),
    (lambda x: x[:, 100:233].argmax(1), (normal(20, 1000),), (normal(20, 150),)),
    (lambda x: x[20:-20].argmax(), (normal(40001),), (normal(500),)),
    (lambda x: x[::2].reshape(-1, 2), (normal(20000),), (normal(40),)),
    (lambda x: x[::2][:7], (normal(20000),), (normal(100),)),
    (lambda a: a.sum() / np.linalg.qr(a)[1].shape[0], (normal(2000, 20),), (normal(5, 30),)),
    (lambda a: np.linalg.svd(a, full_matrices=False).S.max() - a.mean(), (normal(3000, 8),), (normal(5, 30),)),
    (lambda a: np.abs(np.linalg.qr(a).R).sum(1), (normal(5, 30),), (normal(30, 5),)),
    (lambda x, k: np.convolve(x, k, 'same').max(),
     (normal(20000), normal(5)), (normal(100), normal(7)), (normal(3), normal(9))),
    (lambda x, y: np.exp(np.concatenate([x, y])[:14] * 2), (normal(8), normal(10)), (normal(3), normal(4))),
    (lambda x: np.sort(x[x > 0])[-100:] * 2, (normal(800),), (normal(50),)),
    (lambda x: x[x > 0][:14].mean(), (normal(80),), (normal(9),)),
    (lambda x, k: np.repeat(x, k).sum(), (normal(9), np.array(5)), (normal(5), np.int64(2))),
    (joined_twice, (normal(4),), (normal(6),)),
    (joined_and_summed, (normal(4),), (normal(6),)),
    (lambda x, y: np.concatenate([x, y])[0] * 2, (normal(30), normal(5)), (normal(10), normal(20))),
    (lambda x: x[x > 0][0], (normal(30),), (normal(12),)),
    (robust_scale, (normal(20, 3),), (normal(30, 3),)),
    (lambda x, y: np.stack([x, y]).argmax(0), (normal(30), normal(30)), (normal(4), normal(4))),
    (lambda x: np.quantile(x, [0.25, 0.75])[0] * x, (normal(20),), (normal(31),)),
    (lambda x: np.sort(rf.topk(x, 3)[0], -1), (normal(5, 9),), (normal(6, 12),)),
    (lambda x: np.cumsum(rf.topk(x, 3)[0], -1), (normal(5, 9),), (normal(6, 12),)),
    (lambda x, y: np.sort(y[rf.topk(x, 3)[1]]), (normal(9), normal(9)), (normal(12), normal(12))),
    (lambda x: np.sort(x)[:5], (normal(30),), (normal(17),)),
    (lambda x: np.sort(x, -1)[:, -2:].mean(-1), (normal(4, 4),), (normal(6, 8),), (normal(3, 5),)),
    (lambda x: np.sort(x, -1)[:, :x.shape[1] // 2].sum(1), (normal(4, 4),), (normal(6, 8),)),
    (lambda x: np.partition(x, 5)[:5].sum(), (normal(30),), (normal(31),)),
    (lambda x: x[np.argsort(x[:, 0])[:2]], (normal(5, 4),), (normal(8, 4),)),
    (lambda v: np.linalg.eigh(v @ v.T)[1][:, ::-1][:, :2] ** 2, (normal(8, 8),), (normal(6, 6),)),
    (rotary, (normal(5, 8), normal(5, 8), normal(5, 8)), (normal(3, 6), normal(3, 6), normal(3, 6))),
    (lambda x: (x.reshape(2, -1).sum(1), np.sort(x)), (normal(8),), (normal(10),)),
    (lambda x, y: np.stack([x, y]).max(0), (normal(110000), normal(110000)), (normal(7), normal(7))),
    (lambda a, b: np.linalg.solve(a, b).sum(0), fitted(150, 2), fitted(5, 3)),
    (lambda y, x: np.trapezoid(y, x) + y.max(), (normal(100000), np.sort(normal(100000)))),
    (lambda x, y: [r * 2 for r in np.stack([x, y])], (normal(5), normal(5)), (normal(9), normal(9))),
    (lambda x, b: np.digitize(x, np.sort(b)) + x.max(), (normal(30), normal(5)), (normal(20), normal(6))),
    (lambda x: np.sort(x.reshape(-1))[:3], (normal(4, 5),), (normal(6, 7),)),
    (lambda x: np.median(x.ravel()) - x.max(), (normal(4, 5),), (normal(6, 7),)),
    (lambda x: rf.topk(np.concatenate([x, x * 2], -1), 3)[0], (normal(5, 4),), (normal(6, 7),)),
    (lambda x: np.sort(x, axis=0) - x.mean(0), (normal(4, 4),), (normal(5, 7),)),
    (lambda x, y: np.concatenate([x, y]).reshape(2, -1).sum(1), (normal(5), normal(5))),
    (lambda x: x.reshape(x.shape[0] // 2, 2, -1).mean(1)[1:], (normal(8, 3),), (normal(10, 3),)),
    (lambda x: np.diff(x.reshape(-1)).max(), (normal(4, 5),), (normal(3, 3),)),
]


def leaves(result):
    return [x for item in result for x in leaves(item)] if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_every_call_is_that_of_numpy(case):
    fn, *calls = case
    fused = rf.fuse(fn)
    for args in (*calls, calls[0]):
        kept = [np.copy(a) for a in args]
        for found, wanted in zip(leaves(fused(*args)), leaves(fn(*args)), strict=True):
            assert np.shape(found) == np.shape(wanted)
            assert np.asarray(found).dtype == np.asarray(wanted).dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
        for a, before in zip(args, kept, strict=True):
            np.testing.assert_array_equal(a, before)


def test_arrays_of_the_caller_are_written_last():
    x = normal(6)
    wanted, out = x[1:].copy(), np.empty(5)
    rf.fuse(lambda x: (np.sort(x), x[1:]))(x, out=(x, out))
    np.testing.assert_array_equal(out, wanted)


def test_a_conclusion_that_does_not_hold_is_an_error():
    """A call whose result has a length that no trial showed: where lengths decide, the function is traced anew."""
    def by_length(x):
        return np.resize(x, 3 if x.size < 300 else 4)

    def by_value(x):
        return np.resize(x, 1 if x.max() < 300 else 2)

    from redfuser.frontend.host import run_by_numpy

    fused = rf.fuse(lambda x: run_by_numpy("f", by_length, (x,), {}) * 2)
    for n in (9, 900, 10, 901):
        np.testing.assert_array_equal(fused(np.arange(float(n))), 2 * by_length(np.arange(n)))
    fused = rf.fuse(lambda x: run_by_numpy("f", by_value, (x,), {}) * 2)
    np.testing.assert_array_equal(fused(np.arange(9.0)), [0])
    with pytest.raises(ShapeError, match=r"f\(...\), line \d+ gave an array of shape \(2,\) where \(1,\) was"):
        fused(np.arange(900.0))


def test_a_position_that_is_not_there_is_an_error():
    fused = rf.fuse(lambda x: x[x > 0][3])
    x = np.arange(9.0)
    assert fused(x) == 4
    with pytest.raises(ShapeError, match="the length of an array that NumPy makes decides what to do"):
        fused(x - 6)
