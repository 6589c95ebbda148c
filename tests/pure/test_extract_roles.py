"""What scheduling reads off a term: flattening, factors, affine masks and their neutrality, roles, plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fused_examples import ROWS, TILES, attention, decode, layernorm, matmul, pivoted_variance, rms_dot, softmax

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.errors import CheckError, DTypeError
from redfuser.extract import Options, Plan, Profile, plan
from redfuser.extract.algebra import affine, from_affine, split_factor
from redfuser.extract.flatten import flatten
from redfuser.extract.masks import bounds_of, peel_masks
from redfuser.extract.roles import NoTiles, tile_roles
from redfuser.ir import (
    NEG_INF,
    Axis,
    Cascade,
    Cast,
    Const,
    Expr,
    Idx,
    Let,
    Load,
    New,
    Old,
    Out,
    Reduce,
    Reduction,
    Ref,
    Size,
    Tensor,
    op,
    select,
    walk,
)

I, N, H = Idx("i"), Idx("n"), Idx("h")  # noqa: E741
SIZES = {"h": 2, "i": 64, "p": 64, "n": 100, "k": 8, "d": 8}
PROFILE = Profile.generic(32)


# -------------------------------- algebra


def test_affine_forms() -> None:
    form = affine(op("sub", op("mul", 2, I), op("add", N, op("neg", Size("n")))))
    assert form == {I: 2, N: -1, Size("n"): 1}
    assert affine(op("mul", I, N)) is None
    assert affine(Const(0.5)) is None
    assert str(from_affine({N: -1, I: 1, None: -3})) == "#i - #n - 3"
    assert from_affine({}) == Const(0)


def test_split_factor_separates_the_operand() -> None:
    w, x, z = Load("w", ("n", "d")), Load("x", ("p", "n")), Ref("z", ("p",))
    assert split_factor(x * w, "d") == (x, w)
    assert split_factor(w, "d") == (None, w)
    assert split_factor(x * w / z, "d") == (x / z, w)
    assert split_factor(-(w * x), "d") == (-x, w)
    assert split_factor(z / w, "d") is None
    assert split_factor(w * w, "d") is None
    assert split_factor(w + x, "d") is None
    assert split_factor(np.exp(w), "d") is None


# -------------------------------- flattening


def test_flattening_inlines_producers_and_the_epilogue() -> None:
    flat = flatten(attention(), "float32")
    assert {x.name for a in flat.accumulators for x in walk(a.body) if isinstance(x, Ref)} == {"m"}
    assert str(flat.outs[0].expr) == "u[h,i,d] / l[h,i]"


def test_results_and_state_of_the_same_name_are_told_apart() -> None:
    """The accumulator o is the raw sum, the result o the quotient: an output means the result, once."""
    fused = attention()
    names = {"u": "o"}
    fused = replace(
        fused,
        accumulators=tuple(replace(a, name=names.get(a.name, a.name)) for a in fused.accumulators),
        corrections=(fused.corrections[0], ("o", Old("o") * np.exp(Old("m") - New("m")))),
        epilogue=(*fused.epilogue[:2], ("o", Ref("o", ("h", "i", "d")) / Ref("l", ("h", "i")))),
        passes=(("m", "l", "o"),),
    )
    assert str(flatten(fused, "float32").outs[0].expr) == "o[h,i,d] / l[h,i]"


def test_renamed_references_become_copies_with_their_corrections() -> None:
    fused = softmax()
    out = Out("o", ("p", "p'"), Ref("l", ("p",)) * Ref("l", ("p'",)), "float32")
    cascade = replace(fused.cascade, axes=(*fused.cascade.axes, Axis("p'")), outs=(out,))
    flat = flatten(replace(fused, cascade=cascade), "float32")
    assert [a.name for a in flat.accumulators] == ["m", "l", "m_p'", "l_p'"]
    assert str(flat.accumulators[3].body) == "exp(x[p',n] - m_p'[p'])"
    dead = "m_p'_old == -inf"
    moved = f"l_p'_old * exp(select({dead}, 0, m_p'_old) - m_p'_new)"
    assert str(flat.correction("l_p'")) == f"select({dead} & l_p'_old == 0, l_p'_old, {moved})"
    assert flat.passes == (("m", "l", "m_p'", "l_p'"),)


def test_state_read_along_the_stream_is_refused() -> None:
    fused = softmax()
    out = Out("o", ("p", "n"), Load("x", ("p", "n")) / Ref("l", ("n",)), "float32")
    with pytest.raises(CheckError, match="l is read along the stream axis n"):
        flatten(replace(fused, cascade=replace(fused.cascade, outs=(out,))), "float32")


def test_widening_conversions_of_loads_disappear() -> None:
    x = Load("x", ("p", "n"))

    def body(dtype: str, source: str, compute: str = "float32") -> Expr:
        cascade = Cascade(
            "c", "n", (Axis("p"), Axis("n")), (Tensor("x", ("p", "n"), source),), (),
            (Reduction("s", "sum", Cast(dtype, x), ("p",)),), (Out("o", ("p",), Ref("s", ("p",)), "float32"),),
        )  # fmt: skip
        accumulators = (Accumulator("s", "sum", Cast(dtype, x), ("p",)),)
        fused = FusedCascade(cascade, accumulators, (), (), (("s", Ref("s", ("p",))),), passes=(("s",),))
        return flatten(fused, compute).accumulators[0].body

    assert body("float32", "float16") == x
    assert body("float16", "float32") == Cast("float16", x)
    assert body("float32", "int32") == Cast("float32", x)


def test_a_pivot_never_moves() -> None:
    """Corrections for another pivot (needed when partial states of other rows meet) are none within a kernel."""
    fused = pivoted_variance()
    moved = Old("pivot") - New("pivot")
    fused = replace(fused, corrections=(*fused.corrections, ("T", Old("T") + Old("count") * moved)))
    assert [name for name, _ in flatten(fused, "float32").corrections] == ["M2"]


def test_outputs_of_an_empty_stream() -> None:
    assert [o.expr for o in flatten(rms_dot(), "float32").empty] == [Const(0.0)]
    assert flatten(matmul(), "float32").empty == ()
    assert flatten(attention(), "float32").empty == ()


# -------------------------------- masks


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (N <= I, ["n < #i + 1"]),
        (I >= N, ["n < #i + 1"]),
        (N < I, ["n < #i"]),
        (N > I - 3, ["n >= #i - 2"]),
        (op("add", I, 5) > N, ["n < #i + 5"]),
        (op("eq", N, I), ["n >= #i", "n < #i + 1"]),
        (Size("n") - 1 > N, ["n < |n| - 1"]),
    ],
)
def test_bounds_of_comparisons(condition: Expr, text: list[str]) -> None:
    found = bounds_of(condition, "n")
    assert found is not None
    assert sorted(map(str, found)) == sorted(text)


@pytest.mark.parametrize("condition", [2 * N < I, I < H, N * N < I, Load("keep", ("n",)), op("ne", N, I)])
def test_conditions_that_are_no_bounds(condition: Expr) -> None:
    assert bounds_of(condition, "n") is None


def test_slopes_tell_which_row_sees_most() -> None:
    bound = bounds_of(op("sub", op("mul", 2, I), H) > N, "n")
    assert bound is not None
    assert (bound[0].slope("i"), bound[0].slope("h"), bound[0].slope(None)) == (2, -1, 0)


def test_nested_masks_are_peeled_and_others_kept() -> None:
    fused = attention(mask="causal")
    inner = fused.cascade.producers[0]
    both = select(op("and", N > I - 3, Load("keep", ("i", "n"))), inner.expr, NEG_INF)
    cascade = replace(
        fused.cascade,
        tensors=(*fused.cascade.tensors, Tensor("keep", ("i", "n"), "bool")),
        producers=(Let("s", inner.axes, both),),
    )
    flat, bounds = peel_masks(flatten(replace(fused, cascade=cascade), "float32"))
    assert sorted(map(str, bounds)) == ["n < #i + 1", "n >= #i - 2"]
    assert str(flat.accumulators[0].body).startswith("select(keep[i,n], 0.3 * sum_k(")


def test_a_mask_must_be_neutral_for_every_accumulator() -> None:
    """Masked scores of 0 instead of -inf still weigh: no bounds."""
    fused = attention(mask="causal")
    s = fused.cascade.producers[0]
    zero = select(
        N <= I, 0.3 * Reduce("sum", "k", Load("q", ("h", "i", "k")) * Load("kk", ("h", "n", "k"))), 0.0
    )
    cascade = replace(fused.cascade, producers=(Let("s", s.axes, zero),))
    assert peel_masks(flatten(replace(fused, cascade=cascade), "float32"))[1] == ()


# -------------------------------- roles and plans


def roles_of(fused: FusedCascade, sizes: dict[str, int] | None = None) -> object:
    flat = flatten(fused, "float32")
    layouts = {t.name: t.axes[-1] if t.axes else None for t in flat.tensors}
    return tile_roles(flat, sizes or SIZES, layouts)


def test_roles_of_attention() -> None:
    roles = tile_roles(flatten(attention(), "float32"), SIZES, {"v": "d", "kk": "k"})
    assert (roles.row, roles.batch) == ("i", ("h",))
    assert len(roles.contractions) == 1
    assert str(roles.contractions[0].rows) == "0.3 * q[h,i,k]"
    assert str(roles.contractions[0].operand) == "kk[h,n,k]"
    assert [(v.name, v.axis, str(v.operand)) for v in roles.vectors] == [("u", "d", "v[h,n,d]")]


def test_a_single_query_has_no_row_axis() -> None:
    roles = tile_roles(flatten(decode(), "float32"), SIZES, {"v": "d", "kk": "k"})
    assert (roles.row, roles.batch) == (None, ("h",))


def test_the_contiguous_operand_gives_the_vector_axis() -> None:
    flat = flatten(matmul(), "float32")
    assert [v.axis for v in tile_roles(flat, SIZES, {"x": "n", "w": "d"}).vectors] == ["d"]
    assert [v.axis for v in tile_roles(flat, SIZES, {"x": "p", "w": "n"}).vectors] == ["p"]


def test_row_sums_are_no_matrix_product() -> None:
    with pytest.raises(NoTiles, match="no contraction"):
        roles_of(ROWS["cosine"]("float32"))
    assert "rows" in strategy(ROWS["sums"]("float32"))


def strategy(fused: FusedCascade, **how: object) -> str:
    return plan(fused, SIZES, PROFILE, **how).strategy  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TILES)
def test_tiles_are_chosen_by_roles_not_names(name: str) -> None:
    fused = TILES[name]("float32")
    renamed = replace(fused, cascade=replace(fused.cascade, name="nobody"))
    assert strategy(renamed) == "tiles"


def test_two_contractions_feed_one_sweep_of_tiles() -> None:
    fused = attention()
    s = fused.cascade.producers[0]
    other = Reduce("sum", "k", Load("q", ("h", "i", "k")) * Load("v", ("h", "n", "k")))
    cascade = replace(fused.cascade, producers=(Let("s", s.axes, s.expr + other),))
    chosen = plan(replace(fused, cascade=cascade), SIZES, PROFILE)
    assert chosen.strategy == "tiles"
    assert chosen.tiles is not None
    assert [c.operand.tensor for c in chosen.tiles.roles.contractions] == ["kk", "v"]
    assert {"contraction", "contraction 2"} < set(dict(chosen.tiles.operands))


def test_asking_for_tiles_that_do_not_exist_raises() -> None:
    with pytest.raises(NoTiles):
        plan(softmax(), SIZES, PROFILE, options=Options(strategy="tiles"))


def test_plans_are_values() -> None:
    one, two = (plan(layernorm(), {"p": n, "n": n}, PROFILE) for n in (10, 20))
    assert isinstance(one, Plan)
    assert one == two
    assert hash(one.flat.accumulators) == hash(two.flat.accumulators)


def test_other_compute_dtypes_are_refused() -> None:
    with pytest.raises(DTypeError, match="float16"):
        plan(softmax(), SIZES, PROFILE, dtype="float16")


def test_notes_give_every_decision_in_words() -> None:
    text = str(plan(attention(mask="causal"), SIZES, PROFILE))
    for part in (
        "matrix product 0.3 * sum_k",
        "n < #i + 1",
        "register tile",
        "operand of contraction",
        "k = 8",
    ):
        assert part in text
