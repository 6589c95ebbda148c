"""A fused cascade as LaTeX equations."""

from __future__ import annotations

from redfuser.derivation.fusion import FusedCascade
from redfuser.ir import Reduce
from redfuser.rules.latex import latex, symbol


def latex_fusion(fused: FusedCascade) -> str:
    """An `align*` environment: accumulators, dependencies, corrections, results."""
    stream = fused.cascade.axis or ""
    lines = [rf"{symbol(a.name, a.axes)} &= {latex(Reduce(a.monoid, stream, a.body))}" for a in fused.accumulators]
    lines += [rf"{symbol(d.name, d.axes)} &= {latex(d.expr)}" for d in fused.dependencies]
    lines += [rf"{symbol(name, mark='old')} &\mapsto {latex(e)}" for name, e in fused.corrections]
    plain = {a.name: a for a in fused.accumulators}
    axes = {r.name: r.axes for r in fused.cascade.reductions}
    for name, e in fused.epilogue:
        text = latex(e)
        if name in axes and not (name in plain and text == symbol(name, plain[name].axes)):
            lines.append(rf"{symbol(name, axes[name], 'final')} &= {text}")
    body = " \\\\\n".join(lines)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"
