"""The Pareto frontier of the forms of one cascade: cost, error, state, passes; and which form is taken.

    stable     the form derived first, whose cost model prefers accurate forms; the frontier shows how it measures up
    fast       the cheapest form within the contract on ordinary data and within `MOST` times the contract on hard data;
               its error bound is the contract of its own sums (`stated`), which may be larger than the definition's
    reference  the stable form in float64
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redfuser.derivation import Derivation, FusedCascade
from redfuser.derivation.probe import Probe, Prober, loosened
from redfuser.derivation.variants import Variant, variants
from redfuser.extract.device import Device
from redfuser.extract.flatten import Flat, flatten
from redfuser.extract.roofline import Prediction, predict, work_on
from redfuser.extract.work import Work
from redfuser.ir import Cascade, Reduction
from redfuser.ir.contract import Expected, expected_results
from redfuser.ir.term import base_axis

NOMINAL_STREAM = 4096
NOMINAL = 64
"""Lengths that stand for what is not known when a form is chosen: of the stream, of other axes."""
NOISE = 0.25
"""Errors below this part of the contract count as equal: they depend on the draw."""
MOST = 1000.0
"""The largest error on hard data that "fast" accepts, in units of the contract: three digits. A one-pass variance over
sum x^2 loses all of them at mean 1e4 and spread 1e-3."""
WITHIN = 4.0
"""A form counts as accurate when its error is at most this many times the best."""


@dataclass(frozen=True)
class Form:
    """One form with its accuracy, which depends on no device and no length.

    bound  largest stated error bound on the hard data, in units of the contract (`stated`)
    """

    variant: Variant
    probe: Probe
    bound: float


@dataclass(frozen=True)
class Point:
    """One form with its price.

    work       operations, state and bytes for the lengths the frontier was made for
    dominated  another form is at least as good in cost, error, state and passes, and better in one
    """

    form: Form
    work: Work
    prediction: Prediction
    dominated: bool = False

    @property
    def variant(self) -> Variant:
        """The form itself."""
        return self.form.variant

    @property
    def name(self) -> str:
        """How the form was obtained."""
        return self.variant.name

    @property
    def error(self) -> float:
        """Largest measured error in units of the contract."""
        return self.form.probe.worst

    @property
    def cost(self) -> float:
        """Seconds with nothing overlapped."""
        return self.prediction.effort

    @property
    def passes(self) -> int:
        """Sweeps over the stream for the reductions."""
        return len(self.variant.fused.passes)

    @property
    def measures(self) -> tuple[float, float, float, float]:
        """What is compared: the less the better. Errors below the noise of a draw are equal."""
        return self.cost, max(self.error, NOISE), self.work.state, self.passes

    @property
    def admissible(self) -> bool:
        """Whether it keeps the contract on ordinary data and loses at most some digits on hard data."""
        return self.error <= MOST and self.form.probe.ordinary <= 1.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; an infinite error is None."""
        return {
            "name": self.name, "seconds": self.prediction.seconds, "cost": self.cost, "bound": self.prediction.bound,
            "error": _number(self.error), "errors": {k: _number(e) for k, e in self.form.probe.errors.items()},
            "error_bound": _number(self.form.bound), "state": self.work.state, "passes": self.passes,
            "accumulators": [str(a) for a in self.variant.fused.accumulators], "dominated": self.dominated,
            "certificate": str(self.variant.derivation.certificate),
        }  # fmt: skip


def _number(x: float) -> float | None:
    return x if np.isfinite(x) else None


@dataclass(frozen=True)
class Frontier:
    """All forms found, and the choice under every setting of `numerics`. `sizes`: lengths the costs are for."""

    points: tuple[Point, ...]
    device: Device
    sizes: Mapping[str, int]

    @property
    def best(self) -> tuple[Point, ...]:
        """The forms that no other dominates, cheapest first."""
        return tuple(sorted((p for p in self.points if not p.dominated), key=lambda p: p.measures))

    def choice(self, numerics: str) -> tuple[Point, str]:
        """The form taken under `numerics`, and why."""
        first = self.points[0]
        if numerics != "fast":
            return first, _why_stable(self.points)
        few = [p for p in self.points if p.admissible and p.passes <= first.passes]
        fast = min(few, key=lambda p: (p.cost, p.error), default=first)
        if fast.cost >= first.cost:
            return first, "no cheaper form is accurate enough"
        share = 1 - fast.cost / first.cost
        return fast, f"{share:.0%} cheaper than the stable form; error bound {fast.form.bound:.3g} times the contract"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "device": self.device.name, "sizes": dict(self.sizes), "points": [p.to_dict() for p in self.points],
            "choice": {n: dict(zip(("name", "why"), (p.name, why), strict=True))
                       for n in ("stable", "fast") for p, why in [self.choice(n)]},
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _why_stable(points: Sequence[Point]) -> str:
    first, best = points[0], min(max(p.error, NOISE) for p in points)
    if first.error <= WITHIN * best:
        return f"derived first; its error is within {WITHIN:g} times the best measured"
    better = min(points, key=lambda p: p.error)
    return f"derived first; {better.name} was measured more accurate ({better.error:.3g} against {first.error:.3g})"


def _table(f: Frontier) -> list[str]:
    taken = {numerics: f.choice(numerics) for numerics in ("stable", "fast")}
    lengths = ", ".join(f"{a} = {n}" for a, n in f.sizes.items())
    lines = [f"forms on {f.device.name} for {lengths}; error in units of the contract",
             f"  {'form':<26}{'time':>10}{'bound by':>20}{'error':>10}{'allowed':>10}{'state':>9}{'passes':>8}"]
    for p in sorted(f.points, key=lambda p: p.measures):
        marks = [n for n, (point, _) in taken.items() if point is p]
        mark = f"  <- {', '.join(marks)}" if marks else "  (dominated)" if p.dominated else ""
        lines.append(f"  {p.name:<26}{p.prediction.seconds * 1e6:>7.4g} us{p.prediction.bound:>20}{p.error:>10.3g}"
                     f"{p.form.bound:>10.3g}{p.work.state:>7} B{p.passes:>8}{mark}")
    return [*lines, *(f"  {numerics}: {point.name}: {why}" for numerics, (point, why) in taken.items())]


def nominal_sizes(cascade: Cascade) -> dict[str, int]:
    """Lengths to choose a form by when none are known."""
    return {base_axis(a.name): a.size or (NOMINAL_STREAM if a.name == cascade.axis else NOMINAL) for a in cascade.axes}


def measured_forms(first: Derivation, dtype: str = "float32") -> tuple[Form, ...]:
    """Derive further forms of the cascade of a derivation, and measure all of them; that derivation's form is first.

    Takes some ten derivations: nothing of it runs unless a report or `numerics="fast"` asks.
    """
    prober = Prober(first.cascade, dtype)
    return tuple(Form(v, prober(v.fused), _largest_bound(prober, v.fused, dtype)) for v in variants(first))


def frontier(forms: Sequence[Form], device: Device, sizes: Mapping[str, int] | None = None,
             dtype: str = "float32") -> Frontier:
    """Price measured forms on a device, and find those that no other dominates.

    Parameters
    ----------
    forms
        from `measured_forms`.
    sizes
        lengths of the axes (default: nominal ones).
    dtype
        dtype of the arithmetic and of the state.
    """
    lengths = nominal_sizes(forms[0].variant.derivation.cascade) | dict(sizes or {})
    points = []
    for form in forms:
        own = work_on(device, form.variant.fused, lengths, dtype)
        points.append(Point(form, own, predict(own, device, dtype)))
    marked = tuple(replace(p, dominated=any(_dominates(q, p) for q in points)) for p in points)
    return Frontier(marked, device, lengths)


def _dominates(a: Point, b: Point) -> bool:
    return a.measures != b.measures and all(x <= y for x, y in zip(a.measures, b.measures, strict=True))


def form_as_cascade(flat: Flat) -> Cascade:
    """A form read as a definition: its accumulators over the whole stream, then its outputs."""
    reductions = tuple(Reduction(a.name, a.monoid, a.body, a.axes) for a in flat.accumulators)
    return Cascade(flat.name, flat.stream, flat.axes, flat.tensors, flat.dependencies, reductions, flat.outs)


def stated(fused: FusedCascade, arrays: Mapping[str, Any], dtype: str = "float32") -> Mapping[str, Expected]:
    """The error bound of a form on given inputs, by output: 4 times a careful evaluation of its own accumulators plus
    c * eps * their condition. For the sums of a one-pass variance the condition is sum x^2, not sum (x - mean)^2."""
    return expected_results([form_as_cascade(flatten(fused, dtype))], arrays)


def _largest_bound(prober: Prober, fused: FusedCascade, dtype: str) -> float:
    """The largest stated bound over the data sets in units of the contract; inf where the form overflows."""
    worst = 1.0
    for case in prober.cases.values():
        own = stated(replace(fused, cascade=loosened(fused.cascade)), case.arrays, dtype)
        for name, expected in case.expected.items():
            if name not in own:
                return float("nan")  # without outputs a form has no results of its own to compare
            if own[name].free.any() or not np.isfinite(own[name].accepted[0]).all():
                return float("inf")
            with np.errstate(all="ignore"):
                ratio = own[name].allowed / expected.allowed
            worst = max(worst, float(np.nan_to_num(ratio, nan=1.0).max(initial=1.0)))
    return worst
