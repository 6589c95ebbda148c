"""Evidence that no finite state can follow a stage: a rank that grows with the length of the prefix.

For a sum it is the separation rank: F(x, d) = sum over r of G_r(x) H_r(d) has a table F(x_i, d_j) of rank at most the
number of terms, where the d_j are results of streams that contain every x_i (so x <= max x holds, sums of squares are
nonnegative, ...). For the other monoids it is observability: the rank of the derivatives by the elements of a prefix,
over its continuations. See `redfuser.derivation.observe`.

A table of finite size cannot tell rank 25, as of (x - a)^4 (y - b)^4, from none: a body that visibly has a finite state
(`redfuser.derivation.finite`) is never held for infinite. Where the elements are tied to each other (two units that
read one input), nothing is claimed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from redfuser.derivation.finite import is_finite_extreme, is_finite_sum
from redfuser.derivation.observe import DIGITS, Question, dimension
from redfuser.derivation.sensitivity import DIFFERENTIABLE
from redfuser.derivation.skeleton import Skeleton, Stage
from redfuser.ir import (
    Cascade,
    Const,
    Expr,
    Load,
    Reduce,
    Ref,
    children,
    find_parts,
    names_read,
    rename_axes,
    rewrite,
    walk,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.rules.arithmetic import precision
from redfuser.rules.real import Undefined

SIZE = 20
"""Elements of a prefix: more than the accumulators of any moment with a binomial rule, ..."""
FULL = 16
"""... and the rank that counts as growing with the prefix. A state of fewer than 16 numbers is never held for infinite.
Of 20 elements not all need be told apart: few random results fall between two neighbours."""
FEW_BYTES = 1
"""Integers of so many bytes have few enough values to count the elements that have each."""


@dataclass(frozen=True)
class Ranks:
    """The rank found for a prefix of `SIZE` elements; where it is full, that of every shorter one is.

    finite  the body has a finite state, whatever the table says
    kind    what was measured
    """

    rank: int
    finite: bool = False
    kind: str = "separation rank"

    @property
    def growing(self) -> bool:
        """The rank grows with the length of the prefix: no finite number of accumulators in sight."""
        return not self.finite and self.open

    @property
    def open(self) -> bool:
        """Whether the rank may be higher than what was found."""
        return self.rank >= FULL

    def __str__(self) -> str:
        return f"{self.kind} {self.rank} with {SIZE} elements"


def growth(cascade: Cascade, stage: str, final: Iterable[str] = (), *, positive: bool = False) -> Ranks | None:
    """The rank for a stage in the sweep in which the results `final` are known; None where the test says nothing.

    `positive`: as if all inputs were positive.
    """
    definitions = {n.name: n.body for n in cascade.reductions} | {p.name: p.expr for p in cascade.producers}
    read = names_read([definitions[stage]], definitions) if stage in definitions else frozenset()
    return _growth(cascade, stage, read.intersection(final), positive)  # what it does not read makes no other question


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
    try:
        with precision(DIGITS):
            rank = dimension(question, SIZE)
    except Undefined:
        return None
    finite = is_finite(stage) or _has_few_values(skeleton, stage)
    return Ranks(rank, finite, "separation rank" if is_sum else "observability rank")


def is_finite(stage: Stage) -> bool:
    """Whether a stage visibly has a finite state."""
    monoid = _asked(stage.monoid)
    if monoid == "sum":
        return is_finite_sum(stage.body)
    return monoid in ("max", "min") and is_finite_extreme(stage.body, monoid == "max")


def _has_few_values(skeleton: Skeleton, stage: Stage) -> bool:
    """Whether the elements that a stage reads can have few values only: counting each is a finite state."""
    dtypes = {t.name: numpy_dtype(t.dtype) for t in skeleton.cascade.tensors}
    units = [skeleton.units[x.tensor] for x in walk(stage.body) if isinstance(x, Load)]
    leaves = [x for e in units for x in walk(e) if not children(x) and not isinstance(x, Const)]
    return bool(units) and all(isinstance(x, Load) and x.tensor in dtypes and dtypes[x.tensor].kind in "iub"
                               and dtypes[x.tensor].itemsize <= FEW_BYTES for x in leaves)


def _asked(monoid: str) -> str:
    """The monoid to ask for: a state that tells the k best elements tells the best one."""
    parts = find_parts(monoid)
    return monoid if parts is None or parts.largest is None else "max" if parts.largest else "min"


def read_by(skeleton: Skeleton, stage: Stage) -> frozenset[str]:
    """The results that a stage reads, directly or through others."""
    bodies = {s.name: s.body for s in skeleton.stages}
    return names_read([bodies[stage.name]], bodies) & bodies.keys()


_local = threading.local()


def free_skeleton(cascade: Cascade) -> Skeleton | None:
    """The cascade over units that can take any values independently of each other; None when they cannot.

    Every thread has its own: a skeleton remembers what it was asked.
    """
    if not hasattr(_local, "skeletons"):
        _local.skeletons = lru_cache(maxsize=64)(_free_skeleton)
    found: Skeleton | None = _local.skeletons(cascade)
    return found


def written_out(cascade: Cascade, e: Expr) -> Expr:
    """An expression with elementwise producers written out; contractions keep their names."""
    plain = {p.name: p for p in cascade.producers if not any(isinstance(x, Reduce) for x in walk(p.expr))}

    def inline(x: Expr) -> Expr | None:
        if isinstance(x, Ref) and x.name in plain:
            p = plain[x.name]
            return rewrite(rename_axes(p.expr, dict(zip(p.axes, x.axes, strict=True))), inline)
        return None

    return rewrite(e, inline)


def _free_skeleton(cascade: Cascade) -> Skeleton | None:
    reductions = tuple(replace(r, body=written_out(cascade, r.body)) for r in cascade.reductions)
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
