"""Elements chosen by arrays of labels: NumPy's results for every way to write it, and cross-entropy in one pass."""

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import LabelError, TraceError

pytestmark = pytest.mark.usefixtures("session_cache")
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4, 6, 5)).astype("float32"), RNG.normal(size=(5, 7))
ROWS = np.arange(5)


def labels(length, *shape):
    return np.random.default_rng(length).integers(-length, length, shape)


@pytest.mark.parametrize(("fn", "x", "chosen"), [
    (lambda x, k: x[np.arange(x.shape[0]), k], Y, labels(7, 5).astype("int32")),
    (lambda x, k: x[np.arange(len(k)), k], Y, labels(7, 5)),
    (lambda x, k: x[np.arange(x.shape[0]), k], X, labels(6, 4)),
    (lambda x, k: x[np.arange(x.shape[0]), :, k], X, labels(5, 4)),
    (lambda x, k: x[np.arange(x.shape[0])[:, None], np.arange(x.shape[1]), k], X, labels(5, 4, 6)),
    (lambda x, k: np.take_along_axis(x, k[:, None], axis=1)[:, 0], Y, labels(7, 5).astype("int8")),
    (lambda x, k: np.take_along_axis(x, k[..., None], axis=-1), X, labels(5, 4, 6)),
    (lambda x, k: np.take_along_axis(x, k, axis=1), X, labels(6, 4, 3, 5)),
    (lambda x, k: np.take_along_axis(x, k, axis=None), X, labels(120, 9)),
    (lambda x, k: x[k], Y, labels(5, 3)),
    (lambda x, k: x[:, k], X, labels(6, 2, 3)),
    (lambda x, k: x[..., k], X, labels(5, 3)),
    (lambda x, k: x[:, None, k], X, labels(6, 3)),
    (lambda x, k: x[0, :, k], X, labels(5, 3)),
    (lambda x, k: x[:, 0, k], X, labels(5, 3)),
    (lambda x, k: (x > 0)[:, k], X, labels(6, 3)),
    (lambda x, k: x.astype("int32")[np.arange(x.shape[0]), k], 9 * X, labels(6, 4)),
    (lambda x, k: x.astype("uint8")[np.arange(x.shape[0]), k], np.abs(9 * X), labels(6, 4)),
    (lambda x, k: x[np.arange(x.shape[0]), np.arange(x.shape[0])] + k, Y[:, :5], labels(5, 5)),
    (lambda x, k: x[np.arange(x.shape[0]), x.argmax(1)] + k, Y, labels(5, 5)),
    (lambda x, k: x[:, k], np.ones((3, 1)), np.array([0, -1, 0])),
    (lambda x, k: x[np.arange(x.shape[0]), k], np.ones((1, 4)), np.array([2])),
    (lambda x, k: x[np.arange(x.shape[0]), k], np.ones((0, 4)), np.ones(0, int)),
])
def test_as_numpy(fn, x, chosen):
    wanted = fn(x, chosen)
    got = rf.fuse(fn)(np.ascontiguousarray(x), chosen)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


def cross_entropy(z, k):
    m = z.max(axis=-1, keepdims=True)
    return m[:, 0] + np.log(np.exp(z - m).sum(axis=-1)) - z[np.arange(len(k)), k]


def log_softmax_loss(z, k):
    s = z - z.max(axis=-1, keepdims=True)
    logp = s - np.log(np.exp(s).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(logp, k[:, None], axis=1)[:, 0]


def softmax_loss(z, k):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return -np.log(p[np.arange(z.shape[0]), k])


def without_ignored(z, k, ignore=-100):
    loss = log_softmax_loss(z, np.where(k == ignore, 0, k))
    return np.where(k == ignore, 0, loss)


LOSSES = {f.__name__: f for f in (cross_entropy, log_softmax_loss, softmax_loss, without_ignored)}
FUSED = {name: rf.fuse(f) for name, f in LOSSES.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy(name, dtype):
    for size in (1, 2, 3, 17, 100, 40_000):
        z = (3 * np.random.default_rng(size).normal(size=(6, size))).astype(dtype)
        k = labels(size, 6)
        if name == "without_ignored":
            k[::2] = -100
        if size > 3:
            z[1, (k[1] + 1) % size] = -np.inf
            z[2, 0] = np.nan
            z[3, k[3]] = -np.inf
        with np.errstate(all="ignore"):
            wanted = LOSSES[name](z.astype("float64"), k)
        got = FUSED[name](z, k)
        assert got.dtype == dtype
        rtol = 1e-5 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol, err_msg=str(size))
    report = FUSED[name].explain(z, k)
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)


def test_the_mean_over_rows_that_count():
    def loss(z, k, ignore=-1):
        return np.where(k == ignore, 0, cross_entropy(z, k)).mean()

    z, k = RNG.normal(size=(17, 100)), labels(100, 17)
    k[::3] = -1
    fused = rf.fuse(loss)
    np.testing.assert_allclose(fused(z, k), loss(z, k), rtol=1e-13)
    assert [c.passes for c in fused.explain(z, k).cascades] == [1, 1]  # the row, then the mean over rows


def test_the_chosen_element_is_exact_far_from_zero():
    z, k = (1e4 + RNG.normal(size=(5, 5000))).astype("float32"), labels(5000, 5)
    fn = lambda z, k: (z[np.arange(z.shape[0]), k], z.var(axis=1))  # noqa: E731
    np.testing.assert_array_equal(rf.fuse(fn)(z, k)[0], fn(z, k)[0])


@pytest.mark.parametrize("wrong", [7, -8, -100])
def test_labels_outside_the_axis(wrong):
    k = np.array([0, 1, wrong, 2, 3])
    with pytest.raises(LabelError, match=r"1 of 5 labels .*\n.*test_labels\.py"):
        FUSED["cross_entropy"](Y, k)
    with pytest.raises(IndexError):
        cross_entropy(Y, k)


def test_computed_labels_outside_the_axis_choose_zero():
    fused = rf.fuse(lambda x, y: x[np.arange(x.shape[0]), y.astype(np.int64)])
    np.testing.assert_array_equal(fused(np.ones((3, 4)), np.array([1.0, 4.0, -5.0])), [1, 0, 0])


@pytest.mark.parametrize(("fn", "message"), [
    (lambda x, k: x[k, k], "several arrays of labels"),
    (lambda x, k: x[ROWS, k], "several arrays of labels"),
    (lambda x, k: x[x > 0, 0], "mask"),
    (lambda x, k: x[[True, False]], "a list"),
    (lambda x, k: np.take_along_axis(x, x, axis=1), "dtype float64"),
    (lambda x, k: np.take_along_axis(x, k[:, None], axis=1.5), "give an int"),
])
def test_refusals(fn, message):
    with pytest.raises(TraceError, match=message):
        rf.fuse(fn)(Y, labels(5, 5))


def test_one_label_per_row_needs_a_dimension():
    with pytest.raises(ValueError, match=r"write labels\[:, None\]"):
        rf.fuse(lambda x, k: np.take_along_axis(x, k, axis=1))(Y, labels(5, 5))
