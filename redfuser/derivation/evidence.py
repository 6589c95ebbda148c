"""Evidence that no finite state can follow a stage: a rank that grows with the length of the prefix.

For a sum it is the separation rank: F(x, d) = sum over r of G_r(x) H_r(d) has a table F(x_i, d_j) of rank at most the
number of terms, where the d_j are results of streams that contain every x_i (so x <= max x holds, sums of squares are
nonnegative, ...). For the other monoids it is observability: the rank of the derivatives by the elements of a prefix,
over its continuations. See `redfuser.derivation.observe`.

A table of finite size cannot tell rank 25, as of (x - a)^4 (y - b)^4, from none: a body that is visibly a finite sum of
products is never held for infinite. Where the elements are tied to each other (two units that read one input), nothing
is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from redfuser.derivation.observe import DIGITS, Question, dimension
from redfuser.derivation.sensitivity import DIFFERENTIABLE
from redfuser.derivation.skeleton import Skeleton, Stage, reads_state
from redfuser.ir import (
    Cascade,
    Const,
    Expr,
    Load,
    Op,
    Reduce,
    Ref,
    find_parts,
    free_axes,
    names_read,
    rename_axes,
    rewrite,
    walk,
)
from redfuser.rules.language import STREAM
from redfuser.rules.real import Undefined, precision

SIZES = (8, 12)
"""Lengths of prefixes: more than the accumulators of any moment with a binomial rule."""


@dataclass(frozen=True)
class Ranks:
    """Rank found for each length of prefix; a length is only tried when the rank was full at those before.

    finite  the body is a finite sum of products, whatever the table says
    kind    what was measured
    """

    found: tuple[int, ...]
    finite: bool = False
    kind: str = "separation rank"

    @property
    def growing(self) -> bool:
        """The rank is the length of the prefix each time: no finite number of accumulators in sight."""
        return not self.finite and self.found == SIZES

    @property
    def highest(self) -> int:
        """The largest rank found."""
        return max(self.found)

    @property
    def open(self) -> bool:
        """Whether the rank may be higher than what was found."""
        return self.found == SIZES

    def __str__(self) -> str:
        return f"{self.kind} " + " and ".join(f"{r} of {k}" for r, k in zip(self.found, SIZES, strict=False))


def growth(cascade: Cascade, stage: str, final: Iterable[str] = (), *, positive: bool = False) -> Ranks | None:
    """Ranks for a stage in the sweep in which the results `final` are known; None where the test says nothing.

    `positive`: as if all inputs were positive.
    """
    return _growth(cascade, stage, frozenset(final), positive)


@lru_cache(maxsize=256)
def _growth(cascade: Cascade, name: str, final: frozenset[str], positive: bool) -> Ranks | None:
    skeleton = free_skeleton(cascade)
    stage = None if skeleton is None else next((s for s in skeleton.stages if s.name == name), None)
    if skeleton is None or stage is None or stage.crossed:
        return None
    stage = replace(stage, monoid=_asked(stage.monoid))
    if stage.monoid not in DIFFERENTIABLE:
        return None
    is_sum = stage.monoid == "sum"
    question = Question(skeleton, stage, final & read_by(skeleton, stage), derivatives=not is_sum, positive=positive)
    found: list[int] = []
    try:
        with precision(DIGITS):
            for size in SIZES:
                found.append(dimension(question, size))
                if found[-1] < size:
                    break
    except Undefined:
        return None
    kind = "separation rank" if is_sum else "observability rank"
    return Ranks(tuple(found), is_sum and is_finite_sum(stage.body), kind)


def _asked(monoid: str) -> str:
    """The monoid to ask for: a state that tells the k best elements tells the best one."""
    parts = find_parts(monoid)
    return monoid if parts is None or parts.largest is None else "max" if parts.largest else "min"


def read_by(skeleton: Skeleton, stage: Stage) -> frozenset[str]:
    """The results that a stage reads, directly or through others."""
    bodies = {s.name: s.body for s in skeleton.stages}
    return names_read([bodies[stage.name]], bodies) & bodies.keys()


@lru_cache(maxsize=64)
def free_skeleton(cascade: Cascade) -> Skeleton | None:
    """The cascade over units that can take any values independently of each other; None when they cannot."""
    plain = {p.name: p for p in cascade.producers if not any(isinstance(x, Reduce) for x in walk(p.expr))}

    def inline(e: Expr) -> Expr | None:
        if isinstance(e, Ref) and e.name in plain:
            p = plain[e.name]
            return rewrite(rename_axes(p.expr, dict(zip(p.axes, e.axes, strict=True))), inline)
        return None

    reductions = tuple(replace(r, body=rewrite(r.body, inline)) for r in cascade.reductions)
    skeleton = Skeleton(replace(cascade, reductions=reductions), fine=True)
    return None if _tied(skeleton) else skeleton


def _tied(skeleton: Skeleton) -> bool:
    """Whether two units read the same input, other than by contractions of it."""
    seen: dict[str, bool] = {}
    for e in skeleton.units.values():
        contracted = not isinstance(e, Load)
        for tensor in _inputs(skeleton, e):
            if tensor in seen and not (contracted and seen[tensor]):
                return True
            seen[tensor] = contracted
    return False


def _inputs(skeleton: Skeleton, e: Expr) -> set[str]:
    found: set[str] = set()
    for x in walk(e):
        if isinstance(x, Load):
            found.add(x.tensor)
        elif isinstance(x, Ref) and x.name in skeleton.producers:
            found |= _inputs(skeleton, skeleton.producers[x.name].expr)
    return found


def is_finite_sum(e: Expr) -> bool:
    """Whether an expression is visibly a finite sum of products G(x) H(d)."""
    if _is_one_sided(e):
        return True
    if not isinstance(e, Op):
        return False
    if e.fn in ("add", "sub", "mul", "neg"):
        return all(map(is_finite_sum, e.args))
    if e.fn == "div":
        return is_finite_sum(e.args[0]) and _is_one_sided(e.args[1])
    if e.fn == "select":
        return _is_one_sided(e.args[0]) and all(map(is_finite_sum, e.args[1:]))
    if e.fn == "pow":
        power = e.args[1]
        return (isinstance(power, Const) and isinstance(power.value, int) and power.value >= 0
                and is_finite_sum(e.args[0]))
    return e.fn in ("exp", "exp2", "sin", "cos") and _is_additive(e.args[0])


def _is_additive(e: Expr) -> bool:
    """Whether an expression is a sum of terms that each depend on the stream or on results, not on both."""
    return _is_one_sided(e) or (isinstance(e, Op) and e.fn in ("add", "sub", "neg") and all(map(_is_additive, e.args)))


def _is_one_sided(e: Expr) -> bool:
    return STREAM not in free_axes(e) or not reads_state(e)
