"""Plans around a chosen one: each differs in a single decision, so that a clock can say what the model got wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from redfuser.extract import choose
from redfuser.extract.decisions import Options
from redfuser.extract.plan import Plan
from redfuser.extract.plan_time import predict_plan
from redfuser.extract.roles import NoTiles

FACTORS = (2, 0.5, 4, 0.25)
"""By which a length is changed, the nearest first."""
REGISTER_TILES = ((4, 2), (6, 2), (8, 1), (12, 1), (4, 3), (3, 3), (2, 4), (5, 2), (8, 2), (6, 4), (12, 2))
"""Rows and vectors of register tiles that are worth a try; those that spill are left out."""
STRATEGIES = ("rows", "columns", "tiles")

Replan = Callable[[Options], Plan]


@dataclass(frozen=True)
class Neighbour:
    """One other way to run: the option that asks for it, its plan and what the model says of it."""

    options: Options
    plan: Plan
    seconds: float


def neighbours(chosen: Plan, replan: Replan, sizes: Mapping[str, int]) -> list[Neighbour]:
    """The plans that differ from `chosen` in one decision, the fastest first by the model.

    `replan` makes the plan of given options for the same fusion, lengths and machine.
    """
    found: list[Neighbour] = []
    known = {replace(chosen, notes=())}
    for options in variations(chosen, sizes):
        try:
            plan = replan(options)
        except NoTiles:
            continue
        bare = replace(plan, notes=())
        if bare not in known:
            known.add(bare)
            found.append(Neighbour(options, plan, predict_plan(plan, sizes).seconds))
    return sorted(found, key=lambda n: n.seconds)


def variations(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Options]:
    """Options that change one decision of a plan; some may change nothing."""
    if plan.strategy == "elementwise":
        return
    if plan.tiles is not None:
        yield from _tiles(plan, sizes)
    elif plan.columns is not None:
        lanes = plan.profile.lanes(plan.dtype)
        yield from (Options(tile=n) for n in _around(plan.columns.columns, sizes.get(plan.columns.axis), lanes))
        yield from (Options(block=n) for n in _around(plan.columns.block, sizes.get(plan.flat.stream or "")))
    else:
        yield from _rows(plan, sizes)
    yield from (Options(strategy=s) for s in STRATEGIES if s != plan.strategy)


def _rows(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Options]:
    """Blocks, also where the row would stay whole, and chunks."""
    length = sizes.get(plan.flat.stream or "", 1)
    if length <= plan.rows.whole_row:
        yield Options(block=plan.rows.block)
    yield from (Options(block=n) for n in _around(plan.rows.block, length, 64))
    if plan.profile.threads > 1 and length > plan.rows.whole_row:
        yield from _chunks(plan.rows.chunk, choose.CHUNK, length)


def _tiles(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Options]:
    """Rows, blocks and register tiles; copies of operands; chunks."""
    d, profile = plan.tiles, plan.profile
    assert d is not None
    lanes, length = profile.lanes(plan.dtype), sizes.get(plan.flat.stream or "", 1)
    yield from (Options(tile=n) for n in _around(d.rows, sizes.get(d.roles.row or "", 1), d.mr))
    yield from (Options(block=n) for n in _around(d.block, length, d.panel))
    yield from (Options(register_tile=(m, v)) for m, v in REGISTER_TILES
                if m * v + v + 1 <= profile.registers and (m, v * lanes) != (d.mr, d.panel))
    yield from (Options(pack=copied) for copied in (True, False))
    if profile.threads > 1:
        yield from _chunks(d.chunk, 4 * d.block, length)


def _chunks(chosen: int, usual: int, length: int) -> Iterator[Options]:
    """No chunks where there are some, and others that really cut the stream."""
    if chosen:
        yield Options(chunk=0)
    near = (usual, *_around(usual)) if not chosen else _around(chosen)
    yield from (Options(chunk=n) for n in near if n < length)


def _around(value: int, extent: int | None = None, least: int = 1) -> list[int]:
    """Smaller and larger values, none below `least`; of those that reach the end of an extent one at most."""
    found: list[int] = []
    reached = {value if extent is None else min(value, extent)}
    for n in (int(value * f) for f in FACTORS):
        effective = n if extent is None else min(n, extent)
        if n >= least and effective not in reached:
            reached.add(effective)
            found.append(n)
    return found


def described(options: Options) -> str:
    """What options ask for: `block=512`; "as chosen" where they ask for nothing."""
    asked = {f.name: value for f in fields(options) if (value := getattr(options, f.name)) is not None}
    return ", ".join(f"{name}={value}" for name, value in asked.items()) or "as chosen"
