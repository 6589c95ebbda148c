"""Dead code: bindings, reductions and integer names that nothing reads disappear."""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.nodes import LetInt, LetScalar, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, expressions, map_bodies, nested
from redfuser.ir import Var, walk


def prune(body: Body) -> Body:
    """Remove what is never read, until nothing more goes."""
    while True:
        smaller = _once(body, _read_names(body))
        if smaller == body:
            return body
        body = smaller


def _read_names(body: Body) -> set[str]:
    return {x.name for s in nested(body) for e in expressions(s) for x in walk(e) if isinstance(x, Var)}


def _once(body: Body, read: set[str]) -> Body:
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, (LetInt, LetScalar)) and s.name not in read:
            continue
        if isinstance(s, Sweep):
            folds = tuple(f for f in s.folds if read.intersection(f.names))
            s = replace(s, reds=tuple(r for r in s.reds if r.name in read), folds=folds)
            if not (s.reds or s.puts or s.folds or s.inserts):
                continue
        s = map_bodies(s, lambda b: _once(b, read))
        if getattr(s, "body", True):
            out.append(s)
    return tuple(out)
