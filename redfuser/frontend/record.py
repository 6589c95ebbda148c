"""The recorder: builds the graph of one traced call, one primitive operation at a time.

Everything the tracer offers (methods, ufuncs, NumPy functions) is expressed in the primitives of this class. Their
shape and dtype rules are NumPy's; a violation raises at once, naming the user's line.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import Dim, Shape, broadcast, show_shape
from redfuser.frontend.graph import View
from redfuser.frontend.guards import ScopeGuard
from redfuser.frontend.nested import LeafName
from redfuser.frontend.source import SourceLine, located, user_line
from redfuser.frontend.spec import SUPPORTED_DTYPES, Spec
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.monoids import KEY, PartsMonoid

DType = np.dtype[Any]
Number = bool | int | float
BOOL, INT, FLOAT = np.dtype("bool"), np.dtype("int64"), np.dtype("float64")


@dataclass(eq=False)
class Value:
    """A recorded operation while the graph still grows (frozen to a `TraceNode` at the end)."""

    op: str
    inputs: tuple[Value, ...]
    shape: Shape
    dtype: DType
    param: Any = None
    weak: bool = False
    source: SourceLine | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(eq=False)
class Recorder:
    """State of one trace. `values` are in execution order; `branches` are the questions about sizes that were asked;
    `assumptions` are the conditions that the caller guarantees; `checks` are labels, and the length of their axis;
    `made` are sizes that only the result of a call tells."""

    values: list[Value] = field(default_factory=list)
    captured: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    branches: list[tuple[Value, bool]] = field(default_factory=list)
    scope_guards: dict[tuple[int, str], ScopeGuard] = field(default_factory=dict)
    assumptions: list[Value] = field(default_factory=list)
    checks: list[tuple[Value, Value]] = field(default_factory=list)
    made: list[tuple[Dim, Value]] = field(default_factory=list)
    array_names: dict[int, str] = field(default_factory=dict)
    named_sizes: dict[str, Dim] = field(default_factory=dict)
    _ranks: dict[int, Dim] = field(default_factory=dict)
    _captured_values: dict[int, Value] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    # ---- leaves

    def add(self, op: str, inputs: Sequence[Value], shape: Shape, dtype: DType, param: Any = None,
            weak: bool = False) -> Value:
        """Record one operation at the user's current line."""
        if dtype.name not in SUPPORTED_DTYPES:
            raise TraceError(located(f"{param or op} gives dtype {dtype}, which is not supported; "
                                     f"convert an operand with .astype('float32') first"))
        value = Value(op, tuple(inputs), shape, dtype, param, weak, None if op == "input" else user_line())
        self.values.append(value)
        return value

    def argument(self, name: str, spec: Spec) -> Value:
        """The input for an argument. Equal size names become one size, also across arguments."""
        self._taken.add(name)
        shape = tuple(self._dim(entry) for entry in spec.shape)
        return self.add("input", (), shape, numpy_dtype(spec.dtype), name, spec.weak)

    def _dim(self, entry: int | str) -> Dim | int:
        if isinstance(entry, str):
            return self.named_sizes.setdefault(entry, Dim(name=entry))
        return 1 if entry == 1 else Dim(value=entry)

    def capture(self, array: np.ndarray[Any, Any]) -> Value:
        """The input for an array from outside the function; the same array is captured once."""
        known = self._captured_values.get(id(array))
        if known is not None:
            return known
        wanted = self.array_names.get(id(array), "const")
        name, suffix = wanted, 0
        while name in self._taken:
            suffix += 1
            name = f"{wanted}{suffix}"
        value = self.argument(name, Spec.of(array, f"captured array {wanted!r}"))
        self.captured[name] = array  # keeps the array alive, hence its id unique
        self._captured_values[id(array)] = value
        return value

    def const(self, number: Any, dtype: DType | None = None) -> Value:
        """A number. Without `dtype` it is weak, as Python numbers are."""
        weak = dtype is None and not isinstance(number, bool)
        if dtype is None:
            dtype = BOOL if isinstance(number, bool) else INT if isinstance(number, int) else FLOAT
        return self.add("const", (), (), dtype, number, weak)

    def size(self, dim: Dim | int) -> Value:
        """The length of a dimension as a weak 0-d integer."""
        return self.const(1) if not isinstance(dim, Dim) else self.add("size", (), (), INT, dim, True)

    def arange(self, dim: Dim | int) -> Value:
        """Positions along a dimension: int64, shape (dim,)."""
        return self.add("arange", (), (dim,), INT)

    def guard(self, scope: Mapping[str, Any], name: str, attributes: frozenset[str]) -> None:
        """Note that the trace depends on what `name` holds in `scope`, for code that mentions these `attributes`."""
        if (id(scope), name) not in self.scope_guards:
            self.scope_guards[id(scope), name] = ScopeGuard.of(scope, name, attributes)

    # ---- elementwise

    def common_shape(self, what: str, values: Sequence[Value]) -> Shape:
        """The broadcast shape of `values`; ShapeError names the operation and the line."""
        try:
            return broadcast([v.shape for v in values])
        except ShapeError as error:
            raise ShapeError(located(f"{what}: {error}")) from None

    def ufunc(self, ufunc: np.ufunc, *inputs: Value) -> Value:
        """An elementwise NumPy ufunc with NumPy's promotion rules."""
        shape = self.common_shape(f"np.{ufunc.__name__}", inputs)
        return self.add("ufunc", inputs, shape, result_dtype(ufunc, inputs), ufunc.__name__)

    def python(self, ufunc: np.ufunc, *inputs: Value) -> Value:
        """Arithmetic that Python itself does on weak numbers (`inputs` all are); the result is weak too."""
        dtype = result_dtype(ufunc, inputs)
        exponent = inputs[-1]
        if ufunc is np.power and dtype == INT and exponent.op == "const" and exponent.param < 0:
            dtype = FLOAT
        return self.add("ufunc", inputs, (), dtype, ufunc.__name__, weak=dtype != BOOL)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where the condition holds, else `b`; all broadcast."""
        if condition.dtype != BOOL:
            condition = self.ufunc(np.not_equal, condition, self.const(0))
        shape = self.common_shape("np.where", (condition, a, b))
        return self.add("where", (condition, a, b), shape, promote(a, b))

    def cast(self, a: Value, dtype: DType) -> Value:
        """Conversion to `dtype`; nothing when the dtype is already right."""
        return a if a.dtype == dtype and not a.weak else self.add("cast", (a,), a.shape, dtype)

    # ---- reductions

    def reduce(self, ufunc: np.ufunc, a: Value, axes: tuple[int, ...], keepdims: bool = False) -> Value:
        """`ufunc.reduce` over several axes. Integer sums and products become int64, as in NumPy."""
        if not axes:
            return a
        dtype = a.dtype
        if ufunc in (np.add, np.multiply) and dtype.kind in "bi":
            dtype = INT
        elif ufunc in (np.add, np.multiply) and dtype.kind == "u":
            raise TraceError(located(f"np.{ufunc.__name__}.reduce of {dtype} gives uint64, which is not supported; "
                                     "convert with .astype('int64') first"))
        elif ufunc in (np.logical_or, np.logical_and) and dtype != BOOL:
            a, dtype = self.ufunc(np.not_equal, a, self.const(0)), BOOL
        shape = tuple((1 if keepdims else None) if i in axes else d for i, d in enumerate(a.shape))
        kept = tuple(d for d in shape if d is not None)
        return self.add("reduce", (a,), kept, dtype, (ufunc.__name__, axes, keepdims))

    def parts(self, monoid: PartsMonoid, elements: Sequence[Value], axis: int, part: str,
              keepdims: bool = False) -> Value:
        """One part of a reduction whose results have several; the places of a sorted list lie at the axis reduced."""
        length: Dim | int | None = 1 if keepdims else None
        if monoid.rank is not None:
            length = self._rank(monoid.rank)
        shape = self.common_shape(monoid.label, elements)
        kept = tuple(d for d in (*shape[:axis], length, *shape[axis + 1:]) if d is not None)
        declared = monoid.part_dtype(part)
        dtype = promote(*elements) if declared == KEY else np.dtype(declared)
        return self.add("parts", elements, kept, dtype, (monoid.name, axis, keepdims, part))

    def _rank(self, k: int) -> Dim | int:
        """The size of sorted lists of length k."""
        if k == 1:
            return 1
        if k not in self._ranks:
            self._ranks[k] = Dim(value=k)
            self._ranks[k].fixed = True
        return self._ranks[k]

    def einsum(self, labels: Sequence[Sequence[int]], output: Sequence[int], operands: Sequence[Value],
               ufunc: np.ufunc | None = None) -> Value:
        """Sum of products. `labels`: one number per dimension of each operand; equal numbers are one axis. `ufunc`: the
        one that is recorded; it decides the dtype.

        Raises
        ------
        ShapeError
            naming the shapes, when an axis has several sizes.
        TraceError
            for operands that are all bool (NumPy would use logical arithmetic).
        """
        if all(v.dtype == BOOL for v in operands):
            raise TraceError(located("einsum and matmul of bool arrays are not supported; use .astype('float32')"))
        sizes = self._axis_sizes(labels, operands)
        squeezed = [self._drop_broadcast(v, axes, sizes) for v, axes in zip(operands, labels, strict=True)]
        operands, labels = [v for v, _ in squeezed], [axes for _, axes in squeezed]
        reachable = list(dict.fromkeys(axis for axes in labels for axis in axes))
        letter = {axis: string.ascii_letters[i] for i, axis in enumerate(reachable)}
        kept = [axis for axis in output if axis in letter]
        text = ",".join("".join(letter[a] for a in axes) for axes in labels) + "->" + "".join(letter[a] for a in kept)
        dtype = promote_dtypes(*(v.dtype for v in operands)) if ufunc is None else result_dtype(ufunc, operands)
        value = self.add("einsum", operands, tuple(sizes[a] for a in kept), dtype, text)
        if len(kept) == len(output):
            return value
        return self.view(value, tuple(kept.index(a) if a in kept else None for a in output))

    def _axis_sizes(self, labels: Sequence[Sequence[int]], operands: Sequence[Value]) -> dict[int, Dim | int]:
        sizes: dict[int, Dim | int] = {}
        for v, axes in zip(operands, labels, strict=True):
            for axis, dim in zip(axes, v.shape, strict=True):
                known = sizes.setdefault(axis, dim)
                if isinstance(known, Dim) and isinstance(dim, Dim):
                    try:
                        known.unify(dim)
                    except ShapeError as error:
                        shapes = " and ".join(show_shape(x.shape) for x in operands)
                        raise ShapeError(located(f"shapes {shapes} do not contract together: {error}")) from None
                elif isinstance(dim, Dim):
                    sizes[axis] = dim
        return sizes

    def _drop_broadcast(self, v: Value, axes: Sequence[int],
                        sizes: dict[int, Dim | int]) -> tuple[Value, Sequence[int]]:
        """The operand without dimensions of size 1: they broadcast (or do nothing) in a sum of products."""
        kept = [i for i, dim in enumerate(v.shape) if isinstance(dim, Dim)]
        if len(kept) == v.ndim:
            return v, axes
        return self.view(v, tuple(kept)), [axes[i] for i in kept]

    # ---- shape

    def view(self, a: Value, dims: tuple[int | None, ...], fixed: tuple[tuple[int, int], ...] = ()) -> Value:
        """Dimensions permuted, inserted (None), dropped at a position; see `View`."""
        if not fixed and dims == tuple(range(a.ndim)):
            return a
        shape: Shape = tuple(1 if d is None else a.shape[d] for d in dims)
        return self.add("view", (a,), shape, a.dtype, View(dims, fixed))

    def broadcast(self, a: Value, shape: Shape) -> Value:
        """`np.broadcast_to`."""
        full = self.common_shape("np.broadcast_to", (a, Value("shape", (), shape, a.dtype)))
        if len(full) != len(shape) or any(d != 1 and s == 1 for d, s in zip(full, shape, strict=True)):
            raise ShapeError(located(f"cannot broadcast shape {show_shape(a.shape)} to {show_shape(shape)}"))
        strong = self.cast(a, a.dtype)
        return strong if a.shape == shape else self.add("broadcast", (strong,), shape, a.dtype)

    # ---- questions about sizes

    def is_made(self, dim: Dim) -> bool:
        """Whether only the result of a call tells a size."""
        return any(d.find() is dim.find() for d, _ in self.made)

    def concrete(self, v: Value, need: str) -> Number:
        """The value of an expression over sizes while tracing.

        Raises
        ------
        TraceError
            with what `need`s it, when it depends on data or on a size without a value.
        """
        if v.op == "const":
            return v.param  # type: ignore[no-any-return]
        if v.op == "size":
            dim: Dim = v.param.find()
            if dim.value is None and self.is_made(dim):
                raise TraceError(located(f"{need} needs a length that is known only when the function runs, that of an "
                                         "array which NumPy makes; split the function there"))
            if dim.value is None:
                raise TraceError(located(f"{need} needs the concrete size of axis {dim}, which is symbolic; "
                                         f"give an int instead of {str(dim)!r} in the spec, or avoid it"))
            return dim.value
        if v.ndim or v.op not in ("ufunc", "cast"):
            refuse_argument(v, need)
            raise TraceError(located(f"{need} depends on array values, which are unknown while tracing; "
                                     "use np.where for a choice between values, and keep other values in arrays "
                                     "(np.zeros_like(x) and np.zeros(x.shape) make some that record)"))
        operands = [self.concrete(x, need) for x in v.inputs]
        result = getattr(np, v.param)(*operands) if v.op == "ufunc" else v.dtype.type(operands[0])
        return np.asarray(result).item()  # type: ignore[no-any-return]

    def specialise(self, v: Value, need: str) -> Number:
        """Like `concrete`, and the sizes it depends on are fixed to their values from now on."""
        number = self.concrete(v, need)
        self._fix(v)
        return number

    def _fix(self, v: Value) -> None:
        if v.op == "size":
            v.param.find().fixed = True
        for x in v.inputs:
            self._fix(x)

    def decide(self, v: Value) -> bool:
        """The truth of a condition on sizes; it becomes a guard. Two sizes found equal become one size."""
        compares_sizes = v.param in ("equal", "not_equal") and all(x.op == "size" for x in v.inputs)
        if compares_sizes and v.inputs[0].param.find() is v.inputs[1].param.find():
            return bool(v.param == "equal")
        truth = bool(self.concrete(v, "a branch"))
        if compares_sizes and truth == (v.param == "equal"):
            v.inputs[0].param.unify(v.inputs[1].param)
        elif v.op != "const":
            self.branches.append((v, truth))
        return truth


def no_meaning(message: str) -> TraceError:
    """The error for an operation that NumPy does not have either, at the user's current line."""
    return TraceError(located(message), collected=False)


class StaticNeeded(TraceError):
    """Numbers among the arguments decide what the program is (an axis, a flag): `arguments` names them."""

    def __init__(self, message: str, arguments: Sequence[str]) -> None:
        super().__init__(message)
        self.arguments = tuple(arguments)


def number_arguments(v: Value) -> set[str] | None:
    """The arguments that a number is computed from; None when elements of an array take part.

    An integer taken out of an argument of rank 1 counts: a tuple of axes arrives as such an array.
    """
    if v.op == "view" and not v.ndim and v.inputs[0].op == "input" and v.inputs[0].ndim == 1 and v.dtype == INT:
        return {v.inputs[0].param}
    if v.ndim or v.op not in ("input", "const", "size", "ufunc", "cast"):
        return None
    found = [number_arguments(x) for x in v.inputs]
    own = {v.param} if v.op == "input" else set()
    return None if None in found else own.union(*(names for names in found if names is not None))


def refuse_argument(v: Value, need: str) -> None:
    """Raise when `need` asks for a number that arguments decide.

    Raises
    ------
    StaticNeeded
        naming the arguments and the option that makes them part of the program.
    """
    names = sorted(number_arguments(v) or ())
    if names:
        shown, option = " and ".join(map(repr, names)), repr(names[0]) if len(names) == 1 else repr(tuple(names))
        remedy = f"rf.fuse(..., static_argnames={option}) makes it part of the program, compiled anew for each value"
        if any(isinstance(n, LeafName) for n in names):
            remedy = "as a plain Python number it becomes part of the program"
        raise StaticNeeded(located(f"{need} depends on the argument {shown}, a number that may differ from call to "
                                   f"call; {remedy}"), names)


def _kind(v: Value) -> Any:
    """What NumPy's dtype resolution takes for an operand: a dtype, or a Python type for weak numbers."""
    return (int if v.dtype == INT else float) if v.weak else v.dtype


def result_dtype(ufunc: np.ufunc, inputs: Sequence[Value]) -> DType:
    """The result dtype of a ufunc by NumPy's own rules.

    Raises
    ------
    TraceError
        naming the dtypes.
    """
    all_weak = all(v.weak for v in inputs)
    kinds = tuple(v.dtype if all_weak else _kind(v) for v in inputs)
    try:
        return np.dtype(ufunc.resolve_dtypes((*kinds, None))[-1])
    except TypeError:
        names = ", ".join(str(v.dtype) for v in inputs)
        raise no_meaning(f"np.{ufunc.__name__} has no meaning for {names}; convert with .astype") from None


def promote(*inputs: Value) -> DType:
    """`np.result_type` with weak Python numbers."""
    if all(v.weak for v in inputs):
        return FLOAT if any(v.dtype == FLOAT for v in inputs) else INT
    return promote_dtypes(*((0 if v.dtype == INT else 0.0) if v.weak else v.dtype for v in inputs))


def promote_dtypes(*kinds: Any) -> DType:
    """`np.result_type` of dtypes, and of Python numbers in the place of weak ones; TraceError where NumPy has none."""
    try:
        return np.dtype(np.result_type(*kinds))
    except TypeError:
        names = ", ".join(str(k) if isinstance(k, np.dtype) else type(k).__name__ for k in kinds)
        raise no_meaning(f"NumPy has no common dtype for {names}; convert with .astype") from None
