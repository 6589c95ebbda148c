"""NumPy functions on traced arrays: the table behind `__array_function__`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from redfuser.errors import RedfuserError, ShapeError, TraceError
from redfuser.frontend import contract, labels, nan_reductions, norms, order, reductions, sections, statistics
from redfuser.frontend.creation import band_mask, full, to_shape
from redfuser.frontend.dims import Dim, show_shape
from redfuser.frontend.join import JOINING, join_as
from redfuser.frontend.record import no_meaning, promote
from redfuser.frontend.regroup import regrouped
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift, recorder_of
from redfuser.ir.dtypes import finfo, is_float


def where(condition: Any, *choices: Any) -> Tracer:
    """np.where with three arguments."""
    if len(choices) != 2:
        raise TraceError(located("np.where(condition) gives positions and cannot be recorded; use "
                                 "np.where(condition, a, b)"))
    r = recorder_of(condition, *choices)
    assert r is not None
    return Tracer(r, r.where(lift(r, condition), lift(r, choices[0]), lift(r, choices[1])))


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip = minimum(maximum(a, low), high)"""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    if out is not None:
        raise TraceError(located("np.clip(out=...) cannot be recorded; assign the result to a name"))
    result = a if low is None else np.maximum(a, low)
    return result if high is None else np.minimum(result, high)


def transpose(a: Tracer, axes: Any = None) -> Tracer:
    """np.transpose"""
    order = range(a.ndim)[::-1] if axes is None else _axes(a, axes)
    if sorted(order) != list(range(a.ndim)):
        raise ShapeError(located(f"transpose axes {axes} do not fit shape {show_shape(a.value.shape)}"))
    return a.view(tuple(order))


def swapaxes(a: Tracer, axis1: int, axis2: int) -> Tracer:
    """np.swapaxes"""
    order = list(range(a.ndim))
    i, j = _axes(a, (axis1,))[0], _axes(a, (axis2,))[0]
    order[i], order[j] = order[j], order[i]
    return a.view(tuple(order))


def moveaxis(a: Tracer, source: Any, destination: Any) -> Tracer:
    """np.moveaxis"""
    froms, tos = _axes(a, source), _axes(a, destination)
    order = [d for d in range(a.ndim) if d not in froms]
    for to, d in sorted(zip(tos, froms, strict=True)):
        order.insert(to, d)
    return a.view(tuple(order))


def expand_dims(a: Tracer, axis: Any) -> Tracer:
    """np.expand_dims"""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = a.ndim + len(axes)
    try:
        new = normalize_axis_tuple(axes, rank)
    except RedfuserError:
        raise
    except TypeError:
        raise no_meaning(f"argument 'axis' is {axis!r}; give an int or a tuple of ints") from None
    except ValueError as error:
        raise ShapeError(located(f"expand_dims(axis={axis}) of shape {show_shape(a.value.shape)}: {error}")) from None
    old = iter(range(a.ndim))
    return a.view(tuple(None if i in new else next(old) for i in range(rank)))


def squeeze(a: Tracer, axis: Any = None) -> Tracer:
    """np.squeeze: only sizes that are 1 while tracing can be dropped."""
    shape = a.value.shape
    drop = [i for i, d in enumerate(shape) if d == 1] if axis is None else _axes(a, axis)
    for i in drop:
        if shape[i] != 1:
            raise ShapeError(located(f"squeeze(axis={axis}): axis {i} of shape {show_shape(shape)} is not of size 1"))
    return a.view(tuple(i for i in range(a.ndim) if i not in drop))


def reshape(a: Tracer, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Tracer:
    """np.reshape in C order. Merged axes keep symbolic sizes; a size that is split is static, and so are sizes that are
    given as numbers."""
    target = shape if newshape is None else newshape
    entries = list(target) if isinstance(target, (tuple, list)) else [target]
    kept = [i for i, d in enumerate(a.value.shape) if isinstance(d, Dim)]
    wanted = [i for i, e in enumerate(entries) if not (isinstance(e, int) and e == 1)]
    if len(wanted) == len(kept) + 1:  # -1 stands for 1 when all other sizes are named
        wanted = [i for i in wanted if not (isinstance(entries[i], int) and entries[i] == -1)]
    fits = sum(isinstance(e, int) and e == -1 for e in entries) <= 1 and len(wanted) == len(kept) and all(
        _same_size(a, d, entries[i]) for i, d in zip(wanted, kept, strict=True))
    if not fits:
        if order != "C":
            raise TraceError(located(f"reshape(order={order!r}) cannot be recorded; transpose first"))
        return a.sharing(a.recorder.add("reshape", (a.value,), regrouped(a.value, entries), a.dtype))
    source = dict(zip(wanted, kept, strict=True))
    return a.view(tuple(source.get(i) for i in range(len(entries))))


def _same_size(a: Tracer, dim: int, entry: Any) -> bool:
    """True when a reshape entry is the size of dimension `dim` (or -1)."""
    if isinstance(entry, int) and entry == -1:
        return True
    size = a.shape[dim]
    return bool(size == entry)


def ravel(a: Tracer, order: str = "C") -> Tracer:
    """np.ravel in C order."""
    return reshape(a, -1, order)


def broadcast_to(a: Tracer, shape: Any, subok: bool = False) -> Tracer:
    """np.broadcast_to"""
    r = recorder_of(a, shape)
    assert r is not None
    found = r.broadcast(lift(r, a), to_shape(r, shape))
    return a.sharing(found) if isinstance(a, Tracer) else Tracer(r, found)


def broadcast_arrays(*arrays: Any, subok: bool = False) -> tuple[Tracer, ...]:
    """np.broadcast_arrays"""
    r = recorder_of(*arrays)
    assert r is not None
    values = [lift(r, a) for a in arrays]
    shape = r.common_shape("np.broadcast_arrays", values)
    found = [r.broadcast(v, shape) for v in values]
    return tuple(a.sharing(v) if isinstance(a, Tracer) else Tracer(r, v) for a, v in zip(arrays, found, strict=True))


def full_like(a: Tracer, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True,
              shape: Any = None) -> Tracer:
    """np.full_like"""
    r = a.recorder
    target = a.value.shape if shape is None else to_shape(r, shape)
    return full(r, target, fill_value, a.dtype if dtype is None else np.dtype(dtype))


def zeros_like(a: Tracer, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    """np.zeros_like (and np.empty_like: nothing could read what it holds)"""
    return full_like(a, 0, dtype, shape=shape)


def ones_like(a: Tracer, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    """np.ones_like"""
    return full_like(a, 1, dtype, shape=shape)


def tril(m: Tracer, k: Any = 0) -> Tracer:
    """np.tril of the last two dimensions"""
    return _keep_band(m, k, np.less_equal, "tril")


def triu(m: Tracer, k: Any = 0) -> Tracer:
    """np.triu of the last two dimensions"""
    return _keep_band(m, k, np.greater_equal, "triu")


def _keep_band(m: Tracer, k: Any, compare: np.ufunc, name: str) -> Tracer:
    if m.ndim < 2:
        raise ShapeError(located(f"np.{name} needs a matrix, got shape {show_shape(m.value.shape)}"))
    mask = band_mask(m.recorder, m.value.shape[-2], m.value.shape[-1], k, compare)
    zero = m.recorder.const(0, m.dtype)
    return m.wrap(m.recorder.where(mask, m.value, zero))


def nan_to_num(x: Tracer, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """np.nan_to_num"""
    if not is_float(x.dtype):
        return x
    limits = finfo(x.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    number = np.where(np.isnan(x), nan, x)
    return np.where(np.equal(x, np.inf), high, np.where(np.equal(x, -np.inf), low, number))


def round_(a: Tracer, decimals: int = 0, out: Any = None) -> Any:
    """np.round: half to even, of what is scaled by a power of ten"""
    if out is not None:
        raise TraceError(located("np.round(out=...) cannot be recorded; assign the result to a name"))
    digits = operator.index(decimals)
    if a.dtype.kind in "iu":
        if digits < 0:
            raise TraceError(located(f"np.round(decimals={digits}) of {a.dtype} cannot be recorded; convert with "
                                     ".astype(float)"))
        return a
    if digits == 0:
        return np.rint(a)
    scale = 10.0 ** abs(digits)
    return np.rint(a * scale) / scale if digits > 0 else np.rint(a / scale) * scale


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """np.select: the choice of the first condition that holds"""
    if len(condlist) != len(choicelist):
        raise ShapeError(located(f"np.select of {len(condlist)} conditions and {len(choicelist)} choices"))
    found = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = where(condition, choice, found)
    return found


def flip(m: Tracer, axis: Any = None) -> Tracer:
    """np.flip of positions"""
    axes = range(m.ndim) if axis is None else _axes(m, axis)
    return m[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(m.ndim))]


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """np.copyto into an array made in the function"""
    r = recorder_of(dst, src, where)
    assert r is not None
    if not isinstance(dst, Tracer):
        raise TraceError(located("np.copyto into an array from outside cannot be recorded; use np.where"))
    new = lift(r, src)
    dst.store(new if where is True else r.where(lift(r, where), r.cast(new, dst.dtype), dst.value), "use np.where")


def putmask(a: Any, mask: Any, values: Any) -> None:
    """np.putmask of one number, or of an array of the shape of the mask"""
    if np.ndim(values) and np.ndim(values) != np.ndim(a):
        raise TraceError(located("np.putmask repeats values of another shape, which cannot be recorded; use np.where"))
    copyto(a, values, where=mask)


def sinc(x: Tracer) -> Any:
    """np.sinc"""
    y = np.pi * np.where(np.equal(x, 0), 1e-20, x)
    return np.sin(y) / y


def atleast_nd(rank: int) -> Callable[..., Any]:
    """np.atleast_1d and np.atleast_2d for one array"""

    def function(a: Tracer) -> Tracer:
        return a.view((*[None] * max(rank - a.ndim, 0), *range(a.ndim)))

    return function


def result_type(*arguments: Any) -> np.dtype[Any]:
    """np.result_type"""
    r = recorder_of(*arguments)
    assert r is not None
    dtypes = [np.dtype(a) for a in arguments if isinstance(a, (type, str, np.dtype))]
    values = [lift(r, a) for a in arguments if not isinstance(a, (type, str, np.dtype))]
    return np.result_type(promote(*values), *dtypes)


def unstack(x: Tracer, /, *, axis: int = 0) -> tuple[Tracer, ...]:
    """np.unstack: the number of arrays becomes part of the program"""
    return tuple(moveaxis(x, axis, 0))


def size(a: Tracer, axis: int | None = None) -> Any:
    """np.size"""
    return a.size if axis is None else a.shape[axis]


def _axes(a: Tracer, axis: Any) -> list[int]:
    axes = axis if isinstance(axis, (tuple, list, range)) else (axis,)
    try:
        return [normalize_axis_index(operator.index(i), a.ndim) for i in axes]
    except RedfuserError:
        raise
    except TypeError:
        raise no_meaning(f"argument 'axis' is {axis!r}; give an int or a tuple of ints") from None
    except ValueError as error:
        raise ShapeError(located(f"axis {axis} does not fit shape {show_shape(a.value.shape)}: {error}")) from None


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: reductions.sum_, np.prod: reductions.prod, np.max: reductions.amax, np.min: reductions.amin,
    np.any: reductions.any_, np.all: reductions.all_, np.mean: reductions.mean, np.var: reductions.var,
    np.std: reductions.std, np.ptp: reductions.ptp, np.amax: reductions.amax, np.amin: reductions.amin,
    np.average: statistics.average, np.cov: statistics.cov, np.corrcoef: statistics.corrcoef,
    np.isclose: statistics.isclose,
    np.nansum: nan_reductions.nansum, np.nanprod: nan_reductions.nanprod, np.nanmax: nan_reductions.nanmax,
    np.nanmin: nan_reductions.nanmin, np.nanmean: nan_reductions.nanmean, np.nanvar: nan_reductions.nanvar,
    np.nanstd: nan_reductions.nanstd, np.take_along_axis: labels.take_along_axis,
    np.argmax: order.argmax, np.argmin: order.argmin,
    np.count_nonzero: reductions.count_nonzero, np.linalg.norm: norms.norm,
    np.linalg.vector_norm: norms.vector_norm, np.linalg.matrix_norm: norms.matrix_norm,
    np.einsum: contract.einsum, np.dot: contract.dot, np.inner: contract.inner, np.outer: contract.outer,
    np.vdot: lambda a, b: contract.dot(np.ravel(a), np.ravel(b)), np.tensordot: contract.tensordot,
    np.trace: contract.trace_, np.diagonal: contract.diagonal, np.diag: contract.diag,
    np.linalg.vecdot: lambda x1, x2, /, *, axis=-1: contract.vecdot(x1, x2, axis),
    np.linalg.matmul: lambda x1, x2, /: contract.matmul(x1, x2),
    np.linalg.outer: lambda x1, x2, /: contract.outer(x1, x2),
    np.linalg.tensordot: lambda x1, x2, /, *, axes=2: contract.tensordot(x1, x2, axes),
    np.linalg.multi_dot: contract.multi_dot, np.linalg.matrix_transpose: lambda x, /: x.swapaxes(-1, -2),
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: contract.trace_(x, offset, -2, -1, dtype),
    np.linalg.diagonal: lambda x, /, *, offset=0: contract.diagonal(x, offset, -2, -1),
    np.where: where, np.select: select, np.clip: clip, np.sinc: sinc, np.fix: lambda x: np.trunc(x),
    np.isposinf: lambda x: np.equal(x, np.inf), np.isneginf: lambda x: np.equal(x, -np.inf),
    np.nan_to_num: nan_to_num, np.round: round_, np.around: round_,
    np.transpose: transpose, np.permute_dims: transpose, np.swapaxes: swapaxes, np.moveaxis: moveaxis,
    np.matrix_transpose: lambda x: x.swapaxes(-1, -2), np.expand_dims: expand_dims, np.squeeze: squeeze,
    np.reshape: reshape, np.ravel: ravel, np.broadcast_to: broadcast_to, np.broadcast_arrays: broadcast_arrays,
    np.atleast_1d: atleast_nd(1), np.atleast_2d: atleast_nd(2),
    np.full_like: full_like, np.zeros_like: zeros_like, np.ones_like: ones_like, np.empty_like: zeros_like,
    np.tril: tril, np.triu: triu, np.copy: lambda a, order="K", subok=False: a.copy(),
    np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim, np.size: size,
    np.result_type: result_type, np.astype: lambda x, dtype, /, *, copy=True, device=None: x.astype(dtype),
    np.split: sections.split, np.hsplit: sections.hsplit, np.take: sections.take, np.meshgrid: sections.meshgrid,
    np.vsplit: sections.split, np.dsplit: lambda ary, parts: sections.split(ary, parts, 2),
    np.flip: flip, np.polyval: sections.polyval, np.copyto: copyto, np.putmask: putmask,
    np.real: lambda val: val, np.imag: lambda val: val.imag,
    np.iscomplexobj: lambda x: False, np.isrealobj: lambda x: True,
    **{function: join_as(function) for function in JOINING},
    **({np.unstack: unstack} if hasattr(np, "unstack") else {}),  # from NumPy 2.1 on
}
"""NumPy function -> its recording version."""
