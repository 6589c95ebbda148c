"""Several axes as one stream axis: names of products, and expressions over the parts rewritten over the product."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from redfuser.ir.expr import Expr, Idx, Load, Op, Size, op
from redfuser.ir.term import Axis, Tensor, Term, View, base_axis


class Products:
    """The product axes of a term, each named once. `taken`: names that are in use."""

    def __init__(self, term: Term, taken: Iterable[str]) -> None:
        self.sizes = {base_axis(a.name): a.size for a in term.axes}
        self.taken = {*taken, *self.sizes}
        self._axes: dict[tuple[str, ...], Axis] = {}

    def fresh(self, name: str) -> str:
        """A name that is not in use, like `name`."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def axis(self, parts: tuple[str, ...]) -> Axis:
        """The product of axes."""
        if parts not in self._axes:
            lengths = [self.sizes[base_axis(p)] for p in parts]
            size = None if None in lengths else math.prod(n for n in lengths if n is not None)
            self._axes[parts] = Axis(self.fresh("_".join(map(base_axis, parts))), size, parts)
        return self._axes[parts]

    def flattening(self, stream: tuple[str, ...]) -> Flattening:
        """How a cascade over these axes writes its expressions."""
        return Flattening(self, stream)


class Flattening:
    """Rewrites expressions over the axes of a stream to its product; nothing to do for a stream of one axis.

    axis : the name of the stream, None for an elementwise piece
    """

    def __init__(self, products: Products, stream: tuple[str, ...]) -> None:
        self.stream = stream
        self._products = products
        self._views: dict[View, str] = {}
        self._product = products.axis(stream) if len(stream) > 1 else None
        self.axis = self._product.name if self._product is not None else stream[0] if stream else None

    def product(self) -> tuple[Axis, ...]:
        """The product axis, when there is one."""
        return () if self._product is None else (self._product,)

    def merged(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """`axes` with the parts of the stream, wherever they stand, as one axis."""
        if self._product is None:
            return axes
        name = self._product.name
        return tuple(dict.fromkeys(name if a in self.stream else a for a in axes))

    def leaf(self, e: Expr) -> Expr | None:
        """An element, a position or the number of positions along the product; None where nothing changes."""
        if self._product is None:
            return None
        if isinstance(e, Load) and set(self.stream) & set(e.axes):
            return self._load(e)
        if isinstance(e, Idx) and e.axis in self.stream:
            return self._position(self.stream.index(e.axis))
        if isinstance(e, Op) and e.fn == "mul":
            return self._length(e)
        return None

    def _load(self, e: Load) -> Load:
        view = View(e.tensor, e.axes)
        if view not in self._views:
            self._views[view] = self._products.fresh(f"{e.tensor}_flat")
        return Load(self._views[view], self.merged(_named(e.axes)))

    def _position(self, i: int) -> Expr:
        """Position along part `i`: what remains after the outer parts, over the inner lengths."""
        assert self._product is not None
        e: Expr = Idx(self._product.name)
        inner = self.stream[i + 1 :]
        if inner:
            e = op("idiv", e, _product_of(inner))
        return op("imod", e, Size(base_axis(self.stream[i]))) if i else e

    def _length(self, e: Op) -> Expr | None:
        """|h| * |w| * ... as the length of the product."""
        assert self._product is not None
        found = _factors(e)
        wanted = Counter(base_axis(p) for p in self.stream)
        have = Counter(base_axis(f.axis) for f in found if isinstance(f, Size))
        if any(have[a] < n for a, n in wanted.items()):
            return None
        kept: Expr = Size(self._product.name)
        for f in found:
            if isinstance(f, Size) and wanted[base_axis(f.axis)] > 0:
                wanted[base_axis(f.axis)] -= 1
            else:
                kept = op("mul", kept, f)
        return kept

    def views(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The flattened tensors, as far as they have been used."""
        return tuple(
            Tensor(name, self.merged(_named(view.index)), tensors[view.source].dtype, view)
            for view, name in self._views.items()
        )


def _named(index: tuple[str | int, ...]) -> tuple[str, ...]:
    return tuple(a for a in index if isinstance(a, str))


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Op) and e.fn == "mul":
        return [f for a in e.args for f in _factors(a)]
    return [e]


def _product_of(axes: tuple[str, ...]) -> Expr:
    e: Expr = Size(base_axis(axes[0]))
    for a in axes[1:]:
        e = op("mul", e, Size(base_axis(a)))
    return e
