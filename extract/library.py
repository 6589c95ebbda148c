"""Matrix products that the algebra has left plain: those go to a library (BLAS), where that is faster.

A product inside the loop keeps its factors in cache, but a library comes closer to the peak of the machine, and needs
nothing of the loop where no correction touches the sum: RMSNorm followed by a product is a plain product, rows scaled
afterwards; quantise followed by a product is one of the quantised rows. Such a fusion falls into three parts: kernels
that compute what the product reads and what scales it, the product, and one sweep over its result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import choose
from redfuser.extract.algebra import split_factor
from redfuser.extract.flatten import Flat, flatten
from redfuser.extract.plan import Plan
from redfuser.extract.profile import Profile
from redfuser.extract.restrict import reached, restrict
from redfuser.extract.roles import TileRoles, VectorSum
from redfuser.ir import (
    OPS,
    Axis,
    Cascade,
    Expr,
    Load,
    Op,
    Out,
    Ref,
    Tensor,
    children,
    free_axes,
    has_parts,
    refs,
    walk,
    with_children,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis


@dataclass(frozen=True)
class Product:
    """`name[axes]` = sum over `stream` of left * right.

    left, right : (array, its axes); the axes of `left` end with the stream, those of `right` with stream and lane
    axes : batch axes, the row axis, the lane axis
    """

    name: str
    stream: str
    left: tuple[str, tuple[str, ...]]
    right: tuple[str, tuple[str, ...]]
    axes: tuple[str, ...]

    def __str__(self) -> str:
        (a, i), (b, j) = self.left, self.right
        return f"{self.name}[{','.join(self.axes)}] = {a}[{','.join(i)}] . {b}[{','.join(j)}]"


@dataclass(frozen=True)
class Apart:
    """A fusion whose products are computed by a library.

    before : what the products and the rest read, and outputs that need no product; None where there is nothing
    products : in any order
    after : the outputs that read products, element by element; None where each product is an output as it stands
    result : product -> the output in whose array it is computed
    """

    before: FusedCascade | None
    products: tuple[Product, ...]
    after: FusedCascade | None
    result: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        parts = [] if self.before is None else [f"before the products:\n{self.before}"]
        parts += [f"product {p}" for p in self.products]
        parts += [] if self.after is None else [f"after the products:\n{self.after}"]
        return "\n".join(parts)


@dataclass(frozen=True)
class Candidates:
    """Sums of a fusion that may be plain products: (batch axes, row axes, lane axis) of each, and the stream."""

    sums: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]
    stream: str
    axes: tuple[Axis, ...]

    @staticmethod
    def of(fused: FusedCascade, dtype: str) -> Candidates:
        """The sums without correction whose body is a weight times an array along one of its axes."""
        flat = flatten(fused, dtype)
        found = []
        for a in flat.accumulators:
            plain = a.monoid == "sum" and flat.correction(a.name) is None
            for lane in a.axes if plain else ():
                if (split := split_factor(a.body, lane)) is not None:
                    batch = tuple(x for x in a.axes if x in split[1].axes and x != lane)
                    found.append((batch, tuple(x for x in a.axes if x not in (*batch, lane)), lane))
        return Candidates(tuple(found), flat.stream or "", flat.axes)

    def pay(self, sizes: Mapping[str, int], profile: Profile, dtype: str) -> bool:
        """Whether one of them is worth a library call at these lengths."""
        if not self.sums:
            return False
        known = {a.name: sizes.get(base_axis(a.name), 1) if a.size is None else a.size for a in self.axes}

        def count(axes: Iterable[str]) -> int:
            return math.prod(known[a] for a in axes)

        itemsize, length = numpy_dtype(dtype).itemsize, known[self.stream]
        return any(choose.library_pays(profile, itemsize, count(batch), count(rows), known[lane], length)
                   for batch, rows, lane in self.sums)


def apart(plan: Plan) -> Apart | None:
    """The parts of a fusion with plain products, of which there is at least one; None where a product reads what
    changes with it, or its operands are no arrays as they stand."""
    roles = None if plan.tiles is None else plan.tiles.roles
    return None if roles is None or obstacle(plan) else _Split(plan, roles).parts()


def obstacle(plan: Plan) -> str:
    """Why no product of a fusion goes to a library, in words; "" where they all do."""
    roles = None if plan.tiles is None else plan.tiles.roles
    if roles is None or roles.row is None or not roles.vectors:
        return "the schedule has no tiles"
    if roles.contractions or roles.inner:
        return "another product feeds the stream"
    if roles.bounds:
        return "a mask ends the stream early"
    if any(has_parts(a.monoid) for a in plan.flat.accumulators):
        return "positions or sorted lists are kept beside it"
    if not all(_is_plain(v, plan) for v in roles.vectors):
        return "a sum is masked, changes with an earlier result, or its right factor has another dtype"
    return ""


def _is_plain(v: VectorSum, plan: Plan) -> bool:
    """No correction, no removed elements, a weight of final values, and an operand of the compute dtype."""
    flat = plan.flat
    index = next(i for i, names in enumerate(flat.passes) if v.name in names)
    final = {n for names in flat.passes[:index] for n in names}
    read = reached(flat, set(refs(v.weight))) & {a.name for a in flat.accumulators}
    dtypes = {t.name: t.dtype for t in flat.tensors}
    same = dtypes[v.operand.tensor] == plan.dtype
    return same and not v.live and flat.correction(v.name) is None and read <= final


class _Split:
    def __init__(self, plan: Plan, roles: TileRoles) -> None:
        self.flat: Flat = plan.flat
        self.dtype = plan.dtype
        self.stream = plan.flat.stream or ""
        self.outer = (*roles.batch, *([roles.row] if roles.row else []))
        self.vectors = {v.name: v for v in roles.vectors}
        self.lanes = {v.axis for v in roles.vectors}
        self.made: dict[Expr, Out] = {}
        self.products = {name: self._product(v) for name, v in self.vectors.items()}

    def parts(self) -> Apart:
        """See `apart`."""
        late = [o for o in self.flat.outs if refs(o.expr) & self.vectors.keys()]
        after = [Out(o.name, o.axes, self._stored(o.expr, o.axes), o.dtype) for o in late]
        early = [o for o in self.flat.outs if o not in late]
        before = self._fusion("before", restrict(self.flat, [*early, *self.made.values()]))
        axes = {p.name: p.axes for p in self.products.values()}
        result = self._results(after, axes)
        done = {(out, Load(name, axes[name])) for name, out in result}
        rest = [o for o in after if (o.name, o.expr) not in done]
        stored = [*(Tensor(o.name, o.axes, o.dtype) for o in self.made.values()),
                  *(Tensor(p.name, p.axes, self.dtype) for p in self.products.values())]
        return Apart(before, tuple(self.products.values()), self._elementwise(rest, stored), result)

    def _product(self, v: VectorSum) -> Product:
        weight, operand = v.weight, v.operand
        axes = tuple(a for a in self.outer if a in free_axes(weight))
        left, name = (*axes, self.stream), ""
        if isinstance(weight, Load) and self._native(weight) and set(weight.axes) == set(left):
            left, name = _names(weight), weight.tensor
        result = (*(a for a in self.outer if a in {*axes, *operand.axes}), v.axis)
        right = operand.tensor, _names(operand)
        return Product(v.name, self.stream, (name or self._export(weight, left), left), right, result)

    def _native(self, load: Load) -> bool:
        whole = all(isinstance(a, str) for a in load.axes)
        return whole and any(t.name == load.tensor and t.dtype == self.dtype for t in self.flat.tensors)

    def _export(self, e: Expr, axes: tuple[str, ...]) -> str:
        """The name of an array that the first part makes of an expression."""
        if e not in self.made:
            taken = {t.name for t in self.flat.tensors} | {o.name for o in self.flat.outs}
            name = next(n for i in range(len(taken) + len(self.made) + 1)
                        if (n := f"part{len(self.made) + i}") not in taken)
            self.made[e] = Out(name, axes, e, self.dtype)
        return self.made[e].name

    def _stored(self, e: Expr, axes: tuple[str, ...]) -> Expr:
        """An output over arrays: products, and the largest parts that need none of them."""
        if isinstance(e, Ref) and e.name in self.vectors:
            return Load(e.name, self.products[e.name].axes)
        if not refs(e):
            return e
        truth = isinstance(e, Op) and OPS[e.fn].kind in ("compare", "logic")
        if not truth and not refs(e) & self.vectors.keys() and not free_axes(e) & self.lanes:
            own = tuple(a for a in axes if a in free_axes(e))
            return Load(self._export(e, own), own)
        return with_children(e, tuple(self._stored(x, axes) for x in children(e)))

    def _results(self, outs: Iterable[Out], axes: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, str], ...]:
        """Products that are computed in the array of an output: the only one that reads them, of the same axes."""
        outs = list(outs)
        found: dict[str, str] = {}
        for name, own in axes.items():
            readers = [o for o in outs if any(isinstance(x, Load) and x.tensor == name for x in walk(o.expr))]
            fits = len(readers) == 1 and set(readers[0].axes) == set(own) and readers[0].dtype == self.dtype
            if fits and readers[0].name not in found.values():
                found[name] = readers[0].name
        return tuple(found.items())

    def _fusion(self, suffix: str, flat: Flat) -> FusedCascade | None:
        if not flat.outs:
            return None
        used = {x.tensor for e in _expressions(flat) for x in walk(e) if isinstance(x, Load)}
        tensors = tuple(t for t in flat.tensors if t.name in used)
        stream = flat.stream if flat.accumulators else None
        cascade = Cascade(f"{flat.name}_{suffix}", stream, flat.axes, tensors, (), (), flat.outs)
        return FusedCascade(cascade, flat.accumulators, flat.dependencies, flat.corrections, (), (), flat.passes)

    def _elementwise(self, outs: list[Out], stored: Iterable[Tensor]) -> FusedCascade | None:
        if not outs:
            return None
        used = {x.tensor for o in outs for x in walk(o.expr) if isinstance(x, Load)}
        tensors = tuple(t for t in (*self.flat.tensors, *stored) if t.name in used)
        cascade = Cascade(f"{self.flat.name}_after", None, self.flat.axes, tensors, (), (), tuple(outs))
        return FusedCascade(cascade, (), (), (), ())


def _names(load: Load) -> tuple[str, ...]:
    return tuple(a for a in load.axes if isinstance(a, str))


def _expressions(flat: Flat) -> list[Expr]:
    return [*(a.body for a in flat.accumulators), *(d.expr for d in flat.dependencies),
            *(e for _, e in flat.corrections), *(o.expr for o in flat.outs)]


def flops(products: Iterable[Product], sizes: Mapping[str, int]) -> int:
    """Operations of products at given lengths."""
    return sum(2 * math.prod(sizes[base_axis(a)] for a in (*p.axes, p.stream)) for p in products)
