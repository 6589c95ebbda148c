"""Traces with calls of NumPy's, cut into stages."""

import numpy as np
import pytest

from redfuser.errors import TraceError
from redfuser.frontend import Spec, lower, trace
from redfuser.frontend.graph import check_trace
from redfuser.frontend.stages import stages

X = Spec((7, 24), "float64")


def operations(stage, *kinds):
    return [] if stage.trace is None else [n.param[0] for n in stage.trace.nodes if n.op in kinds]


def cut(fn, *specs):
    found = stages(trace(fn, specs or [X]))
    for s in found:
        if s.trace is not None:
            check_trace(s.trace)
            lower(s.trace)
    return found


def test_a_trace_without_calls_is_one_stage():
    [only] = cut(lambda x: x.sum(axis=1) / x.max())
    assert operations(only, "reduce") == ["add", "maximum"]
    assert (only.calls, only.reads) == ((), {})


def test_reductions_that_a_later_stage_reads_are_computed_once():
    def fn(x):
        m = x.max(axis=1, keepdims=True)
        e = np.exp(x - m)
        return (np.sort(e / e.sum(axis=1, keepdims=True), axis=1) * m).sum(axis=1)

    first, second = cut(fn)
    assert operations(first, "reduce") == ["maximum", "add"]
    assert operations(second, "reduce") == ["add"]
    assert set(second.reads) == {"m", "sort"}
    assert len(first.gives) == 2  # the weights and m, not their sum


def test_elementwise_values_are_computed_again():
    first, second = cut(lambda x: (np.sort(np.exp(x), axis=1) - np.exp(x)).max(axis=1))
    assert len(first.gives) == 1
    assert [n.param for n in second.trace.nodes if n.op == "ufunc"] == ["exp", "subtract"]


def test_outputs_share_the_passes_of_what_must_be_computed():
    def with_a_kernel_before(x):
        return np.sort(x - x.mean(axis=1, keepdims=True)), x.max(axis=1)

    first, second = cut(with_a_kernel_before)
    assert operations(first, "reduce") == ["add", "maximum"]
    assert second.trace is None

    def with_none_before(x):
        return (np.sort(x, axis=1) - x).max(axis=1), x.min(axis=1)

    first, second = cut(with_none_before)
    assert first.trace is None
    assert sorted(operations(second, "reduce")) == ["maximum", "minimum"]


def test_calls_follow_each_other():
    found = cut(lambda x: np.median(np.abs(x - np.median(x, axis=1, keepdims=True)), axis=1))
    assert [len(s.calls) for s in found] == [1, 1, 0]
    assert [s.trace is None for s in found] == [True, False, True]


def test_lengths_of_results():
    def sizes(fn):
        t = trace(fn, [Spec(("b", "n"), "float64")])
        labels = {s.label: s.value for s in t.sizes}
        return t.nodes[t.outputs[0]].shape, labels

    assert sizes(lambda x: np.sort(x, axis=1))[0] == ("b", "n")
    assert sizes(lambda x: x.T[::-1].T)[0] == ("b", "n")
    shape, labels = sizes(lambda x: np.diff(x, axis=1))
    assert shape[0] == "b"
    assert shape[1] not in ("b", "n")
    assert labels[shape[1]] is None
    shape, labels = sizes(lambda x: np.quantile(x, [0.1, 0.5, 0.9], axis=1))
    assert labels[shape[0]] == 3
    assert shape[1] == "b"
    shape, _ = sizes(lambda x: x[:, :10])
    assert shape[1] not in ("b", "n")
    assert len(sizes(lambda x: x[x > 0])[0]) == 1
    square = trace(lambda x: np.sort(x, axis=1), [Spec((20, 20), "float64")])
    assert square.nodes[square.outputs[0]].shape == square.nodes[0].shape
    assert len(set(square.nodes[0].shape)) == 2


def test_a_trace_with_calls_is_no_single_term():
    with pytest.raises(TraceError, match=r"no single term, NumPy runs np\.sort"):
        lower(trace(np.sort, [X]))
