"""What changes while the loop runs, and what is final by then: lengths, earlier passes, what an epilogue may read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from redfuser.derivation import Cascade, axes, derive_cascade, run_fused, tensor
from redfuser.derivation.fusion import check_fusion_node
from redfuser.errors import CheckError
from redfuser.ir import Load, Reduce, Ref, run_cascade

N = axes("n")
X, Y, W = (tensor(name, N) for name in "xyw")


def check(define, passes, *, lengths=(1, 7, 21, 30)):
    c = Cascade("c", axis=N)
    define(c)
    cascade = c.build()
    found = derive_cascade(cascade)
    assert found.certificate.valid
    assert found.passes == passes
    rng = np.random.default_rng(0)
    for n in lengths:
        arrays = {t.name: rng.normal(size=n) for t in cascade.tensors}
        wanted = run_cascade(cascade, arrays)
        for tree in (None, 1):
            got = run_fused(found.fused, arrays, chunks=4, tree=tree)
            for name, value in wanted.items():
                np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-9)
    return found


@pytest.mark.parametrize(("define", "passes"), [
    (lambda c: c.sum("d", np.where(np.greater(c.size, 20), X, W)), 2),
    (lambda c: c.sum("d", X * np.where(np.greater(c.size, 20), 1.0, 2.0)), 1),
    (lambda c: c.sum("d", np.where(np.greater(c.size * X, 20 * X), X, W)), 2),
    (lambda c: c.sum("d", np.where(np.greater(c.size, Y), X, W)), 2),
])
def test_the_length_of_the_stream_changes_inside_selections_too(define, passes):
    check(define, passes)


@pytest.mark.parametrize("body", [
    lambda a: np.tanh(X + (-a)), lambda a: np.tanh(X + a * -1.0), lambda a: np.sqrt(abs(X + (0 - a))),
    lambda a: np.tanh(X - (-a))])
def test_a_difference_that_is_preferred_never_pays_for_a_reduction(body):
    check(lambda c: c.sum("b", body(c.sum("a", X))), 2)


@pytest.mark.parametrize("factor", [lambda c, a: a, lambda c, a: c.size, lambda c, a: c.sum("k", (Y - a) ** 2)])
def test_corrections_of_a_later_pass_read_final_values(factor):
    def define(c):
        a = c.max("a", Y)
        b = c.min("b", np.where(np.greater(a, Y), Y, W))
        c.sum("c", b * (factor(c, a) * Y) + W)

    check(define, 2, lengths=(7, 21))


@pytest.mark.parametrize("scale", [lambda b: abs(W) * b, lambda b: b])
def test_an_overgrown_search_is_not_followed_by_a_larger_one(scale):
    def define(c):
        a = c.sum("a", np.sqrt(abs(Y * -1.0)))
        b = c.max("b", scale(Y))
        c.min("d", W * (0.5 * c.sum("c", (a - b) * (W / b))))

    c = Cascade("c", axis=N)
    define(c)
    found = derive_cascade(c.build())
    assert max(s.nodes for s in found.timeline) < 60_000


def test_a_form_that_reads_the_stream_after_the_loop_is_no_form():
    c = Cascade("c", axis=N)
    c.sum("b", (X - c.max("a", X)) * W)
    fused = derive_cascade(c.build()).fused
    check_fusion_node(fused)
    for e in (Reduce("sum", "n", Load("x", ("n",))), Load("x", ("n",))):
        with pytest.raises(CheckError, match="reads the stream"):
            check_fusion_node(replace(fused, epilogue=(("a", Ref("a")), ("b", e))))
    with pytest.raises(CheckError, match="correction of b reads"):
        check_fusion_node(replace(fused, corrections=(("b", Ref("a")),)))
