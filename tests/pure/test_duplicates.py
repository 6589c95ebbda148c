"""Equal accumulators of one pass are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from redfuser.derivation import Cascade, axes, derive_cascade, run_fused, tensor
from redfuser.derivation.duplicates import without_duplicates
from redfuser.derivation.fusion import check_fusion_node
from redfuser.ir import New, Old, Ref, rewrite, run_cascade

N = axes("n")
X, W = tensor("x", N), tensor("w", N)


def doubled(fused, name, copy):
    """The form with a copy of an accumulator, which its dependencies read."""
    def other(x):
        if not isinstance(x, (Ref, Old, New)) or x.name != name:
            return None
        return replace(x, name=copy)

    twin = next(a for a in fused.accumulators if a.name == name)
    corrections = [(copy, rewrite(e, other)) for n, e in fused.corrections if n == name]
    return replace(fused, accumulators=(*fused.accumulators, replace(twin, name=copy)),
                   corrections=(*fused.corrections, *corrections),
                   dependencies=tuple(replace(d, expr=rewrite(d.expr, other)) for d in fused.dependencies),
                   passes=tuple((*p, copy) if name in p else p for p in fused.passes))


def test_a_copy_is_found_and_given_up():
    c = Cascade("c", axis=N)
    top = c.max("top", W)
    total = c.sum("total", np.exp(W - top))
    mean = c.sum("s", np.exp(W - top) * X) / total
    c.sum("spread", np.exp(W - top) * (X - mean) ** 2)
    cascade = c.build()
    fused = derive_cascade(cascade).fused
    copied = doubled(fused, "total", "total_2")
    check_fusion_node(copied)
    assert len(copied.accumulators) == len(fused.accumulators) + 1
    once = without_duplicates(copied)
    check_fusion_node(once)
    assert once == fused


def test_numbers_that_differ_in_spelling_only():
    c = Cascade("c", axis=N)
    w = np.exp(np.minimum(W, 0.0))
    mean = c.sum("s", w * X) / c.sum("total", w)
    c.sum("spread", w * (X - mean) ** 2)
    cascade = c.build()
    fused = derive_cascade(cascade).fused
    bodies = [str(a.body) for a in fused.accumulators]
    assert len(set(bodies)) == len(bodies)
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.normal(size=17) for t in cascade.tensors}
    got, wanted = run_fused(fused, arrays), run_cascade(cascade, arrays)
    np.testing.assert_allclose(got["spread"], wanted["spread"], rtol=1e-9)


def test_accumulators_with_other_corrections_stay():
    c = Cascade("c", axis=N)
    top = c.max("top", W)
    c.sum("total", np.exp(W - top))
    fused = derive_cascade(c.build()).fused
    copied = doubled(fused, "total", "total_2")
    other = replace(copied, corrections=tuple(x for x in copied.corrections if x[0] != "total_2"))
    assert without_duplicates(other) == other
