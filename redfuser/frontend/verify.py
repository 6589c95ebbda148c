"""Check at call time that the data meet what the program assumes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from redfuser.errors import AssumptionError
from redfuser.frontend.graph import Trace
from redfuser.frontend.replay import Replay

CHECK_VARIABLE = "REDFUSER_CHECK"


def checks_wanted() -> bool:
    """Whether `$REDFUSER_CHECK` asks for checks that cost time in every call."""
    return os.environ.get(CHECK_VARIABLE, "") not in ("", "0")


def verify_assumptions(trace: Trace, arrays: Mapping[str, Any]) -> None:
    """Evaluate every condition that was stated by `rf.assume` on the arguments of a call, by the definition in NumPy.

    Raises
    ------
    AssumptionError
        with the condition that is false, the line that states it, and for how many elements it is.
    """
    sizes = trace.size_values({name: np.shape(arrays[name]) for name in trace.arguments})
    replay = Replay(trace, arrays, sizes)
    for position in trace.assumptions:
        holds = np.asarray(replay.value(position))
        if not holds.all():
            source = trace.nodes[position].source
            stated = f" stated at {source}" if source is not None else ""
            raise AssumptionError(f"{trace.name}: the condition{stated} is false for {int((~holds).sum())} of "
                                  f"{holds.size} elements; results may be wrong. Correct the data or the condition")
