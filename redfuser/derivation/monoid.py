"""Reduction operators of users: defined by how two values combine, their laws sampled before first use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from redfuser.derivation.laws import Draw, as_tuple, broken_law, numbers
from redfuser.errors import ArgumentError, ShapeError, TraceError
from redfuser.frontend.record import promote
from redfuser.frontend.reductions import axis_tuple
from redfuser.frontend.tracer import Tracer, lift, recorder_of
from redfuser.ir import PartsMonoid, Var, walk, wrap
from redfuser.ir.monoids import KEY, VALUE, left, register, right


@dataclass(frozen=True)
class UserMonoid:
    """A reduction operator made by `rf.monoid`: call it like a reduction of NumPy, in fused functions and outside.

    definition  what compiler levels read
    draw        values it is meant for, to sample its laws with (None: any numbers)
    """

    definition: PartsMonoid
    draw: Draw | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without `draw`: functions of users can seldom be pickled."""
        return {"definition": self.definition, "draw": None}

    @property
    def name(self) -> str:
        """The name it was given."""
        return self.definition.label

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of its values."""
        return self.definition.parts

    def __call__(self, *elements: Any, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False) -> Any:
        """The reduction along an axis; several parts are given as several arrays, and a tuple of arrays comes back.

        Along several axes, or all with None, elements are taken in the order in which they lie in a C-contiguous array.

        Raises
        ------
        ShapeError
            for another number of arrays than there are parts, or an axis that does not exist.
        ArgumentError
            when the axis is no integer and no tuple of integers.
        """
        if len(elements) != len(self.parts):
            raise ShapeError(f"{self.name} takes {len(self.parts)} arrays ({', '.join(self.parts)}), not "
                             f"{len(elements)}")
        recorder = recorder_of(*elements)
        if recorder is None:
            found = self._reduced(elements, axis, keepdims)
        else:
            values = [lift(recorder, x) for x in elements]
            shape, dtype = recorder.common_shape(self.name, values), promote(*values)
            values = [recorder.broadcast(recorder.cast(v, dtype), shape) for v in values]
            for place in sorted(axis_tuple(Tracer(recorder, values[0]), axis), reverse=True):
                values = [recorder.parts(self.definition, values, place, p, keepdims) for p in self.parts]
            found = [Tracer(recorder, v) for v in values]
        return found[0] if len(found) == 1 else tuple(found)

    def _reduced(self, elements: Sequence[Any], axis: Any, keepdims: bool) -> list[Any]:
        dtype = np.result_type(*(x if isinstance(x, (bool, int, float)) else np.asarray(x) for x in elements))
        arrays: list[Any] = list(np.broadcast_arrays(*(np.asarray(x, dtype) for x in elements)))
        try:
            places = normalize_axis_tuple(range(arrays[0].ndim) if axis is None else axis, arrays[0].ndim, "axis")
        except ValueError as error:
            raise ShapeError(f"axis={axis!r} does not fit shape {arrays[0].shape}: {error}") from None
        except TypeError:
            raise ArgumentError(f"argument 'axis' of {self.name} is {axis!r}; give an int, a tuple of them, or "
                                "None") from None
        for place in sorted(places, reverse=True):
            value = self.definition.reduce(*arrays, axis=place)
            arrays = [value[p] if keepdims else value[p].squeeze(place) for p in self.parts]
        return arrays

    def __repr__(self) -> str:
        return f"<monoid {self.name}({', '.join(self.parts)})>"


def monoid(name: str, *, identity: Any, combine: Callable[[Any, Any], Any], parts: Sequence[str] = (VALUE,),
           commutative: bool = False, draw: Draw | None = None) -> UserMonoid:
    """Define a reduction operator.

    Parameters
    ----------
    name
        an identifier.
    identity
        the value that changes nothing: a number, or a tuple with one number per part.
    combine
        function of two values, the earlier one first; it is called once, with expressions (tuples of them when there
        are several parts), and uses arithmetic, NumPy ufuncs, and np.where in the place of `if`.
    parts
        names of the numbers a value consists of.
    commutative
        the order of elements does not matter: values may be combined in any order, which is faster.
    draw
        a function of a `random.Random` that returns a random value (a tuple when there are several parts), for
        operators that are defined for some numbers only.

    Raises
    ------
    LawViolation
        with a counterexample, when `combine` is not associative, `identity` is not neutral, or `commutative` is stated
        and false. Laws are sampled at random numbers in 50-digit and in float64 arithmetic.
    ArgumentError
        when `identity` or what `draw` returns are no numbers, or `draw` returns another number of them than of parts.
    TraceError
        when `combine` does anything that cannot be recorded, `identity` has another number of numbers than there are
        parts, or `name` and `parts` are no identifiers.
    """
    definition = define(name, identity, combine, parts, commutative)
    broken, _ = broken_law(definition, draw)
    if broken is not None:
        raise broken
    register(definition)
    return UserMonoid(definition, draw)


def define(name: str, identity: Any, combine: Callable[[Any, Any], Any], parts: Sequence[str],
           commutative: bool) -> PartsMonoid:
    """The operator, its laws not yet sampled. Errors but `LawViolation` are those of `monoid`."""
    names = tuple(parts)
    if not all(x.isidentifier() for x in (name, *names)) or len(set(names)) != len(names):
        raise TraceError(f"argument 'name' or 'parts' of monoid {name!r} is no identifier, or a part is named twice")
    neutral = numbers(name, "identity", identity)
    if len(neutral) != len(names):
        raise TraceError(f"argument 'identity' of monoid {name!r} has {len(neutral)} numbers for {len(names)} parts")
    given: list[Any] = [tuple(Var(side(p)) for p in names) for side in (left, right)]
    result = combine(*(x if len(names) > 1 else x[0] for x in given))
    combined = tuple(wrap(x) for x in as_tuple(result))
    if len(combined) != len(names):
        raise TraceError(f"argument 'combine' of monoid {name!r} gives {len(combined)} values for {len(names)} parts")
    loose = {x for e in combined for x in walk(e) if isinstance(x, Var)} - {v for side in given for v in side}
    if loose:
        raise TraceError(f"argument 'combine' of monoid {name!r} reads {', '.join(map(str, loose))} from outside")
    text = f"{names} {neutral} {[repr(e) for e in combined]} {commutative}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return PartsMonoid(f"{name}#{digest}", names, (KEY,) * len(names), neutral, combined,
                       ordered=not commutative)
