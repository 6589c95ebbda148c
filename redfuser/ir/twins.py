"""Results read at two positions: a reduction r[i] that its cascade also reads as r[j] gets a twin over j.

In a loop, r[i] and r[j] are running values of different elements. With a definition of its own for each, a stage that
reads both is one like any other: sum_n (x[n,i] - r[i]) (x[n,j] - r[j]).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redfuser.ir.expr import Expr, Ref
from redfuser.ir.folding import references, stream_of
from redfuser.ir.term import Let, base_axis
from redfuser.ir.traverse import rename_axes, rewrite


class NoTwin(Exception):
    """A result is read where no twin can stand."""


class Twins:
    """The twins that expressions need of the stages over `stream`.

    stages : the stages by name, twins included
    added : the twins in order, each after those it reads
    fresh : a name that is not in use, like the one given
    """

    def __init__(self, stages: Mapping[str, Let], stream: tuple[str, ...], known: Mapping[Ref, str],
                 fresh: Callable[[str], str]) -> None:
        self.stages, self.stream, self.fresh = stages, stream, fresh
        self.known = dict(known)
        self.added: list[Let] = []

    def of(self, e: Expr) -> Expr:
        """The expression over results at their own axes.

        Raises
        ------
        NoTwin
            when a result is read along the stream, or twice along one axis: it must be complete.
        """
        names = {r: self._name(r) for r in sorted(references(e), key=str)
                 if r.name in self.stages and r.axes != self.stages[r.name].axes}
        return rewrite(e, lambda x: Ref(names[x], x.axes) if isinstance(x, Ref) and x in names else None)

    def _name(self, ref: Ref) -> str:
        if ref not in self.known:
            stage = self.stages[ref.name]
            if len(set(ref.axes)) < len(ref.axes) or set(self.stream) & set(ref.axes):
                raise NoTwin(f"{ref} is not the result of one more reduction over {', '.join(self.stream)}")
            copy = Let(stage.name, ref.axes, rename_axes(stage.expr, dict(zip(stage.axes, ref.axes, strict=True))))
            if stream_of(copy) != self.stream:
                raise NoTwin(f"{ref} runs along the stream under another name")
            expr = self.of(copy.expr)
            name = self.fresh(f"{stage.name}_at_{'_'.join(map(base_axis, ref.axes))}")
            self.known[ref] = name
            self.added.append(Let(name, ref.axes, expr))
        return self.known[ref]
