"""Cascades whose elements are reductions over another axis, or are read at several positions, down to kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redfuser as rf

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("session_cache")
RNG = np.random.default_rng(23)


def draw(*shape: int, around: float = 0.0) -> Array:
    return (RNG.normal(size=shape) + around).astype(np.float32)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def one_pass(fn: Callable[..., Any], *args: Array, rtol: float = 2e-5) -> rf.Report:
    """The call is within float32 rounding of NumPy in float64, and takes a single pass."""
    f = rf.fuse(fn)
    wanted = fn(*(a.astype(np.float64) if a.dtype == np.float32 else a for a in args))
    found = f(*args)
    for got, want in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.abs(want).max(initial=1e-6))
    report = f.explain(*args)
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)
    return report


# ---- distances as scores

SCORES: dict[str, Callable[[Any, Any], Any]] = {
    "squared": lambda q, k: -((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(-1),
    "absolute": lambda q, k: -np.abs(q[..., :, None, :] - k[..., None, :, :]).sum(-1),
    "largest": lambda q, k: -np.abs(q[..., :, None, :] - k[..., None, :, :]).max(-1),
    "smallest": lambda q, k: np.abs(q[..., :, None, :] - k[..., None, :, :]).min(-1),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("shape", [(7, 53, 3, 5), (300, 700, 8, 16), (2, 3000, 9, 8)])
def test_attention_on_distances(score: Callable[[Any, Any], Any], shape: tuple[int, int, int, int]) -> None:
    rows, length, depth, width = shape

    def attention(q: Any, k: Any, v: Any) -> Any:
        return softmax(score(q, k)) @ v

    report = one_pass(attention, draw(rows, depth), draw(length, depth), draw(length, width))
    assert "schedule: tiles" in str(report)
    one_pass(attention, draw(2, rows, depth), draw(2, length, depth), draw(2, length, width))


def test_masked_attention_on_distances() -> None:
    def attention(q: Any, k: Any, v: Any, keep: Any) -> Any:
        p = softmax(np.where(keep, SCORES["squared"](q, k) * 0.3, -np.inf))
        return p, p @ v

    keep = RNG.random((37, 53)) < 0.5
    keep[:, 0] = True
    one_pass(attention, draw(37, 8), draw(53, 8), draw(53, 16), keep)


def test_what_a_mask_removes_may_be_anything() -> None:
    def attention(q: Any, k: Any, v: Any, keep: Any) -> Any:
        return softmax(np.where(keep, SCORES["absolute"](q, k), -np.inf)) @ v

    q, k, v, keep = draw(37, 8), draw(53, 8), draw(53, 16), np.ones((37, 53), bool)
    keep[:, 5] = False
    wanted = attention(q, k, v, keep)
    k[5], v[5] = np.inf, np.nan
    np.testing.assert_allclose(rf.fuse(attention)(q, k, v, keep), wanted, rtol=2e-5, atol=1e-6)


def test_nearest_points() -> None:
    def nearest(x: Any, c: Any) -> Any:
        d = ((x[:, None] - c[None]) ** 2).sum(-1)
        return d.min(1), d.argmin(1)

    one_pass(nearest, draw(200, 3), draw(70, 3))
    one_pass(lambda x, c: np.exp(-((x - c) ** 2).sum(-1)).sum(), draw(200, 3), draw(3))


def test_points_among_themselves() -> None:
    def mean_shift(x: Any, y: Any) -> Any:
        w = np.exp(SCORES["squared"](x, y))
        return w @ y / w.sum(1, keepdims=True)

    def transposed(x: Any, y: Any, v: Any) -> Any:
        return softmax(SCORES["absolute"](x, y).T) @ v

    x, y = draw(33, 4), draw(90, 4)
    one_pass(lambda x: softmax(SCORES["squared"](x, x)) @ x, x)
    one_pass(mean_shift, x, y)
    one_pass(transposed, x, y, draw(33, 5))


# ---- one result at two positions


def covariance(x: Any) -> Any:
    d = x - x.mean(0)
    return d.T @ d / len(x)


def weighted_covariance(m: Any, x: Any) -> Any:
    d = x - x.mean(0)
    return np.einsum("n,ni,nj->ij", m, d, d)


def correlation(x: Any) -> Any:
    z = (x - x.mean(0)) / x.std(0)
    return z.T @ z / len(x), np.outer(x.mean(0), x.std(0))


def scaled_covariance(x: Any) -> Any:
    d = x - x.mean(0)
    s = np.sqrt((d * d).mean(0))
    return d.T @ d / (s[:, None] * s)


def attention_overlap(x: Any) -> Any:
    p = np.exp(x - x.max(0))
    p = p / p.sum(0)
    return p.T @ p


def third_moments(x: Any) -> Any:
    d = x - x.mean(0)
    return np.einsum("ni,nj,nk->ijk", d, d, d)


@pytest.mark.parametrize("fn", [covariance, correlation, scaled_covariance, attention_overlap])
@pytest.mark.parametrize("shape", [(101, 6), (2000, 33), (7, 2), (5000, 16)])
def test_pairs_of_columns(fn: Callable[..., Any], shape: tuple[int, int]) -> None:
    """Few columns run as rows, many as lanes."""
    one_pass(fn, draw(*shape, around=3.0))
    one_pass(fn, np.asfortranarray(draw(*shape, around=3.0)))


def test_weights_batches_and_triples() -> None:
    one_pass(weighted_covariance, np.abs(draw(101)), draw(101, 6))
    one_pass(weighted_covariance, np.abs(draw(900)), draw(900, 24, around=2.0))
    one_pass(third_moments, draw(300, 3, around=1.0), rtol=1e-4)

    def batched(x: Any) -> Any:
        d = x - x.mean(1, keepdims=True)
        return np.einsum("bni,bnj->bij", d, d)

    one_pass(batched, draw(3, 50, 4, around=2.0))


def test_far_from_zero() -> None:
    """The running means are pivots of the data: a mean of 1000 costs no digits."""
    one_pass(covariance, draw(3000, 4, around=1000.0), rtol=2e-4)


# ---- sums over another axis of what reads results


def two_passes(fn: Callable[..., Any], *args: Array, rtol: float = 2e-5) -> None:
    """One pass over the inputs and one over results of the size of the inner axis."""
    f = rf.fuse(fn)
    want = fn(*(a.astype(np.float64) for a in args))
    np.testing.assert_allclose(f(*args), want, rtol=rtol, atol=rtol * np.abs(want).max(initial=1e-6))
    report = f.explain(*args)
    first, second = f.lower(*args).partition.cascades
    assert report.passes == 2
    assert report.passes < report.passes_before
    assert {t.name for t in second.tensors} <= {o.name for o in first.outs}


def centre(m: Any, x: Any) -> Any:
    return (m[..., None] * x).sum(-2) / m.sum(-1)[..., None]


def gyration(m: Any, x: Any) -> Any:
    """Radius of gyration."""
    return np.sqrt((m * ((x - centre(m, x)[..., None, :]) ** 2).sum(-1)).sum(-1) / m.sum(-1))


@pytest.mark.parametrize(
    "fn",
    [
        gyration,
        lambda m, x: (m[:, None] * (x - centre(m, x)) ** 2).sum(),
        lambda m, x: (m * ((x - centre(m, x)) ** 2).sum(1) / m.sum()).sum(),
        lambda m, x: (m[:, None] * ((x - x.mean(0)) / x.std(0)) ** 2).sum(),
    ],
    ids=["gyration", "all at once", "quotient", "normalised"],
)
@pytest.mark.parametrize("shape", [(101, 3), (3000, 40), (6, 5)])
def test_spread_around_a_centre(fn: Callable[..., Any], shape: tuple[int, int]) -> None:
    two_passes(fn, np.abs(draw(shape[0])) + 1, draw(*shape, around=5.0))


def test_largest_deviation() -> None:
    two_passes(lambda x: np.abs(x - x.mean(0)).max(), draw(3000, 7))


def test_batches_of_spreads() -> None:
    two_passes(gyration, np.abs(draw(4, 300)) + 1, draw(4, 300, 3, around=5.0))


def test_projections_of_centred_data() -> None:
    def projected(x: Any, w: Any) -> Any:
        y = (x - x.mean(0)) @ w
        return (y * y).sum()

    x, w = draw(101, 6, around=3.0), draw(6)
    want = projected(x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(rf.fuse(projected)(x, w), want, rtol=2e-5)


def test_the_interpreter_of_tile_programs_agrees() -> None:
    m, x = np.abs(draw(50)) + 1, draw(50, 16, around=2.0)
    for fn, args in ((covariance, (x,)), (gyration, (m, x)), (third_moments, (x[:, :3],))):
        want = fn(*(a.astype(np.float64) for a in args))
        found = rf.fuse(fn, target="interpret")(*args)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_sizes_of_1_come_out_of_divisions():
    """A group of one head, a group of one channel: the entry of the reshape is computed and happens to be 1."""

    def heads(x, h):
        n, d = x.shape
        return x.reshape(n, h, d // h).sum(-1)

    fused, x = rf.fuse(heads), np.random.default_rng(0).standard_normal((5, 4))
    for h in (2, 1, 4, 2, 4):
        np.testing.assert_allclose(fused(x, h), heads(x, h), rtol=1e-12)

    def group_norm(x):
        b, c, h, w = x.shape
        y = x.reshape(b, 2, c // 2, h, w)
        off = y - y.mean((2, 3, 4), keepdims=True)
        return (off / np.sqrt((off * off).mean((2, 3, 4), keepdims=True) + 1e-5)).reshape(x.shape)

    fused = rf.fuse(group_norm)
    for c in (4, 2, 6):
        x = np.random.default_rng(c).standard_normal((3, c, 5, 4))
        np.testing.assert_allclose(fused(x), group_norm(x), rtol=1e-9, atol=1e-12)
    with pytest.raises(rf.errors.ShapeError, match=r"\(5, 4\) with 20 elements cannot be reshaped to \(5, 3, 1\)"):
        rf.fuse(heads)(np.ones((5, 4)), 3)
