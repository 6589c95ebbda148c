"""A verdict speaks of the program: no output shows what its stages alone cannot do in one pass."""

import numpy as np
import pytest

import redfuser as rf
from redfuser.derivation.verdict import Verdict

X = rf.spec((3, "n"), "float64")


def mean(x):
    return x.mean(axis=-1, keepdims=True)


def spread(x):
    return np.abs(x - mean(x)).mean(axis=-1, keepdims=True)


ONE_PASS_WOULD_DO = {
    "variance by halves": lambda x: (np.maximum(x - mean(x), 0) ** 2 + np.minimum(x - mean(x), 0) ** 2).sum(-1),
    "semivariances": lambda x: (np.maximum(x - mean(x), 0) ** 2).sum(-1) + (np.minimum(x - mean(x), 0) ** 2).sum(-1),
    "hinges that cancel": lambda x: np.maximum(x - mean(x), 0).sum(-1) + np.minimum(x - mean(x), 0).sum(-1),
    "sums of clipped elements": lambda x: np.maximum(x, mean(x)).sum(-1) + np.minimum(x, mean(x)).sum(-1),
    "all elements, counted in two parts": lambda x: (x > mean(x)).sum(-1) + (x <= mean(x)).sum(-1),
    "whether a count is positive": lambda x: (x > mean(x)).sum(-1) > 0,
    "a distance is not negative": lambda x: np.abs(x - mean(x)).min(-1) >= 0,
    "nothing of it": lambda x: spread(x)[..., 0] * 0,
}

IMPOSSIBLE = {
    "the stage itself": lambda x: spread(x)[..., 0],
    "a function of it": lambda x: np.sqrt(1 + spread(x)[..., 0] ** 2),
    "elements scaled by it": lambda x: x / spread(x),
    "a later sum": lambda x: np.tanh(x / spread(x)).sum(-1),
    "a ratio of two such": lambda x: spread(x)[..., 0] / np.exp(-((x - mean(x)) ** 2)).sum(-1),
    "beside one that can be followed": lambda x: (spread(x) + x.var(axis=-1, keepdims=True))[..., 0],
    "a count": lambda x: (x > mean(x)).sum(-1),
}


@pytest.mark.parametrize("name", ONE_PASS_WOULD_DO)
def test_nothing_is_called_impossible_that_no_output_shows(name):
    report = rf.fuse(ONE_PASS_WOULD_DO[name]).explain(X)
    assert report.verdict not in (Verdict.NOT_FUSIBLE, Verdict.PARTLY)
    assert all(c.lower_bound == 1 for c in report.cascades)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_an_output_shows(name):
    report = rf.fuse(IMPOSSIBLE[name]).explain(X)
    assert report.verdict in (Verdict.NOT_FUSIBLE, Verdict.PARTLY)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_few_values_can_be_counted(dtype):
    """A histogram is a finite state."""
    report = rf.fuse(lambda x: np.abs(x - mean(x)).sum(-1)).explain(rf.spec((3, "n"), dtype))
    assert report.verdict == Verdict.NOT_FOUND


@pytest.mark.parametrize("given", [False, True])
def test_positive_numbers_do_not_help_to_count(given):
    def above(x):
        if given:
            rf.assume(x > 0)
        return (x > mean(x)).sum(-1)

    (cascade,) = rf.fuse(above).explain(X).cascades
    assert cascade.derivation.stages[0].unlocks == ()
