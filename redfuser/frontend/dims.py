"""Symbolic sizes of array dimensions: a union-find that grows while a function is traced.

Each dimension of each argument starts as a size of its own. Broadcasting and contracting two dimensions together
makes their sizes one. A dimension of size 1 is not a `Dim` but the int 1: it is static.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redfuser.errors import ShapeError


class Dim:
    """A size. `name`: given by the user; `value`: the size while tracing, if known; `fixed`: the trace relies on it.
    `parts`: the sizes whose product it is, the outermost first, where a reshape has split or merged dimensions."""

    def __init__(self, name: str | None = None, value: int | None = None) -> None:
        self.name = name
        self.value = value
        self.fixed = False
        self.parts: tuple[Dim, ...] = ()
        self._parent: Dim | None = None

    def find(self) -> Dim:
        """The representative of all sizes known to be equal to this one."""
        root = self
        while root._parent is not None:
            root = root._parent
        while self._parent is not None:  # path compression
            self._parent, self = root, self._parent
        return root

    def atoms(self) -> tuple[Dim, ...]:
        """The sizes without parts whose product this one is."""
        root = self.find()
        return tuple(a for p in root.parts for a in p.atoms()) if root.parts else (root,)

    def unify(self, other: Dim) -> None:
        """Make two sizes equal.

        Raises
        ------
        ShapeError
            if they have different values or different names, or are products of different sizes.
        """
        a, b = self.find(), other.find()
        if a is b:
            return
        if a.value is not None and b.value is not None and a.value != b.value:
            raise ShapeError(f"size {a} differs from size {b}")
        if a.name is not None and b.name is not None and a.name != b.name:
            raise ShapeError(f"size {a} and size {b} have different names; give equal sizes the same name")
        a.name = b.name if a.name is None else a.name
        a.value = b.value if a.value is None else a.value
        a.fixed |= b.fixed
        if a.parts and b.parts:
            own, others = a.atoms(), b.atoms()
            if [x.value for x in own] != [x.value for x in others]:
                raise ShapeError(f"size {a} is split in two ways: {_product(own)} and {_product(others)}")
            for x, y in zip(own, others, strict=True):
                x.unify(y)
        a.parts = a.parts or b.parts
        b._parent = a

    def __str__(self) -> str:
        root = self.find()
        if root.name is not None:
            return root.name
        return "?" if root.value is None else str(root.value)


def _product(atoms: Sequence[Dim]) -> str:
    return " * ".join(map(str, atoms))


Shape = tuple[Dim | int, ...]
"""One entry per dimension: a size, or the int 1 (no other)."""


def show_shape(shape: Shape) -> str:
    """The shape as a user would write it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape by NumPy's broadcasting rules; sizes that meet become equal.

    Raises
    ------
    ShapeError
        naming all shapes, when they do not fit together.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim | int] = []
    for position in range(-rank, 0):
        found: Dim | int = 1
        for dim in _column(shapes, position):
            if isinstance(found, Dim):
                try:
                    found.unify(dim)
                except ShapeError as error:
                    listed = " and ".join(show_shape(s) for s in shapes)
                    raise ShapeError(f"shapes {listed} do not broadcast together: {error}") from None
            else:
                found = dim
        result.append(found)
    return tuple(result)


def _column(shapes: Sequence[Shape], position: int) -> Iterator[Dim]:
    """Sizes other than 1 at a (negative) position."""
    for shape in shapes:
        if -position <= len(shape):
            dim = shape[position]
            if isinstance(dim, Dim):
                yield dim
