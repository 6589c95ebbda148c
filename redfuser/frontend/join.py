"""np.stack, np.concatenate and their kin: NumPy does them, on the results where nothing else reads the joined array."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.source import SourceLine, located, user_line

JOINING: tuple[Callable[..., Any], ...] = (np.stack, np.concatenate, np.hstack, np.vstack, np.dstack, np.column_stack)
"""NumPy's functions that join a sequence of arrays."""


@dataclass(frozen=True)
class Join:
    """A place in a nested result: `np.<function>(parts, **keywords)` of results. `parts` are such places or `Leaf`s."""

    function: str
    parts: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    source: SourceLine | None = None

    def __str__(self) -> str:
        keywords = "".join(f", {n}={v}" for n, v in self.keywords.items())
        return f"np.{self.function}([{len(self.parts)} results]{keywords})"

    def apply(self, arrays: Sequence[Any]) -> Any:
        """The joined array.

        Raises
        ------
        ShapeError
            when the shapes of the arrays do not fit, as in NumPy.
        """
        try:
            return getattr(np, self.function)(arrays, **self.keywords)
        except ValueError as error:
            shapes = " and ".join(str(np.shape(a)) for a in arrays)
            at = f"\n  at {self.source}" if self.source is not None else ""
            raise ShapeError(f"np.{self.function} of shapes {shapes}: {error}{at}") from None


def _of_array(name: str) -> Callable[..., Any]:
    def method(self: Joined, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.array(), name)(*args, **kwargs)

    method.__name__ = name
    return method


class Joined:
    """What np.stack and the like give inside a traced function. Where it is only returned, or joined further, NumPy
    joins the results after the kernels; any other use makes NumPy join its parts between kernels."""

    __array_priority__ = 2000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: str, parts: tuple[Any, ...], keywords: Mapping[str, Any], example: Any) -> None:
        self.function = function
        self.parts = parts
        self.keywords = dict(keywords)
        self.source = user_line()
        self.example: np.ndarray[Any, Any] = example  # of the rank and dtype, every size 1
        self.known: Any = None

    def array(self) -> Any:
        """The recorded array: NumPy makes it."""
        if self.known is None:
            from redfuser.frontend.host import run_by_numpy

            parts = tuple(x.array() if isinstance(x, Joined) else x for x in self.parts)
            self.known = run_by_numpy(f"np.{self.function}", getattr(np, self.function), (parts,), self.keywords)
        return self.known

    def copied(self) -> Any:
        """What this is now: a later change in place does not reach it."""
        from redfuser.frontend.tracer import Tracer

        if self.known is not None:
            return Tracer(self.known.recorder, self.known.value)
        return Joined(self.function, self.parts, self.keywords, self.example)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*_arrays(inputs), **_arrays(kwargs))

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if function in JOINING:
            return join_as(function)(*args, **kwargs)
        return function(*_arrays(args), **_arrays(kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols probe for these; their absence is an answer
            raise AttributeError(name)
        return getattr(self.array(), name)

    def __repr__(self) -> str:
        return f"Joined({self.function}, {len(self.parts)} arrays)"


def _arrays(x: Any) -> Any:
    """Arguments with the arrays of joined ones in their places."""
    if isinstance(x, Joined):
        return x.array()
    if isinstance(x, (tuple, list)):
        return type(x)(map(_arrays, x))
    return {k: _arrays(v) for k, v in x.items()} if isinstance(x, dict) else x


for _name in (
    *(f"__{side}{op}__" for side in ("", "r", "i") for op in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow",
                                                             "and", "or", "xor", "matmul")),
    *(f"__{op}__" for op in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert", "array", "bool",
                             "index", "int", "float", "len", "iter", "contains", "getitem", "setitem")),
):
    setattr(Joined, _name, _of_array(_name))


def join_as(function: Callable[..., Any]) -> Callable[..., Any]:
    """The recording version of a function among `JOINING`."""
    name = function.__name__

    def join(arrays: Any, *args: Any, **keywords: Any) -> Any:
        from redfuser.frontend.tracer import Tracer, lift, recorder_of

        if args:  # np.stack and np.concatenate take the axis by position
            keywords["axis"], *args = args  # type: ignore[assignment]
        if args or keywords.pop("out", None) is not None:
            raise TraceError(located(f"numpy.{name} with out= cannot be recorded; return its result instead"))
        if isinstance(arrays, (Tracer, Joined)):
            from redfuser.frontend.host import run_by_numpy

            return run_by_numpy(f"np.{name}", function, (_arrays(arrays),), keywords)
        if keywords.get("axis") is not None:
            keywords["axis"] = operator.index(keywords["axis"])
        given = list(arrays)
        recorder = recorder_of(*(t for x in given for t in tracers_in(x)))
        assert recorder is not None
        # what in-place arithmetic does to an array later must not reach the joined one
        parts = tuple(x.copied() if isinstance(x, Joined) else Tracer(recorder, lift(recorder, x)) for x in given)
        examples = [x.example if isinstance(x, Joined) else np.empty((1,) * x.ndim, x.dtype) for x in parts]
        try:
            example = function(examples, **keywords)
        except ValueError as error:
            raise ShapeError(located(f"numpy.{name}: {error}")) from None
        return Joined(name, parts, keywords, example)

    return join


def tracers_in(value: Any) -> list[Any]:
    """The tracers that a joined array is made of; any other value is its own."""
    return [t for part in value.parts for t in tracers_in(part)] if isinstance(value, Joined) else [value]
