"""What callers pass: functions to compile, arrays, numbers and static values, each checked with its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import Any, Protocol

import numpy as np

from redfuser.api.places import CUPY, OnHost, Place, agreed, checked_cupy, is_cupy, place_of
from redfuser.api.program import Array
from redfuser.api.standard import converter, is_standard, library_of, standard_array
from redfuser.api.tensors import as_tensor, is_tensor, tensor_array
from redfuser.errors import ArgumentError, DTypeError, RedfuserError, ShapeError, TraceError
from redfuser.frontend import Spec
from redfuser.frontend.nested import Kind, LeafName, Nested, is_structure, leaf_names, take_apart
from redfuser.frontend.spec import supported_dtype


def checked_function(fn: Any) -> Any:
    """The function itself, if it can be traced.

    Raises
    ------
    ArgumentError
        for a class, a function of NumPy or one written in C, and anything that cannot be called.
    """
    if isinstance(fn, type):
        remedy = "fuse a function, or a bound method: rf.fuse(obj.method)"
        raise ArgumentError(f"rf.fuse: {fn.__name__} is a class; {remedy}")
    if not callable(fn):
        raise ArgumentError(f"rf.fuse: {fn!r} cannot be called; give a function of arrays")
    name = getattr(fn, "__name__", type(fn).__name__)
    module = "numpy" if isinstance(fn, np.ufunc) else getattr(fn, "__module__", None) or ""
    if module.partition(".")[0] == "numpy":
        full = f"np{module.removeprefix('numpy')}.{name}"
        call = f"{full}(x)" if isinstance(fn, np.ufunc) else f"{full}(x, axis=1)"
        remedy = f"wrap it in a function of your own: lambda x: {call}"
        raise ArgumentError(f"rf.fuse: {full} is a function of NumPy; {remedy}")
    if isinstance(fn, BuiltinFunctionType):
        raise ArgumentError(f"rf.fuse: {name} is not written in Python; wrap it in a function of your own, such as "
                            f"lambda x: {name}(x)")
    return fn


def bind(signature: inspect.Signature, title: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults included.

    Raises
    ------
    ArgumentError
        for arguments that do not fit the parameters; the message lists these.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        names = list(signature.parameters)
        unknown = [n for n in kwargs if n not in names]
        problem = f"has no parameter {unknown[0]!r}" if unknown else f"cannot be called like this: {error}"
        raise ArgumentError(f"{title}() {problem}; it has {', '.join(names) or 'no parameters'}") from None
    bound.apply_defaults()
    return bound.arguments


@dataclass
class Structures:
    """The nested arguments of a call, and what makes its results arrays of the library that its arguments belong to.

    kinds    parameter -> what its argument is made of
    names    parameter -> the names of its leaves
    library  the name of the library of the arguments that are no arrays of NumPy, "" without such
    wrap     a NumPy result -> an array of that library, None without such
    places   argument or leaf -> where it is, for arrays of CuPy and tensors of PyTorch
    place    the GPU that all of them are on; None is the CPU
    """

    kinds: dict[str, Kind] = field(default_factory=dict)
    names: dict[str, tuple[LeafName, ...]] = field(default_factory=dict)
    library: str = ""
    wrap: Callable[[Any], Any] | None = None
    places: dict[str, Place | OnHost] = field(default_factory=dict)
    place: Place | None = None

    def take(self, value: Any, where: str, name: str) -> Any:
        """An argument, with the NumPy array (on a GPU: the CuPy array) in the place of an array of another library.

        Raises
        ------
        ArgumentError
            naming `where`, when arguments belong to two libraries, or the memory of one cannot be read.
        """
        if is_tensor(value):
            library, array, self.wrap = "torch", tensor_array(value, where), as_tensor
        elif is_cupy(value):
            library, array = CUPY, checked_cupy(value, where)
        elif is_standard(value):
            library, array, self.wrap = library_of(value), standard_array(value, where), converter(value)
        else:
            return value
        if self.library not in ("", library):
            raise ArgumentError(f"{where} is an array of {library}, another argument one of {self.library}; pass "
                                "arrays of one library, or of NumPy")
        self.library = library
        place = place_of(value, name)
        if place is not None:
            self.places[name] = place
        return array

    def key(self) -> tuple[Any, ...]:
        """What tells these structures from others."""
        return tuple(self.kinds.items())

    def around(self, specs: Mapping[str, Any], static: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments for `trace`: the leaves back in their places."""
        return {n: s for n, s in specs.items() if not isinstance(n, LeafName)} | {
            parameter: Nested(kind, {n: specs[n] if n in specs else static[n] for n in self.names[parameter]})
            for parameter, kind in self.kinds.items()
        }


PLAIN = frozenset((np.ndarray, bool, int, float, str, type(None)))
"""Classes of arguments that are neither taken apart nor converted."""


class Unpacker:
    """Takes nested arguments of one function apart; the names of the leaves of each kind are made once.

    `variadic`: parameters that stand for several arguments (`*args`, `**options`), which are always taken apart.
    """

    def __init__(self, title: str, parameters: Collection[str], variadic: Collection[str] = ()) -> None:
        self._title = title
        self._parameters = frozenset(parameters)
        self._variadic = frozenset(variadic)
        self._names: dict[tuple[str, Kind, frozenset[str]], tuple[LeafName, ...]] = {}

    def unpack(self, arguments: Mapping[str, Any], static: Collection[str]) -> tuple[dict[str, Any], Structures]:
        """Arguments by name, leaves of nested ones included, with NumPy arrays in the place of those of other
        libraries.

        Raises
        ------
        ArgumentError, DTypeError
            naming the argument or leaf, for an array that NumPy cannot read, and for nesting without an end.
        """
        found: dict[str, Any] = {}
        structures = Structures()
        for parameter, value in arguments.items():
            whole = parameter not in self._variadic and not is_structure(value)
            if type(value) in PLAIN or parameter in static or whole:
                found[parameter] = value
                continue
            leaves: list[Any] = []
            kind = take_apart(value, leaves, f"argument {parameter!r} of {self._title}")
            structures.kinds[parameter] = kind
            names = structures.names[parameter] = self._leaf_names(parameter, kind, found)
            found.update(zip(names, leaves, strict=True))
        for name, value in found.items():
            if type(value) not in PLAIN:
                found[name] = structures.take(value, f"argument {name!r} of {self._title}", name)
        structures.place = agreed(found, structures.places, self._title)
        return found, structures

    def _leaf_names(self, parameter: str, kind: Kind, found: Collection[str]) -> tuple[LeafName, ...]:
        taken = self._parameters.union(found)
        key = (parameter, kind, taken)
        if key not in self._names:
            self._names[key] = leaf_names(parameter, kind, taken)
        return self._names[key]


def blame_structure(error: Exception, title: str, kinds: Mapping[str, Kind]) -> TraceError | None:
    """The error that names an argument which is a list or tuple of arrays, where the function expected one array."""
    if isinstance(error, RedfuserError):
        return None
    named = [n for n, (cls, *_) in kinds.items() if cls in (list, tuple) and repr(cls.__name__) in str(error)]
    if not named:
        return None
    shown = " and ".join(f"argument {n!r} of {title} is a {kinds[n][0].__name__} of arrays" for n in named)
    return TraceError(f"{shown}, and arrives as one; pass one array, such as numpy.stack({named[0]})\n"
                      f"  {type(error).__name__}: {error}")


def blame_static(error: Exception, title: str, static: Mapping[str, Any]) -> RedfuserError | None:
    """The error that names an argument which is None or a string, where the function expected an array.

    None for an exception that has another cause.
    """
    own = isinstance(error, TraceError) and not error.collected
    if isinstance(error, RedfuserError) and not own:
        return None
    suspects = {n: v for n, v in static.items() if v is None or isinstance(v, str)}
    named = [n for n, v in suspects.items() if (f" is {v!r};" if own else repr(type(v).__name__)) in str(error)]
    if not named:
        return None
    shown = " and ".join(f"argument {n!r} of {title} is {static[n]!r}" for n in named)
    what = str(error) if own else f"{type(error).__name__}: {error}"
    return TraceError(f"{shown}; pass an array or a number where the function computes with it\n  {what}")


def as_array(value: Any, where: str) -> Array:
    """The array of an argument.

    Raises
    ------
    DTypeError
        naming `where`, for anything that is neither an array, a nested list of numbers, nor a number, and for arrays
        whose operators mean something else than those of plain arrays.
    ShapeError
        naming `where`, for a list whose entries have different lengths.
    """
    if is_cupy(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (bool, int, float)):
        try:
            return np.asarray(
                value, bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float64
            )
        except OverflowError:
            raise DTypeError(f"{where}: {value} does not fit into 64 bits; pass a float") from None
    if isinstance(value, (list, tuple)):
        value = _from_list(value, where)
    if isinstance(value, (np.ma.MaskedArray, np.matrix)):
        kind = type(value).__name__
        raise DTypeError(
            f"{where}: a {kind} does not compute like a plain array; pass numpy.asarray(...) and a mask "
            "as an argument of its own"
        )
    if not isinstance(value, (np.ndarray, np.generic)):
        raise DTypeError(f"{where}: a {type(value).__name__} is neither an array nor a number; pass numpy.asarray(...)")
    return np.asarray(value)


class Results(Protocol):
    """What a program returns."""

    @property
    def output_names(self) -> Sequence[str]: ...

    @property
    def joins(self) -> Sequence[Any]: ...


def flat_outs(out: Any, program: Results, title: str) -> list[Any]:
    """The arrays of `out=`, one for each result.

    Raises
    ------
    ArgumentError
        for results that no kernel writes, and for what is no array and no sequence of arrays.
    ShapeError
        for another number of arrays than the function returns.
    """
    if program.joins:
        raise ArgumentError(f"out= cannot receive {program.joins[0]}, which is made after the kernels; call "
                            f"{title} without out=, or let it return a tuple")
    alone = isinstance(out, np.ndarray) or is_tensor(out) or is_cupy(out)
    if not alone and (isinstance(out, str) or not isinstance(out, Sequence)):
        raise ArgumentError(f"out= is a {type(out).__name__}; give an array, or a list or tuple of arrays, one for "
                            f"each result of {title}")
    given = [out] if alone else list(out)
    given = [tensor_array(a, f"out[{i}]") if is_tensor(a) else checked_cupy(a, f"out[{i}]") if is_cupy(a) else a
             for i, a in enumerate(given)]
    if len(given) != len(program.output_names):
        raise ShapeError(f"out= holds {len(given)} arrays, {title} returns {len(program.output_names)}")
    return given


def is_program(value: Any) -> bool:
    """True for what is always part of the program: None, strings, functions, classes and dtypes."""
    return value is None or isinstance(value, (str, np.dtype)) or callable(value)


def is_weak(value: Any) -> bool:
    """True for a Python scalar: it does not decide the dtype of a result (NumPy's promotion rules)."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def spec_of(array: Array, weak: bool, where: str) -> Spec:
    """The spec of an argument.

    Raises
    ------
    DTypeError
        naming `where`, for a dtype no kernel can be generated for.
    """
    return Spec(array.shape, supported_dtype(array.dtype, where).name, weak)


def static_key(value: Any, where: str) -> Any:
    """What tells a static value from others: 1, 1.0 and True are equal for Python but not for a program, nor 0.0, -0.0.

    Raises
    ------
    ArgumentError
        naming `where`, for a value that cannot be hashed.
    """
    if isinstance(value, tuple):
        return tuple(static_key(v, where) for v in value)
    if isinstance(value, float):
        return type(value), value.hex()
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"{where} is static, but a {type(value).__name__} may change; pass a tuple, a number or a string"
        ) from None
    return type(value), value


def _from_list(value: Sequence[Any], where: str) -> Array:
    """The array of a nested list."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ShapeError(f"{where}: a list whose entries have different shapes is no array; pass each as an argument "
                         "of its own, or pad them to one shape") from None
