"""Markup that cannot forget to escape: what is not `Markup` already is text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = frozenset({"br", "hr", "meta"})


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
"""Markup, text to be escaped, several of them, or nothing."""


def join(*children: Child) -> Markup:
    """Children one after another."""
    return Markup("".join(map(_text, children)))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return child if isinstance(child, Markup) else escape(child)
    return join(*child)


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. `class_` is the attribute class, other underscores are hyphens; None leaves an attribute out."""
    given = "".join(f' {k.rstrip("_").replace("_", "-")}="{escape(_value(v))}"'
                    for k, v in attributes.items() if v is not None)
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def details(title: Child, *children: Child, open_: bool = False) -> Markup:
    """Something that opens on a click or by the keyboard."""
    return element("details", element("summary", title), *children, **({"open": ""} if open_ else {}))


def scrolled(label: str, *children: Child) -> Markup:
    """Something that may be wider than the screen; it scrolls by itself, by the keyboard too."""
    return element("div", *children, class_="scroll", role="region", aria_label=label, tabindex="0")


def table(label: str, columns: Iterable[str], rows: Iterable[Iterable[Child]], numbers: Iterable[str] = ()) -> Markup:
    """A table with named columns; those in `numbers` align right."""
    names, right = list(columns), set(numbers)
    head = element("tr", [element("th", c, scope="col", class_="number" if c in right else None) for c in names])
    body = [element("tr", [element("td", cell, class_="number" if c in right else None)
                           for c, cell in zip(names, row, strict=True)]) for row in rows]
    return scrolled(label, element("table", element("thead", head), element("tbody", body)))


def facts(rows: Iterable[tuple[Child, Child]]) -> Markup:
    """Names with what is said of each."""
    return element("dl", [(element("dt", name), element("dd", text)) for name, text in rows])
