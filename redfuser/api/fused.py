"""Fused functions: the path of a call, and the staged view of what was compiled for it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redfuser import pipeline
from redfuser.api.arguments import (
    PLAIN,
    Structures,
    Unpacker,
    as_array,
    bind,
    blame_static,
    blame_structure,
    flat_outs,
    is_program,
    is_weak,
    spec_of,
    static_key,
)
from redfuser.api.built import Stats
from redfuser.api.fitting import Fitting
from redfuser.api.known import KnownCalls
from redfuser.api.lowered import Lowered, stand_in
from redfuser.api.places import Place, arrays_at, refuse_host, refuse_lists, settled
from redfuser.api.program import Array, Program
from redfuser.api.report import Report, build_report
from redfuser.api.staged import Staged, compiled
from redfuser.errors import ArgumentError, DTypeError, TraceError
from redfuser.frontend import Spec
from redfuser.frontend.nested import LeafName
from redfuser.frontend.record import StaticNeeded
from redfuser.frontend.stages import StaleTrace
from redfuser.frontend.verify import checks_wanted, refuse_labels, verify_assumptions
from redfuser.pipeline import Options
from redfuser.runtime.locks import Locked

Key = tuple[Any, ...]
_ARRAYS_ALONE = {np.ndarray}


class Fused(Locked):
    """A function compiled on first call for each kind of arguments. Made by `rf.fuse`; see there."""

    def __init__(self, fn: Callable[..., Any], options: Options, static_argnames: Sequence[str]) -> None:
        functools.update_wrapper(self, fn)
        super().__init__()
        self.fn = fn
        self._title = getattr(fn, "__name__", type(fn).__name__)
        self.options = options
        self.stats = Stats()
        self._signature = inspect.signature(fn)
        self.static_argnames = tuple(static_argnames)
        self._static = frozenset(static_argnames)
        self._names = tuple(self._signature.parameters)
        parameters = self._signature.parameters.values()
        variadic = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._plain = not variadic and all(p.kind is not p.KEYWORD_ONLY for p in parameters)
        self._unpacker = Unpacker(self._title, self._names, variadic)
        self._programs: dict[Key, list[Program | Staged]] = {}
        self._fitting = Fitting()
        self._known = KnownCalls()
        if "out" in self._signature.parameters:
            raise ArgumentError(
                f"rf.fuse: parameter 'out' of {self._title} hides out=, which receives results; rename it"
            )
        unknown = self._static - set(self._signature.parameters)
        if unknown:
            raise ArgumentError(f"rf.fuse: static_argnames {sorted(unknown)} are no parameters of {self._title}")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<rf.fuse of {self._title}: {len(self._programs)} kinds of arguments, {self.stats}>"

    def __reduce__(self) -> str:
        """Pickled like a function: by the name under which its module holds it."""
        return self.fn.__qualname__

    def _where(self, name: str) -> str:
        return f"argument {name!r} of {self._title}"

    def _bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], Structures | None]:
        """Arguments and leaves of nested ones by name: (arrays and numbers, static values), and what they belong to;
        None where no argument is nested or a tensor."""
        if len(args) == len(self._names) and not kwargs and self._plain:
            arguments = dict(zip(self._names, args, strict=True))
        else:
            arguments = bind(self._signature, self._title, args, kwargs)
        kinds = set(map(type, arguments.values()))
        if kinds == _ARRAYS_ALONE and not self._static:
            return arguments, {}, None
        structures = None
        if not kinds <= PLAIN:
            arguments, structures = self._unpacker.unpack(arguments, self._static)
        static = {n: v for n, v in arguments.items() if is_program(v) or self._is_static(n, v)}
        values = {n: v for n, v in arguments.items() if n not in static} if static else arguments
        return values, static, structures

    def _is_static(self, name: str, value: Any) -> bool:
        # in another structure a leaf of the same name may hold an array
        return name in self._static and (not isinstance(name, LeafName) or isinstance(value, (bool, int, float)))

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run the compiled function. `out`: array, or flat sequence of arrays, that receives the results.

        Raises
        ------
        TraceError, ShapeError, DTypeError, ArgumentError
            when the function or its arguments cannot be compiled; the message says why and what to do.
        SettingError
            when an environment variable of redfuser has a value that does not exist.
        NotFusible
            with `require="one-pass"`, when more than one pass is needed.
        CompileError, NoCompiler, CacheError
            when no kernel can be built on this machine.
        CheckError
            with `tune=`, when two schedules of a kernel disagree: a defect of redfuser.
        AssumptionError
            with `REDFUSER_CHECK=1`, when the data break a condition that `rf.assume` states.
        LabelError
            when an integer array chooses an element outside of its axis.
        """
        if self._known and not kwargs and (found := self._known.again(args, out)) is not None:
            return found
        try:
            return self._call(args, kwargs, out)
        except StaticNeeded as need:
            self._make_static(need, args, kwargs)
        return self(*args, out=out, **kwargs)

    def _make_static(self, need: StaticNeeded, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Make the numbers that turned out to decide the program (an axis, a flag) part of it.

        Raises
        ------
        TraceError
            saying what `need` says, when they are no plain numbers or tuples.
        """
        values, _, _ = self._bind(args, kwargs)
        found = {n for n in need.arguments if isinstance(values.get(n), (bool, int, float, tuple))}
        if not found:
            raise TraceError(*need.args) from None
        self._static |= found

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
        values, static, structures = self._bind(args, kwargs)
        arrays: dict[str, Array] = {}
        key: list[Any] = []
        for name, value in values.items():
            array = value if type(value) is np.ndarray else self._as_array(name, value)
            arrays[name] = array
            # what decides which trace serves an argument: dtype, weakness, rank, which dimensions have size 1
            key.append((array.dtype, is_weak(value), tuple([n == 1 for n in array.shape])))
        if static or structures is not None:
            key += self._further_key(static, structures)
        on_device = structures is not None and structures.place is not None
        if self.options.target == "cuda" and not on_device:
            refuse_host(self.options, values, self._title)
            on_device = True
        program = self._program(tuple(key), arrays, values, static, structures)
        if on_device:
            return self._on_device(program, arrays, structures, out)
        if program.trace.checks:
            refuse_labels(program.trace, arrays)
        if program.trace.assumptions and checks_wanted():
            verify_assumptions(program.trace, arrays)
        try:
            results = program.run(arrays, self._outs(program, out))
        except StaleTrace:
            program, results = self._anew(program, tuple(key), arrays, values, static, structures, out)
        positional = len(args) == len(self._names) and not (kwargs or static or structures is not None)
        if positional and isinstance(program, Program):
            self._known.remember(args, out, program, arrays)
        flat = [results[n] for n in program.output_names]
        if out is not None:
            return out
        return program.trace.unflatten(flat, None if structures is None else structures.wrap)

    def _on_device(self, program: Program | Staged, arrays: Mapping[str, Any], structures: Structures | None,
                   out: Any) -> Any:
        """The results of a program for arrays on a GPU. What is checked on the elements themselves is checked only with
        `$REDFUSER_CHECK`, because that waits for the device."""
        trace, home = program.trace, program.home
        refuse_lists(arrays, self._title)
        with home.entered():
            if (trace.checks or trace.assumptions) and checks_wanted():
                seen = {n: home.on_host(a) for n, a in arrays.items()}
                refuse_labels(trace, seen)
                verify_assumptions(trace, seen)
            results = program.run(arrays, self._outs(program, out))
            if out is not None:
                return out
            return trace.unflatten([results[n] for n in program.output_names], home.result)

    def _as_array(self, name: str, value: Any) -> Array:
        try:
            return as_array(value, self._where(name))
        except DTypeError as error:
            if name == self._names[0] == "self":
                remedy = "to fuse a method, fuse the bound one: rf.fuse(obj.method)"
                raise DTypeError(f"{error}; {remedy}, or say rf.fuse(static_argnames='self')") from None
            raise

    def _further_key(self, static: Mapping[str, Any], structures: Structures | None) -> Key:
        """What decides which trace serves a call, besides its arrays."""
        found = [(n, static_key(v, self._where(n))) for n, v in static.items()]
        if structures is None:
            return tuple(found)
        return (*found, *((structures.key(),) if structures.kinds else ()),
                *((structures.place,) if structures.place else ()))

    def _outs(self, program: Program | Staged, out: Any) -> dict[str, Array]:
        return {} if out is None else program.check_outs(flat_outs(out, program, self._title))

    def _program(
        self, key: Key, arrays: Mapping[str, Array], values: Mapping[str, Any], static: Mapping[str, Any],
        structures: Structures | None,
    ) -> Program | Staged:
        """The program for these arguments; traced and derived when there is none yet."""
        known = self._programs.get(key, ())
        if len(known) == 1 and not known[0].guarded:
            return known[0]
        fitting = self._fitting.find(key, arrays)
        if fitting is not None:
            return fitting
        specs = {n: spec_of(a, is_weak(values[n]), self._where(n)) for n, a in arrays.items()}
        checks_wanted()  # a wrong setting is an error also where nothing is to be checked
        with self._lock:
            for program in self._programs.get(key, ()):
                if program.trace.mismatch(specs) is None:
                    self._fitting.keep(key, arrays, program)
                    return program
            program = self._compiled(specs, static, structures)
            self._programs[key] = [*self._programs.get(key, ()), program]
            return program

    def _compiled(self, specs: Mapping[str, Spec], static: Mapping[str, Any], structures: Structures | None
                  ) -> Program | Staged:
        """The program for arguments like these, on the GPU that they are on, or on the CPU."""
        given: Place | None = None if structures is None else structures.place
        options, place = settled(self.options, given, self._title)
        home = arrays_at(place)
        return compiled(self._trace(specs, static, structures), options, self.stats, home)

    def _anew(
        self, stale: Program | Staged, key: Key, arrays: Mapping[str, Array], values: Mapping[str, Any],
        static: Mapping[str, Any], structures: Structures | None, out: Any,
    ) -> tuple[Program | Staged, dict[str, Array]]:
        """Another program than the `stale` one, for which calls of NumPy's give other lengths: one that is known, or
        the function traced anew. Returns it with its results."""
        specs = {n: spec_of(a, is_weak(values[n]), self._where(n)) for n, a in arrays.items()}
        for program in self._programs[key][::-1]:
            if program is not stale and program.trace.mismatch(specs) is None:
                try:
                    return program, program.run(arrays, self._outs(program, out))
                except StaleTrace:
                    continue
        with self._lock:
            program = self._compiled(specs, static, structures)
            self._programs[key] = [*self._programs[key], program]
        return program, program.run(arrays, self._outs(program, out))

    def _trace(self, specs: Mapping[str, Spec], static: Mapping[str, Any], structures: Structures | None) -> Any:
        fixed = {n: v for n, v in static.items() if not isinstance(n, LeafName)}
        given = dict(specs) if structures is None else structures.around(specs, static)
        try:
            return pipeline.trace_step(self.fn, given | fixed, self._title)
        except (AttributeError, TypeError) as error:
            blamed: Exception | None = blame_static(error, self._title, static)
            if blamed is None and structures is not None:
                blamed = blame_structure(error, self._title, structures.kinds)
            if blamed is None:
                raise
            raise blamed from error

    def _lowered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Lowered:
        try:
            return self._lower(args, kwargs)
        except StaticNeeded as need:
            self._make_static(need, args, kwargs)
        return self._lowered(args, kwargs)

    def _lower(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Lowered:
        values, static, structures = self._bind(args, kwargs)
        given = {n: self._as_array(n, v) for n, v in values.items() if not isinstance(v, Spec)}
        if structures is None or structures.place is None:
            refuse_host(self.options, given, self._title)
        specs = {
            n: v if isinstance(v, Spec) else spec_of(given[n], is_weak(v), self._where(n)) for n, v in values.items()
        }
        if any(isinstance(n, str) for s in specs.values() for n in s.shape):
            return Lowered(self._compiled(specs, static, structures), specs, given)
        arrays = {n: given[n] if n in given else stand_in(s.shape, s.dtype) for n, s in specs.items()}
        own = tuple((arrays[n].dtype, s.weak, tuple(e == 1 for e in s.shape)) for n, s in specs.items())
        key = (*own, *self._further_key(static, structures))
        weak = {n: 0 if s.weak else arrays[n] for n, s in specs.items()}
        return Lowered(self._program(key, arrays, weak, static, structures), specs, given)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The levels of the compilation for arrays or specs (`rf.spec`): trace, term, fusion, plan, tiles, source."""
        return self._lowered(args, kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Report:
        """What was derived for arrays or specs (`rf.spec`), and the kernels that compute it (they are compiled).

        With a target of CUDA it tells registers, occupancy, instructions and predicted times of the kernels on a GPU.
        These keywords belong to the function where it has parameters of that name:

        Keywords
        --------
        device
            what to predict times for: "avx2", "avx512", "a10", "a100", "h100", "h200", "b200", ...; None: this machine,
            for CUDA an A100.
        frontier
            True: derive further forms of each cascade, measure them, and show cost, error, state and passes.

        Raises
        ------
        ValueError
            for a device that does not exist; the message lists those that do.
        """
        own = {n: kwargs.pop(n) for n in ("device", "frontier") if n in kwargs and n not in self._signature.parameters}
        return build_report(self._title, self._lowered(args, kwargs), **own)
