"""Arrays made from sizes: what the stand-in's arange, zeros, eye, tri, ... record."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.dims import Dim, Shape
from redfuser.frontend.labels import hits
from redfuser.frontend.record import FLOAT, INT, Recorder, Value
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift, recorder_of


def to_dim(r: Recorder, entry: Any) -> Dim | int:
    """The dimension for a shape entry: a size, a linear expression that is a size, or a number."""
    if isinstance(entry, Tracer):
        dim = size_of(entry.value)
        if dim is not None:
            return dim
        entry = r.specialise(entry.value, "the shape of an array")
    try:
        number = entry.__index__()
    except AttributeError:
        raise TraceError(located(f"shape entry {entry!r} is not an integer; use sizes (x.shape[0]) and ints")) from None
    if number == 1:
        return 1
    dim = Dim(value=number)
    dim.fixed = True  # no argument carries it: the program text decides it
    return dim


def to_shape(r: Recorder, shape: Any) -> Shape:
    """The symbolic shape for a shape argument (an entry or a sequence of them)."""
    entries = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(to_dim(r, e) for e in entries)


def linear(v: Value) -> dict[Dim | None, int] | None:
    """A value as an integer combination of sizes (None is the constant term); None when it is not one."""
    if v.op == "const" and isinstance(v.param, int):
        return {None: v.param}
    if v.op == "size":
        return {v.param.find(): 1}
    if v.op != "ufunc" or v.param not in ("add", "subtract", "negative"):
        return None
    parts = [linear(x) for x in v.inputs]
    signs = [-1] if v.param == "negative" else [1, -1 if v.param == "subtract" else 1]
    total: dict[Dim | None, int] = {}
    for part, sign in zip(parts, signs, strict=True):
        if part is None:
            return None
        for dim, factor in part.items():
            total[dim] = total.get(dim, 0) + sign * factor
    return {dim: factor for dim, factor in total.items() if factor}


def size_of(v: Value) -> Dim | None:
    """The dimension whose size `v` is, also for forms such as (n + 1) - 1."""
    form = linear(v)
    if form is not None and len(form) == 1:
        dim, factor = next(iter(form.items()))
        return dim if factor == 1 else None
    return None


def full(r: Recorder, shape: Shape, fill_value: Any, dtype: np.dtype[Any] | None) -> Tracer:
    """An array of `shape` whose elements are all `fill_value` (which broadcasts)."""
    value = lift(r, fill_value)
    return Tracer(r, r.broadcast(r.cast(value, value.dtype if dtype is None else dtype), shape))


def arange(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """np.arange(stop) and np.arange(start, stop) with symbolic sizes; other forms need concrete numbers."""
    r = recorder_of(args)
    if r is None:
        return np.arange(*args, dtype=dtype, **kwargs)
    start, stop = (0, args[0]) if len(args) == 1 else args[:2]
    length = size_of(lift(r, stop - start)) if len(args) < 3 else None
    if length is None:
        numbers = [r.specialise(lift(r, a), "np.arange") for a in args]
        return np.arange(*numbers, dtype=dtype)
    values: Any = Tracer(r, r.arange(length))
    if not (isinstance(start, int) and start == 0):
        values = values + start
    return values if dtype is None else values.astype(dtype)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """np.ones"""
    r = recorder_of(shape)
    return np.ones(shape, dtype, **kwargs) if r is None else full(r, to_shape(r, shape), 1, np.dtype(dtype or float))


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """np.zeros"""
    r = recorder_of(shape)
    if r is None:
        return np.zeros(shape, float if dtype is None else dtype, **kwargs)
    return full(r, to_shape(r, shape), 0, np.dtype(dtype or float))


def full_array(shape: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """np.full"""
    r = recorder_of(shape, fill_value)
    if r is None:
        return np.full(shape, fill_value, dtype, **kwargs)
    return full(r, to_shape(r, shape), fill_value, None if dtype is None else np.dtype(dtype))


def band_mask(r: Recorder, rows: Dim | int, columns: Dim | int, k: Any, compare: np.ufunc) -> Value:
    """bool[rows, columns]: `compare(column - row, k)`, so less_equal is a lower triangle and equal a diagonal."""
    i = r.view(r.arange(rows), (0, None))
    diagonal = lift(r, k)
    limit = i if diagonal.op == "const" and diagonal.param == 0 else r.ufunc(np.add, i, diagonal)
    return r.ufunc(compare, r.arange(columns), limit)


def _band(compare: np.ufunc, n: Any, m: Any, k: Any, dtype: Any) -> Tracer:
    r = recorder_of(n, m)
    assert r is not None
    mask = band_mask(r, to_dim(r, n), to_dim(r, n if m is None else m), k, compare)
    return Tracer(r, r.cast(mask, np.dtype(dtype)))


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, **kwargs: Any) -> Any:
    """np.tri"""
    if recorder_of(N, M) is None:
        return np.tri(N, M, k, dtype, **kwargs)
    return _band(np.less_equal, N, M, k, dtype)


class Identity(np.ndarray[Any, Any]):
    """An identity matrix made while tracing: its rows at traced labels are their one-hot encoding."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, Tracer) or key.dtype.kind not in "iu" or self.ndim != 2 or len(set(self.shape)) > 1:
            return super().__getitem__(key)
        if not np.array_equal(self, np.eye(len(self))):  # an array made from an identity
            return super().__getitem__(key)
        return key.wrap(key.recorder.cast(hits(key.recorder, key.value, to_dim(key.recorder, len(self))), self.dtype))


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, **kwargs: Any) -> Any:
    """np.eye"""
    if recorder_of(N, M) is None:
        return np.eye(N, M, k, dtype, **kwargs).view(Identity)
    return _band(np.equal, N, M, k, dtype)


def identity(n: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """np.identity"""
    return eye(n, dtype=float if dtype is None else dtype, **kwargs)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """np.indices as a tuple of arrays, one per axis (NumPy stacks them when they are not sparse)."""
    r = recorder_of(dimensions)
    if r is None:
        return np.indices(dimensions, dtype, sparse=True) if sparse else np.indices(dimensions, dtype)
    shape = to_shape(r, dimensions)
    grids = []
    for axis, dim in enumerate(shape):
        dims = tuple(0 if i == axis else None for i in range(len(shape)))
        grid = r.cast(r.view(r.arange(dim), dims), np.dtype(dtype))
        grids.append(Tracer(r, grid if sparse else r.broadcast(grid, shape)))
    return tuple(grids)


def asarray(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """np.asarray and np.array: traced arrays pass through, converted to `dtype`."""
    if not isinstance(a, Tracer):
        _no_stacking(a)
        return np.asarray(a, dtype, *args, **kwargs)
    if a.value.weak:  # a Python number becomes an array of its dtype, which then takes part in promotion
        return a.astype((INT if a.dtype == INT else FLOAT) if dtype is None else dtype)
    return a if dtype is None else a.astype(dtype)


def array(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """np.array"""
    if isinstance(a, Tracer):
        return asarray(a, dtype).copy()
    _no_stacking(a)
    return np.array(a, dtype, *args, **kwargs)


def _no_stacking(a: Any) -> None:
    """Raise TraceError for a list of traced arrays; sizes in it become numbers."""
    if isinstance(a, (list, tuple)):
        for entry in a:
            _no_stacking(entry)
            if isinstance(entry, Tracer) and not entry.is_size:
                raise TraceError(located("a list of traced arrays cannot become a real NumPy array; return a tuple, "
                                         "return (a, b), and make the array after the fused function"))
