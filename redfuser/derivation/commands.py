"""Commands of the engine, built from their text without its parser.

The parser of the bindings attaches to every node of a command a span that holds a copy of the whole text, on the way
out and again on the way in: quadratic in the length of a goal, and most of the time of a small saturation. Commands
built here share one short text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from redfuser.rules.encoding import Sexp, parse_all

KEPT = 4096
"""Programs that are kept for the next time."""


@lru_cache(maxsize=KEPT)
def program(text: str) -> tuple[Any, ...] | None:
    """The commands of a text; None when there is one among them that is left to the parser (declarations, mistakes)."""
    try:
        commands = tuple(map(_command, parse_all(text)))
    except ValueError:  # let the parser say what is wrong
        return None
    return None if None in commands else commands


@lru_cache(maxsize=KEPT)
def expression(text: str) -> Any:
    """An expression of the bindings."""
    (only,) = parse_all(text)
    return _expression(only)


def lines(text: str) -> Iterator[str]:
    """Declarations one by one: each is parsed with spans of its own short text."""
    return (line for line in text.splitlines() if line)


@lru_cache(maxsize=1)
def _nowhere() -> Any:
    """The place of every node: errors print it."""
    import egglog.bindings as b

    return b.EgglogSpan(b.SrcFile(None, "goal"), 0, 4)


def _command(x: Sexp) -> Any:
    import egglog.bindings as b

    span = _nowhere()
    head, args = x[0], x[1:]
    if head == "union":
        return b.ActionCommand(b.Union(span, *map(_expression, args)))
    if head == "run-schedule":
        return b.RunSchedule(b.Sequence(span, [_schedule(a) for a in args]))
    if head == "run":
        return b.RunSchedule(_schedule(["run", args[0]]))
    if head == "print-size":
        return b.PrintSize(span, None)
    if head == "extract":
        return b.Extract(span, _expression(args[0]), b.Lit(span, b.Int(0)))
    if head == "check":
        return b.Check(span, [b.Fact(_expression(a)) for a in args])
    if head in _DECLARATIONS:
        return None
    return b.ActionCommand(b.Expr_(span, _expression(x)))


_DECLARATIONS = frozenset({"ruleset", "unstable-combined-ruleset", "rule", "rewrite", "push", "pop", "datatype", "sort",
                           "relation", "function", "let", "set", "delete", "subsume", "constructor", "birewrite"})


def _schedule(x: Sexp) -> Any:
    import egglog.bindings as b

    span = _nowhere()
    if isinstance(x, str):
        return b.Run(span, b.RunConfig(x, None))
    head, args = x[0], x[1:]
    if head == "run":
        return b.Run(span, b.RunConfig(args[0], None))
    inner = [_schedule(a) for a in args]
    whole = inner[0] if len(inner) == 1 else b.Sequence(span, inner)
    return b.Saturate(span, whole) if head == "saturate" else whole


def _expression(x: Sexp) -> Any:
    if not isinstance(x, list):
        return _atom(x)
    if any(isinstance(a, list) for a in x):
        return _bindings().Call(_nowhere(), x[0], [_expression(a) for a in x[1:]])
    return flat(*x)


@lru_cache(maxsize=KEPT)
def flat(head: str, *args: str) -> Any:
    """A node whose operands are atoms: half of all nodes are leaves, the same few again and again."""
    return _bindings().Call(_nowhere(), head, [_atom(a) for a in args])


@lru_cache(maxsize=KEPT)
def _atom(x: str) -> Any:
    """A literal or a global: there are few, and each is met often."""
    b, span = _bindings(), _nowhere()
    if x.startswith('"'):
        return b.Lit(span, b.String(x[1:-1]))
    return b.Var(span, x) if x.startswith("$") else b.Lit(span, b.Int(int(x)))


@lru_cache(maxsize=1)
def _bindings() -> Any:
    """The engine, which is imported when it is first needed."""
    import egglog.bindings

    return egglog.bindings
