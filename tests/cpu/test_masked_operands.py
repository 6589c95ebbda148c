"""Elements that a mask removes contribute nothing, NaN and infinities in the other operands included.

Every result is compared with the definition over the live elements only: what a row sees comes back as NumPy has it,
what its mask removes leaves no trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fused_examples import arrays_for, attention
from programs import compiled, variants
from tile_runs import empty_outs, kernel_for, run

import redfuser as rf
from redfuser.codegen import Kernel
from redfuser.codegen.nodes import If
from redfuser.codegen.passes.bodies import nested
from redfuser.extract import Options, Profile, plan
from redfuser.ir import Op

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("session_cache")
BAD = (np.nan, np.inf, -np.inf)
TOLERANCE = {"float32": 1e-5, "float64": 1e-13}


# -------------------------------- programs


def attend(scores, v):
    e = np.exp(scores - scores.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)) @ v


def boolean(q, k, v, mask):
    return attend(np.where(mask, q @ k.T * 0.25, -np.inf), v)


def inverted(q, k, v, mask):
    return attend(np.where(np.logical_not(mask), -np.inf, q @ k.T * 0.25), v)


def causal(q, k, v):
    i = np.arange(q.shape[0])
    return attend(np.where(i[:, None] >= i[None, :], q @ k.T * 0.25, -np.inf), v)


def window(q, k, v):
    d = np.arange(q.shape[0])[:, None] - np.arange(q.shape[0])[None, :]
    return attend(np.where((d >= 0) & (d < 9), q @ k.T * 0.25, -np.inf), v)


def padded(q, k, v, length):
    return attend(np.where(np.arange(k.shape[0])[None, :] < length, q @ k.T * 0.25, -np.inf), v)


def softmax(x, mask):
    s = np.where(mask, x, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def weighted(x, y, mask):
    s = np.where(mask, x, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return (e * y).sum(1) / e.sum(1)


def weighted_columns(x, y, mask):
    s = np.where(mask, x, -np.inf)
    e = np.exp(s - s.max(0))
    return (e * y).sum(0) / e.sum(0)


@functools.cache
def fused(f: Callable[..., Any], target: str) -> Callable[..., Any]:
    return rf.fuse(f, target=target)


def live_of(name: str, n: int) -> Array:
    """Which elements each row sees. Masks other than index masks remove element 3 everywhere, 9 in some rows."""
    d = np.arange(n)[:, None] - np.arange(n)
    if name in ("causal", "window"):
        return (d >= 0) & (d < (9 if name == "window" else n))
    if name == "padded":
        return np.broadcast_to(np.arange(n) < n - 5, (n, n))
    live = np.random.default_rng(n).random((n, n)) < 0.6
    live[:, 0], live[:, 3], live[: n // 2, 9] = True, False, False
    return live


def over_live_elements(q: Array, k: Array, v: Array, live: Array, scale: float = 0.25) -> Array:
    """Attention in float64 where a row never touches what its mask removes."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    out = np.full((len(q), v.shape[1]), np.nan)
    with np.errstate(all="ignore"):
        for i, seen in enumerate(live):
            if seen.any():
                s = k[seen] @ q[i] * scale
                e = np.exp(s - s.max())
                out[i] = e @ v[seen] / e.sum()
    return out


def assert_same(got: Array, want: Array, dtype: str) -> None:
    """NaN and infinities in the same places, everything else within rounding."""
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(got.dtype))
    np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=TOLERANCE[dtype])


# -------------------------------- attention


@pytest.mark.parametrize("target", ["c", "interpret"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", [boolean, inverted, causal, window, padded], ids=lambda f: f.__name__)
def test_attention(f, dtype, target):
    n = 131 if target == "c" else 21
    q, k, v = (np.random.default_rng(i).standard_normal((n, 24)).astype(dtype) for i in range(3))
    live = live_of(f.__name__, n)
    extra = {"boolean": (live,), "inverted": (live,), "padded": (np.int64(n - 5),)}.get(f.__name__, ())
    for bad in BAD:
        for operands in ((v,), (k,), (k, v)):
            spoilt = [a.copy() if any(a is o for o in operands) else a for a in (k, v)]
            for a, original in zip(spoilt, (k, v), strict=True):
                if a is not original:
                    a[n - 2] = bad
                    if f is not padded:
                        a[3], a[9, 2] = bad, bad
            want = over_live_elements(q, *spoilt, live)
            with np.errstate(all="ignore"):
                got = fused(f, target)(q, *spoilt, *extra)
            assert np.isfinite(want).any()
            assert_same(got, want, dtype)


def test_rows_that_meet_nothing_bad_keep_their_bits():
    """Row by row: the repair of one row touches no other."""
    n = 131
    q, k, v = (np.random.default_rng(i).standard_normal((n, 24)).astype(np.float32) for i in range(3))
    clean = fused(causal, "c")(q, k, v)
    v[n // 2] = np.nan
    got = fused(causal, "c")(q, k, v)
    assert np.isnan(got[n // 2 :]).all()
    np.testing.assert_allclose(got[: n // 2], clean[: n // 2], rtol=0, atol=4 * np.finfo(np.float32).eps)
    np.testing.assert_array_equal(got[:39], clean[:39])


SCHEDULES = {
    "tiles": Options(),
    "small tiles": Options(block=16, tile=6),
    "packed": Options(block=16, tile=8, pack=True),
    "split": Options(block=16, tile=6, chunk=16),
    "rows": Options(strategy="rows"),
    "streaming": Options(strategy="rows", block=8),
    "split rows": Options(strategy="rows", block=8, chunk=16),
}


def spoilt_arrays(example: Any, sizes: dict[str, int], bad: float) -> tuple[dict[str, Array], Array]:
    """Inputs of an attention example with bad keys and values, and what each row sees of them."""
    arrays = arrays_for(example, sizes)
    keep = arrays.get("keep")
    n, rows = sizes["n"], sizes["i"]
    d = np.arange(rows)[:, None] - np.arange(n)
    live = (d >= 0) if keep is None else keep
    if keep is not None:
        keep[:, 3] = keep[::2, 9] = False
    for name in ("kk", "v"):
        arrays[name][:, 3 if keep is not None else rows - 2, 1] = bad
    arrays["v"][0, 9] = bad
    return arrays, live


def expected(arrays: dict[str, Array], live: Array) -> Array:
    heads = zip(arrays["q"], arrays["kk"], arrays["v"], strict=True)
    return np.stack([over_live_elements(q, k, v, live, 0.3) for q, k, v in heads])


@pytest.mark.parametrize("mask", ["bool", "causal"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule(schedule, mask):
    sizes = {"h": 2, "i": 21, "n": 21, "k": 3, "d": 4}
    example = attention(mask=mask)
    kernel = kernel_for(example, sizes, SCHEDULES[schedule], vector_bytes=variants()[-1][0])
    for bad in BAD:
        arrays, live = spoilt_arrays(example, sizes, bad)
        want, outs = expected(arrays, live), empty_outs(example, sizes)
        assert_same(run(kernel, example, arrays, sizes)["out"], want, "float32")
        program = compiled(kernel, variants()[-1])
        program.run([arrays[b.name] for b in kernel.tensors], [outs[b.name] for b in kernel.outs], sizes)
        assert_same(outs["out"], want, "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mask", ["bool", "causal"])
def test_a_long_split_stream(mask, dtype):
    sizes = {"h": 1, "i": 1000, "n": 1000, "k": 16, "d": 16}
    example = attention(dtype, mask=mask)
    kernel = kernel_for(example, sizes, Options(chunk=256), dtype, variants()[-1][0])
    assert any("split into chunks" in note for note in kernel.notes)
    for bad in (np.nan, np.inf):
        arrays, live = spoilt_arrays(example, sizes, bad)
        outs = empty_outs(example, sizes)
        program = compiled(kernel, variants()[-1])
        program.run([arrays[b.name] for b in kernel.tensors], [outs[b.name] for b in kernel.outs], sizes)
        assert_same(outs["out"], expected(arrays, live), dtype)


def test_one_column_of_values():
    """No vector axis: the weighted sum is a number per row."""
    n = 45
    q, k, v = (np.random.default_rng(i).standard_normal((n, 24)) for i in range(3))
    v = v[:, :1].copy()
    live = live_of("boolean", n)
    v[3], v[9] = np.nan, np.inf
    with np.errstate(all="ignore"):
        assert_same(fused(boolean, "c")(q, k, v, live), over_live_elements(q, k, v, live), "float64")
        assert_same(fused(causal, "c")(q, k, v), over_live_elements(q, k, v, live_of("causal", n)), "float64")


def test_a_row_that_sees_nothing():
    """0 / 0, as the definition has it: the bad value plays no part."""
    n = 45
    q, k, v = (np.random.default_rng(i).standard_normal((n, 24)).astype(np.float32) for i in range(3))
    live = live_of("boolean", n)
    live[7] = False
    v[3] = np.inf
    want = over_live_elements(q, k, v, live)
    assert np.isnan(want[7]).all()
    with np.errstate(all="ignore"):
        assert_same(fused(boolean, "c")(q, k, v, live), want, "float32")
        zero = rf.fuse(boolean, empty="zero")(q, k, v, live)
    assert not zero[7].any()


# -------------------------------- rows and columns


@pytest.mark.parametrize("target", ["c", "interpret"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [45, 1000])
def test_softmax_rows(n, dtype, target):
    x = np.random.default_rng(n).standard_normal((7, n)).astype(dtype)
    mask = np.random.default_rng(1).random((7, n)) < 0.6
    mask[:, 3], mask[0, 4], mask[1:, 4] = False, True, False
    clean = softmax(x, mask)
    for bad in (np.nan, np.inf):
        x[:, 3] = x[:, 4] = bad
        with np.errstate(all="ignore"):
            got = fused(softmax, target)(x, mask)
        assert np.isnan(got[0][mask[0]]).any()
        np.testing.assert_allclose(got[1:], clean[1:], rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("target", ["c", "interpret"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", [weighted, weighted_columns], ids=lambda f: f.__name__)
def test_weighted_sums(f, dtype, target):
    columns = f is weighted_columns
    for n in (45, 1600):
        x, y = (np.random.default_rng(i).standard_normal((n, 40)).astype(dtype) for i in range(2))
        mask = np.random.default_rng(2).random((n, 40)) < 0.6
        mask[[3, 9]] = False
        mask[9, 5] = True
        clean = y.copy()
        clean[[3, 9]] = 0
        for bad in BAD:
            y[[3, 9]] = bad
            args = (x, y, mask) if columns else tuple(np.ascontiguousarray(a.T) for a in (x, y, mask))
            want = weighted_columns(*(a.astype(np.float64) for a in (x, clean)), mask)
            want[5] = bad
            with np.errstate(all="ignore"):
                assert_same(fused(f, target)(*args), want, dtype)


def test_zero_in_the_place_of_removed_elements_multiplies_as_numpy_does():
    def f(x, y, mask):
        return (np.where(mask, x, 0.0) * y).sum(1)

    x, y = (np.random.default_rng(i).standard_normal((3, 45)) for i in range(2))
    mask = np.ones((3, 45), bool)
    mask[1, 7] = False
    y[1, 7] = np.nan
    got = rf.fuse(f)(x, y, mask)
    assert np.isnan(got[1])
    np.testing.assert_allclose(got[::2], f(x, y, mask)[::2], rtol=1e-13)


def test_a_mask_removes_only_what_it_makes_zero():
    """exp(-inf * y) is 0 or infinite, by the sign of y."""

    def f(x, y, mask):
        return (np.exp(np.where(mask, x, -np.inf) * y)).sum(1)

    x, y = (np.abs(np.random.default_rng(i).standard_normal((3, 45))) for i in range(2))
    mask = np.ones((3, 45), bool)
    mask[1:, 7] = False
    y[1, 7] = -1
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(rf.fuse(f)(x, y, mask), f(x, y, mask), rtol=1e-12)


# -------------------------------- what is emitted


def conditions(kernel: Kernel) -> list[str]:
    return [str(s.condition) for p in kernel.phases for s in nested(p.loop.body) if isinstance(s, If)]


def test_only_masked_tiles_look_at_their_state():
    sizes = {"h": 2, "i": 41, "n": 41, "k": 5, "d": 6}
    for mask in ("", "bool", "causal", "window", "slopes"):
        kernel = kernel_for(attention(mask=mask), sizes)
        assert any("odd" in c for c in conditions(kernel)) == bool(mask)


def test_only_sums_with_another_operand_are_guarded():
    """The mass of a softmax is 0 at removed elements anyway; its product with values would be 0 * NaN."""
    sizes = {"h": 2, "i": 41, "n": 41, "k": 5, "d": 6}
    chosen = plan(attention(mask="bool"), sizes, Profile.generic(32), options=Options(strategy="rows"))
    bodies = {a.name: a.body for a in chosen.flat.accumulators}
    assert {n: isinstance(e, Op) and e.fn == "select" for n, e in bodies.items() if n != "m"} == {"l": False, "u": True}


def product_of_masses(x, y, m):
    a = np.where(m, y, 0).sum(-1, keepdims=True)
    mass = np.where(m, x, 0).sum(-1, keepdims=True)
    return np.where(m, (a / mass) * x, 0).sum(-1)


def spread_about_a_weighted_mean(x, y, m):
    a = np.where(m, y * x, 0).sum(-1, keepdims=True)
    mass = np.where(m, x, 0).sum(-1, keepdims=True)
    return np.where(m, x * (y - a / mass) ** 2, 0).sum(-1)


def of_a_computed_mask(x, y, m):
    live = y > -0.5
    a = np.where(live, y, 0).sum(-1, keepdims=True)
    mass = np.where(live, abs(x), 0).sum(-1, keepdims=True)
    return np.where(live, (y - a / mass) ** 2, 0).sum(-1)


@pytest.mark.parametrize("fn", [product_of_masses, spread_about_a_weighted_mean, of_a_computed_mask])
def test_a_row_that_selects_nothing_is_nothing(fn):
    """The quotient by an empty mass is undefined, but no element reads it."""
    x, y = np.abs(np.random.default_rng(0).normal(size=(2, 4, 40))) + 0.1
    m = y > 0.8
    m[1], y[1], x[2] = False, -1, 0
    with np.errstate(all="ignore"):
        wanted = fn(x, y, m)
        found = rf.fuse(fn)(x, y, m)
    assert wanted[1] == found[1] == 0
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    np.testing.assert_allclose(found[[0, 3]], wanted[[0, 3]])


# ---- masks that put in ordinary numbers


def _causal(q, k, value):
    i = np.arange(q.shape[0])
    return np.where(i[:, None] >= i, q @ k.T, value)


FINITE = {
    "a clipped score": (lambda q, k, v, t: (np.maximum(_causal(q, k, -3.0), t) - t) @ v, (-1.0, -2.9, -4.0, -10.0)),
    "a gate": (lambda q, k, v, t: (1 / (1 + np.exp(-(_causal(q, k, -50.0) + t)))) @ v, (50.0, 3.0)),
    "a temperature": (lambda q, k, v, t: np.exp(_causal(q, k, -1e4) / t**2) @ v, (100.0, 2.0)),
    "a positive part": (lambda q, k, v, t: np.maximum(_causal(q, k, -1e4) + t, 0) @ v, (2e4, 1.0)),
    "a threshold": (lambda q, k, v, t: np.where(_causal(q, k, -100.0) > t, 1.0, 0.0) @ v, (-200.0, 0.0)),
}


@pytest.mark.parametrize("name", FINITE)
def test_a_finite_mask_is_an_ordinary_number(name):
    """Scalars of any size decide what a masked element adds: none may be left out of the loop for what is usual."""
    fn, scalars = FINITE[name]
    q, k, v = (np.random.default_rng(i).standard_normal((64, 16)).astype("float32") for i in range(3))
    fused = rf.fuse(fn)
    for t in scalars:
        wanted = fn(q.astype(float), k.astype(float), v.astype(float), t)
        np.testing.assert_allclose(fused(q, k, v, np.float32(t)), wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())
