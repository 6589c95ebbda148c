"""Errors of the tracer name the user's line and the remedy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.errors import DTypeError, ShapeError, TraceError
from redfuser.frontend import Spec, trace

X = Spec((3, 5), "float32")
GENERATOR = np.random.default_rng(0)
GENERATOR_METHOD = GENERATOR.standard_normal


def assign(x):
    x[0] = 1.0
    return x


def branch_on_data(x):
    if x.sum() > 0:
        return x
    return -x


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (assign, TraceError, r"np\.where\(condition"),
        (branch_on_data, TraceError, r"np\.where.*\n.*if x\.sum\(\) > 0"),
        (lambda x: float(x.sum()), TraceError, "float\\(\\)"),
        (lambda x: int(x[0, 0]), TraceError, "int\\(\\)"),
        (lambda x: np.cumsum(x), TraceError, "cumsum cannot be recorded"),
        (lambda x: np.arctan(x), TraceError, "arctan cannot be recorded"),
        (lambda x: x.argsort(), TraceError, "argsort"),
        (lambda x: x[x > 0], TraceError, "mask"),
        (lambda x: x[:, 1:], TraceError, "slice"),
        (lambda x: x[9], ShapeError, "outside axis 0"),
        (lambda x: x[0, 0, 0], ShapeError, "3 indices"),
        (lambda x: x.reshape(5, 3), TraceError, "cuts across"),
        (lambda x: x.reshape(4, -1), ShapeError, "15 elements"),
        (lambda x: x.sum(7), ShapeError, "axis"),
        (lambda x: x + np.ones(4), ShapeError, r"\(3, 5\) and \(4,\)"),
        (lambda x: x @ np.ones((4, 2)), ShapeError, r"\(3, 5\) and \(4, 2\)"),
        (lambda x: np.einsum("ij,jk", x, np.ones((4, 2))), ShapeError, "contract"),
        (lambda x: np.einsum("i,j->ij", x, x), ShapeError, "does not fit"),
        (lambda x: np.einsum("ij->k", x), TraceError, "output"),
        (lambda x: x.squeeze(0), ShapeError, "not of size 1"),
        (lambda x: np.exp(x, out=x), TraceError, "out="),
        (lambda x: x.astype("complex64"), TraceError, "complex64"),
        (lambda x: x % 2.5, TraceError, "floor"),
        (lambda x: x & 1, TraceError, "bitwise"),
        (lambda x: x ^ 1, TraceError, "bitwise"),
        (lambda x: (x > 0) - (x < 1), TraceError, "no meaning"),
        (lambda x: "text", TraceError, "no array"),
        (lambda x: np.stack([x, x]), TraceError, "stack"),
        (lambda x: np.asarray([x.sum(), 1]), TraceError, "real NumPy array"),
        (lambda x: 1 in x, TraceError, "`in`"),
        (lambda x: np.maximum.reduce(x, 0, where=x > 0), TraceError, "initial"),
        (lambda x: math.exp(x), TraceError, "np.exp"),
        (lambda x: x.cumsum(0), TraceError, r"\.cumsum cannot be recorded"),
        (lambda x: x.total(), TraceError, r"\.total does not exist"),
        (lambda x: x + np.random.rand(5), TraceError, r"\(rand\) would be drawn once"),  # noqa: NPY002
        (lambda x: x + np.random.default_rng(0).random(5), TraceError, "pass the array as an argument"),
        (lambda x: x + GENERATOR.integers(5), TraceError, r"random numbers \(integers\)"),
        (lambda x: x + GENERATOR_METHOD(5), TraceError, r"random numbers \(standard_normal\)"),
    ],
)
def test_errors_name_the_problem(fn: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        trace(fn, [X])
    assert "test_frontend_errors.py:" in str(caught.value) or "no array" in message


def test_the_line_is_the_users_not_the_tracers() -> None:
    with pytest.raises(TraceError) as caught:
        trace(assign, [X])
    first = assign.__code__.co_firstlineno
    assert f"test_frontend_errors.py:{first + 1}: x[0] = 1.0" in str(caught.value)


@pytest.mark.parametrize(
    ("fn", "need"),
    [
        (lambda x, k: x.sum(axis=k), "an int"),
        (lambda x, k: x.sum(axis=(k, 1)), "an int"),
        (lambda x, k: x.max(1, keepdims=k), "a branch"),
        (lambda x, k: x if k else -x, "a branch"),
        (lambda x, k: x if k + x.shape[0] > 3 else -x, "a branch"),
        (lambda x, k: x.sum(1) + np.ones(k), "the shape of an array"),
        (lambda x, k: x * float(k), "float"),
        (lambda x, k: sum(x for _ in range(k)), "an int"),
    ],
)
def test_an_argument_that_must_be_static_is_named(fn: Callable[..., Any], need: str) -> None:
    with pytest.raises(TraceError, match=rf"{need}.* depends on the argument 'k'.*static_argnames='k'"):
        trace(fn, [X, Spec((), "int64", weak=True)])


def test_a_tuple_of_axes_must_be_static() -> None:
    with pytest.raises(TraceError, match="static_argnames='axes'"):
        trace(lambda x, axes: x.sum(axes), [X, Spec((2,), "int64")])


def test_elements_of_arrays_are_not_called_static() -> None:
    with pytest.raises(TraceError, match=r"np\.where") as caught:
        trace(lambda x, k: x if x.sum() > k else -x, [X, Spec((), "float64", weak=True)])
    assert "static_argnames" not in str(caught.value)


def test_a_kind_of_generator_may_be_asked_for() -> None:
    trace(lambda x, k: x if isinstance(k, np.random.Generator) else -x, [X, None])


def test_wrong_arguments() -> None:
    with pytest.raises(TraceError, match="cannot be called"):
        trace(lambda x: x, [X, X])


def test_unsupported_captured_dtype() -> None:
    table = np.ones(5, "complex64")
    with pytest.raises(DTypeError, match="'table'"):
        trace(lambda x: x * table, [X])


def test_traced_arrays_do_not_outlive_their_trace() -> None:
    kept: list[Any] = []
    trace(lambda x: kept.append(x) or x, [X])  # type: ignore[func-returns-value]
    with pytest.raises(TraceError, match="another trace"):
        trace(lambda x: x + kept[0], [X])
