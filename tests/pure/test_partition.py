"""Which reductions share a sweep, which are recomputed inside it, what is stored between sweeps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.errors import CheckError
from redfuser.frontend import Spec, lower, trace
from redfuser.ir import (
    Axis,
    Expr,
    Idx,
    Let,
    Load,
    Out,
    Reduce,
    Ref,
    Size,
    Tensor,
    Term,
    check_term,
    op,
    run_term,
    walk,
)
from redfuser.ir.dtypes import expr_dtype
from redfuser.ir.grouping import factors, is_contraction
from redfuser.ir.partition import Partition, check_partition, partition


def parts(fn: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Partition:
    return partition(lower(trace(fn, [Spec(s, dtype) for s in shapes])))


def stages(p: Partition) -> list[list[str]]:
    return [[r.monoid for r in c.reductions] for c in p.cascades]


def _all(e: Expr) -> list[Expr]:
    return list(walk(e))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v):
    return softmax(q @ k.T) @ v


def layernorm(x, w, b):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def test_softmax_is_one_cascade_whose_output_carries_the_stream() -> None:
    (c,) = parts(softmax, (3, 5)).cascades
    assert [r.monoid for r in c.reductions] == ["max", "sum"]
    assert c.axis in c.outs[0].axes


def test_attention_scores_are_a_producer() -> None:
    p = parts(attention, (3, 4), (5, 4), (5, 6))
    (c,) = p.cascades
    assert len(c.producers) == 1
    assert is_contraction(c.producers[0])
    assert [r.monoid for r in c.reductions] == ["max", "sum", "sum"]
    assert p.temporaries == ()
    assert set(c.reductions[2].axes) - set(c.reductions[0].axes) == set(c.tensors[2].axes) - {c.axis}


def test_attention_weights_come_from_the_same_cascade() -> None:
    def with_weights(q, k, v):
        p = softmax(q @ k.T)
        return p, p @ v

    (c,) = parts(with_weights, (3, 4), (5, 4), (5, 6)).cascades
    assert len(c.producers) == 1
    assert len(c.outs) == 2


def test_what_every_use_does_to_a_producer_is_computed_once() -> None:
    def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
        s = np.where(mask, q @ k.T * 0.3, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ v

    shapes = [(4, 3), (7, 3), (7, 2), (4, 7)]
    specs = [Spec(s, "bool" if i == 3 else "float64") for i, s in enumerate(shapes)]
    [c] = partition(lower(trace(masked, specs))).cascades
    [score] = c.producers
    assert str(score.expr).startswith("select(mask[i,n], ")
    assert "* 0.3, -inf)" in str(score.expr)
    assert c.reductions[0].body == Ref(score.name, score.axes)
    assert not any(isinstance(x, Load) and x.tensor == "mask" for r in c.reductions for x in walk(r.body))


def test_a_producer_used_in_different_ways_keeps_its_definition() -> None:
    def shifted(q: Any, k: Any) -> Any:
        s = q @ k.T
        return np.exp(s - (2 * s).max(-1, keepdims=True)).sum(-1)

    [c] = partition(lower(trace(shifted, [Spec((4, 3)), Spec((7, 3))]))).cascades
    [score] = c.producers
    assert isinstance(score.expr, Reduce)


def test_scores_that_are_an_output_of_their_own_are_stored() -> None:
    def with_scores(q, k, v):
        s = q @ k.T
        return s, softmax(s) @ v

    p = parts(with_scores, (3, 4), (5, 4), (5, 6))
    assert stages(p) == [["sum"], ["max", "sum", "sum"]]
    assert [t.name for t in p.temporaries] == ["out_0"]  # the output itself: nothing is stored twice
    assert all(not c.producers for c in p.cascades)


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        (lambda x: x.var(-1), [(3, 5)], [["sum", "sum"]]),
        (layernorm, [(3, 5), (5,), (5,)], [["sum", "sum"]]),  # the two means are one definition
        (lambda x, w, b: softmax(layernorm(x, w, b)), [(3, 5), (5,), (5,)], [["sum", "sum", "max", "sum"]]),
        (lambda x, y: (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)), [(3, 5), (3, 5)], [["sum"] * 3]),
        (lambda x: (x.max(-1), np.exp(x).sum(-1)), [(3, 5)], [["max", "sum"]]),
        (lambda x, w: (x / np.sqrt((x * x).mean(-1, keepdims=True))) @ w, [(3, 5), (5, 4)], [["sum", "sum"]]),
        (lambda x, y: (x / np.linalg.norm(x, axis=-1, keepdims=True)) @ y.T, [(3, 5), (4, 5)], [["sum", "sum"]]),
    ],
    ids=["variance", "layernorm", "layernorm-softmax", "cosine", "independent", "rmsnorm-matmul", "norm-matmul"],
)
def test_linked_stages_share_a_cascade(fn: Callable[..., Any], shapes: list[Any], expected: list[list[str]]) -> None:
    p = parts(fn, *shapes)
    assert stages(p) == expected
    assert p.temporaries == ()


def test_columns_then_rows_are_two_cascades_with_a_stored_vector() -> None:
    p = parts(lambda x: (x - x.mean(0)).max(1), (3, 5))
    assert stages(p) == [["sum"], ["max"]]
    (stored,) = p.temporaries
    assert stored.axes == p.cascades[0].reductions[0].axes
    assert p.cascades[0].axis != p.cascades[1].axis


def test_a_stage_that_needs_another_cascade_which_needs_this_one_is_split_off() -> None:
    def zigzag(x):
        rows = x.max(1, keepdims=True)
        columns = (x - rows).max(0, keepdims=True)
        return np.exp(x - rows - columns).sum(1)

    p = parts(zigzag, (3, 5))
    assert stages(p) == [["max"], ["max"], ["sum"]]
    assert p.cascades[0].axis == p.cascades[2].axis
    assert len(p.temporaries) == 2


def test_elementwise_programs_have_one_cascade_without_stages() -> None:
    (c,) = parts(lambda x, y: np.exp(x) + y, (3, 5), (5,)).cascades
    assert c.axis is None
    assert c.reductions == ()
    assert len(c.outs) == 1


def test_self_attention_needs_primed_axes() -> None:
    (c,) = parts(lambda x: softmax(x @ x.T) @ x, (4, 3)).cascades
    assert c.axis == "n'"
    assert c.producers[0].axes == ("n", "n'")


def test_producers_used_at_other_axes_are_instances_of_their_own() -> None:
    def both_ways(x):
        s = x @ x.T
        return np.exp(s - s.max(0)).sum(1)  # the sum needs the maximum at its own position

    p = parts(both_ways, (4, 3))
    for c in p.cascades:
        defined = {x.name: x.axes for x in c.producers}
        exprs = [r.body for r in c.reductions] + [o.expr for o in c.outs]
        uses = {(x.name, x.axes) for e in exprs for x in _all(e) if isinstance(x, Ref) and x.name in defined}
        assert uses
        assert all(defined[name] == axes for name, axes in uses)


def test_attention_then_norm_keeps_the_attention_cascade() -> None:
    def block(q, k, v, w, b):
        return layernorm(attention(q, k, v), w, b)

    p = parts(block, (3, 4), (5, 4), (5, 6), (6,), (6,))
    assert stages(p) == [["max", "sum", "sum"], ["sum", "sum"]]


def test_normalised_scores_stay_a_producer() -> None:
    def qk_norm(q, k, v):
        return attention(q / np.linalg.norm(q, axis=-1, keepdims=True), k, v)

    p = parts(qk_norm, (3, 4), (5, 4), (5, 6))
    assert stages(p) == [["sum"], ["max", "sum", "sum"]]
    assert len(p.cascades[1].producers) == 1


def test_a_chain_of_products_recomputes_nothing() -> None:
    p = parts(lambda a, b, c, d: a @ b @ c @ d, (3, 4), (4, 5), (5, 6), (6, 7))
    assert [len(c.producers) for c in p.cascades] == [0, 1]  # a producer inside a producer would be computed repeatedly
    assert len(p.temporaries) == 1


def test_a_row_bias_from_a_contraction_is_not_recomputed_for_every_row() -> None:
    p = parts(lambda x, e, w: (x + e @ w).max(-1), (3, 5), (5, 4), (4,))
    assert stages(p) == [["sum"], ["max"]]
    assert not p.cascades[1].producers


def test_outputs_at_other_positions_wait_for_the_finished_result() -> None:
    def outer(x):
        norm = np.sqrt((x * x).sum(-1))
        return norm[:, None] * norm[None, :]

    p = parts(outer, (4, 3))
    assert [c.axis is None for c in p.cascades] == [False, True]
    assert len(p.temporaries) == 1


def test_the_length_of_the_stream_is_recognised_under_a_prime() -> None:
    (c,) = parts(lambda x: (x @ x.T).mean(-1), (4, 3)).cascades
    assert any(isinstance(x, Size) and x.axis == c.axis for x in _all(c.outs[0].expr))


def hand_written() -> Term:
    """Row sums, scaled by an elementwise definition, as the mathematical level writes them."""
    i, n = Axis("i"), Axis("n")
    x = Load("x", ("i", "n"))
    return Term(
        "hand", (i, n), (Tensor("x", ("i", "n"), "float64"),),
        (Let("y", ("i", "n"), op("mul", x, 2.0)), Let("s", ("i",), Reduce("sum", "n", Ref("y", ("i", "n"))))),
        (Out("out", ("i",), op("div", Ref("s", ("i",)), Size("n")), "float64"),),
    )


def test_elementwise_definitions_are_inlined() -> None:
    term = hand_written()
    check_term(term)
    p = partition(term)
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(p.run({"x": x})["out"], run_term(term, {"x": x})["out"])
    assert not p.cascades[0].producers


def test_the_checker_finds_a_missing_temporary() -> None:
    p = parts(lambda x: (x - x.mean(0)).max(1), (3, 5))
    with pytest.raises(CheckError, match="before it exists"):
        check_partition(Partition(p.term, p.cascades[::-1], p.temporaries))
    with pytest.raises(CheckError, match="computed nowhere"):
        check_partition(Partition(p.term, p.cascades[:1], p.temporaries))


def test_text_lists_cascades_and_what_is_stored() -> None:
    text = str(parts(lambda x: (x - x.mean(0)).max(1), (3, 5)))
    assert "stores tmp_sum0" in text
    assert text.count("cascade ") == 2


def test_factors_of_products_and_quotients() -> None:
    a, b, c = (Load(name, ("i",)) for name in "abc")
    assert list(factors(-(a * b) / c)) == [a, b, c]
    assert list(factors(a + b)) == [a + b]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Load("f", ()) * 2, "float32"), (Load("f", ()) + Load("d", ()), "float64"), (Load("i", ()) + Idx("n"), "int64"),
        (Load("i", ()) / 2, "float64"), (Load("f", ()) > 0, "bool"), (Reduce("sum", "n", Idx("n") > 2), "int64"),
        (op("select", Load("i", ()) > 0, Load("f", ()), 0), "float32"), (Size("n") * 0.5, "float64"),
    ],
)
def test_dtype_of_a_stored_result(expr: Any, expected: str) -> None:
    assert expr_dtype(expr, {"f": "float32", "d": "float64", "i": "int32"}) == expected
