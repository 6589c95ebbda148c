"""The code that shows a failure: the subject, the input, the way that goes wrong. It can be pasted and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redfuser.derivation import FusedCascade
from redfuser.ir.views import stream_length
from redfuser.testing.result import TARGETS, Way
from redfuser.testing.subjects import Arrays, CascadeSubject, Subject
from redfuser.testing.text import arrays_text

GIVEN_FORM = "# fused: the form that was given to check_fusion"
"""The line of a snippet in the place of the derivation."""


def snippet(subject: Subject, arrays: Arrays, way: Way, wrong: str) -> str:
    """Python text that shows the failure. `wrong`: the result that is wrong, "" for an exception."""
    setup, name = subject.text()
    lines = [setup, arrays_text(arrays)]
    if isinstance(subject, CascadeSubject) and way.level in ("stream", "merge"):
        lines += ["from redfuser.derivation import derive_cascade, run_fused",
                  f"fused = derive_cascade({name}).fused" if subject.options.fused is None else GIVEN_FORM,
                  f"got = run_fused(fused, arrays, {_explicit(subject, arrays, way)})",
                  f"want = run_cascade({name}, arrays, np.longdouble)",
                  _show(wrong if wrong in _names(subject) else "")]
    else:
        targets = (way.level,) if way.level in TARGETS else ()
        given = subject.options.names if isinstance(subject, CascadeSubject) else ()
        options = ("trials=0", f"targets={targets!r}", *(f"{n}={n}" for n in given))
        lines += ["from redfuser.testing import check_fusion",
                  *(GIVEN_FORM if n == "fused" else f"# {n}: what was given to check_fusion" for n in given),
                  f"print(check_fusion({', '.join((name, '*arrays.values()', *options))}))"]
    return "\n".join(lines)


def _show(name: str) -> str:
    return f"print(got[{name!r}], want[{name!r}])" if name else "print(got, want)"


def _names(subject: CascadeSubject) -> set[str]:
    return {r.name for r in subject.original.reductions} | {o.name for o in subject.original.outs}


def _explicit(subject: CascadeSubject, arrays: Arrays, way: Way) -> str:
    """The keyword arguments of `run_fused` that repeat a way, as text."""
    how = way.arguments()
    if not way.parts:
        how["chunks"] = [1] * stream_of(subject.fused, arrays, {})
    return ", ".join(f"{k}={v}" for k, v in how.items() if v is not None and (k != "seed" or way.parts))


def stream_of(fused: FusedCascade, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Length of the stream axis; 1 for a cascade without one."""
    length = stream_length(fused.cascade, arrays, sizes)
    return 1 if length is None else length
