"""Operators and methods of traced arrays, made from the NumPy functions that they call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from redfuser.frontend.tracer import Tracer


def binary(ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The operator, its reflected and its in-place form."""

    def forward(self: Tracer, other: Any) -> Any:
        return self.operate(ufunc, self, other)

    def reflected(self: Tracer, other: Any) -> Any:
        return self.operate(ufunc, other, self)

    def in_place(self: Tracer, other: Any) -> Any:
        return self.assign(ufunc, other)

    return forward, reflected, in_place


def unary(ufunc: np.ufunc) -> Callable[..., Any]:
    """The operator with one operand."""

    def apply(self: Tracer) -> Any:
        return self.operate(ufunc, self)

    return apply


def method(name: str) -> Callable[..., Any]:
    """The method that calls the NumPy function of its name."""

    def call(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    call.__name__ = name
    return call
