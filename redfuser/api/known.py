"""What a fused function remembers of its calls: the way for arrays of the same dtypes, shapes and strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.api.program import MOST_LAYOUTS, Array, Program
from redfuser.api.replay import Likeness, Replay, likeness
from redfuser.frontend import Trace
from redfuser.frontend.guards import ScopeGuard
from redfuser.frontend.structure import Leaf


@dataclass(frozen=True)
class Known:
    """An earlier call. `single`: its result is one array, neither a scalar nor nested. `scope`: what the function read
    from outside, to be asked again."""

    trace: Trace
    replay: Replay
    single: bool
    scope: tuple[ScopeGuard, ...]


def _given(out: Any) -> Sequence[Any]:
    """The arrays of an `out=` argument; of an empty one, itself: nothing that is an array."""
    if out is None:
        return ()
    return (tuple(out) or (out,)) if isinstance(out, (list, tuple)) else (out,)


class KnownCalls:
    """Calls with NumPy arrays alone, all of them by position."""

    def __init__(self) -> None:
        self._known: dict[tuple[Likeness, Likeness], Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def again(self, args: Sequence[Any], out: Any) -> Any:
        """The result of a call that is like an earlier one; None where there was none, or this one needs more care."""
        given = () if out is None else _given(out)
        for array in (*args, *given):
            if type(array) is not np.ndarray:
                return None
        known = self._known.get((likeness(args), likeness(given)))
        if known is None or not all(guard.holds() for guard in known.scope):
            return None
        made = known.replay.run(args, given)
        if made is None:
            return None
        if out is not None:
            return out
        return made[0] if known.single else known.trace.unflatten(made)

    def remember(self, args: Sequence[Any], out: Any, program: Program, arrays: Mapping[str, Array]) -> None:
        """Keep a call for `again`, unless something besides its arrays decides what the next one does."""
        given, trace = _given(out), program.trace
        scope = tuple(g for g in trace.guards if isinstance(g, ScopeGuard))
        if trace.checks or trace.assumptions or any(trace.nodes[i].weak for i in trace.outputs):
            return
        if any(type(a) is not np.ndarray for a in (*args, *given)):
            return
        replay = program.replay(arrays, program.check_outs(given) if given else {})
        if replay is not None:
            if len(self._known) >= MOST_LAYOUTS:
                self._known.clear()
            single = isinstance(trace.structure, Leaf) and bool(trace.nodes[trace.outputs[0]].shape)
            self._known[likeness(args), likeness(given)] = Known(trace, replay, single, scope)
