"""Trace a NumPy function: run it once on tracers and freeze what was recorded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from redfuser.errors import RedfuserError, TraceError, collect_refusals
from redfuser.frontend.apart import apart
from redfuser.frontend.dims import Dim
from redfuser.frontend.graph import Trace, TraceNode, TraceSize, check_trace
from redfuser.frontend.guards import SizeGuard
from redfuser.frontend.nested import Nested
from redfuser.frontend.rebind import Rebinder, callable_name, unwrap
from redfuser.frontend.record import Recorder, Value
from redfuser.frontend.spec import Spec
from redfuser.frontend.structure import flatten
from redfuser.frontend.tracer import Tracer, lift
from redfuser.ir.dtypes import is_number


def trace(fn: Callable[..., Any], specs: Sequence[Any] | Mapping[str, Any], *, name: str | None = None) -> Trace:
    """Record `fn` called with arguments of the given specs.

    Parameters
    ----------
    fn
        a function of arrays and numbers, in plain NumPy. It runs once, with the recording stand-ins for `numpy` and
        `math`, and so do the user's functions that it calls.
    specs
        positional arguments (a sequence), or arguments by name (a mapping; a variadic `*args` takes a sequence).
        A `Spec` stands for an array or a run-time number; any other value belongs to the trace (flags, axes,
        functions). A `Nested` stands for a structure of them.
    name
        what to call the trace; the function's name by default.

    Raises
    ------
    TraceError, ShapeError, DTypeError
        with the line of the user's code that cannot be recorded.
    """
    fn = unwrap(fn)
    recorder = Recorder()
    title = callable_name(fn) if name is None else name
    call = _bind(fn, specs, title)
    rebinder = Rebinder(recorder, fn)
    arguments: dict[str, Value] = {}

    def stand_in(argument: str, spec: Any) -> Any:
        if isinstance(spec, Nested):
            return spec.build(stand_in)
        if not isinstance(spec, Spec):
            return rebinder.value(spec)
        arguments[argument] = recorder.argument(argument, spec)
        return Tracer(recorder, arguments[argument])

    for parameter, value in list(call.arguments.items()):
        kind = call.signature.parameters[parameter].kind
        if isinstance(value, Nested):
            call.arguments[parameter] = stand_in(parameter, value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            call.arguments[parameter] = tuple(stand_in(f"{parameter}{i}", x) for i, x in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            call.arguments[parameter] = {key: stand_in(key, x) for key, x in value.items()}
        else:
            call.arguments[parameter] = stand_in(parameter, value)
    target = rebinder.value(fn)
    if target is fn and not inspect.isroutine(fn):  # a callable object: its method carries the globals
        target = rebinder.value(fn.__call__)
    result: Any = None
    with collect_refusals() as refusals:
        try:
            result = target(*call.args, **call.kwargs)
        except Exception as error:
            if refusals and not isinstance(error, RedfuserError):  # NumPy says something of its own about it
                raise refusals[0] from error
            raise
    if refusals:  # the function caught it and went on: NumPy would have gone another way
        raise refusals[0]
    frozen = apart(_freeze(recorder, arguments, result, title))
    check_trace(frozen)
    return frozen


def _bind(fn: Callable[..., Any], specs: Sequence[Any] | Mapping[str, Any], title: str) -> inspect.BoundArguments:
    """The arguments of the call, with the function's own defaults left to Python. A mapping has those of a variadic
    parameter under its name."""
    # a partial that poses as its function (functools.wraps) has fewer parameters than that
    signature = inspect.signature(fn, follow_wrapped=not isinstance(fn, functools.partial))
    try:
        if not isinstance(specs, Mapping):
            return signature.bind(*specs)
        kinds = {n: signature.parameters[n].kind for n in specs if n in signature.parameters}
        first = [n for n, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_ONLY]
        several = {n: specs[n] for n, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL or (
            kind is inspect.Parameter.VAR_KEYWORD and isinstance(specs[n], Nested))}
        named = {n: x for n, x in specs.items() if n not in first and n not in several}
        bound = signature.bind(*(specs[n] for n in signature.parameters if n in first), **named)
        bound.arguments.update(several)
        return bound
    except TypeError as error:
        raise TraceError(f"{title}{signature} cannot be called with these arguments: {error}") from None


def _freeze(recorder: Recorder, arguments: Mapping[str, Value], result: Any, title: str) -> Trace:
    """The trace of what the result and the guards need; all arguments stay, used or not."""

    def is_array(x: Any) -> bool:
        return isinstance(x, (Tracer, np.ndarray, np.generic, bool, int, float)) and not _is_text_like(x)

    leaves, structure = flatten(result, is_array)
    outputs = [lift(recorder, leaf) for leaf in leaves]
    if not outputs:
        raise TraceError(f"{title} returns {result!r}, which holds no array; return the arrays to compute")
    needed = _reachable([*outputs, *arguments.values(), *(v for v, _ in recorder.branches), *recorder.assumptions,
                         *(v for pair in recorder.checks for v in pair)], _made_sizes(recorder))
    kept = [v for v in recorder.values if id(v) in needed]
    position = {id(v): i for i, v in enumerate(kept)}
    labels = _label_sizes(kept)
    nodes = tuple(_node(v, position, labels) for v in kept)
    captured = {v.param: recorder.captured[v.param] for v in kept if v.op == "input" and v.param in recorder.captured}
    guards = [SizeGuard(position[id(v)], truth, v.source) for v, truth in recorder.branches]
    sizes = tuple(TraceSize(label, dim.name is not None, dim.value, dim.fixed,
                            tuple(labels[p] for p in dim.atoms()) if dim.parts else ())
                  for dim, label in labels.items())
    return Trace(title, nodes, {n: position[id(v)] for n, v in arguments.items()}, captured,
                 tuple(position[id(v)] for v in outputs), structure, sizes, (*guards, *recorder.scope_guards.values()),
                 tuple(dict.fromkeys(position[id(v)] for v in recorder.assumptions)),
                 checks=tuple(dict.fromkeys((position[id(v)], position[id(n)]) for v, n in recorder.checks)))


def _is_text_like(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic)) and not is_number(x.dtype)


def _made_sizes(recorder: Recorder) -> dict[Dim, Value]:
    """Sizes that no input has -> the first result of a call that tells them."""
    known = {d.find() for v in recorder.values if v.op == "input" for d in _dims(v)}
    found: dict[Dim, Value] = {}
    for d, v in recorder.made:
        if d.find() not in known:
            found.setdefault(d.find(), v)
    return found


def _dims(v: Value) -> list[Dim]:
    """The sizes that a value mentions."""
    return [d for d in ((*v.shape, v.param) if v.op == "size" else v.shape) if isinstance(d, Dim)]


def _reachable(roots: Iterable[Value], made: Mapping[Dim, Value]) -> set[int]:
    """ids of the values that `roots` are computed from, and of those that tell the sizes that they mention (`made`)."""
    found: set[int] = set()
    todo = list(roots)
    while todo:
        v = todo.pop()
        if id(v) not in found:
            found.add(id(v))
            todo += v.inputs
            todo += [made[d.find()] for d in _dims(v) if d.find() in made]
    return found


def _label_sizes(values: Iterable[Value]) -> dict[Dim, str]:
    """A label for each size: the user's name, or s0, s1, ... in order of appearance."""
    dims: dict[Dim, None] = {}
    for v in values:
        for d in _dims(v):
            dims.update(dict.fromkeys((d.find(), *d.atoms())))
    taken = {d.name for d in dims}
    fresh = (f"s{i}" for i in range(len(dims) + len(taken)) if f"s{i}" not in taken)
    return {d: d.name or next(fresh) for d in dims}


def _node(v: Value, position: Mapping[int, int], labels: Mapping[Dim, str]) -> TraceNode:
    shape = tuple(labels[d.find()] if isinstance(d, Dim) else 1 for d in v.shape)
    param = labels[v.param.find()] if v.op == "size" else v.param
    return TraceNode(v.op, tuple(position[id(x)] for x in v.inputs), shape, v.dtype.name, param, v.weak, v.source)
