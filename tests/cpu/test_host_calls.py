"""Calls that NumPy runs between kernels: results are NumPy's, kernels run around them, the report names them."""

import inspect

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import ArgumentError, LabelError, ShapeError, TraceError

pytestmark = pytest.mark.usefixtures("session_cache")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(7, 24))
Y = RNG.normal(size=(7, 24))
SQUARE = RNG.normal(size=(5, 5)) + 5 * np.eye(5)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def median_absolute_deviation(x, axis=-1):
    return np.median(np.abs(x - np.median(x, axis=axis, keepdims=True)), axis=axis)


def nucleus(x, q=0.9):
    """Softmax weights up to a total of q, the largest first."""
    s = np.sort(softmax(x), axis=-1)[:, ::-1]
    c = np.cumsum(s, axis=-1)
    return np.where(c - s < q, s, 0).sum(axis=-1), c, x.mean(axis=-1)


def mahalanobis(x):
    d = x - x.mean(axis=0)
    inverse = np.linalg.inv(np.cov(x, rowvar=False) + np.eye(x.shape[1]))
    return np.sqrt(np.einsum("nj,jk,nk->n", d, inverse, d))


def largest_gap(x):
    y = x.copy()
    y.sort(axis=-1)
    return np.diff(y, axis=-1).max(axis=-1)


def pre_emphasis(x):
    y = np.concatenate([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], axis=1)
    return (y * y).mean(axis=1)


def total_variation(x):
    return np.abs(x[1:] - x[:-1]).sum(axis=0)


def drawdown(x):
    return (np.maximum.accumulate(x, axis=-1) - x).max(axis=-1)


def auc(scores, positive):
    return (scores[positive][:, None] > scores[~positive][None, :]).mean()


def principal(x):
    values, vectors = np.linalg.eigh(x @ x.T)
    return values / values.sum(), (vectors * vectors).sum(axis=0)


def cut_and_normalised(x):
    y = x[:, 3:20:2]
    return (y - y.mean(axis=1, keepdims=True)) / y.std(axis=1, keepdims=True)


CALLS = [
    (median_absolute_deviation, X), (nucleus, X), (mahalanobis, X), (largest_gap, X), (pre_emphasis, X),
    (total_variation, X), (drawdown, X), (auc, X[0], Y[0] > 0), (principal, X), (cut_and_normalised, X),
    (lambda x: x[:, ::-1].cumsum(axis=1).max(axis=1), X), (lambda x: np.linalg.slogdet(x)[1] - x.mean(), SQUARE),
    (lambda a, b: np.linalg.solve(a, b).max(axis=0) - b.max(axis=0), SQUARE, X[:5]),
    (lambda x: np.quantile(x, [0.1, 0.5, 0.9], axis=1) - x.mean(axis=1), X),
    (lambda x: np.percentile(softmax(x), 75), X), (lambda x, q: np.quantile(x, q) + x.max(), X, 0.3),
    (lambda x: np.histogram(x, bins=8, range=(-3.0, 3.0))[0] / x.size, X), (lambda x: np.argsort(-x, axis=1), X),
    (lambda x: np.interp(x, np.array([-3.0, 0.0, 3.0]), np.array([0.0, 1.0, 0.0])).mean(axis=1), X),
    (lambda x: np.searchsorted(np.sort(x[0]), x.mean(axis=1)), X), (lambda x: (x, np.sort(x), x.shape[0]), X),
    (lambda x: np.tanh(np.hstack([softmax(x), -x]) @ np.ones((48, 3), x.dtype)).max(axis=1), X),
    (lambda x: np.stack([x, x * x]).max(axis=0) - x.mean(axis=1, keepdims=True), X), (lambda x: np.vstack(x).sum(), X),
    (lambda x: np.pad(x, ((0, 0), (1, 1)), mode="edge").sum(axis=1), X), (lambda x: np.nanmedian(x, axis=0) - x[0], X),
    (lambda x: np.unique(np.rint(x)).sum() + x.max(), X), (lambda x: x[x > 0].mean(), X),
    (lambda x, m: x[m].max(axis=0) - x.mean(axis=0), X, Y[:, 0] > -9),
    (lambda x: np.gradient(x, axis=1).std(axis=1), X),
    (lambda x: np.convolve(x[0], np.ones(5) / 5, mode="valid").max(), X), (lambda x: np.nextafter(x, 9).max(), X),
    (lambda x: np.add.accumulate(x, axis=1)[:, -1] - x.sum(axis=1), X), (lambda x: np.roll(x, 3, axis=1)[0] @ x[1], X),
    (lambda x: np.zeros(x[x > 0].shape).sum() + np.diff(x, axis=1).shape[1] * x.max(), X),
    (lambda x: np.diff(x, axis=1).shape[1] + x.mean(), X),
    (lambda x: np.diff(x, axis=1)[:, -1] - np.cumsum(x)[-1] + np.cumsum(x, axis=1)[:, -2], X),
    (lambda x: x[np.argsort(x[:, 0])].cumsum(axis=0), X), (lambda x: np.lexsort((x[0], x[1])), X),
    (lambda x, k: np.repeat(x, k, axis=1).max(axis=1) + x.shape[1], X, 3),
    (lambda x: np.repeat([1.0, 2.0], 3).astype(x.dtype) @ x[:6], X),
    (lambda x: [g.max() for g in np.gradient(x)], X), (lambda x, k: np.roll(x, k, axis=1)[:, 0] - x.max(), X, 5),
    (lambda x: {"a": np.sort(x.std(axis=1)), "b": [x.var(axis=1)]}, X), (lambda x: np.sort(x, axis=None)[:2], X),
]


def leaves(result):
    if isinstance(result, dict):
        result = list(result.values())
    return [x for item in result for x in leaves(item)] if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[0].__name__)
def test_results_are_those_of_numpy(call, dtype):
    fn, *args = call
    args = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in args]
    kept = [np.copy(a) for a in args]
    fused = rf.fuse(fn)
    for _ in range(2):
        for found, wanted in zip(leaves(fused(*args)), leaves(fn(*args)), strict=True):
            assert type(found) is type(wanted)
            assert np.asarray(found).dtype == np.asarray(wanted).dtype
            tolerance = 1e-10 if dtype == "float64" else 3e-4
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    for a, before in zip(args, kept, strict=True):
        np.testing.assert_array_equal(a, before)
    lowered = fused.lower(*args)
    bound = inspect.signature(fn).bind(*args)
    bound.apply_defaults()
    replayed = lowered.trace.run({n: bound.arguments[n] for n in lowered.trace.arguments})
    for found, wanted in zip(leaves(replayed), leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=3e-4, atol=3e-4)
    report = fused.explain(*args)
    said = ("run by NumPy between the kernels, not fused: ", "a view of an argument, taken by NumPy: ")
    assert any(n.startswith(said) for n in report.notes)
    assert len(report.kernels) == len(lowered.built) == sum(len(s.built) for s in lowered.stages)
    assert all(n in str(report) for n in report.notes)


def test_kernels_run_around_the_calls():
    fused = rf.fuse(nucleus)
    fused(X)
    assert fused.stats.kernel_runs == len(fused.lower(X).built) == 2
    report = fused.explain(X)
    assert [c.verdict for c in report.cascades] == ["FUSIBLE", "FUSIBLE"]
    assert report.cascades[1].waits
    assert report.notes == (
        "run by NumPy between the kernels, not fused: np.sort(..., axis=-1), line 29",
        "run by NumPy between the kernels, not fused: the slice [:, ::-1], line 29",
        "run by NumPy between the kernels, not fused: np.cumsum(..., axis=-1), line 30")
    with pytest.raises(ValueError, match=r"several terms, NumPy runs np\.sort.*look at its \.stages"):
        str(fused.lower(X).term)


def test_other_lengths_compile_nothing():
    fused = rf.fuse(pre_emphasis)
    fused(X)
    compiled = fused.stats.compilations
    for n in (2, 3, 24, 25, 1000):
        x = RNG.normal(size=(4, n))
        np.testing.assert_allclose(fused(x), pre_emphasis(x), rtol=1e-12)
    assert fused.stats.compilations == compiled
    assert fused.stats.derivations == 1


def test_specs_without_lengths():
    fused = rf.fuse(median_absolute_deviation)
    assert len(fused.explain(rf.spec(("b", "n"))).notes) == 2
    [note] = rf.fuse(lambda x: x[:, 1:].max(axis=1)).explain(rf.spec(("b", "n"))).notes
    assert "the slice [:, 1:]" in note


def test_a_slice_with_numbers_is_that_of_every_length():
    fused = rf.fuse(lambda x: x[:, :10].sum(axis=1))
    for n in (24, 25, 10, 11, 9, 2):
        x = np.resize(X, (7, n))
        np.testing.assert_allclose(fused(x), x[:, :10].sum(axis=1))
    assert fused.stats.derivations <= 2  # where it is a part of equal ones, the program is one of its own

    def beside_ten(x, w):
        return x[:, :10] @ w

    fused = rf.fuse(beside_ten)
    w = np.arange(10.0)
    np.testing.assert_allclose(fused(X, w), beside_ten(X, w))
    with pytest.raises(ShapeError, match="size 9 differs from size 10"):
        fused(X[:, :9], w)


def test_half_types_and_integers():
    import ml_dtypes

    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = X.astype(dtype)
        found = rf.fuse(lambda x: np.sort(x, axis=-1).max(axis=-1) - x.mean(axis=-1))(x)
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(float), X.max(axis=-1) - X.mean(axis=-1), atol=0.05)
    n = RNG.integers(-9, 9, size=(6, 30), dtype=np.int32)
    for fn in (lambda n: np.cumsum(n, axis=1).max(axis=1), lambda n: np.median(n, axis=1), lambda n: n[:, ::3].sum()):
        np.testing.assert_array_equal(rf.fuse(fn)(n), fn(n))
        assert rf.fuse(fn)(n).dtype == fn(n).dtype


def test_results_into_arrays_of_the_caller():
    fused = rf.fuse(nucleus)
    wanted = nucleus(X)
    out = [np.empty_like(a) for a in wanted]
    assert fused(X, out=out) is out
    for found, w in zip(out, wanted, strict=True):
        np.testing.assert_allclose(found, w, rtol=1e-12)
    with pytest.raises(ShapeError, match="out= array"):
        fused(X, out=[np.empty(3), *out[1:]])


def test_one_dimension_of_size_1():
    for x in (X[:1], X[:, :1], X[:1, :1]):
        for fn in (median_absolute_deviation, nucleus, drawdown):
            for found, wanted in zip(leaves(rf.fuse(fn)(x)), leaves(fn(x)), strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_views_and_in_place_changes():
    def changed(x):
        y = np.sort(x, axis=1)
        y -= y.mean(axis=1, keepdims=True)
        y[:, 0] = 0
        return y

    np.testing.assert_allclose(rf.fuse(changed)(X), changed(X), atol=1e-12)

    def through_a_view(x):
        y = x[:, 1:]
        y += 1
        return x

    with pytest.raises(TraceError, match="in-place changes of an argument"):
        rf.fuse(through_a_view)(X.copy())

    def joined(x):
        y = np.concatenate([x, x], axis=1)
        z = y
        y += 1
        return z, y.mean(axis=1)

    for found, wanted in zip(rf.fuse(joined)(X), joined(X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)

    result = rf.fuse(lambda x: (x, np.sort(x)))(X)[0]
    assert not np.shares_memory(result, X)


def test_a_call_with_several_results_runs_once():
    calls = []

    def fn(x):
        parts = np.linalg.eigh(x @ x.T)
        return parts.eigenvalues.sum() + parts.eigenvectors.max()

    fused = rf.fuse(fn)
    [call] = fused.lower(X).program.calls
    assert len(call.results) == 2
    original = call.call.function
    object.__setattr__(call.call, "function", lambda *a: calls.append(1) or original(*a))
    program = fused.lower(X).program
    program.run({"x": X}, {})
    assert calls == [1]


def test_tensors_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    found = rf.fuse(median_absolute_deviation)(torch.from_numpy(X))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), median_absolute_deviation(X))


def test_labels_and_assumptions_are_checked_there_too():
    labels = np.array([0, 1, 2, 3, 4, 5, 24])
    with pytest.raises(LabelError, match="1 of 7 labels"):
        rf.fuse(lambda x, y: np.sort(x[np.arange(7), y]))(X, labels)


def test_what_cannot_be_run_by_numpy_either():
    with pytest.raises(TraceError, match=r"np\.linalg\.inv fails on random arrays like these.*square"):
        rf.fuse(lambda x: np.linalg.inv(x))(X)
    with pytest.raises(TraceError, match=r"np\.quantile fails on random arrays like these.*\[0, 1\]"):
        rf.fuse(lambda x: np.quantile(x, 3.0))(X)
    cube = np.frompyfunc(lambda v: v**3, 1, 1)
    with pytest.raises(TraceError, match=r"cube gives object arrays, which cannot be recorded; split the function"):
        rf.fuse(lambda x: cube(x).sum())(X)
    with pytest.raises(TraceError, match=r"NumPy runs np\.sort.*no single pass.*leave out require='one-pass'"):
        rf.fuse(lambda x: np.sort(x).max(), require="one-pass")(X)
    with pytest.raises(ArgumentError, match=r"NumPy runs np\.sort.*test the parts"):
        rf.testing.check_fusion(lambda x: np.sort(x).max(), X)
    with pytest.raises(ShapeError, match="a mask of shape"):
        rf.fuse(lambda x, m: x[m].sum())(X, np.ones(5, bool))


def test_what_is_asked_of_lengths_that_only_a_call_tells():
    def branch(x):
        y = x[x > 0]
        return y.max() if len(y) > 2 else y.min()

    with pytest.raises(TraceError, match="needs a length that is known only when the function runs"):
        rf.fuse(branch)(X)


def test_a_call_that_changes_an_array_is_refused():
    with pytest.raises(TraceError, match=r"np\.cumsum changes its argument in place.*leave out out="):
        rf.fuse(lambda x: np.cumsum(x, axis=1, out=np.zeros_like(x)))(X)
    kept = X.copy()
    with pytest.raises(TraceError, match=r"np\.median changes its argument in place"):
        rf.fuse(lambda x: np.median(x, overwrite_input=True) + x.sum())(X)
    np.testing.assert_array_equal(X, kept)

    def scaled(x):
        y = x - x.mean()
        y[y < 0] *= 0.1
        return y

    with pytest.raises(TraceError, match=r"elements of a mask.*np\.where\(mask, new, old\)"):
        rf.fuse(scaled)(X)


def test_what_a_call_raises_is_passed_on():
    fused = rf.fuse(lambda x: np.linalg.inv(x).max() + x.sum())
    fused(SQUARE)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        fused(np.zeros((5, 5)))
    with pytest.raises(ShapeError, match="maximum over an axis of length 0"):
        rf.fuse(lambda x: x[x > 9].max())(X)


# -------------------------------- views


def positions(x):
    flat = x.reshape(x.shape[0], -1)
    scaled = np.exp(flat - flat.max(axis=1, keepdims=True))
    values, places = rf.topk(scaled / scaled.sum(axis=1, keepdims=True), 3)
    return values, places, flat.argmin(axis=1, keepdims=True)


@pytest.mark.parametrize("shape", [(4, 5, 6), (2, 9, 3), (1, 2, 2)])
def test_positions_along_merged_axes_count_along_all_of_them(shape):
    fused = rf.fuse(positions)
    for scale in (1, 0):  # ties: the first
        x = RNG.normal(size=shape) * scale
        for found, wanted in zip(fused(x), positions(x), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


def latent(q, cache):
    score = q @ cache.T
    mass = np.exp(score - score.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True) @ cache[:, :5]


def test_a_slice_of_an_argument_is_a_view_and_no_stage():
    q, cache = RNG.normal(size=(3, 8)), RNG.normal(size=(20, 8))
    fused = rf.fuse(latent, require="one-pass")
    np.testing.assert_allclose(fused(q, cache), latent(q, cache), rtol=1e-12)
    report = fused.explain(q, cache)
    assert (report.verdict, report.passes) == ("FUSIBLE", 1)
    (note,) = report.notes
    assert note.startswith("a view of an argument, taken by NumPy: the slice [:, :5], line ")
    assert report.bytes["after"] == 8 * (3 * 8 + 20 * 8 + 20 * 5 + 3 * 5)
    with pytest.raises(TraceError, match="no single pass"):  # of something computed
        rf.fuse(lambda x: np.exp(x)[:, :5].sum(), require="one-pass")(X)
