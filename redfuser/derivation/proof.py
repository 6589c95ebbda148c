"""Symbolic proof of corrections with SymPy.

A sum. Write the correction of P as C, linear in the accumulators. It is right when, for one element x,

    C applied to the element's own contributions F_j(x, d_old)  =  F(x, d_new)   modulo the state's invariants,

because both sides are sums over elements. An invariant is an equation num - d den = 0 that defines a dependency
d = num / den with num and den linear in the accumulators; a multiple of it may be added to C for free (the centred
correction of a variance equals the binomial one only because S - count mu = 0). Further C is the identity at
d_old = d_new. Composition (first to d_1, then to d_2) follows: both ways map F(x, d_old) to F(x, d_2) for every x.

A max or min. C must be nondecreasing in the accumulator and map F(x, d_old) to F(x, d_new).

`simplify` that does not reach 0 decides nothing: an undecided step is no proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from redfuser.derivation.certificate import Certificate
from redfuser.derivation.followed import Skeletal
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.ir import Cast, Const, Expr, Load, New, Old, Op, Ref, Size, refs, walk
from redfuser.rules.language import STREAM

SECONDS = 60.0
"""No further accumulator is proved after this time."""

MOST_EQUATIONS = 200
"""Terms of an element identity that are compared before it counts as undecided."""


class Undecided(Exception):
    """A step of the proof could not be settled."""


class Symbols:
    """SymPy expressions of skeletons. Units are real symbols; `Old`, `New` and `Ref` have one symbol each."""

    def __init__(self, positive: frozenset[str]) -> None:
        import sympy

        self.sp = sympy
        self.positive = positive
        self.known: dict[str, Any] = {}

    def symbol(self, kind: str, name: str) -> Any:
        """The symbol of a name: kind "unit", "old", "new"."""
        key = f"{kind} {name}"
        if key not in self.known:
            positive = kind != "unit" and name in self.positive  # a unit may be called like an accumulator
            assumption = {"positive": True} if positive else {"real": True}
            self.known[key] = self.sp.Symbol(key.replace(" ", "_"), **assumption)
        return self.known[key]

    def __call__(self, e: Expr, version: str = "old") -> Any:
        """`e` with plain refs read at `version`."""
        sp = self.sp
        if isinstance(e, Const):
            if isinstance(e.value, float) and e.value - e.value != 0:
                return sp.oo if e.value > 0 else -sp.oo
            q = Fraction(e.value)
            return sp.Rational(q.numerator, q.denominator)
        if isinstance(e, Load):
            return self.symbol("unit", e.tensor)
        if isinstance(e, (Old, New)):
            return self.symbol("old" if isinstance(e, Old) else "new", e.name)
        if isinstance(e, Ref):
            return self.symbol(version, e.name)
        if isinstance(e, Size) and e.axis == STREAM:
            return self.symbol(version, "count")
        if isinstance(e, Cast):
            return sp.Function(f"cast_{e.dtype}")(self(e.body, version))
        if isinstance(e, Op):
            return self._op(e.fn, [self(a, version) for a in e.args])
        raise Undecided(f"{e} has no symbolic form")

    def _op(self, fn: str, args: list[Any]) -> Any:
        sp = self.sp
        a, b = args[0], args[-1]
        if fn in ("add", "sub", "mul", "div", "pow"):
            return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b,
                    "pow": lambda: a**b}[fn]()
        if fn == "select":
            return sp.Piecewise((args[1], sp.Ne(args[0], 0)), (args[2], True))
        plain = {"neg": lambda: -a, "exp": lambda: sp.exp(a), "exp2": lambda: sp.Integer(2) ** a,
                 "log": lambda: sp.log(a), "log2": lambda: sp.log(a) / sp.log(2), "sqrt": lambda: sp.sqrt(a),
                 "abs": lambda: sp.Abs(a), "tanh": lambda: sp.tanh(a), "sin": lambda: sp.sin(a),
                 "cos": lambda: sp.cos(a), "atan": lambda: sp.atan(a), "max": lambda: sp.Max(a, b),
                 "min": lambda: sp.Min(a, b), "expm1": lambda: sp.exp(a) - 1, "log1p": lambda: sp.log(1 + a)}
        return plain[fn]() if fn in plain else sp.Function(fn)(*args)


@dataclass
class _Prover:
    form: Skeletal
    symbols: Symbols

    def zero(self, e: Any) -> bool:
        """Whether SymPy reduces an expression to 0, given that inputs lie below their maximum (above their minimum)."""
        return self._simplifies_to_zero(e) or (bool(self.bounds) and self._simplifies_to_zero(e.subs(self.bounds)))

    def _simplifies_to_zero(self, e: Any) -> bool:
        sp = self.symbols.sp
        if sp.expand(e) == 0 or sp.expand(sp.fraction(sp.together(e))[0]) == 0:
            return True
        if e.is_rational_function():
            return False  # the numerator decides: nothing is left to simplify
        return bool(sp.simplify(sp.expand(e, trig=True)) == 0 or sp.simplify(e) == 0)

    @cached_property
    def bounds(self) -> Mapping[Any, Any]:
        """unit -> extremum minus (plus) a nonnegative number, for extrema of a bare unit; the new extremum likewise."""
        found = {}
        for a in self.form.fused.accumulators:
            body = self.form.bodies[a.name]
            if a.monoid in ("max", "min") and isinstance(body, Load):
                sign = 1 if a.monoid == "max" else -1
                below, rise = (self.symbols.sp.Symbol(f"{word}_{a.name}", nonnegative=True) for word in ("gap", "rise"))
                found[self.symbols(body)] = self.old(a.name) - sign * below
                found[self.symbols.symbol("new", a.name)] = self.old(a.name) + sign * rise
        return found

    def old(self, name: str) -> Any:
        return self.symbols.symbol("old", name)

    def element(self, name: str, version: str = "old") -> Any:
        """Contribution of one element to an accumulator."""
        return self.symbols(self.form.bodies[name], version)

    def prove(self, a: Accumulator) -> str:
        """One line that says why the correction of `a` is right.

        Raises
        ------
        Undecided
            when no argument was found.
        """
        if a.name not in self.form.corrections:
            if self._moving(self.form.bodies[a.name], a):
                raise Undecided(f"{a.name} reads values that change, but has no correction")
            return f"{a.name}: its body reads nothing that changes in its pass"
        correction = self.symbols(self.form.corrections[a.name])
        if a.monoid == "sum":
            try:
                return self._sum(a, correction)
            except Undecided:
                if (spelled := correction.subs(self.linear_dependencies)) == correction:
                    raise
                return self._sum(a, spelled)
        if a.monoid in ("max", "min"):
            return self._extremum(a, correction)
        raise Undecided(f"{a.name}: no argument for corrections of {a.monoid}")

    def _moving(self, e: Expr, a: Accumulator) -> frozenset[str]:
        """Values read by `e` that change during the pass of `a`."""
        current = next(names for names in self.form.fused.passes if a.name in names)

        def moves(name: str) -> bool:
            inner = refs(self.form.dependencies[name]) if name in self.form.dependencies else frozenset[str]()
            return name in current or any(map(moves, inner))

        return frozenset(n for n in refs(e) if moves(n))

    def _sum(self, a: Accumulator, correction: Any) -> str:
        coefficients = self._linear(correction)
        target = self.symbols(self.form.bodies[a.name], "new")
        target = self._freeze(target, a)
        residual = target - sum(c * self.element(name) for name, c in coefficients.items())
        if not self.zero(self._same(correction, a) - self.old(a.name)):
            raise Undecided(f"{a.name}: the correction at unchanged values is not the identity")
        if self.zero(residual):
            return f"{a.name}: the element identity holds, and the correction is the identity at unchanged values"
        used = self._modulo_invariants(a, residual)
        return f"{a.name}: the element identity holds given {used}; the identity at unchanged values"

    def _freeze(self, e: Any, a: Accumulator) -> Any:
        """New values of what does not change in the pass of `a` are the old ones."""
        moving = self._moving(self.form.bodies[a.name], a)
        names = refs(self.form.bodies[a.name]) - moving
        return e.subs({self.symbols.symbol("new", n): self.old(n) for n in names})

    def _same(self, correction: Any, a: Accumulator) -> Any:
        """The correction with every new value equal to the old one."""
        names = {x.name for x in walk(self.form.corrections[a.name]) if isinstance(x, New)}
        return correction.subs({self.symbols.symbol("new", n): self.old(n) for n in names})

    def _linear(self, e: Any) -> Mapping[str, Any]:
        """Coefficients of an expression that is linear in the sums of the state. A sum that bodies read as it is may be
        a factor as well: there it is a number that elements are compared with."""
        sp = self.symbols.sp
        names = {self.old(x.name): x.name for x in self.form.fused.accumulators if x.monoid == "sum"}
        found: dict[str, Any] = {}
        rest = sp.Integer(0)
        for term in sp.Add.make_args(sp.expand(e)):
            powers = term.as_powers_dict()
            present = sorted((s for s in names if powers.get(s, 0) >= 1), key=str)
            carrier = next((s for s in present if names[s] not in self.read), next(iter(present), None))
            if carrier is None:
                rest += term
                continue
            found[names[carrier]] = found.get(names[carrier], 0) + term / carrier
        loose = {s for s, n in names.items() if n not in self.read}
        if any(sp.expand(c).free_symbols & loose for c in found.values()) or not self.zero(rest):
            raise Undecided("the correction is not linear in the accumulators")
        return found

    @cached_property
    def read(self) -> frozenset[str]:
        """Accumulators that bodies read directly."""
        return frozenset[str]().union(*(refs(e) for e in self.form.bodies.values()))

    @cached_property
    def linear_dependencies(self) -> Mapping[Any, Any]:
        """Old dependencies that are linear in the sums (a total rebuilt from a shifted one), with their definitions."""
        found = {}
        for name, e in self.form.dependencies.items():
            spelled = self.symbols(e)
            try:
                coefficients = self._linear(spelled)
            except Undecided:
                continue
            if coefficients and all(c.is_polynomial() for c in coefficients.values()):
                found[self.old(name)] = spelled
        return found

    def _invariants(self) -> dict[str, Any]:
        """Text -> element form of num - d den, for every dependency d = num / den over sums."""
        found = {}
        for name, e in self.form.dependencies.items():
            num, den = self.symbols.sp.fraction(self.symbols.sp.together(self.symbols(e)))
            try:
                over, under = self._linear(num), self._linear(den)
            except Undecided:
                continue
            top = sum(c * self.element(k) for k, c in over.items())
            bottom = sum(c * self.element(k) for k, c in under.items())
            found[f"{e} = {name}"] = top - self.old(name) * bottom
        return found

    def _modulo_invariants(self, a: Accumulator, residual: Any) -> str:
        """Write the residual as a sum of multiples of invariants, the same multiples for every element."""
        sp = self.symbols.sp
        invariants = {k: v for k, v in self._invariants().items() if v != 0}
        multipliers = sp.symbols(f"lambda0:{len(invariants)}")
        equation = residual - sum(m * v for m, v in zip(multipliers, invariants.values(), strict=True))
        equations = self._coefficients(equation)
        if len(equations) > MOST_EQUATIONS:
            raise Undecided(f"{a.name}: the element identity has too many terms")
        solution = sp.solve(equations, multipliers, dict=True) if multipliers else []
        if not solution or not all(self.zero(e.subs(solution[0])) for e in equations):
            raise Undecided(f"{a.name}: the element identity was not established")
        return " and ".join(text for m, text in zip(multipliers, invariants, strict=True) if solution[0].get(m, m) != 0)

    def _coefficients(self, e: Any) -> list[Any]:
        """Coefficients of the functions of an element in an expression: where all are 0, so is it for every element."""
        sp = self.symbols.sp
        varying = [s for k, s in self.symbols.known.items() if k in self._varying]
        found: dict[Any, Any] = {}
        for term in sp.Add.make_args(sp.expand(sp.expand(e), power_base=True, trig=True)):
            coefficient, of_element = term.as_independent(*varying, as_Add=False)
            found[of_element] = found.get(of_element, 0) + coefficient
        return [c for c in map(sp.together, found.values()) if c != 0]

    @cached_property
    def _varying(self) -> frozenset[str]:
        """Symbols of the units that carry the stream."""
        units = self.form.skeleton.units
        return frozenset(f"unit {name}" for name, e in units.items() if STREAM in self.form.skeleton.unit(e).axes)

    def _extremum(self, a: Accumulator, correction: Any) -> str:
        mine = self.old(a.name)
        slope = self.symbols.sp.diff(correction, mine)
        if not self.symbols.sp.simplify(slope).is_nonnegative:
            raise Undecided(f"{a.name}: the correction is not known to be nondecreasing")
        target = self._freeze(self.symbols(self.form.bodies[a.name], "new"), a)
        if not self.zero(correction.subs(mine, self.element(a.name)) - target):
            raise Undecided(f"{a.name}: the correction does not map elements to elements")
        return f"{a.name}: the correction is a nondecreasing map of elements, so it commutes with {a.monoid}"


def positive_names(accumulators: Iterable[Accumulator]) -> frozenset[str]:
    """Accumulators that are positive whenever anything was seen."""
    return frozenset(a.name for a in accumulators if a.counts)


def prove(fused: FusedCascade, checked: Certificate) -> Certificate:
    """Symbolic certificate of a fused cascade whose random check has passed."""
    form = Skeletal(fused)
    prover = _Prover(form, Symbols(positive_names(fused.accumulators)))
    steps, open_ = [], []
    end = time.perf_counter() + SECONDS
    for a in fused.accumulators:
        try:
            if time.perf_counter() > end:
                raise Undecided(f"{a.name}: no time is left ({SECONDS:.0f} s)")
            steps.append(prover.prove(a))
        except Undecided as problem:
            open_.append(f"undecided: {problem}")
    steps += [s for s in checked.steps if "epilogue" in s]
    method = "element identities proved by SymPy modulo the state's invariants; epilogue checked at random points"
    return replace(checked, valid=checked.valid and not open_, method=method, steps=(*steps, *open_))
