"""Functions that are only partly made of cascades run whole, and the report says which part runs how."""

import numpy as np
import pytest

import redfuser as rf

pytestmark = pytest.mark.usefixtures("session_cache")
X = np.random.default_rng(0).normal(size=(5, 6))


def test_a_function_without_reductions_is_one_sweep():
    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    f = rf.fuse(gelu)
    np.testing.assert_allclose(f(X), gelu(X), rtol=1e-12, atol=1e-14)
    assert (f.stats.kernel_runs, f.stats.derivations) == (1, 0)
    report = f.explain(X)
    assert (report.cascades, report.passes) == ((), 0)
    assert [list(e.outputs) for e in report.elementwise] == [["out"]]
    assert "gelu: no reductions, nothing to fuse" in str(report)
    assert "gelu: no reduction, computed element by element in one sweep" in str(report)
    assert report.to_dict()["elementwise"][0]["outputs"]["out"].startswith("0.5 * x[")


def test_cascade_and_elementwise_parts_are_told_apart():
    def parts(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True), np.tanh(x), np.log(1 + x.sum(axis=1) ** 2)

    f = rf.fuse(parts)
    for found, wanted in zip(f(X), parts(X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    report = f.explain(X)
    [cascade], [rest] = report.cascades, report.elementwise
    assert set(cascade.outputs) == {"out_0", "out_2"}  # what is computed from results belongs to their kernel
    assert list(rest.outputs) == ["out_1"]
    assert rest.outputs["out_1"].startswith("tanh(x[")
    assert f"{rest.name}: no reduction, computed element by element in one sweep" in str(report)


def test_views_and_constants_are_results_too():
    f = rf.fuse(lambda x: (x.T, np.zeros(3), x.shape[0], x))
    view, zeros, rows, same = f(X)
    np.testing.assert_array_equal(view, X.T)
    np.testing.assert_array_equal(zeros, np.zeros(3))
    np.testing.assert_array_equal(same, X)
    assert (type(rows), rows) == (int, 5)


@pytest.mark.parametrize(("operation", "name"), [
    (lambda c: np.fft.fft(c), r"numpy\.fft\.fft"), (lambda c: np.linalg.eig(c @ c.T)[0], r"numpy\.linalg\.eig"),
    (lambda c: c.partition(1), r"array attribute \.partition"),
    (lambda c: np.add.reduceat(c, [0]), r"np\.add\.reduceat"),
    (lambda c: np.frexp(c)[0], r"np\.frexp"), (lambda c: np.piecewise(c, [c > 0], [1]), r"numpy\.piecewise"),
])
def test_an_operation_that_cannot_be_recorded_names_itself_and_the_remedy(operation, name):
    def middle(x):
        centred = x - x.mean(axis=0)
        return operation(centred).sum()

    remedy = "split the function there: fuse the parts before and after it, and call it between them"
    with pytest.raises(rf.errors.TraceError, match=f"{name} .*cannot be recorded; .*{remedy}.*docs/functions.md"):
        rf.fuse(middle)(X)


def test_elements_selected_by_data():
    with pytest.raises(rf.errors.TraceError, match=r"a mask.*np\.where to choose elements, with where= or 0 in a sum"):
        rf.fuse(lambda x: x[x[:, 0] > 0, 1].sum())(X)
    taken_out = rf.fuse(lambda x: x[x > 0].sum())
    np.testing.assert_allclose(taken_out(X), X[X > 0].sum())
    assert "run by NumPy between the kernels, not fused: the elements that a mask chooses" in str(taken_out.explain(X))
    np.testing.assert_allclose(rf.fuse(lambda x: np.sum(x, where=x > 0))(X), X[X > 0].sum())
