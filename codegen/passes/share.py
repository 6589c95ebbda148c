"""Sharing between sweeps: a costly term met in several sweeps over one range is computed once and kept.

The first sweep that meets it stores it, the later ones load it. Its home is an output row that a later sweep writes
anyway with plain stores (its lines are fetched while the first sweep computes), else scratch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, Put, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, depends_on, lane_expressions, map_lanes
from redfuser.ir import Expr, Var, children, is_costly, op, rewrite, walk


@dataclass(frozen=True)
class Shared:
    """A rewritten statement list, the scratch it needs and what was shared."""

    body: Body
    scratch: tuple[Buf, ...]
    terms: tuple[Expr, ...]


def share(body: Body, lane: str, extent: tuple[Expr, ...], names: Names, compute: str) -> Shared:
    """Share costly terms between the sweeps over `lane` of one statement list (not of nested bodies).

    Parameters
    ----------
    extent : shape of a scratch row that holds one sweep's range, padding included
    """
    sweeps = [s for s in body if isinstance(s, Sweep) and s.var == lane]
    groups: dict[tuple[Expr, Expr], list[Sweep]] = {}
    for s in sweeps:
        groups.setdefault((s.lo, s.hi), []).append(s)
    scratch: list[Buf] = []
    terms: list[Expr] = []
    for (lo, _), group in groups.items():
        repeated = _repeated_terms(group, lane)
        homes: dict[Expr, At] = {}
        for term in repeated:
            home = _output_home(group, term, homes.values(), lane, compute)
            if home is None:
                buf = Buf(names.fresh("kept"), extent, "local", compute)
                scratch.append(buf)
                home = At(buf, (op("sub", Var(lane), lo),))
            homes[term] = home
        body = _rewritten(body, group, homes)
        terms += repeated
    return Shared(body, tuple(scratch), tuple(terms))


def _costly_terms(e: Expr, lane: str) -> Iterable[Expr]:
    if is_costly(e) and depends_on(e, lane):
        yield e
        return
    for c in children(e):
        yield from _costly_terms(c, lane)


def _repeated_terms(group: list[Sweep], lane: str) -> list[Expr]:
    """Costly terms that occur in more than one sweep of the group."""
    seen: dict[Expr, set[int]] = {}
    for i, s in enumerate(group):
        for e in lane_expressions(s):
            for t in _costly_terms(e, lane):
                seen.setdefault(t, set()).add(i)
    return [t for t, where in seen.items() if len(where) > 1]


def _output_home(group: list[Sweep], term: Expr, taken: Iterable[At], lane: str, compute: str) -> At | None:
    """An output row written at the very end of the group, whose stores lose nothing of the term."""
    used = {cell.buf for cell in taken}
    last = group[-1]
    for p in last.puts:
        buf = p.cell.buf
        plain = buf.home == "global" and buf.dtype == compute and not p.stream and buf not in used
        unit = buf.unit is not None and depends_on(p.cell.idx[buf.unit], lane)
        others = sum(depends_on(i, lane) for i in p.cell.idx) == 1
        alone = sum(q.cell.buf == buf for s in group for q in s.puts) == 1
        if plain and unit and others and alone and _first_use(group, term) < len(group) - 1:
            return p.cell
    return None


def _first_use(group: list[Sweep], term: Expr) -> int:
    return next(i for i, s in enumerate(group) if _holds(s, term))


def _holds(s: Sweep, term: Expr) -> bool:
    return any(term in walk(e) for e in lane_expressions(s))


def _rewritten(body: Body, group: list[Sweep], homes: dict[Expr, At]) -> Body:
    """Store every shared term in its first sweep, load it in the others."""
    first = {term: group[_first_use(group, term)] for term in homes}
    out: list[Stmt] = []
    for s in body:
        if not (isinstance(s, Sweep) and any(s is g for g in group)):
            out.append(s)
            continue
        stores = tuple(Put(homes[t], t) for t, owner in first.items() if owner is s)
        # the sweep's own expressions may read the cell as well: a put of the same sweep comes first
        loaded = map_lanes(s, lambda e: rewrite(e, homes.get))
        out.append(replace(loaded, puts=(*stores, *loaded.puts)))
    return tuple(out)
