"""The mathematics of a report as MathML: definitions, corrections, update, merge, epilogue, laws."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from redfuser.api.page.markup import Markup, element, scrolled
from redfuser.api.report_text import moving
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.ir import MONOIDS, Expr, New, Old, Reduce, Ref, Var, rewrite, written_size
from redfuser.ir.ops import OPS, PIVOT, label
from redfuser.rules.language import STREAM, Condition, Law, Rule
from redfuser.rules.mathml import call, mathml, row, sign, symbol

LARGEST = 250
"""Nodes of an expression that is set as a formula; a larger one is printed as text, shared parts once."""


def formula(content: str, text: str) -> Markup:
    """A formula; `text` says the same in a line."""
    inner = Markup(content)
    return element("math", inner, display="inline", displaystyle="true", alttext=text, xmlns="http://www.w3.org/1998/Math/MathML")


def expression(e: Expr) -> Markup:
    """A formula, or text where it would be too large."""
    return element("code", str(e)) if written_size(e) > LARGEST else formula(mathml(e), str(e))


def equation(name: str, axes: tuple[str, ...], e: Expr) -> Markup:
    """`name[axes] = e`."""
    if written_size(e) > LARGEST:
        return element("code", f"{Ref(name, axes)} = {e}")
    return formula(row(symbol(name, axes), sign("="), mathml(e)), f"{Ref(name, axes)} = {e}")


def equations(label_: str, rows: Iterable[tuple[str, Markup]]) -> Markup | None:
    """Equations one under the other, each with a word before it; None without any."""
    lines = [element("tr", element("th", name, scope="row"), element("td", shown)) for name, shown in rows]
    return scrolled(label_, element("table", element("tbody", lines), class_="equations")) if lines else None


def update_of(fused: FusedCascade, a: Accumulator, text: str) -> Markup:
    """How a chunk changes an accumulator; `text`: the same as a line."""
    moves = moving(fused, a)
    chunk = rewrite(a.body, lambda e: New(e.name) if isinstance(e, Ref) and e.name in moves else None)
    correction = fused.correction(a.name)
    old: Expr = Old(a.name) if correction is None else correction
    if written_size(chunk) + written_size(old) > LARGEST:
        return element("code", f"{a.name} = {text}")
    reduced = _reduced(a, fused.cascade.axis or "", chunk)
    return formula(row(symbol(a.name, mark="new"), sign("="), _combined(a.monoid, mathml(old), reduced)),
                   f"{a.name} = {text}")


def merge_of(fused: FusedCascade, a: Accumulator, text: str) -> Markup:
    """How the states a and b of two parts combine; `text`: the same as a line."""
    found = fused.correction(a.name)
    correction: Expr = Old(a.name) if found is None else found
    if 2 * written_size(correction) > LARGEST:
        return element("code", f"{a.name} = {text}")
    sides = [mathml(rewrite(correction, partial(_renamed, side=side))) for side in "ab"]
    return formula(row(symbol(a.name), sign("="), _combined(a.monoid, *sides)), f"{a.name} = {text}")


def _renamed(e: Expr, *, side: str) -> Expr | None:
    if isinstance(e, Old):
        return Var(f"{e.name}_{side}")
    return Var(e.name) if isinstance(e, New) else None


def accumulator_of(a: Accumulator, axis: str) -> Markup:
    """What an accumulator holds."""
    if written_size(a.body) > LARGEST:
        return element("code", f"{a.name} = {label(a.monoid)}_{axis}({a.body})")
    return formula(row(symbol(a.name, a.axes), sign("="), _reduced(a, axis, a.body)),
                   f"{a.name} = {label(a.monoid)}_{axis}({a.body})")


def _reduced(a: Accumulator, axis: str, body: Expr) -> str:
    return mathml(Reduce(a.monoid, axis, body))


def _combined(monoid: str, old: str, new: str) -> str:
    if monoid == PIVOT:
        return call("nearer to 0 of", old, new)
    info = OPS[MONOIDS[monoid].combine] if monoid in MONOIDS else None
    if info is None or info.symbol is None:
        return call(label(monoid) if info is None else info.name, old, new)
    return row(old, sign({"*": "\u00d7", "&": "∧", "|": "\u2228"}.get(info.symbol, info.symbol)), new)


def law_of(law: Law) -> Markup:
    """What a law states; in words where it computes (the sum of two numbers is a number)."""
    if isinstance(law, Rule) and law.left == law.right:
        return element("span", law.law)
    if isinstance(law, Rule):
        left, right = (mathml(e, grouped=True) for e in (law.left, law.right))
        return formula(row(left, sign("="), right), f"{law.left} = {law.right}")
    return element("code", str(law.conclusion).replace(STREAM, "n"))


def conditions_of(law: Law) -> str:
    """The conditions of a law, those that only guide the search left out."""
    guides = ("varies", "nontrivial", "nonunit", "last_resort", "expandable", "separable")
    return ", ".join(map(_condition, (c for c in law.conditions if c.kind not in guides)))


def _condition(c: Condition) -> str:
    words = {"free": "is free of the stream", "positive": "> 0", "nonnegative": "≥ 0", "nonpositive": "≤ 0",
             "nonzero": "≠ 0", "number": "is a number"}
    if c.kind in words:
        return f"{c.args[0]} {words[c.kind]}"
    if c.kind == "changes":
        return f"{c.args[0]} is the old and {c.args[1]} the new value"
    return f"{c.args[0]} ≤ {c.args[1]}" if c.kind == "at_most" else str(c)
