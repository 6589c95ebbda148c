"""The plan: which schedule a fusion gets, with every decision as a number and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from redfuser.derivation.fusion import FusedCascade, check_fusion_node
from redfuser.errors import DTypeError
from redfuser.extract.decisions import ColumnDecisions, Options, RowDecisions, Setting, TileDecisions
from redfuser.extract.exponents import mark_exponents
from redfuser.extract.flatten import Flat, flatten
from redfuser.extract.masks import guard_removed
from redfuser.extract.nans import loose_extremes
from redfuser.extract.plan_rows import column_decisions, row_decisions
from redfuser.extract.plan_tiles import tile_decisions
from redfuser.extract.profile import Profile
from redfuser.extract.roles import NoTiles
from redfuser.ir import Axis
from redfuser.ir.term import base_axis


@dataclass(frozen=True)
class Plan:
    """A schedule for one fusion: everything `redfuser.codegen.build` reads.

    strategy is "elementwise", "rows", "columns" or "tiles"; `notes` gives the reasons in words.
    """

    flat: Flat
    profile: Profile
    dtype: str
    layouts: tuple[tuple[str, str | None], ...]
    strategy: str
    rows: RowDecisions
    tiles: TileDecisions | None = None
    columns: ColumnDecisions | None = None
    notes: tuple[str, ...] = ()

    def layout(self, name: str) -> str | None:
        """The contiguous axis of a tensor or an output."""
        return dict(self.layouts)[name]

    def __str__(self) -> str:
        return "\n".join([f"plan {self.flat.name}: {self.strategy}", *(f"  {n}" for n in self.notes)])


def plan(
    fused: FusedCascade,
    sizes: Mapping[str, int],
    profile: Profile,
    layouts: Mapping[str, str | None] | None = None,
    dtype: str = "float32",
    options: Options | None = None,
) -> Plan:
    """Choose a schedule from axis roles, example lengths, memory layouts and the machine.

    Parameters
    ----------
    sizes : example length of every axis; hints, except that a tile schedule is specialised for the lengths of its
        contraction and vector axes
    layouts : tensor or output name -> its axis of element stride 1, or None; the last axis where not given
    dtype : float32 or float64, the dtype vector arithmetic runs in

    Raises
    ------
    DTypeError
        for another compute dtype.
    """
    if dtype not in ("float32", "float64"):
        raise DTypeError(f"dtype {dtype!r} is no compute dtype; use 'float32' or 'float64'")
    check_fusion_node(fused)
    flat = mark_exponents(flatten(fused, dtype))
    flat = replace(flat, loose=loose_extremes(flat))
    arrays = {t.name: t.axes for t in flat.tensors} | {o.name: o.axes for o in flat.outs}
    known = {name: axes[-1] if axes else None for name, axes in arrays.items()} | dict(layouts or {})
    hints = {a.name: max(1, _hint(a, sizes)) for a in flat.axes}
    setting = Setting(flat, hints, profile, known, dtype, options or Options())
    rows, row_notes = row_decisions(setting)
    common = (flat, profile, dtype, tuple(sorted(known.items())))
    if flat.stream is None:
        return Plan(*common, "elementwise", rows, notes=("no reduction: one sweep per output",))
    tiles, notes = _try_tiles(setting, sizes)
    if tiles is not None:
        return Plan(*common, "tiles", rows, tiles, notes=notes)
    columns = column_decisions(setting)
    common = (guard_removed(flat), *common[1:])
    if columns is not None:
        return Plan(*common, "columns", rows, columns=columns[0], notes=(*notes, *columns[1]))
    return Plan(*common, "rows", rows, notes=(*notes, *row_notes))


def _try_tiles(setting: Setting, sizes: Mapping[str, int]) -> tuple[TileDecisions | None, tuple[str, ...]]:
    """The tile decisions and their notes, or None and the reason.

    Raises
    ------
    NoTiles
        with the reason, when the caller asked for tiles by name.
    """
    if setting.options.strategy not in (None, "tiles"):
        return None, ()
    try:
        return tile_decisions(setting, sizes)
    except NoTiles as reason:
        if setting.options.strategy == "tiles":
            raise
        return None, (f"no tiles: {reason}",)


def _hint(axis: Axis, sizes: Mapping[str, int]) -> int:
    return axis.size if axis.size is not None else sizes.get(base_axis(axis.name), 1)
