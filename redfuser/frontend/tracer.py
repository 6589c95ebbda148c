"""The tracer: stands for an array while a NumPy function runs, and records what is done to it.

NumPy hands its ufuncs and functions to the tracer through its two protocols (`__array_ufunc__`, NEP 13, and
`__array_function__`, NEP 18); operators and methods are defined here. Sizes are tracers too: 0-d, weak (as Python
ints are), and able to answer when the program needs a concrete number.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.dims import show_shape
from redfuser.frontend.join import Joined
from redfuser.frontend.memory import Memory
from redfuser.frontend.operators import binary, method, unary
from redfuser.frontend.record import Recorder, Value, no_meaning, refuse_argument
from redfuser.frontend.remedies import LISTED, branch_on_data, missing, out_of_place
from redfuser.frontend.source import located
from redfuser.ir.dtypes import is_number


class Tracer:
    """A recorded array. Made by `trace`, never by users.

    Raises
    ------
    TraceError
        from every operation that cannot be recorded, with the user's line and the remedy.
    """

    __array_priority__ = 1000.0
    device = "cpu"  # as NumPy's arrays have it
    __hash__ = None  # type: ignore[assignment]  # == computes

    def __init__(self, recorder: Recorder, value: Value) -> None:
        self.recorder = recorder
        self.value = value
        self.memory = Memory(value.op == "input", [weakref.ref(self)])
        self.origin: tuple[Tracer, Any] | None = None  # the array and index that this view was made with

    # ---- facts

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """One entry per dimension: 1, or a symbolic size."""
        return tuple(1 if d == 1 else self.wrap(self.recorder.size(d)) for d in self.value.shape)

    @property
    def size(self) -> Any:
        """The number of elements, symbolic."""
        lengths = [entry for entry in self.shape if isinstance(entry, Tracer)]
        return functools.reduce(operator.mul, lengths) if lengths else 1

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return self.swapaxes(-1, -2)

    def wrap(self, value: Value) -> Tracer:
        """A tracer of the same recording."""
        return Tracer(self.recorder, value)

    def sharing(self, value: Value) -> Tracer:
        """A tracer whose memory is that of this one, as NumPy's views have it."""
        result = self.wrap(value)
        result.memory = self.memory
        self.memory.add(result)
        return result

    def lift(self, other: Any) -> Value:
        """The value of an operand: a tracer, a number, or an array from outside (which becomes an input)."""
        return lift(self.recorder, other)

    # ---- arithmetic

    def operate(self, ufunc: np.ufunc, *operands: Any) -> Any:
        """A Python operator; between Python numbers and sizes it is Python's, otherwise NumPy's."""
        for operand in operands:
            if operand is None or isinstance(operand, str):
                if ufunc in (np.equal, np.not_equal):
                    return NotImplemented
                raise no_meaning(f"an operand of np.{ufunc.__name__} is {operand!r}; use an array or a number")
        from redfuser.frontend.ufuncs import supported

        values = [self.lift(operand) for operand in operands]
        if all(v.weak for v in values):
            return self.wrap(self.recorder.python(ufunc, *values))
        return self.wrap(self.recorder.ufunc(supported(ufunc, values), *values))

    def assign(self, ufunc: np.ufunc, other: Any) -> Tracer:
        """`self op= other`. The array keeps its shape and dtype, and everyone who holds it sees the new values."""
        if self.value.weak:
            return self.operate(ufunc, self, other)  # type: ignore[no-any-return]
        result: Value = self.operate(ufunc, self, other).value
        return self.store(result, out_of_place())

    def store(self, result: Value, remedy: str) -> Tracer:
        """Put a value into this array. `remedy`: what to write where that cannot be recorded.

        Raises
        ------
        TraceError
            when others may hold this array, or its dtype cannot hold the value.
        """
        from redfuser.frontend.assign import write_through

        if not self.memory.belongs_to(self) and not write_through(self, result):
            raise TraceError(located("in-place changes of an argument, or of an array that another name holds a view "
                                     f"of, cannot be recorded; {remedy}"))
        if not np.can_cast(result.dtype, self.dtype, "same_kind") and not result.weak:
            raise no_meaning(f"cannot store {result.dtype} in place into {self.dtype}; {remedy}")
        self.value = self.recorder.broadcast(self.recorder.cast(result, self.dtype), self.value.shape)
        return self

    __add__, __radd__, __iadd__ = binary(np.add)
    __sub__, __rsub__, __isub__ = binary(np.subtract)
    __mul__, __rmul__, __imul__ = binary(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = binary(np.true_divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = binary(np.floor_divide)
    __mod__, __rmod__, __imod__ = binary(np.remainder)
    __pow__, __rpow__, __ipow__ = binary(np.power)
    __and__, __rand__, __iand__ = binary(np.bitwise_and)
    __or__, __ror__, __ior__ = binary(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = binary(np.bitwise_xor)
    __lt__ = binary(np.less)[0]
    __le__ = binary(np.less_equal)[0]
    __gt__ = binary(np.greater)[0]
    __ge__ = binary(np.greater_equal)[0]
    __eq__ = binary(np.equal)[0]
    __ne__ = binary(np.not_equal)[0]
    __neg__ = unary(np.negative)
    __pos__ = unary(np.positive)
    __abs__ = unary(np.absolute)
    __invert__ = unary(np.invert)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __round__(self, digits: Any = None) -> Any:
        from redfuser.frontend.scalars import rounded

        return rounded(self, digits)

    def __matmul__(self, other: Any) -> Any:
        return np.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return np.matmul(other, self)

    # ---- protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from redfuser.frontend.ufuncs import call_ufunc

        return call_ufunc(self.recorder, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        from redfuser.frontend.functions import FUNCTIONS

        found = FUNCTIONS.get(function)
        if found is None:
            from redfuser.frontend.host import HOST, run_by_numpy

            if function in HOST:
                return run_by_numpy(HOST[function], function, args, kwargs)
            name = f"{getattr(function, '__module__', 'numpy')}.{function.__name__}"
            raise TraceError(located(f"{name} cannot be recorded; {missing(function.__name__)}"))
        return found(*args, **kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """NumPy, whose main namespace follows the array API standard."""
        return np

    def __array__(self, *_: Any, **__: Any) -> Any:
        if self.is_size:
            return np.asarray(self.recorder.specialise(self.value, "conversion to an array"))
        raise TraceError(located("a traced array cannot become a real NumPy array, nor be put into one; make arrays "
                                 "with np.zeros_like(x) or np.zeros(x.shape), and keep to NumPy functions that record"))

    # ---- questions that need a concrete answer

    @property
    def is_size(self) -> bool:
        """True for sizes and for what Python computes from them."""
        return self.value.weak and _only_sizes(self.value)

    def __bool__(self) -> bool:
        if self.ndim == 0 and _only_sizes(self.value):
            return self.recorder.decide(self.value)
        refuse_argument(self.value, "a branch")
        raise TraceError(located("a branch depends on array values, which are unknown while tracing; "
                                 f"{branch_on_data()}"))

    def __index__(self) -> int:
        return operator.index(self._number("an int"))

    def __int__(self) -> int:
        return int(self._number("int()"))

    def __float__(self) -> float:
        return float(self._number("float()"))

    def _number(self, need: str) -> Any:
        if self.ndim:
            shape = show_shape(self.value.shape)
            raise TraceError(located(f"{need} needs one number, this is an array of shape {shape}; keep the "
                                     "computation in arrays"))
        return self.recorder.specialise(self.value, need)

    def __format__(self, form: str) -> str:
        if form and not self.is_size:
            raise TraceError(located("a traced array has no values yet to format; format the result of the fused "
                                     "function"))
        return format(self._number("a text format"), form) if form else str(self)

    def item(self, *args: Any) -> Any:
        from redfuser.frontend.scalars import number_of

        return number_of(self, {"f": float, "b": bool}.get(self.dtype.kind, int), ".item()")

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d array")  # as NumPy: callers ask whether this is a sequence
        return operator.index(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __contains__(self, _: Any) -> NoReturn:
        raise TraceError(located("`in` on a traced array is unknown while tracing; use np.any(x == value)"))

    # ---- indexing

    def __getitem__(self, key: Any) -> Tracer:
        from redfuser.frontend.indexing import index

        return index(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        from redfuser.frontend.assign import assign_elements

        assign_elements(self, key, value)

    def view(self, dims: tuple[int | None, ...], fixed: tuple[tuple[int, int], ...] = ()) -> Tracer:
        """Rearranged dimensions (`graph.View`), sharing memory as NumPy's views do."""
        if not isinstance(dims, tuple):  # the user means the method of NumPy's arrays
            raise TraceError(located("the array method .view cannot be recorded; convert with .astype(dtype)"))
        return self.sharing(self.recorder.view(self.value, dims, fixed))

    # ---- methods, all by way of the NumPy function of the same name

    sum, prod, max, min = method("sum"), method("prod"), method("max"), method("min")
    mean, var, std = method("mean"), method("var"), method("std")
    any, all, argmax, argmin = method("any"), method("all"), method("argmax"), method("argmin")
    clip, round, ptp, trace, diagonal = (
        method("clip"), method("round"), method("ptp"), method("trace"), method("diagonal"))
    swapaxes, squeeze, take = method("swapaxes"), method("squeeze"), method("take")

    def dot(self, other: Any) -> Any:
        return np.dot(self, other)

    def transpose(self, *axes: Any) -> Any:
        order: Any = axes[0] if len(axes) == 1 and (axes[0] is None or np.iterable(axes[0])) else axes or None
        return np.transpose(self, order)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        target = shape[0] if len(shape) == 1 else shape
        return np.reshape(self, target, **kwargs)

    def ravel(self, order: str = "C") -> Any:
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Any:
        return self.reshape(-1, order=order).copy()

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
               copy: bool = True) -> Tracer:
        """Conversion to another dtype. Memory layout makes no difference here."""
        if self.dtype == dtype and not copy and not self.value.weak:
            return self
        result = self.wrap(self.recorder.cast(self.value, np.dtype(dtype)))
        result.memory.borrowed = False
        return result

    def copy(self, *_: Any, **__: Any) -> Tracer:
        return self.astype(self.dtype)

    def conj(self) -> Tracer:
        return self

    conjugate, real = conj, property(conj)

    @property
    def imag(self) -> Any:
        return np.zeros_like(self)

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self[...] = np.sort(self, axis, kind)

    def fill(self, value: Any) -> None:
        self[...] = value

    __copy__ = __deepcopy__ = copy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols probe for these; their absence is an answer
            raise AttributeError(name)
        from redfuser.frontend.host import METHODS

        if name in METHODS:
            return functools.partial(getattr(np, name), self)
        if hasattr(np.ndarray, name):
            raise TraceError(located(f"the array attribute .{name} cannot be recorded; {missing(name)}"))
        raise TraceError(located(f"the array attribute .{name} does not exist in NumPy; {LISTED}"))

    def __repr__(self) -> str:
        return f"Tracer({self.value.op}, shape={show_shape(self.value.shape)}, dtype={self.dtype})"


def _only_sizes(value: Value) -> bool:
    """True when a value is computed from sizes and numbers alone."""
    if value.op in ("size", "const"):
        return True
    return value.op in ("ufunc", "cast") and all(_only_sizes(v) for v in value.inputs)


def lift(recorder: Recorder, operand: Any) -> Value:
    """The value of an operand of a recorded operation.

    Raises
    ------
    TraceError
        for an operand that is neither an array nor a number.
    """
    if isinstance(operand, Tracer):
        if operand.recorder is not recorder:
            raise TraceError(located("an array of another trace was used; do not keep traced arrays between calls"))
        return operand.value
    if isinstance(operand, np.generic) or (isinstance(operand, np.ndarray) and operand.ndim == 0):
        if not is_number(operand.dtype):
            raise TraceError(located(f"a {operand.dtype} number cannot be recorded; use a real number"))
        return recorder.const(operand.item(), operand.dtype)
    if isinstance(operand, (bool, int, float)):
        return recorder.const(operand)
    if isinstance(operand, np.ndarray):
        return recorder.capture(operand)
    if isinstance(operand, (list, tuple)):
        return recorder.capture(np.asarray(operand))
    if isinstance(operand, Joined):
        return operand.array().value  # type: ignore[no-any-return]
    kind = type(operand).__name__
    home = type(operand).__module__.partition(".")[0]
    remedy = f"if it is an array of {home}, pass it as an argument" if kind in _ARRAYS else "use arrays and numbers"
    raise TraceError(located(f"a {kind} cannot be part of an array computation; {remedy}"))


_ARRAYS = ("ndarray", "Tensor", "Array", "ArrayImpl")
"""Names of the array classes of other libraries."""


def recorder_of(*operands: Any) -> Recorder | None:
    """The recorder of the first tracer among (possibly nested) operands."""
    for operand in operands:
        if isinstance(operand, Tracer):
            return operand.recorder
        if isinstance(operand, (tuple, list)):
            found = recorder_of(*operand)
            if found is not None:
                return found
    return None

