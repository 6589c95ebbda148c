"""np.stack, np.concatenate and their kin: joined after the kernels, or between them where that is used further."""

import numpy as np
import pytest

import redfuser as rf

X = np.random.default_rng(3).normal(size=(4, 4))
HALF = X.astype("float32")
ONES = np.ones(2)


def changed_later(x):
    m = x.sum(-1)
    joined = np.stack([m, m])
    m += 1.0
    return joined, m


FUNCTIONS = [
    lambda x: np.stack([x.sum(-1), x.max(-1)]),
    lambda x: np.stack((x.sum(-1), x.max(-1)), axis=-1),
    lambda x: np.stack([x.sum(-1), x.max(-1)], 1),
    lambda x: np.stack([x.sum(), x.max()]),
    lambda x: np.stack([x.sum(), 1.0]),
    lambda x: np.stack([x.sum(-1), x.argmax(-1)]),
    lambda x: np.concatenate([x.mean(0), x.max(1), ONES]),
    lambda x: np.concatenate([x - x.max(-1, keepdims=True), x.sum(-1, keepdims=True)], axis=1),
    lambda x: np.concatenate([x, x.sum(-1, keepdims=True)], axis=None),
    lambda x: np.concatenate([x.sum(-1), x.max(-1)], dtype="float32"),
    lambda x: np.hstack([x.sum(), x.max(-1)]),
    lambda x: np.vstack([x.sum(0), x]),
    lambda x: np.dstack([x.sum(0), x.max(0)]),
    lambda x: np.column_stack([x.sum(0), x]),
    lambda x: np.stack([np.concatenate([x.sum(-1), x.sum(0)]), np.hstack([x.max(-1), x.max(0)])]),
    lambda x: {"a": np.stack([x.sum(-1), x.max(-1)]), "b": (x.mean(), np.vstack([x.sum(0)]))},
    changed_later,
]


def assert_equal(got, expected):
    if isinstance(expected, dict):
        assert_equal(list(got.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        for a, b in zip(got, expected, strict=True):
            assert_equal(a, b)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5 if expected.dtype == "float32" else 1e-12)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("x", [X, HALF])
def test_joined_results_equal_those_of_numpy(fn, x):
    f = rf.fuse(fn, target="interpret")
    assert_equal(f(x), fn(x))
    assert_equal(f(x), fn(x))
    assert_equal(f.lower(x).trace.run({"x": x}), fn(x))


def test_kernels_compute_the_parts_and_the_report_says_who_joins_them():
    f = rf.fuse(FUNCTIONS[1])
    np.testing.assert_allclose(f(X), FUNCTIONS[1](X))
    assert f.stats.kernel_runs
    report = f.explain(X)
    assert report.notes == ("assembled in plain NumPy after the kernels, not fused: np.stack([2 results], axis=-1)",)
    assert report.notes[0] in str(report)


@pytest.mark.parametrize("fn", [
    lambda x: np.stack([x, x]).sum(0),
    lambda x: np.stack([x, x]) + 1,
    lambda x: x + np.stack([x, x]),
    lambda x: np.exp(np.stack([x, x])),
    lambda x: np.sum(np.stack([x, x])),
    lambda x: np.stack([x, x])[0],
    lambda x: -np.stack([x, x]),
    lambda x: np.where(x > 0, x, np.stack([x, x])),
    lambda x: np.concatenate(x),
])
def test_further_use_joins_between_the_kernels(fn):
    fused = rf.fuse(fn, target="interpret")
    np.testing.assert_allclose(fused(X), fn(X))
    assert fused.explain(X).notes[0].startswith("run by NumPy between the kernels, not fused: np.")


def test_lengths_of_joined_arrays():
    for fn in (lambda x: np.stack([x, x]).shape[0] * x, lambda x: len(np.stack([x, x])) * x):
        np.testing.assert_allclose(rf.fuse(fn)(X), 2 * X)


@pytest.mark.parametrize(("fn", "error", "message"), [
    (lambda x: np.stack([x, x.sum(-1)]), rf.errors.ShapeError, "all input arrays must have the same shape"),
    (lambda x: np.stack([x, x], axis=5), rf.errors.ShapeError, "numpy.stack: axis 5 is out of bounds"),
    (lambda x: np.concatenate([x.sum(), x.max()]), rf.errors.ShapeError, "zero-dimensional arrays"),
    (lambda x: np.stack([x, x], out=np.ones((2, 4, 4))), rf.errors.TraceError, "out="),
])
def test_wrong_joins_are_refused_while_tracing(fn, error, message):
    with pytest.raises(error, match=message):
        rf.fuse(fn, target="interpret")(X)


def test_shapes_that_do_not_fit_are_an_error_of_the_call():
    f = rf.fuse(lambda x: np.stack([x.sum(0), x.sum(1)]), target="interpret")
    assert f(X).shape == (2, 4)
    with pytest.raises(rf.errors.ShapeError, match=r"np\.stack of shapes \(3,\) and \(2,\)"):
        f(np.ones((2, 3)))


def test_an_axis_that_is_an_argument_becomes_part_of_the_program():
    f = rf.fuse(lambda x, axis: np.stack([x.sum(0), x.max(0)], axis=axis), target="interpret")
    assert [f(X, a).shape for a in (0, 1)] == [(2, 4), (4, 2)]


def test_out_is_refused_with_the_remedy():
    f = rf.fuse(FUNCTIONS[0], target="interpret")
    with pytest.raises(rf.errors.ArgumentError, match="without out=, or let it return a tuple"):
        f(X, out=np.empty((2, 4)))
