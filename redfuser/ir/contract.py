"""What a result must be, and how far it may be off: the numerical contract as an oracle.

The reference is the definition in longdouble. The bound is 4 times the error of a careful two-pass computation in the
working precision, plus c * eps * condition, plus half an ulp where the result is stored in less. The careful
computation is the definition itself, run several times with the result of every sum moved up or down at random by eps/2
times its condition (as another order of summation would). The condition is a first-order rounding analysis of each
stage with earlier results taken as exact (`redfuser.ir.rounding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from redfuser.ir.dtypes import computed_in, finfo, is_float, numpy_dtype
from redfuser.ir.expr import NEG_INF, Expr, Op, Part, Ref, op, select
from redfuser.ir.interpret import Evaluator, expr_of, given, in_order
from redfuser.ir.ops import MONOIDS
from redfuser.ir.rounding import Rounding, finite_only
from redfuser.ir.term import Cascade, Let, Out, Reduction
from redfuser.ir.traverse import names_read, rewrite, walk
from redfuser.ir.views import as_results

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Any]

CAREFUL_RUNS = 8
C_EPS = 16.0
"""The constant c of the contract, for the lengths drawn here (up to some hundred elements)."""


@dataclass(eq=False)
class Expected:
    """What one result must be.

    accepted  values that count as right, the definition first; the second one has the named deviations: an infinite
              extremum is subtracted as 0 (logsumexp of nothing alive is -inf, not NaN), and what a mask removes
              contributes nothing, not even NaN from the other operand
    rounded   c * eps * condition and half an ulp of a storage dtype, elementwise: within it a result is right
    careful   makes the results of careful two-pass computations, in the working precision; asked only for a result that
              is farther off
    dtype     that of the result
    strict    False: NaN is accepted where the definition gives an infinity
    beyond    elements that read an earlier result that is not finite, or None: NaN is accepted there too, an infinity
              in the place of NaN, and any position or truth value
    edge      elements so near the largest number of a storage dtype that rounding may or may not make them infinite, or
              None
    """

    accepted: tuple[Array, ...]
    rounded: Array
    careful: Callable[[], Sequence[Array]]
    dtype: np.dtype[Any]
    strict: bool = True
    beyond: Array | None = None
    edge: Array | None = None

    @cached_property
    def allowed(self) -> Array:
        """How far a result may be from an accepted value, elementwise."""
        if not is_float(self.dtype):
            return self.rounded
        with np.errstate(all="ignore"):
            errors = [np.abs(r.astype(np.longdouble) - self.accepted[0]) for r in self.careful()]
            own = max((e[np.isfinite(e)].max() for e in errors if np.isfinite(e).any()), default=np.longdouble(0))
            return np.asarray(4 * own + self.rounded)

    @cached_property
    def free(self) -> Array:
        """Elements that overflow in the working precision in the definition itself, and truth values and integers that
        it cannot decide there: anything is accepted."""
        if self.beyond is None or is_float(self.dtype):
            return self._undecided()
        return self._undecided() | self.beyond

    def _undecided(self) -> Array:
        if not is_float(self.dtype):
            return np.asarray(np.stack([r != self.accepted[0] for r in self.careful()]).any(axis=0))
        with np.errstate(all="ignore"):
            finite = np.isfinite(np.stack([r.astype(self.dtype) for r in self.careful()])).all(axis=0)
        return np.asarray(np.isfinite(self.accepted[0]) & ~finite) | (False if self.edge is None else self.edge)

    def wrong(self, got: Array) -> Array:
        """Where a result breaks the contract, elementwise."""
        got = _wide(got)
        if self._off(got) <= 1:
            return np.zeros(self.rounded.shape, bool)
        ok = self.free.copy()
        with np.errstate(all="ignore"):
            for value in self.accepted:
                near = np.abs(got.astype(np.longdouble) - value) <= self.allowed
                same = (got == value.astype(got.dtype)) | (np.isnan(got) & np.isnan(value))
                same |= np.isinf(value) & np.isnan(got) & (not self.strict)
                if self.beyond is not None:
                    same |= self.beyond & np.isnan(value) & ~np.isfinite(got)
                    ok |= self.beyond & np.isnan(got)
                ok |= np.where(np.isfinite(value), near & np.isfinite(got), same)
        return np.asarray(~ok)

    def excess(self, got: Array) -> float:
        """Largest error in units of what is allowed, or above it (where it is at most 1 the careful computation is not
        asked for); infinite where NaN or infinities are wrong."""
        got = _wide(got)
        off = self._off(got)
        if off <= 1:
            return off
        with np.errstate(all="ignore"):
            ratio = np.abs(got.astype(np.longdouble) - self.accepted[0]) / self.allowed
        return float(np.nan_to_num(np.where(self.wrong(got), np.where(np.isfinite(ratio), np.maximum(ratio, 1), np.inf),
                                            np.where(np.isfinite(ratio), ratio, 0)), posinf=np.inf).max())

    def _off(self, got: Array) -> float:
        """Largest error in units of `rounded`; infinite when anything is not finite."""
        if not got.size:
            return 0.0
        with np.errstate(all="ignore"):
            error = np.abs(np.subtract(got, self.accepted[0], dtype=np.longdouble))
            if not (error <= self.rounded).all():
                return float("inf")
            return float(np.max(np.where(error > 0, error / self.rounded, 0)))


class _Definition(Evaluator):
    """The definition of a cascade, stage by stage, with the changes that the oracle needs.

    `nudge`: moves results of sums up or down at random. `guarded`: with the named deviations, see `Expected`.
    """

    def __init__(self, c: Cascade, arrays: Arrays, sizes: Mapping[str, int], dtype: Any = None, *,
                 nudge: np.random.Generator | None = None, guarded: bool = False) -> None:
        super().__init__([a.name for a in c.axes], sizes, arrays, c.tensors, dtype)
        self.cascade = c
        self.removes = guarded and _has_mask(c)
        nothing = {r.name: MONOIDS[r.monoid].identity for r in c.reductions if r.monoid in ("max", "min")}
        for item in in_order(c):
            e = expr_of(item)
            if guarded:
                e = rewrite(e, lambda x: select(op("eq", x, nothing[x.name]), 0.0, x)
                            if isinstance(x, Ref) and x.name in nothing else None)
            value = self(e) if isinstance(item, Let) else self.reduce(item.monoid, str(c.axis), e)
            if nudge is not None and isinstance(item, Reduction) and item.monoid in ("sum", "prod"):
                value = _nudged(np.asarray(value), Rounding(self, c).reduced(item.monoid, str(c.axis), e), nudge)
            self.define(item.name, item.axes, value)

    def _value(self, e: Expr) -> Any:
        value = super()._value(e)
        if not self.removes or not isinstance(e, Op) or e.fn != "mul":
            return value
        removed = (np.asarray(self(e.args[0])) == 0) | (np.asarray(self(e.args[1])) == 0)
        return np.where(removed & np.isnan(value), 0, value)

    def results(self) -> dict[str, Array]:
        """Reductions and outputs by name."""
        found = {r.name: self.values[r.name][1] for r in self.cascade.reductions}
        return found | {o.name: self.output(o) for o in self.cascade.outs}

    def output(self, o: Out) -> Array:
        """An output in the working precision, before it is stored in less."""
        return super().output(replace(o, dtype=computed_in(o.dtype).name))


def _has_mask(c: Cascade) -> bool:
    """Whether a select puts -inf in the place of some elements."""
    exprs = [*(p.expr for p in c.producers), *(r.body for r in c.reductions)]
    return any(isinstance(x, Op) and x.fn == "select" and NEG_INF in x.args[1:] for e in exprs for x in walk(e))


def _nudged(value: Array, condition: Array, rng: np.random.Generator) -> Array:
    """The value with a rounding error that a careful summation may have made."""
    if value.dtype.kind != "f":
        return value
    step = rng.choice((-1, 1), value.shape) * np.finfo(value.dtype).eps / 2
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(value), value + step * condition, value).astype(value.dtype)


def expected_results(cascades: Sequence[Cascade], arrays: Arrays, seed: int = 0, *, strict: bool = False,
                     sizes: Mapping[str, int] | None = None) -> dict[str, Expected]:
    """Reductions and outputs of cascades that run one after the other: what each must be.

    Parameters
    ----------
    arrays
        the inputs of the first cascade; outputs of one cascade are inputs of the next by name.
    strict
        False: where an input is infinite, NaN is accepted in the place of an infinite result (0 * inf in a correction),
        and what reads an earlier result that is infinite or NaN may be NaN, infinite where the definition gives NaN, or
        find another position (x / inf: elements that differ become equal); the extremum of nothing alive is no such
        result.
    sizes
        lengths of axes that no tensor of a cascade carries.
    """
    strict = strict or not any(np.isinf(a).any() for a in arrays.values() if is_float(np.asarray(a).dtype))
    exact: dict[str, Any] = dict(arrays)
    guarded = exact
    careful = _Careful(cascades, arrays, seed, sizes)
    found: dict[str, Expected] = {}
    for c in cascades:
        seen, lengths = given(c, exact, sizes)
        definition = _Definition(c, seen, lengths, np.longdouble)
        deviates = guarded is not exact or _may_deviate(definition)
        masked = given(c, guarded, sizes)[0] if deviates else seen
        deviating = _Definition(c, masked, lengths, np.longdouble, guarded=True) if deviates else definition
        wanted, types = _apart(definition, definition.results()), _result_types(c)
        other = _apart(deviating, deviating.results()) if deviates else wanted
        beyond = _beyond(definition, strict)
        bounds = _apart(definition, _bounds(definition))
        more = _apart(deviating, _bounds(deviating)) if deviates else bounds
        for name, value in wanted.items():
            if value.dtype.names:
                continue  # values with positions: the outputs that read them are compared
            dtype = types[name] or _float_type(c)
            limit = _rounded(value, other[name], np.maximum(bounds[name], more[name]), dtype)
            accepted, edge = _stored((value, other[name]), limit, dtype)
            found[name] = Expected(accepted, limit, partial(careful.results, name), dtype, strict,
                                   beyond[name] if name in beyond and beyond[name].shape == value.shape else None, edge)
        same = guarded is exact and not deviates
        exact, guarded = exact | wanted, guarded | other
        guarded = exact if same else guarded
    return found


def _apart(definition: _Definition, values: dict[str, Array]) -> dict[str, Array]:
    """The values with the axes of a product stream apart in outputs."""
    return values | as_results(definition.cascade, values, definition.sizes)


def _beyond(definition: _Definition, strict: bool) -> dict[str, Array]:
    """Where results and outputs read an earlier result that is not finite, or one that itself reads such a result, by
    the names of those that do; `strict`: one that is NaN."""
    c = definition.cascade
    producers = {p.name: p.expr for p in c.producers}
    own = {r.name: (r.axes, names_read([r.body], producers)) for r in c.reductions}
    own |= {o.name: (o.axes, names_read([o.expr], producers)) for o in c.outs if not isinstance(o.expr, (Ref, Part))}
    monoids = {r.name: r.monoid for r in c.reductions}
    infinite: dict[str, Array] = {}
    found: dict[str, Array] = {}
    for name, (axes, names) in own.items():
        masks = [infinite[n] for n in names if n in infinite and infinite[n].any()]
        if masks:
            found[name] = _placed(definition, np.logical_or.reduce(np.broadcast_arrays(*masks)), axes)
        lost = found.get(name, np.zeros((), bool))
        if name in monoids and definition.values[name][1].dtype.kind == "f":
            axes, value = definition.values[name]
            nothing = MONOIDS[monoids[name]].identity if monoids[name] in ("max", "min") else np.nan
            lost = lost | (np.isnan(value) if strict else ~np.isfinite(value) & (value != nothing))
        if name in monoids and lost.any():
            infinite[name] = definition.align(lost, axes)
    for o in c.outs:
        e = o.expr.body if isinstance(o.expr, Part) else o.expr
        if isinstance(e, Ref) and e.name in found and own[e.name][0] == o.axes:
            found[o.name] = found[e.name]
    return found


def _placed(definition: _Definition, mask: Array, axes: tuple[str, ...]) -> Array:
    """A mask over all axes as one over `axes`: true where it is so anywhere."""
    order = definition.order
    gone = tuple(i for a, i in order.items() if a not in axes)
    kept = [a for a in order if a in axes]
    full = np.broadcast_to(mask, [definition.size(a) if a in axes else n for (a, _), n in
                                  zip(order.items(), mask.shape, strict=True)])
    return np.asarray(full.any(axis=gone)).transpose([kept.index(a) for a in axes])


def _may_deviate(definition: _Definition) -> bool:
    """Whether the named deviations can change anything: a mask, or an extremum of nothing alive."""
    c = definition.cascade
    return _has_mask(c) or any(np.isinf(definition.values[r.name][1]).any() for r in c.reductions
                               if r.monoid in ("max", "min"))


class _Careful:
    """The careful computations, made when first asked for: the definition in the working precision, nudged at sums."""

    def __init__(self, cascades: Sequence[Cascade], arrays: Arrays, seed: int, sizes: Mapping[str, int] | None) -> None:
        self.cascades = cascades
        self.arrays = arrays
        self.seed = seed
        self.sizes = sizes

    def results(self, name: str) -> list[Array]:
        """One result by all of them."""
        return [run[name] for run in self.runs]

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """Results by name, run after run."""
        rngs = [None, *(np.random.default_rng((self.seed, k)) for k in range(CAREFUL_RUNS - 1))]
        return [self._run(rng) for rng in rngs]

    def _run(self, rng: np.random.Generator | None) -> dict[str, Any]:
        known: dict[str, Any] = dict(self.arrays)
        for c in self.cascades:
            seen, sizes = given(c, known, self.sizes)
            definition = _Definition(c, seen, sizes, nudge=rng)
            known |= _apart(definition, definition.results())
        return known


def _result_types(c: Cascade) -> dict[str, np.dtype[Any] | None]:
    """The dtype of every output; None for reductions, which have that of the arithmetic."""
    return {r.name: None for r in c.reductions} | {o.name: numpy_dtype(o.dtype) for o in c.outs}


def _float_type(c: Cascade) -> np.dtype[Any]:
    """The working precision: the widest floating input."""
    floats = [computed_in(t.dtype) for t in c.tensors if is_float(t.dtype)]
    return np.result_type(*floats, np.float32) if floats else np.dtype("float64")


def _bounds(definition: _Definition) -> dict[str, Array]:
    """The condition of every reduction and output, dimensions in the order of its axes."""
    c = definition.cascade
    rounding = Rounding(definition, c)
    stages = {r.name: rounding.reduced(r.monoid, str(c.axis), r.body) for r in c.reductions}
    of_outs = Rounding(definition, c, stages)
    found = {r.name: definition.placed(stages[r.name], r.axes) for r in c.reductions}
    return found | {o.name: definition.placed(of_outs(o.expr), o.axes) for o in c.outs}


def _rounded(exact: Array, guarded: Array, condition: Array, dtype: np.dtype[Any]) -> Array:
    """c * eps * condition of one result, and half an ulp of a storage dtype. Booleans and integers: no tolerance."""
    if not is_float(dtype):
        return np.zeros(exact.shape)
    info, stored = finfo(computed_in(dtype)), finfo(dtype)
    with np.errstate(all="ignore"):
        size = np.abs(np.where(np.isfinite(exact), exact, guarded))
        limit = C_EPS * info.eps * (condition + size) + info.tiny
        if computed_in(dtype) != dtype:
            limit = limit + (size + limit) * float(stored.eps) / 2 + float(stored.smallest_subnormal) / 2
        return finite_only(limit)


def _stored(values: tuple[Array, ...], limit: Array, dtype: np.dtype[Any]) -> tuple[tuple[Array, ...], Array | None]:
    """Values as a storage dtype holds them: infinite where they surely overflow, NaN if it has no infinity; and the
    elements where that is open."""
    if computed_in(dtype) == dtype:
        return values, None
    with np.errstate(all="ignore"):
        low, high = (np.stack([~np.isfinite((np.abs(v) + d).astype(dtype)) & np.isfinite(v) for v in values])
                     for d in (-limit, limit))
        infinity = np.asarray(np.inf).astype(dtype).astype(float)
        found = tuple(np.where(over | np.isinf(v), np.copysign(infinity, v), v)
                      for over, v in zip(low, values, strict=True))
    return found, np.asarray((high & ~low).any(axis=0))


def _wide(got: Array) -> Array:
    """A result in a dtype that NumPy can compare with the definition."""
    return got.astype(computed_in(got.dtype), copy=False)
