"""Reductions over several axes as one stream: which are folded, what the cascade looks like, what it means."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.derivation import Derivation, Verdict, derive_cascade, run_fused
from redfuser.frontend import Spec, lower, trace
from redfuser.ir import Axis, Cascade, Load, Out, Ref, Size, Tensor, run_term, walk
from redfuser.ir.partition import Partition, partition
from redfuser.ir.term import View
from redfuser.ir.views import as_results, parts_of, present, stream_length, with_products

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def specs(shapes: dict[str, str]) -> dict[str, Spec]:
    return {name: Spec(tuple(axes.split()), "float64") for name, axes in shapes.items()}


def parts(fn: Callable[..., Any], **shapes: str) -> Partition:
    return partition(lower(trace(fn, specs(shapes))))


def softmax(x: Any, axes: Any) -> Any:
    e = np.exp(x - x.max(axis=axes, keepdims=True))
    return e / e.sum(axis=axes, keepdims=True)


def normalised(x: Any, axes: Any) -> Any:
    mu = x.mean(axis=axes, keepdims=True)
    return (x - mu) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


def soft_argmax(x: Any) -> Any:
    p = softmax(x, None)
    return (p * np.arange(x.shape[0])[:, None]).sum(), (p * np.arange(x.shape[1])).sum()


def triangle(x: Any) -> Any:
    rows, columns = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])
    return softmax(np.where(columns <= rows, x, -np.inf), None)


def volume(x: Any) -> Any:
    """Three axes, the position along the middle one."""
    p = softmax(x, None)
    return (p * np.arange(x.shape[1])[None, :, None]).sum()


def window(x: Any, w: Any) -> Any:
    mass = (w * np.ones_like(x)).sum()
    mu = (w * x).sum() / mass
    return (w * (x - mu) ** 2).sum() / mass


def pooled_twice(x: Any) -> Any:
    mu = x.mean(-1).mean(-1)
    return mu, ((x - mu[:, None, None]) ** 2).mean(-1).mean(-1)


CHAINS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "variance": (lambda x: x.var(), {"x": "a b"}),
    "softmax": (lambda x: softmax(x, None), {"x": "a b"}),
    "instance norm": (lambda x: normalised(x, (1, 2)), {"x": "c h w"}),
    "batch norm": (lambda x: normalised(x, (0, 2)), {"x": "b c n"}),
    "three axes": (lambda x: normalised(x, None), {"x": "a b c"}),
    "positions": (soft_argmax, {"x": "a b"}),
    "mask": (triangle, {"x": "a b"}),
    "middle axis": (volume, {"x": "a b c"}),
    "window": (window, {"x": "a b", "w": "b"}),
    "means of means": (pooled_twice, {"x": "c h w"}),
    "two arrays": (lambda x, y: (x - x.mean()) * y.std(), {"x": "a b", "y": "a b"}),
    "transposed use": (lambda x, y: ((x - x.mean()) * (y.T - y.mean())).mean(), {"x": "a b", "y": "b a"}),
    "sum of sums": (lambda x: (x - x.sum(1).sum(0)).max(), {"x": "a b"}),
}


@functools.cache
def derived(name: str) -> Derivation:
    fn, shapes = CHAINS[name]
    return derive_cascade(next(c for c in parts(fn, **shapes).cascades if c.reductions))


def arrays(shapes: dict[str, str], sizes: dict[str, int]) -> dict[str, Array]:
    return {name: RNG.normal(size=[sizes[a] for a in axes.split()]) for name, axes in shapes.items()}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_over_several_axes_is_one_cascade_of_one_pass(name: str) -> None:
    fn, shapes = CHAINS[name]
    p = parts(fn, **shapes)
    chained = [c for c in p.cascades if c.reductions]
    assert len(chained) == 1
    assert len(chained[0].reductions) >= 2
    assert p.temporaries == () or chained[0] is p.cascades[0]
    found = derived(name)
    assert (found.verdict, found.passes, found.certificate.valid) == (Verdict.FUSIBLE, 1, True)


@pytest.mark.parametrize("sizes", [{"a": 3, "b": 5, "c": 2, "h": 4, "w": 3, "n": 4}, dict.fromkeys("abchwn", 2)])
@pytest.mark.parametrize("name", CHAINS)
def test_the_cascade_means_what_numpy_computes(name: str, sizes: dict[str, int]) -> None:
    fn, shapes = CHAINS[name]
    term = lower(trace(fn, specs(shapes)))
    given = arrays(shapes, sizes)
    wanted = fn(**given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    p = partition(term)
    for results in (run_term(term, given), p.run(given)):
        for got, want in zip(results.values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    fused = derived(name).fused
    own = {o.name for o in fused.cascade.outs}
    for tree in (None, 1):
        streamed = run_fused(fused, given, chunks=4, tree=tree)
        for o, want in zip(term.outs, wanted, strict=True):
            if o.name in own:
                np.testing.assert_allclose(streamed[o.name], want, rtol=1e-9, atol=1e-9)


def test_the_product_is_written_in_the_order_of_memory() -> None:
    [c] = parts(lambda x: normalised(x, (1, 2)), x="c h w").cascades
    assert c.axis == "h_w"
    [t] = c.tensors
    assert (t.axes, t.view) == (("c", "h_w"), View("x", ("c", "h", "w")))
    assert Axis("h_w", None, ("h", "w")) in c.axes
    assert c.outs[0].axes == ("c", "h_w")
    lengths = {x for r in c.reductions for x in walk(r.body) if isinstance(x, Size)}
    assert lengths == {Size("h_w")}  # the running count of both axes, not the length of one


def test_positions_along_the_parts_are_row_major() -> None:
    [c] = parts(soft_argmax, x="a b").cascades
    text = str(c)
    assert "a_b // |b|" in text
    assert "a_b % |b|" in text


def test_an_output_whose_stream_axes_lie_apart_is_an_elementwise_piece() -> None:
    p = parts(lambda x: normalised(x, (0, 2)), x="b c n")
    assert [c.axis for c in p.cascades] == ["b_n", None]
    assert p.cascades[1].outs[0].axes == ("b", "c", "n")


def test_a_loss_is_averaged_after_its_rows() -> None:
    def cross_entropy(x: Any, t: Any) -> Any:
        shifted = x - x.max(1, keepdims=True)
        return -(t * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))).sum(1).mean()

    p = parts(cross_entropy, x="i n", t="i n")
    assert [(c.axis, len(c.reductions)) for c in p.cascades] == [("n", 3), ("i", 1)]  # one sweep of x


def test_a_single_sum_of_matrix_products_stores_none() -> None:
    p = parts(lambda q, k, y: ((q @ k.T - y) ** 2).mean(), q="i k", k="n k", y="i n")
    assert [(c.axis, len(c.producers)) for c in p.cascades] == [("n", 1), ("i", 0)]


def test_a_chain_over_matrix_products_stores_them_once() -> None:
    p = parts(lambda q, k: softmax(q @ k.T, None), q="i k", k="n k")
    assert [c.axis for c in p.cascades] == ["k", "i_n"]
    assert len(p.temporaries) == 1


def test_an_outer_sum_is_not_repeated_along_both_axes() -> None:
    p = parts(lambda u, v: softmax(u[:, None] + v[None, :], None), u="a", v="b")
    assert all(t.view is None for c in p.cascades for t in c.tensors)


def test_a_vector_is_repeated_where_the_stream_runs_over_a_whole_array() -> None:
    [c] = parts(window, x="a b", w="b").cascades
    assert {str(t.view) for t in c.tensors} == {"x[a,b]", "w[b]"}
    assert all(t.axes == ("a_b",) for t in c.tensors)


def test_row_results_that_are_asked_for_stay() -> None:
    p = parts(lambda x: (x.max(1), x.max()), x="a b")
    assert [c.axis for c in p.cascades] == ["b", "a"]


def test_axis_names_do_not_collide_with_products() -> None:
    p = parts(lambda x, a_b: (x - x.mean()).max() + a_b.sum(), x="a b", a_b="c")
    names = {c.axis for c in p.cascades if c.reductions}
    assert "a_b" not in names  # the argument has that name
    given = {"x": RNG.normal(size=(3, 4)), "a_b": RNG.normal(size=5)}
    [got] = p.run(given).values()
    np.testing.assert_allclose(got, (given["x"] - given["x"].mean()).max() + given["a_b"].sum())


# ---- arrays as views

SIZES = {"a": 3, "b": 4, "c": 2}


def shown(axes: tuple[str, ...], index: tuple[str | int, ...], array: Array) -> Array:
    t = Tensor("t", axes, "float64", View("x", index))
    return present(t, array, {"a_b": ("a", "b")}, SIZES)


def test_contiguous_axes_are_flattened_without_a_copy() -> None:
    x = RNG.normal(size=(2, 3, 4))
    flat = shown(("c", "a_b"), ("c", "a", "b"), x)
    assert flat.shape == (2, 12)
    assert np.shares_memory(flat, x)


def test_channels_last_stays_a_view() -> None:
    x = RNG.normal(size=(3, 4, 2))
    flat = shown(("c", "a_b"), ("a", "b", "c"), x)
    np.testing.assert_array_equal(flat, x.reshape(12, 2).T)
    assert np.shares_memory(flat, x)


def test_axes_that_lie_apart_are_copied() -> None:
    x = RNG.normal(size=(3, 2, 4))
    flat = shown(("c", "a_b"), ("a", "c", "b"), x)
    np.testing.assert_array_equal(flat, x.transpose(1, 0, 2).reshape(2, 12))


@pytest.mark.parametrize(
    ("index", "shape", "expected"),
    [
        (("b",), (4,), lambda x: np.tile(x, 3)),
        (("a",), (3,), lambda x: np.repeat(x, 4)),
        (("b", "a"), (4, 3), lambda x: x.T.ravel()),
        ((1, "a", "b"), (2, 3, 4), lambda x: x[1].ravel()),
        (("a", "a", "b"), (3, 3, 4), lambda x: np.stack([x[i, i] for i in range(3)]).ravel()),
    ],
)
def test_other_readings(index: tuple[str | int, ...], shape: tuple[int, ...], expected: Any) -> None:
    x = RNG.normal(size=shape)
    np.testing.assert_array_equal(shown(("a_b",), index, x), expected(x))


def test_lengths_of_products() -> None:
    axes = (Axis("a"), Axis("b"), Axis("a_b", None, ("a", "b")))
    assert with_products(axes, {"a": 3, "b": 4}) == {"a": 3, "b": 4, "a_b": 12}
    assert with_products(axes, {"a": 3}) == {"a": 3}
    assert parts_of(axes) == {"a_b": ("a", "b")}
    t = Tensor("t", ("a_b",), "float64", View("x", ("a", "b")))
    out = Out("o", ("a_b",), Ref("s", ()), "float64")
    c = Cascade("c", "a_b", axes, (t,), (), (), (out,))
    assert stream_length(c, {"x": np.zeros((3, 4))}) == 12
    assert stream_length(c, {}) is None
    assert as_results(c, {"o": np.arange(12)}, {"a": 3, "b": 4})["o"].shape == (3, 4)


# ---- several contractions, several widths

def test_two_products_feed_one_cascade() -> None:
    def differential(q: Any, k: Any, r: Any, m: Any, v: Any) -> Any:
        return (softmax(q @ k.T, 1) - 0.5 * softmax(r @ m.T, 1)) @ v

    [c] = parts(differential, q="i k", k="n k", r="i k", m="n k", v="n d").cascades
    assert len(c.producers) == 2
    assert [r.monoid for r in c.reductions] == ["max", "sum", "max", "sum", "sum"]


def test_values_of_different_widths_share_a_cascade() -> None:
    def attend(s: Any, v: Any, w: Any) -> Any:
        p = softmax(s, 1)
        return p @ v, p @ w

    [c] = parts(attend, s="i n", v="n d", w="n c").cascades
    assert {r.axes for r in c.reductions} == {("i",), ("i", "d"), ("i", "c")}


def test_cascades_that_need_each_other_complete_stay_apart() -> None:
    def twice(x: Any) -> Any:
        p = softmax(x, 1)
        return softmax(p.max(0) + x.max(1), 0)

    p = parts(twice, x="n n")
    given = {"x": RNG.normal(size=(5, 5))}
    [got] = p.run(given).values()
    np.testing.assert_allclose(got, twice(given["x"]))


def test_multiplying_by_one_leaves_nothing() -> None:
    [c] = parts(lambda w: (w * np.ones_like(w) * 1.0).sum(-1), w="i n").cascades
    assert [r.body for r in c.reductions] == [Load("w", ("i", "n"))]
