"""The part of a flattened fusion that some outputs need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redfuser.extract.flatten import Flat
from redfuser.ir import New, Old, Out, refs, walk


def restrict(flat: Flat, outs: Iterable[Out]) -> Flat:
    """The part of a fusion that some of its outputs need."""
    outs = tuple(outs)
    needed = reached(flat, {n for o in outs for n in refs(o.expr)})
    passes = tuple(kept for p in flat.passes if (kept := tuple(n for n in p if n in needed)))
    return replace(
        flat,
        accumulators=tuple(a for a in flat.accumulators if a.name in needed),
        dependencies=tuple(d for d in flat.dependencies if d.name in needed),
        corrections=tuple((n, e) for n, e in flat.corrections if n in needed),
        outs=outs,
        passes=passes,
    )


def reached(flat: Flat, names: set[str]) -> set[str]:
    """Names reachable through bodies, dependencies and corrections."""
    reads: dict[str, set[str]] = {a.name: set(refs(a.body)) for a in flat.accumulators}
    reads |= {d.name: set(refs(d.expr)) for d in flat.dependencies}
    for name, e in flat.corrections:
        reads[name] |= {x.name for x in walk(e) if isinstance(x, (Old, New))}
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += reads[name]
    return found
