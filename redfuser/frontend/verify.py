"""Check at call time what a program assumes: stated conditions, labels, and elements where a maximum is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redfuser import settings
from redfuser.errors import AssumptionError, LabelError, ShapeError
from redfuser.frontend.graph import Shape, Trace, TraceNode
from redfuser.frontend.replay import Replay


def checks_wanted() -> bool:
    """Whether `$REDFUSER_CHECK` asks for checks that cost time in every call.

    Raises
    ------
    SettingError
        when the variable is neither on nor off.
    """
    return settings.switch(settings.CHECK, default=False)


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


def refuse_labels(trace: Trace, arrays: Mapping[str, Any]) -> None:
    """Raise when a label lies outside the axis it chooses from. Labels are few beside the elements they choose from.

    Raises
    ------
    LabelError
        with the line that chooses.
    """
    sizes = trace.size_values({name: np.shape(arrays[name]) for name in trace.arguments})
    replay = Replay(trace, arrays, sizes)
    for position, length in trace.checks:
        labels, n = np.asarray(replay.value(position)), replay.value(length)
        if labels.size and not -n <= labels.min() <= labels.max() < n:
            outside = int(((labels < -n) | (labels >= n)).sum())
            raise LabelError(f"{trace.name}: {outside} of {labels.size} labels are outside the axis they choose from; "
                             "replace them first, np.where(labels == ignore, 0, labels)\n"
                             f"  at {trace.nodes[length].source}")


_EXTREMES = {"maximum": "maximum", "minimum": "minimum", "argmax": "arg max", "argmin": "arg min"}
"""Ufunc or monoid -> what to call a reduction that has no value where there are no elements."""


def refuse_empty(trace: Trace, sizes: Mapping[str, int]) -> None:
    """Raise when an output needs the maximum or minimum of no elements. `sizes`: length of every size of the trace.

    Raises
    ------
    ShapeError
        with the line that takes it.
    """

    def lengths(shape: Shape) -> list[int]:
        return [sizes[e] if isinstance(e, str) else e for e in shape]

    needed = set(trace.outputs)
    for position in reversed(range(len(trace.nodes))):
        if position not in needed:
            continue
        n = trace.nodes[position]
        needed.update(n.inputs)
        kind = _EXTREMES.get(n.param[0]) if n.op in ("reduce", "parts") else None
        if kind is None or 0 in lengths(n.shape):
            continue  # as in NumPy, no result is asked for where all results are empty
        given = lengths(trace.nodes[n.inputs[0]].shape)
        if 0 in given:
            raise ShapeError(f"{trace.name}: {_named(n)}the {kind} over an axis of length 0 (an array of shape "
                             f"{tuple(given)}) does not exist, as in NumPy; pass at least one element"
                             + (f"\n  at {n.source}" if n.source is not None else ""))


def _named(n: TraceNode) -> str:
    """The variable that a node is stored in, for a message."""
    return f"{n.source.target!r} cannot be computed: " if n.source is not None and n.source.target else ""
