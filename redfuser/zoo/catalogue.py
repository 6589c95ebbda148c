"""All entries, and those where the derivation is known to disagree with the label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from redfuser.errors import RedfuserError
from redfuser.zoo import (
    attention,
    conditional,
    losses,
    norms,
    numerics,
    obstacles,
    order,
    planes,
    quantisation,
    routing,
    signal,
    statistics,
)
from redfuser.zoo.entry import Entry

FAMILIES = tuple(m.FAMILY for m in (attention, norms, losses, quantisation, statistics, signal, numerics, order,
                                    routing, conditional, planes, obstacles))

ENTRIES: Mapping[str, Entry] = {e.name: e for family in FAMILIES for e in family.entries}
"""Name -> entry, family after family."""

KNOWN_WRONG: Mapping[str, str] = {}
"""Name -> why the derivation does not reach the label, which stands. Nothing here may claim too few passes."""


def select(names: Iterable[str] = (), family: str | None = None) -> list[Entry]:
    """The entries asked for by name (all when there are none), of one family when it is given.

    Raises
    ------
    RedfuserError
        for an unknown name or family, with a suggestion, and a name of another family.
    """
    if family is not None and family not in {f.name for f in FAMILIES}:
        raise RedfuserError(f"--family {family!r} is unknown; families are {', '.join(f.name for f in FAMILIES)}")
    wanted = list(names)
    for name in wanted:
        if name not in ENTRIES:
            close = get_close_matches(name, ENTRIES, 1)
            raise RedfuserError(f"there is no entry {name!r}; " + (f"did you mean {close[0]}?" if close else
                                "`redfuser zoo` without a name shows all"))
        if family not in (None, ENTRIES[name].family):
            raise RedfuserError(f"the entry {name!r} is of the family {ENTRIES[name].family!r}, not {family!r}")
    chosen = [ENTRIES[n] for n in wanted] if wanted else list(ENTRIES.values())
    return [e for e in chosen if family in (None, e.family)]
