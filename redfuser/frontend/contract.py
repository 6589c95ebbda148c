"""Sums of products of traced arrays: einsum, matmul, dot and their relatives, all reduced to one primitive."""

from __future__ import annotations

import functools
import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import show_shape
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift, recorder_of

_K, _I, _J, _BATCH = 0, 1, 2, 3  # axis numbers: contracted, of the first operand, of the second, first batch axis


def contract(labels: Sequence[Sequence[int]], output: Sequence[int], operands: Sequence[Any],
             ufunc: np.ufunc | None = None) -> Tracer:
    """Sum over the axes that are not in `output` of the product of `operands`; one axis number per dimension.

    `ufunc`: the one that is recorded, which decides the dtype of the result.
    """
    recorder = recorder_of(*operands)
    assert recorder is not None
    values = [lift(recorder, x) for x in operands]
    found = recorder.einsum(labels, output, values, ufunc)
    if len(operands) == 1 and isinstance(operands[0], Tracer):
        return operands[0].sharing(found)  # a diagonal is a view
    return Tracer(recorder, found)


def matmul(a: Any, b: Any) -> Tracer:
    """np.matmul: the last two dimensions are matrices, all before them broadcast; 1-D operands are vectors.

    Raises
    ------
    ShapeError
        for 0-d operands and sizes that do not fit.
    """
    a_rank, b_rank = np.ndim(a), np.ndim(b)
    if a_rank == 0 or b_rank == 0:
        raise ShapeError(located("matmul of a number; use * instead of @"))
    batch_a, batch_b = (list(range(_BATCH + max(rank - 2, 0) - 1, _BATCH - 1, -1)) for rank in (a_rank, b_rank))
    a_axes = [*batch_a, _I, _K] if a_rank > 1 else [_K]
    b_axes = [*batch_b, _K, _J] if b_rank > 1 else [_K]
    batch = max(batch_a, batch_b, key=len)
    output = [*batch, *([_I] if a_rank > 1 else []), *([_J] if b_rank > 1 else [])]
    _no_unit_contraction(a, b, -1, -2 if b_rank > 1 else -1)
    return contract([a_axes, b_axes], output, [a, b], np.matmul)


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """np.dot: sum over the last dimension of `a` and the last but one of `b`."""
    if out is not None:
        raise TraceError(located("np.dot(out=...) cannot be recorded; assign the result to a name"))
    a_rank, b_rank = np.ndim(a), np.ndim(b)
    if a_rank == 0 or b_rank == 0:
        return a * b
    a_free, b_free = list(range(1, a_rank)), list(range(a_rank, a_rank + b_rank - 1))
    b_axes = [*b_free[:-1], _K, b_free[-1]] if b_rank > 1 else [_K]
    _no_unit_contraction(a, b, -1, -2 if b_rank > 1 else -1)
    return contract([[*a_free, _K], b_axes], [*a_free, *b_free], [a, b])


def inner(a: Any, b: Any) -> Any:
    """np.inner: sum over the last dimension of both."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    a_free, b_free = list(range(1, np.ndim(a))), list(range(np.ndim(a), np.ndim(a) + np.ndim(b) - 1))
    _no_unit_contraction(a, b, -1, -1)
    return contract([[*a_free, _K], [*b_free, _K]], [*a_free, *b_free], [a, b])


def outer(a: Any, b: Any, out: Any = None) -> Tracer:
    """np.outer of two vectors."""
    if out is not None or np.ndim(a) != 1 or np.ndim(b) != 1:
        raise TraceError(located("np.outer is recorded for two 1-D arrays only; use a[:, None] * b[None, :]"))
    return contract([[_I], [_J]], [_I, _J], [a, b])


def vecdot(a: Any, b: Any, axis: int = -1) -> Tracer:
    """np.vecdot of real arrays: the other dimensions broadcast."""
    if axis != -1:
        a, b = (np.moveaxis(x, axis, -1) for x in (a, b))
    _no_unit_contraction(a, b, -1, -1)
    return einsum("...k,...k->...", a, b)


def matvec(a: Any, b: Any) -> Tracer:
    """np.matvec: matrices times vectors"""
    _no_unit_contraction(a, b, -1, -1)
    return einsum("...ik,...k->...i", a, b)


def vecmat(a: Any, b: Any) -> Tracer:
    """np.vecmat: vectors times matrices"""
    _no_unit_contraction(a, b, -1, -2)
    return einsum("...k,...ki->...i", a, b)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tracer:
    """np.tensordot: sum over the last `axes` dimensions of `a` and the first of `b`, or over the pairs given."""
    a_rank, b_rank = np.ndim(a), np.ndim(b)
    if isinstance(axes, (tuple, list)):
        firsts, seconds = (list(x) if isinstance(x, (tuple, list)) else [x] for x in axes)
    else:
        count = operator.index(axes)
        firsts, seconds = list(range(a_rank - count, a_rank)), list(range(count))
    if len(firsts) != len(seconds) or not all(-r <= i < r for r, found in ((a_rank, firsts), (b_rank, seconds))
                                              for i in found):
        raise ShapeError(located(f"np.tensordot(axes={axes!r}) does not fit arrays of {a_rank} and {b_rank} "
                                 "dimensions"))
    a_axes, b_axes = list(range(a_rank)), list(range(a_rank, a_rank + b_rank))
    for i, j in zip(firsts, seconds, strict=True):
        _no_unit_contraction(a, b, i, j)
        b_axes[j] = a_axes[i]
    shared = {a_axes[i] for i in firsts}
    return contract([a_axes, b_axes], [x for x in (*a_axes, *b_axes) if x not in shared], [a, b])


def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """np.linalg.multi_dot, from left to right"""
    if out is not None:
        raise TraceError(located("np.linalg.multi_dot(out=...) cannot be recorded; assign the result to a name"))
    return functools.reduce(dot, arrays)


def trace_(a: Tracer, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """np.trace"""
    if out is not None:
        raise TraceError(located("np.trace(out=...) cannot be recorded; assign the result to a name"))
    return np.sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def diagonal(a: Tracer, offset: Any = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    """np.diagonal of square matrices, at the end of the other dimensions."""
    if a.ndim < 2:
        raise ShapeError(located(f"a diagonal needs two dimensions, got shape {show_shape(a.value.shape)}"))
    if isinstance(offset, Tracer) or offset != 0:
        raise TraceError(located("a diagonal with an offset cannot be recorded; write "
                                 "np.where(np.eye(n, k=offset, dtype=bool), a, 0).sum(axis)"))
    first, second = (operator.index(i) % a.ndim for i in (axis1, axis2))
    labels = list(range(a.ndim))
    labels[second] = first
    return contract([labels], [*(i for i in labels if i != first), first], [a])


def diag(v: Tracer, k: Any = 0) -> Any:
    """np.diag: the diagonal of a matrix, or the matrix with a vector on its diagonal."""
    if v.ndim != 1:
        return diagonal(v, k)
    if isinstance(k, Tracer) or k != 0:
        raise TraceError(located("np.diag with an offset cannot be recorded; write np.eye(n, k=offset) * v[:, None]"))
    n: Any = v.wrap(v.recorder.arange(v.value.shape[0]))
    return np.where(np.equal(n[:, None], n), v, v.dtype.type(0))


def einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Tracer:
    """np.einsum: explicit or implicit output, repeated letters, ellipsis; also with lists of axis numbers.

    Raises
    ------
    TraceError
        for malformed subscripts, and for keywords.
    ShapeError
        when the subscripts do not fit the operands.
    """
    if out is not None or kwargs:
        raise TraceError(located("np.einsum is recorded without out=, dtype=, order=; assign the result to a name, and "
                                 "convert with .astype"))
    if not isinstance(subscripts, str):
        subscripts, operands = _as_text((subscripts, *operands))
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if len(parts) != len(operands):
        raise ShapeError(located(f"einsum {subscripts!r} describes {len(parts)} operands, {len(operands)} were given"))
    expanded = [_expand(part, np.ndim(x), subscripts) for part, x in zip(parts, operands, strict=True)]
    ellipsis = max((e for e in ([s for s in axes if s.isdigit()] for axes in expanded)), key=len)
    letters = [s for axes in expanded for s in axes if not s.isdigit()]
    if not arrow:
        output = "..." * bool(ellipsis) + "".join(s for s in sorted(set(letters)) if letters.count(s) == 1)
    head, dots, tail = output.partition("...")
    result = [*head, *(ellipsis if dots else []), *tail]
    if len(set(result)) < len(result) or not set(result) <= {*letters, *ellipsis}:
        raise TraceError(located(f"einsum {subscripts!r}: the output must name axes of the operands, each once"))
    number = {s: i for i, s in enumerate(dict.fromkeys([*letters, *ellipsis]))}
    return contract([[number[s] for s in axes] for axes in expanded], [number[s] for s in result], operands)


def _as_text(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts and operands of np.einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    lists = [*given[1::2], *(given[-1:] if len(given) % 2 else [])]
    try:
        parts = ["".join("..." if i is Ellipsis else string.ascii_letters[i] for i in axes) for axes in lists]
    except (TypeError, IndexError):
        raise TraceError(located("np.einsum takes a subscript string, or a list of axis numbers after each operand; "
                                 "write np.einsum('ij,jk->ik', a, b)")) from None
    operands = tuple(given[:-1:2] if len(given) % 2 else given[::2])
    arrow = "->" + parts.pop() if len(given) % 2 else ""
    return ",".join(parts) + arrow, operands


def _expand(part: str, rank: int, subscripts: str) -> list[str]:
    """One label per dimension; dimensions under an ellipsis are numbered from the right."""
    head, dots, tail = part.partition("...")
    if not set(head + tail) <= set(string.ascii_letters):
        raise TraceError(located(f"einsum {subscripts!r}: {part!r} is not a list of letters"))
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden > 0 and not dots):
        raise ShapeError(located(f"einsum {subscripts!r}: {part!r} does not fit an operand with {rank} dimensions"))
    return [*head, *(str(i) for i in range(hidden - 1, -1, -1)), *tail]


def _no_unit_contraction(a: Any, b: Any, a_axis: int, b_axis: int) -> None:
    """NumPy broadcasts a size of 1 in einsum, but not in the summed dimension of a matrix product."""
    a_size, b_size = np.shape(a)[a_axis], np.shape(b)[b_axis]
    one = [isinstance(s, int) and s == 1 for s in (a_size, b_size)]
    if one[0] != one[1]:
        shapes = " and ".join(show_shape(x.value.shape if isinstance(x, Tracer) else np.shape(x)) for x in (a, b))
        raise ShapeError(located(f"shapes {shapes} do not contract together: size 1 against another size"))
