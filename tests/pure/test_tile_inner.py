"""Inner reductions of a tile that are no matrix products: distances and others, masks, splits, forced options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fused_examples import arrays_for, attention, decode
from tile_runs import assert_runs, definition, error, kernel_for, run

from redfuser.codegen.nodes import MatMul, Pack
from redfuser.codegen.passes.bodies import nested
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Options, Profile, plan
from redfuser.ir import Expr, Let, Load, Reduce, rewrite

PROFILE = Profile.generic(32)
SIZES = {"h": 2, "i": 7, "n": 19, "k": 5, "d": 6}
Element = Callable[[Expr, Expr], Expr]


def with_elements(fused: FusedCascade, element: Element, monoid: str = "sum") -> FusedCascade:
    """The attention with other scores: minus the reduction of `element(q, k)`, masked as before."""

    def other(x: Expr) -> Expr | None:
        if not isinstance(x, Reduce):
            return None
        q, k = (e for e in (x.body.args if hasattr(x.body, "args") else ()))
        return -Reduce(monoid, x.axis, element(q, k))

    producers = tuple(Let(p.name, p.axes, rewrite(p.expr, other)) for p in fused.cascade.producers)
    return replace(fused, cascade=replace(fused.cascade, producers=producers))


def squared(q: Expr, k: Expr) -> Expr:
    return (q - k) * (q - k)


ELEMENTS: dict[str, tuple[str, Element]] = {
    "squared": ("sum", squared),
    "absolute": ("sum", lambda q, k: np.abs(q - k)),
    "largest": ("max", lambda q, k: np.abs(q - k)),
    "smallest": ("min", lambda q, k: q + k),
    "product": ("prod", lambda q, k: 1 + q * k * 0.1),
    "of truth values": ("sum", lambda q, k: q > k),
}


def kinds(kernel: object) -> list[type]:
    return [type(s) for p in kernel.phases for s in nested(p.loop.body)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize(
    "options",
    [Options(), Options(block=8, tile=3), Options(pack=True, block=16, tile=4), Options(pack=False, tile=8)],
    ids=["own", "small", "packed", "in place"],
)
def test_elements(name: str, options: Options) -> None:
    monoid, element = ELEMENTS[name]
    fused = with_elements(attention(), element, monoid)
    for n in (1, 8, 37):
        kernel = assert_runs(fused, {**SIZES, "n": n}, options)
        assert kinds(kernel).count(MatMul) == 1  # the values; the scores are none
        assert (Pack in kinds(kernel)) == (options.pack is not False)


@pytest.mark.parametrize("depth", [1, 7, 8, 9, 16, 21])
def test_depths(depth: int) -> None:
    """Sweeps take eight positions at a time."""
    assert_runs(with_elements(attention(), squared), {**SIZES, "k": depth})
    assert_runs(with_elements(decode(), squared), {**SIZES, "k": depth}, Options(block=8))


@pytest.mark.parametrize("mask", ["causal", "window", "bool", "scores"])
def test_masks_and_outputs_along_the_stream(mask: str) -> None:
    fused = with_elements(attention(mask=mask), squared)
    for options in (Options(), Options(block=8, tile=4)):
        assert_runs(fused, SIZES, options)


def test_what_a_mask_removes_may_be_anything() -> None:
    fused = with_elements(attention(mask="bool"), squared)
    arrays = arrays_for(fused, SIZES)
    arrays["keep"][:, 4] = False
    arrays["v"][:, 4] = np.nan
    want = {**arrays, "v": np.where(np.isnan(arrays["v"]), 0, arrays["v"])}
    kernel = kernel_for(fused, SIZES, Options(block=8))
    with np.errstate(all="ignore"):
        assert error(run(kernel, fused, arrays, SIZES), definition(fused, want)) < 3e-5


def test_a_split_stream_and_wide_vectors() -> None:
    fused = with_elements(attention(), squared)
    for vector_bytes in (16, 64):
        assert_runs(fused, {**SIZES, "n": 70}, Options(chunk=16, block=16), vector_bytes=vector_bytes)
    assert_runs(with_elements(attention("float64"), squared), SIZES, dtype="float64")


def test_operands_side_by_side_along_the_stream_are_read_in_place() -> None:
    fused = with_elements(attention(), squared)
    kernel = assert_runs(fused, SIZES, layouts={"kk": "n"})
    assert Pack not in kinds(kernel)


def test_products_beside_other_reductions_stay_products() -> None:
    fused = attention()
    [s] = fused.cascade.producers
    other = Reduce("sum", "k", np.abs(Load("q", ("h", "i", "k")) - Load("kk", ("h", "n", "k"))))
    both = replace(fused, cascade=replace(fused.cascade, producers=(Let("s", s.axes, s.expr - other),)))
    assert kinds(assert_runs(both, SIZES)).count(MatMul) == 2


def test_the_plan_says_what_it_does() -> None:
    chosen = plan(with_elements(attention(), squared), SIZES, PROFILE)
    text = str(chosen)
    assert chosen.strategy == "tiles"
    assert "element by element (rows i, lanes n)" in text
    assert "operand kk[h,n,k]: copied per block" in text


def test_truth_values_stay_in_rows() -> None:
    fused = with_elements(attention(), lambda q, k: q > k, "any")
    chosen = plan(fused, SIZES, PROFILE)
    assert chosen.strategy == "rows"
    assert "has truth values" in str(chosen)
