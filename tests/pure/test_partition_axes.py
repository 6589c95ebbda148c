"""Cascades across axes: distances inside the loop, results at two positions, sums in another order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.frontend import Spec, lower, trace
from redfuser.ir import Ref, walk
from redfuser.ir.partition import Partition, partition


def parts(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Partition:
    return partition(lower(trace(fn, [Spec(s) for s in shapes])))


def stages(p: Partition) -> list[list[str]]:
    return [[r.monoid for r in c.reductions] for c in p.cascades]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- reductions of elements at different axes

@pytest.mark.parametrize(
    "score",
    [
        lambda q, k: -((q[:, None] - k[None]) ** 2).sum(-1),
        lambda q, k: -np.abs(q[:, None] - k[None]).sum(-1),
        lambda q, k: -np.abs(q[:, None] - k[None]).max(-1),
        lambda q, k: np.prod(1 + q[:, None] * k[None], axis=-1),
    ],
    ids=["squared", "absolute", "largest", "product"],
)
def test_reductions_of_elements_at_different_axes_are_producers(score: Callable[..., Any]) -> None:
    def distance_attention(q, k, v):
        return softmax(score(q, k)) @ v

    p = parts(distance_attention, (3, 4), (5, 4), (5, 6))
    assert stages(p) == [["max", "sum", "sum"]]
    assert len(p.cascades[0].producers) == 1


def test_distances_from_a_fixed_point_are_producers() -> None:
    p = parts(lambda x, c: np.exp(-((x - c) ** 2).sum(-1)).sum(), (5, 3), (3,))
    assert stages(p) == [["sum"]]


def test_reductions_smaller_than_what_they_read_are_kept() -> None:
    p = parts(lambda x: np.exp(-(x * x).sum(-1)).sum(), (5, 3))
    assert stages(p) == [["sum"], ["sum"]]


def test_distances_over_several_axes_are_stored() -> None:
    def patches(q, k, v):
        return softmax(-((q[:, None] - k[None]) ** 2).sum((-1, -2))) @ v

    assert stages(parts(patches, (3, 4, 2), (5, 4, 2), (5, 6))) == [["sum"], ["max", "sum", "sum"]]


def test_distances_of_normalised_points_use_finished_results() -> None:
    def centred(q, k, v):
        k = k - k.mean(0)  # a result over the stream of the attention: it must be complete
        return softmax(-((q[:, None] - k[None]) ** 2).sum(-1)) @ v

    p = parts(centred, (3, 4), (5, 4), (5, 6))
    assert stages(p) == [["sum"], ["sum"], ["max", "sum", "sum"]]
    assert not any(c.producers for c in p.cascades)


# ---- one result at two positions

def covariance(x):
    d = x - x.mean(0)
    return d.T @ d


def test_a_result_read_at_two_positions_gets_a_twin() -> None:
    p = parts(covariance, (5, 3))
    (c,) = p.cascades
    mean, twin, product = c.reductions
    assert p.temporaries == ()
    assert [len(r.axes) for r in c.reductions] == [1, 1, 2]
    assert mean.axes + twin.axes == product.axes
    assert {x.name for x in walk(product.body) if isinstance(x, Ref)} == {mean.name, twin.name}
    x = np.arange(15.0).reshape(5, 3) ** 2
    np.testing.assert_allclose(p.run({"x": x})["out"], covariance(x))


def test_twins_read_twins_and_are_made_once() -> None:
    def correlation(x):
        z = (x - x.mean(0)) / x.std(0)
        return z.T @ z / len(x), np.outer(x.mean(0), x.std(0))

    p = parts(correlation, (5, 3))
    assert stages(p) == [["sum"] * 5]
    x = np.random.default_rng(0).normal(size=(5, 3))
    for got, want in zip(p.run({"x": x}).values(), correlation(x), strict=True):
        np.testing.assert_allclose(got, want)


def test_results_read_along_the_stream_are_complete_first() -> None:
    def centred_gram(x):
        m = x.mean(1)  # over the stream of the sum, at both positions of the pair
        return ((x - m[:, None]) * (x - m[None])).sum(1)

    assert stages(parts(centred_gram, (5, 5))) == [["sum"], ["sum"]]


def test_outputs_without_axes_beyond_the_stages_use_twins() -> None:
    def scaled(x):
        c = x.T @ x
        s = np.sqrt((x * x).sum(0))
        return c / (s[:, None] * s)

    (c,) = parts(scaled, (5, 3)).cascades
    assert len(c.reductions) == 3
    assert len({x.name for x in walk(c.outs[0].expr) if isinstance(x, Ref)}) == 3


# ---- reductions that read results of the outer stream

def centre(m, x):
    return (m[:, None] * x).sum(0) / m.sum()


def spread(m, x):
    return np.sqrt((m * ((x - centre(m, x)) ** 2).sum(1)).sum() / m.sum())


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (spread, [["sum", "sum", "sum"], ["sum"]]),
        (lambda m, x: (m[:, None] * (x - centre(m, x)) ** 2).sum(), [["sum", "sum", "sum"], ["sum"]]),
        (lambda m, x: -(m * ((x - x.mean(0)) ** 2).sum(1) / m.sum()).sum(), [["sum", "sum", "sum"], ["sum"]]),
        (lambda _, x: np.abs(x - x.mean(0)).max(), [["sum", "max"], ["max"]]),
        (lambda _, x: (x > x.mean(0)).all(1).all(), [["sum", "all"], ["all"]]),
    ],
    ids=["factor", "all at once", "quotient", "maximum", "truth values"],
)
def test_reductions_that_read_results_of_the_outer_stream_come_first(fn: Any, expected: list[list[str]]) -> None:
    p = parts(fn, (5,), (5, 3))
    assert stages(p) == expected
    assert {t.name for t in p.cascades[1].tensors} <= {t.name for t in p.temporaries}  # no input is read again
    rng = np.random.default_rng(0)
    arrays = {"m": rng.uniform(1, 2, 5), "_": np.zeros(5), "x": rng.normal(size=(5, 3))}
    wanted = fn(arrays["m"], arrays["x"])
    found = p.run({t.name: arrays[t.name] for t in p.term.tensors})
    np.testing.assert_allclose(next(iter(found.values())), wanted)


def test_inner_sums_of_inputs_are_not_exchanged() -> None:
    p = parts(lambda m, x, c: (m * ((x - c) ** 2).sum(1)).sum(), (5,), (5, 3), (3,))
    assert stages(p) == [["sum"]]
    assert len(p.cascades[0].producers) == 1


def test_an_inner_sum_that_is_needed_itself_is_not_exchanged() -> None:
    def distances(m, x):
        r = ((x - centre(m, x)) ** 2).sum(1)
        return r, (m * r).sum()

    assert stages(parts(distances, (5,), (5, 3))) == [["sum", "sum"], ["sum"], ["sum"]]


def test_an_inner_sum_that_serves_many_results_is_not_repeated() -> None:
    def weighted(w, x):
        return (w * ((x - x.mean(0)) ** 2).sum(1)[:, None]).sum(0)  # one sum for all columns of w

    assert stages(parts(weighted, (5, 4), (5, 3))) == [["sum"], ["sum"], ["sum"]]


def test_products_with_results_of_the_stream_along_their_own_axis_are_stored() -> None:
    def projected(x, w):
        y = (x - x.mean(0)) @ w  # a running mean would have to be moved inside the product
        return (y * y).sum()

    p = parts(projected, (5, 3), (3,))
    assert stages(p) == [["sum"], ["sum"], ["sum"]]
    assert not any(c.producers for c in p.cascades)
