"""A chain of reductions as a drawing: rows by dependency, few crossings, curves around what lies between.

Layered drawing after Sugiyama, Tagawa and Toda 1981: ranks by the longest path, invisible nodes where an edge passes
a rank, rows ordered by the mean position of their neighbours, then moved towards it as far as there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from redfuser.api.page.markup import Markup, element

MOST = 60
"""Nodes of a graph that is worth a drawing."""
LETTER = 6.8
"""Width of a letter of a formula."""
WIDEST = 36
"""Letters of a formula that are shown; the whole is in the title of its box."""
HEIGHT, GAP, ROW = 50.0, 22.0, 88.0
"""Of a box, between boxes, from row to row."""
SWEEPS = 6


@dataclass(frozen=True)
class Vertex:
    """A box: `kind` is input, producer, reduction or output; `caption` stands beside the name."""

    name: str
    kind: str
    caption: str
    formula: str
    refused: bool = False


@dataclass
class _Place:
    """Where something stands in a row; without a vertex it is the bend of an edge."""

    rank: int
    width: float
    vertex: Vertex | None = None
    x: float = 0.0
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)


def drawing(label: str, vertices: Sequence[Vertex], reads: Mapping[str, Sequence[str]]) -> Markup:
    """The SVG. `reads`: name -> names of the vertices that it reads; they form no circle."""
    rows, chains = _arranged(vertices, reads)
    width = max((p.x + p.width / 2 for row in rows for p in row), default=0.0) + 8
    height = (len(rows) - 1) * ROW + HEIGHT + 16
    boxes = [_box(p) for row in rows for p in row]
    return element(
        "svg", element("title", label), [_edge(chain) for chain in chains], boxes,
        viewBox=f"0 0 {width:.0f} {height:.0f}", width=round(width), height=round(height), role="img",
        aria_label=label, xmlns="http://www.w3.org/2000/svg",
    )


def _arranged(vertices: Sequence[Vertex],
              reads: Mapping[str, Sequence[str]]) -> tuple[list[list[_Place]], list[list[_Place]]]:
    """The rows, and for every edge the places it runs through."""
    ranks: dict[str, int] = {}

    def rank(name: str) -> int:
        if name not in ranks:
            ranks[name] = max((rank(n) + 1 for n in reads.get(name, ())), default=0)
        return ranks[name]

    places = {v.name: _Place(rank(v.name), _width(v), v) for v in vertices}
    for v in vertices:  # an input stands just above its first reader
        users = [ranks[n] for n in places if v.name in reads.get(n, ())]
        if not reads.get(v.name) and users:
            places[v.name].rank = min(users) - 1
    rows: list[list[_Place]] = [[] for _ in range(max((p.rank for p in places.values()), default=0) + 1)]
    for p in places.values():
        rows[p.rank].append(p)
    chains = []
    for name, p in places.items():
        for source in reads.get(name, ()):
            chain = [places[source]]
            for r in range(places[source].rank + 1, p.rank):
                bend = _Place(r, 6.0)
                rows[r].append(bend)
                chain.append(bend)
            chain.append(p)
            for a, b in pairwise(chain):
                a.below.append(b)
                b.above.append(a)
            chains.append(chain)
    _order(rows)
    return rows, chains


def _width(v: Vertex) -> float:
    head = len(v.name) * 8.2 + len(v.caption) * 6.2 + 14
    return max(head, min(len(v.formula), WIDEST) * LETTER, 60.0) + 20


def _order(rows: list[list[_Place]]) -> None:
    for row in rows:
        _spread(row, [0.0] * len(row))
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            wanted = {id(p): _mean(p.above if down else p.below, p.x) for p in row}
            row.sort(key=lambda p: wanted[id(p)])
            _spread(row, [wanted[id(p)] for p in row])
    for row in rows:
        _spread(row, [_mean([*p.above, *p.below], p.x) for p in row])
    left = min((p.x - p.width / 2 for row in rows for p in row), default=0.0) - 8
    for row in rows:
        for p in row:
            p.x -= left


def _mean(places: Sequence[_Place], otherwise: float) -> float:
    return sum(p.x for p in places) / len(places) if places else otherwise


def _spread(row: list[_Place], wanted: Sequence[float]) -> None:
    """Put a row, in its order, near the wanted positions without overlaps."""
    at = -float("inf")
    for p, x in zip(row, wanted, strict=True):
        p.x = max(x, at + p.width / 2)
        at = p.x + p.width / 2 + GAP
    if row:  # what was pushed to the right moves everything back by the mean
        shift = sum(x - p.x for p, x in zip(row, wanted, strict=True)) / len(row)
        for p in row:
            p.x += shift


def _top(p: _Place) -> float:
    return p.rank * ROW + 8


def _edge(chain: Sequence[_Place]) -> Markup:
    start = chain[0]
    path, x, y = [f"M{start.x:.1f} {_top(start) + HEIGHT:.1f}"], start.x, _top(start) + HEIGHT
    for p in chain[1:]:
        end = _top(p) - (6 if p.vertex else 0)
        half = (end - y) / 2
        path.append(f"C{x:.1f} {y + half:.1f} {p.x:.1f} {end - half:.1f} {p.x:.1f} {end:.1f}")
        x, y = p.x, end
        if p.vertex is None:
            y = _top(p) + HEIGHT
            path.append(f"V{y:.1f}")
    tip = f"M{x:.1f} {y + 6:.1f}l-4.5 -8h9z"
    return element("g", element("path", d="".join(path), class_="edge"), element("path", d=tip, class_="head"))


def _box(p: _Place) -> Markup | None:
    v = p.vertex
    if v is None:
        return None
    x, y = p.x - p.width / 2, _top(p)
    formula = v.formula if len(v.formula) <= WIDEST else v.formula[: WIDEST - 1] + "…"
    kind = f"box {v.kind} refused" if v.refused else f"box {v.kind}"
    return element(
        "g", element("title", f"{v.name}: {v.caption} {v.formula}"),
        element("rect", x=x, y=y, width=p.width, height=HEIGHT, rx=6, class_=kind),
        element("text", v.name, x=x + 10, y=y + 20, class_="name"),
        element("text", v.caption, x=x + p.width - 10, y=y + 20, class_="small", text_anchor="end"),
        element("text", formula, x=x + 10, y=y + 38, class_="formula"),
    )
