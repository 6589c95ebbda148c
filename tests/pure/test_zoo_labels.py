"""The labels of the catalogue, checked without the derivation: form, uniqueness, and the least number of accumulators.

A sum of F(x, d) needs as many accumulators as the functions x -> F(x, d) have dimensions, d free: measured here by the
singular values of a table of float64 numbers, which shares nothing with the engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redfuser.derivation import Verdict
from redfuser.derivation.derive import dependent_stages
from redfuser.ir import OPS, Cascade, Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size
from redfuser.zoo import ENTRIES, FAMILIES, KNOWN_WRONG, Entry, canonical

ELEMENTS = 60
EXTREMES = {  # accumulators beside the sums where a reduction is not worth exactly one
    "layernorm_absmax": 2, "layernorm_absmax_dot": 2, "crest_factor": 2, "energy_to_peak": 2,  # max |x - mu|: both ends
    "largest_squared_deviation": 2, "largest_product_with_mean": 2,
    "confidence": 1,  # the second maximum is 1 / z
    "ties_of_maximum": 2, "value_at_maximum": 2,  # what is summed belongs to the maximum
    "peak_error_to_range": 3, "value_at_minimum": 2, "value_at_largest_magnitude": 2, "ties_of_range": 4,
    "outlier_exists": 2, "within_rms_band": 2, "near_uniform": 2,  # both ends decide
    "worst_outlier": 2,
    "softmax_top2": 1, "masked_router": 1, "switch_router": 1, "top2_with_z_loss": 1, "routing_entropy_top4": 1,
    "beam_scores": 1, "retrieval": 1, "soft_argmax": 1, "peak_position": 1,  # the best element is the maximum
    "group_limited": 1,
}


def stages(entry: Entry) -> int:
    return max(dependent_stages(c) for c in entry.partition().cascades)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_label_is_consistent(entry: Entry) -> None:
    depth = stages(entry)
    assert depth >= 2
    expected = (Verdict.FUSIBLE if entry.passes == 1 else
                Verdict.PARTLY if entry.passes < depth else Verdict.NOT_FUSIBLE)
    assert entry.verdict == expected
    assert entry.passes <= depth
    assert entry.source
    assert entry.reason or entry.verdict == Verdict.FUSIBLE


def test_no_two_entries_ask_the_same() -> None:
    forms: dict[tuple[Cascade, ...], str] = {}
    for entry in ENTRIES.values():
        form = tuple(canonical(c) for c in entry.partition().cascades if c.reductions)
        assert forms.setdefault(form, entry.name) == entry.name


def test_canonical_form_forgets_names_and_nothing_else() -> None:
    def renamed(y: Any) -> Any:
        offset = y.mean(axis=-1, keepdims=True)
        return ((y - offset) ** 2).mean(axis=-1, keepdims=True)

    def other(y: Any) -> Any:
        offset = y.mean(axis=-1, keepdims=True)
        return ((y - offset) ** 3).mean(axis=-1, keepdims=True)

    variance = ENTRIES["variance"]
    (a, b) = (Entry("e", "f", "s", fn, (type(variance.arguments[0]).parse("y", "rows n"),), Verdict.FUSIBLE, 2, 1, ())
              for fn in (renamed, other))
    assert canonical(a.cascade()) == canonical(variance.cascade())
    assert canonical(b.cascade()) != canonical(variance.cascade())


def test_catalogue_is_complete() -> None:
    assert len(ENTRIES) == sum(len(f.entries) for f in FAMILIES)  # no name twice
    assert sum(e.verdict != Verdict.FUSIBLE for e in ENTRIES.values()) >= 20
    assert set(KNOWN_WRONG) <= set(ENTRIES)
    assert all(KNOWN_WRONG.values())


# ---- the least number of accumulators

RANKED = [e for e in ENTRIES.values() if e.passes == 1]


@pytest.mark.parametrize("entry", RANKED, ids=[e.name for e in RANKED])
def test_least_number_of_accumulators(entry: Entry) -> None:
    c = entry.cascade()
    others = sum(r.monoid != "sum" for r in c.reductions)
    assert dimensions(entry, c) + EXTREMES.get(entry.name, others) == entry.accumulators


def dimensions(entry: Entry, c: Cascade) -> int:
    """Dimension of the span of all summands as functions of the element; the constant is the count and left out."""
    rng = np.random.default_rng(7)
    kinds = {a.name: a.kind for a in entry.arguments}
    scale = 1 / 3 if "unit" in kinds.values() else 1  # elements and their maximum between 0 and 1
    fixed: dict[Expr | str, Any] = {}
    for t in c.tensors:
        value = scale * rng.uniform(0.5, 2.0, ELEMENTS if c.axis in t.axes else None)
        fixed[t.name] = value > 1.2 if kinds.get(t.name) == "mask" else value
    for p in c.producers:
        fixed[p.name] = rng.uniform(0.5, 2.0, ELEMENTS)
    table = [np.ones(ELEMENTS)]
    for _ in range(30):
        values = dict(fixed)
        for r in c.reductions:  # extremes bound the elements
            low, high = {"max": (2.0, 3.0), "min": (0.1, 0.4)}.get(r.monoid, (0.5, 2.0))
            values[r.name] = scale * rng.uniform(low, high)
        size = float(rng.integers(5, 50))
        with np.errstate(all="ignore"):
            table += [np.broadcast_to(evaluate(r.body, c, values, size), ELEMENTS) * 1.0
                      for r in c.reductions if r.monoid == "sum"]
    matrix = np.array([row / np.abs(row).max() for row in table if np.isfinite(row).all() and row.any()])
    sizes = np.linalg.svd(matrix, compute_uv=False)
    return int((sizes > 1e-10 * sizes[0]).sum()) - 1


def evaluate(e: Expr, c: Cascade, values: dict[Expr | str, Any], size: float) -> Any:
    """An expression at all elements of the stream."""
    if isinstance(e, Const):
        return float(e.value)
    if isinstance(e, Load):
        return values[e.tensor]
    if isinstance(e, Ref):
        return values[e.name]
    if isinstance(e, Part):  # the elements of a list differ
        return evaluate(e.body, c, values, size) * (1 + 0.25 * sum(a for a in e.axes if isinstance(a, int)))
    if isinstance(e, Size):
        return 4 if any(e.axis in a.parts for a in c.axes) else size  # the stream grows, its inner axes do not
    if isinstance(e, Idx):
        return np.arange(ELEMENTS) % 12 if e.axis == c.axis else 5  # several elements at every position
    if isinstance(e, Cast):
        return np.asarray(evaluate(e.body, c, values, size), float)
    if isinstance(e, Op):
        return OPS[e.fn].numpy(*(evaluate(a, c, values, size) for a in e.args))
    assert isinstance(e, Reduce)
    return values.setdefault(e, np.linspace(0.5, 2.0, ELEMENTS))
