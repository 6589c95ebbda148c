"""The checks as assertions: nothing is returned, a mistake raises `CheckFailed` with the counterexample in its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.derivation import Cascade as MathCascade
from redfuser.derivation import UserMonoid
from redfuser.errors import ArgumentError, CheckFailed
from redfuser.ir import Cascade
from redfuser.ir.contract import Expected, expected_results
from redfuser.rules import check_rule
from redfuser.rules.language import Law
from redfuser.testing.check import check_fusion, subject_of
from redfuser.testing.monoid_check import check_monoid
from redfuser.testing.result import short
from redfuser.testing.subjects import Arrays, FunctionSubject, Subject

MOST_SHOWN = 5
"""Wrong elements that are printed."""


def assert_fusion(fn_or_cascade: Callable[..., Any] | Cascade | MathCascade, *arrays_or_specs: Any,
                  **options: Any) -> None:
    """`check_fusion` as an assertion, with the same arguments.

    Raises
    ------
    CheckFailed
        when a level differs from the definition; the text ends with code that shows it on a minimised input.
    """
    _require(check_fusion(fn_or_cascade, *arrays_or_specs, **options))


def assert_rule(law: Law, **options: Any) -> None:
    """`check_rule` as an assertion, with the same arguments.

    Raises
    ------
    CheckFailed
        when the sides differ where the conditions hold, or no sample gave the rule a value.
    """
    _require(check_rule(law, **options))


def assert_monoid(monoid_or_combine: UserMonoid | Callable[[Any, Any], Any], **options: Any) -> None:
    """`check_monoid` as an assertion, with the same arguments.

    Raises
    ------
    CheckFailed
        when a law is broken.
    """
    _require(check_monoid(monoid_or_combine, **options))


def _require(check: Any) -> None:
    if not check:
        raise CheckFailed(check)


@dataclass(frozen=True)
class Difference:
    """A result that is not what its definition gives, within the numerical contract.

    name     the result
    excess   its error in units of what is allowed
    allowed  the error that is allowed, per element
    text     the wrong elements, in words
    """

    name: str
    excess: float
    allowed: Any
    text: str

    def __str__(self) -> str:
        return self.text


def assert_close(got: Any, fn_or_cascade: Callable[..., Any] | Cascade | MathCascade, *arrays: Any,
                 strict: bool = False) -> None:
    """Results against their definition, within the numerical contract of redfuser.

    How far they may be off follows from how ill-conditioned the definition is at these arrays: 4 times the error of a
    careful computation in the working precision, plus 16 * eps * condition. NaN and infinities must be where the
    definition has them.

    Parameters
    ----------
    got
        what the function returns, or for a cascade a mapping from names of results to arrays.
    fn_or_cascade
        the definition: a plain NumPy function, or a cascade.
    arrays
        its arguments.
    strict
        see `check_fusion`.

    Raises
    ------
    CheckFailed
        when a result is off; the text has the elements, with what is allowed there.
    ArgumentError
        when `got` holds no result of the cascade.
    ShapeError, TraceError
        when the arrays do not fit the function.
    """
    subject = subject_of(fn_or_cascade, arrays, ())
    given = subject.given
    if given is None:
        raise ArgumentError("assert_close compares numbers: give the arrays that the results were computed from")
    levels = subject.levels(given)
    expected = expected_results(levels.cascades, levels.tensors, strict=strict, sizes=levels.sizes)
    results = _named(subject, got, given)
    known = [n for n in results if n in expected]
    if not known:
        raise ArgumentError(f"argument 'got' has {', '.join(map(repr, results)) or 'nothing'}; results of the cascade "
                            f"are {', '.join(map(repr, expected))}")
    for name in known:
        found = _difference(name, np.asarray(results[name]), expected[name])
        if found is not None:
            raise CheckFailed(found)


def _named(subject: Subject, got: Any, given: Arrays) -> Arrays:
    """Results by name."""
    if not isinstance(subject, FunctionSubject):
        return dict(got)
    try:
        return subject.named(got, given)
    except ValueError as error:  # another number of results, or of elements
        text = f"the results do not have the shapes that the definition gives: {error}"
        raise CheckFailed(Difference("", np.inf, None, text)) from None


def _difference(name: str, got: Any, expected: Expected) -> Difference | None:
    allowed = expected.allowed
    if got.shape != allowed.shape:
        return Difference(name, np.inf, allowed, f"{name} has shape {got.shape}, by definition {allowed.shape}")
    wrong = np.broadcast_to(expected.wrong(got), got.shape)
    if not wrong.any():
        return None
    want, excess = np.broadcast_to(expected.accepted[0], got.shape), expected.excess(got)
    places = [tuple(map(int, i)) for i in np.argwhere(wrong)]
    lines = [f"  {name}{list(i) if i else ''} is {short(got[i])}, by definition {short(want[i])} "
             f"(within {short(np.broadcast_to(allowed, got.shape)[i])})" for i in places[:MOST_SHOWN]]
    rest = f"\n  and {len(places) - MOST_SHOWN} more" if len(places) > MOST_SHOWN else ""
    return Difference(name, excess, allowed,
                      f"{len(places)} of {got.size} elements of {name} are off, by up to {excess:.3g} times what is "
                      "allowed:\n" + "\n".join(lines) + rest)
