"""Errors of the tracer name the user's line and the remedy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.errors import ArgumentError, DTypeError, ShapeError, TraceError
from redfuser.frontend import Spec, topk, trace

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


def asserts(x):
    assert x.sum() > 0
    return x


def between(x):
    if 0 < x.sum() < 1:
        return x
    return -x


def repeated(x):
    while x.sum() > 1:
        x = x / 2
    return x


def subtracts(x, m=2.0):
    x -= m
    return x


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (asserts, TraceError, r"rf\.assume\(condition\)"),
        (between, TraceError, r"write \(0 < x\.sum\(\)\) & \(x\.sum\(\) < 1\)"),
        (lambda x: np.where(0 < x < 1, x, 0), TraceError, r"write \(0 < x\) & \(x < 1\)"),
        (lambda x: max(x.max(), 0), TraceError, r"write np\.maximum\(x\.max\(\), 0\)"),
        (repeated, TraceError, "keep the loop outside and fuse its body"),
        (subtracts, TraceError, "write x = x - m instead of x -= m"),
        (lambda x: np.fft.fftshift(x), TraceError, r"numpy\.fft\.fftshift .* fuse the parts before and after it"),
        (lambda x: np.linalg.eig(x), TraceError, r"numpy\.linalg\.eig .* split the function there"),
        (lambda x: np.block([x, x]).sum(0), TraceError, "return a tuple"),
        (lambda x: np.piecewise(x, [x > 0], [1]), TraceError, "piecewise cannot be recorded; split the function there"),
        (lambda x: np.frexp(x), TraceError, r"docs/functions\.md"),
        (lambda x: np.array([x.sum(), x.max()]), TraceError, r"return \(a, b\)"),
        (lambda x: x.view(np.int32), TraceError, r"\.astype"),
        (lambda x: x * float(f"{x.max():.3f}"), TraceError, "format the result"),
        (lambda x: x + None, TraceError, "an operand of np.add is None"),
        (lambda x: "a" + x, TraceError, "an operand of np.add is 'a'"),
        (lambda x: x.sum(axis=1.0), TraceError, "'axis' is 1.0; give an int"),
        (lambda x: np.swapaxes(x, 0.0, 1), TraceError, "give an int"),
        (lambda x: np.expand_dims(x, 1.0), TraceError, "'axis' is 1.0; give an int"),
        (lambda x: topk(x, 2.0)[0], ArgumentError, "'k' of topk is 2.0; give an int"),
        (assign, TraceError, r"np\.where\(condition"),
        (branch_on_data, TraceError, r"np\.where.*\n.*if x\.sum\(\) > 0"),
        (lambda x: float(x), TraceError, r"float\(\) needs one number"),
        (lambda x: int(x[0, 0]), TraceError, r"int\(\) of real numbers .* np\.trunc"),
        (lambda x: np.linalg.inv(x), TraceError, r"np\.linalg\.inv fails on random arrays like these \(shapes"),
        (lambda x: np.modf(x), TraceError, r"np\.modf cannot be recorded"),
        (lambda x: x.tolist(), TraceError, "tolist"),
        (lambda x: x[x > 0, 0], TraceError, "mask"),
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
        (lambda x: np.asarray([x.sum(), 1]), TraceError, "real NumPy array"),
        (lambda x: 1 in x, TraceError, "`in`"),
        (lambda x: np.maximum.reduce(x, 0, where=x > 0), TraceError, "initial"),
        (lambda x: math.exp(x), TraceError, "np.exp"),
        (lambda x: x.partition(0), TraceError, r"\.partition cannot be recorded"),
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
        (lambda x, k: x.reshape(x.shape[0], k, -1), "branch"),
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


def catches(x):
    try:
        hot = bool(x.max() > 0)
    except TypeError:
        hot = False
    return x.sum(1) if hot else x.max(1)


def test_a_refusal_that_the_function_catches_is_raised_after_it() -> None:
    with pytest.raises(TraceError, match=r"np\.where.*\n.*hot = bool"):
        trace(catches, [X])


def test_an_argument_that_the_function_catches_can_still_become_static() -> None:
    def along(x, axis):
        try:
            return x.sum(axis)
        except TypeError:
            return x

    with pytest.raises(TraceError, match="static_argnames='axis'"):
        trace(along, [X, Spec((), "int64", weak=True)])


def test_what_numpy_refuses_too_may_be_caught() -> None:
    def difference(a, b):
        try:
            return a - b
        except TypeError:
            return a ^ b

    mask = Spec((3,), "bool")
    assert trace(difference, [mask, mask]).nodes[-1].param == "logical_xor"


def test_sizes_may_stand_in_texts_and_arrays() -> None:
    def scaled(x):
        return x * np.array([x.shape[1], 1]).max() if f"{x.shape[1]:d}" == "5" else x

    trace(scaled, [X])


def test_an_axis_too_short_for_argmax_is_not_about_k() -> None:
    with pytest.raises(ShapeError, match="pass at least one element") as caught:
        trace(lambda x: x.argmax(1), [Spec((3, 0), "float32")])
    assert "smaller k" not in str(caught.value)


@pytest.mark.parametrize(("dtype", "remedy"), [
    ("longdouble", r"x\.astype\(np\.float32\)"), ("complex64", "real and imaginary parts"),
    ("uint32", r"x\.astype\(np\.int64\)"), ("float33", "not a NumPy dtype"), ("object", "pass numbers"),
])
def test_a_dtype_without_kernels_has_its_own_remedy(dtype: str, remedy: str) -> None:
    with pytest.raises(DTypeError, match=remedy):
        Spec((3,), dtype)


twice = np.frompyfunc(lambda v: 2 * v, 1, 1)


def test_a_ufunc_of_another_library_is_named_as_the_user_calls_it():
    with pytest.raises(TraceError, match=r"^twice gives object arrays, which cannot be recorded; split the function"):
        trace(lambda x: twice(x).sum(), [X])
