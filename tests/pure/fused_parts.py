"""What cascades fused by hand are made of: rows of x[p, n], softmax's accumulators, inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from redfuser.derivation.fusion import COUNT, Accumulator, FusedCascade
from redfuser.ir import Axis, Cascade, Const, Expr, Let, Load, New, Old, Out, Reduction, Ref, Tensor

ROW = ("p",)
X, Y = Load("x", ("p", "n")), Load("y", ("p", "n"))
M, L = Ref("m", ROW), Ref("l", ROW)
SHIFT = np.exp(Old("m") - New("m"))
COUNTER = Accumulator(COUNT, "sum", Const(1.0), ())
MAX_X = Accumulator("m", "max", X, ROW)
SUM_EXP = Accumulator("l", "sum", np.exp(X - M), ROW)


def inputs(dtype: str, names: str) -> tuple[Tensor, ...]:
    """Tensors by their letters: x and y over rows and stream, g and b over the stream."""
    axes = {"x": ("p", "n"), "y": ("p", "n"), "g": ("n",), "b": ("n",)}
    return tuple(Tensor(name, axes[name], dtype) for name in names)


def over_rows(
    name: str,
    tensors: tuple[Tensor, ...],
    reductions: tuple[Reduction, ...],
    outs: tuple[Out, ...],
    axes: tuple[Axis, ...] = (),
) -> Cascade:
    """A cascade over n with rows p, and with further axes if given."""
    return Cascade(name, "n", (Axis("p"), Axis("n"), *axes), tensors, (), reductions, outs)


def by_hand(
    cascade: Cascade,
    accumulators: tuple[Accumulator, ...],
    *,
    deps: tuple[Let, ...] = (),
    corrections: Mapping[str, Expr] | None = None,
    epilogue: Mapping[str, Expr] | None = None,
    passes: tuple[tuple[str, ...], ...] | None = None,
) -> FusedCascade:
    """A fused form: results are accumulators unless `epilogue` says otherwise, and all is one pass unless told."""
    by_default = {r.name: Ref(r.name, r.axes) for r in cascade.reductions}
    return FusedCascade(
        cascade,
        accumulators,
        deps,
        tuple((corrections or {}).items()),
        tuple((by_default | dict(epilogue or {})).items()),
        passes=passes or (tuple(a.name for a in accumulators),),
    )
