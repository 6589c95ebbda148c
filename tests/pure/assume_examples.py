"""Cascades with conditions, shared by the tests of `assume`."""

from __future__ import annotations

import numpy as np

from redfuser import pipeline
from redfuser.frontend import Spec, assume
from redfuser.ir import Axis, Cascade, Load, Reduction, Ref, Tensor

X, Y, P = Load("x", ("i", "n")), Load("y", ("i", "n")), Load("p", ())


def array(*shape):
    return Spec(shape, "float32")


def term_of(fn, **specs):
    return pipeline.term_step(pipeline.trace_step(fn, specs, fn.__name__))


def cascades_of(fn, **specs):
    return pipeline.partition_step(term_of(fn, **specs)).cascades


def built(bodies, *assumptions):
    """A cascade over n of (name, monoid, body), rows i."""
    reductions = tuple(Reduction(name, monoid, body, ("i",)) for name, monoid, body in bodies)
    tensors = (Tensor("x", ("i", "n")), Tensor("y", ("i", "n")), Tensor("p", ()))
    return Cascade("c", "n", (Axis("i"), Axis("n")), tensors, (), reductions, (), assumptions)


def row(name):
    return Ref(name, ("i",))


def theil(x):
    assume(x > 0)
    r = x / x.mean(axis=-1, keepdims=True)
    return (r * np.log(r)).mean(axis=-1)


def plain_theil(x):
    r = x / x.mean(axis=-1, keepdims=True)
    return (r * np.log(r)).mean(axis=-1)
