"""Labels, NaN reductions and formulas: the trace's replay, the term and the partition all equal NumPy."""

import numpy as np
import pytest
from test_frontend_programs import arrays, check_program

from redfuser.frontend import Spec, trace

X, Y = arrays((4, 6), (4, 6))
LABELS = np.array([0, -1, 5, 2])
HOLES = np.where(Y > 0.5, np.nan, Y)


@pytest.mark.parametrize(("fn", "args"), [
    (lambda x, k: x[np.arange(x.shape[0]), k], (X, LABELS)),
    (lambda x, k: np.take_along_axis(x, k[:, None], axis=1), (X, LABELS)),
    (lambda x, k: x.reshape(x.shape[0], -1)[np.arange(x.shape[0]), k], (X.reshape(4, 2, 3), LABELS)),
    (lambda x: np.nanvar(x, axis=1, ddof=1), (HOLES,)),
    (lambda x: np.nanmax(x, axis=0), (HOLES,)),
    (lambda x: np.nanmean(x), (HOLES,)),
    (lambda x, y: np.logaddexp(x, y).sum(1), (X, Y)),
    (lambda x, y: np.hypot(x, y).max(1), (X, Y)),
])
def test_every_level_is_as_numpy(fn, args):
    check_program(fn, args)


def test_only_labels_of_integers_are_checked_at_every_call():
    def by_label(x, k):
        return x[np.arange(x.shape[0]), np.where(k == 9, 0, k)]

    def by_result(x):
        return x[np.arange(x.shape[0]), x.argmax(1)]

    assert len(trace(by_label, [Spec.of(X), Spec.of(LABELS)]).checks) == 1
    assert trace(by_result, [Spec.of(X)]).checks == ()


def test_equal_sizes_are_a_condition_of_the_trace():
    def diagonal(x, k):
        return x[np.arange(len(k)), k]

    square = trace(diagonal, [Spec.of(X), Spec.of(LABELS)])
    assert square.mismatch({"x": Spec.of(X), "k": Spec.of(LABELS)}) is None
    assert square.mismatch({"x": Spec.of(X[:3]), "k": Spec.of(LABELS)}) is not None
