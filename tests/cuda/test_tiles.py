"""Tiles on matrix units: run on the executor against the definition, compiled for two architectures."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from tile_examples import (
    BF16,
    F16,
    ROUNDOFF,
    Array,
    Function,
    assert_within_half,
    capped_window,
    causal,
    decode,
    dense,
    gate,
    grouped_bias,
    inputs,
    latent,
    normalised_product,
    weighted,
    wide,
)

import redfuser as rf
from redfuser import pipeline
from redfuser.extract import Options
from redfuser.extract.roles import NoTiles
from redfuser.runtime.cuda.header import HeaderModule
from redfuser.runtime.cuda.kernel import HostCudaKernel, scheduled
from redfuser.runtime.cuda.nvrtc import Resources, compile_cuda
from redfuser.runtime.cuda.sass import instruction_mix
from redfuser.zoo import attention

Dtype = np.dtype[Any]


def fused(fn: Function) -> Any:
    return rf.fuse(fn, target="cuda-host")


def source(f: Any, *arrays: Any, arch: str = "sm_80") -> str:
    return str(f.lower(*arrays).source("cuda", arch=arch))


def check(fn: Function, arrays: list[Array], seeds: tuple[int, ...] = (0,), f: Any = None) -> Any:
    """Run under schedules of threads; the kernel must be one of matrix units."""
    f = f or fused(fn)
    for seed in seeds:
        with scheduled(seed):
            assert_within_half(fn, f(*arrays), *arrays)
    assert "multiply<" in source(f, *arrays)
    return f


def test_attention_of_ragged_lengths() -> None:
    f = None
    for m, n, seeds in ((33, 97, (0, 1, 2)), (70, 200, (0,)), (64, 64, (3,)), (3, 130, (0,))):
        f = check(dense, inputs((2, m, 64), (2, n, 64), (2, n, 64), seed=m), seeds, f)


@pytest.mark.parametrize(("fn", "d", "dtype", "m", "n"), [
    (causal, 96, BF16, 97, 97), (capped_window, 32, F16, 150, 150),
])  # fmt: skip
def test_attention_in_variants(fn: Function, d: int, dtype: Dtype, m: int, n: int) -> None:
    check(fn, inputs((1, m, d), (1, n, d), (1, n, d), dtype=dtype), (0, 5))


def test_attention_of_groups_with_a_bias() -> None:
    q, k, v = inputs((1, 2, 40, 128), (1, 90, 128), (1, 90, 128), dtype=BF16)
    (b,) = inputs((40, 90), dtype=np.dtype(np.float32))
    check(grouped_bias, [q, k, v, b])


def test_decoding_of_few_rows_splits_the_stream() -> None:
    arrays = inputs((2, 4, 64), (2, 1200, 64), (2, 1200, 64))
    f = check(decode, arrays, (0, 1))
    kernel = f.lower(*arrays).gpu_tiles("sm_80")[0]
    assert len(kernel.phases) == 2
    assert any("partial states are merged" in note for note in kernel.notes)
    check(decode, inputs((2, 4, 64), (2, 700, 64), (2, 700, 64)), f=f)


def test_arrays_that_no_wide_copy_reads() -> None:
    """Rows that begin anywhere, rows in reverse order, features that are strided."""
    q, k, v = inputs((2, 20, 41), (2, 90, 40), (2, 90, 81))
    check(dense, [q[:, :, 1:], k[:, ::-1], v[:, :, 1::2]])


def test_masked_rows_of_arrays_that_are_not_row_major() -> None:
    """Rows that are summed again read their inputs element by element, whatever the strides."""
    q, k, v = inputs((1, 40, 64), (1, 40, 64), (1, 40, 64))
    check(causal, [np.asfortranarray(q[0])[None], np.asfortranarray(k[0])[None, ::-1], np.asfortranarray(v[0])[None]])


def test_products_are_rounded_before_the_maximum_is_subtracted() -> None:
    """The assembler may join `mul` and `sub` of PTX into one multiply-add, positive by the rounding of the product; not
    `mul.rn`. The executor computes each by itself, so that only the text shows it."""
    def scaled(q: Any, k: Any, v: Any) -> Any:
        return weighted(np.einsum("hmd,hnd->hmn", q, k) * 0.3, v)

    text = source(fused(scaled), *inputs((1, 64, 64), (1, 64, 64), (1, 64, 64)))
    exponentials = [line for line in text.splitlines() if "= exp_at_most_one(" in line]
    assert exponentials
    assert all("exp_at_most_one(__fmul_rn(" in line for line in exponentials)
    ptx = compile_cuda(text, "sm_80", kind="ptx").data
    assert b"mul.rn.ftz.f32" in ptx


def test_what_a_mask_removes_contributes_nothing() -> None:
    q, k, v = inputs((1, 40, 32), (1, 40, 32), (1, 40, 32))
    k[0, 30, 3], v[0, 20, 5], v[0, 35, 7] = np.nan, np.inf, np.nan
    with np.errstate(all="ignore"):
        result = fused(causal)(q, k, v)
        good = causal(*(a[:, :20].astype(np.float64) for a in (q, k, v)))
    assert np.abs(result[:, :20] - good).max() < 2e-3
    assert np.isposinf(result[0, 20:30, 5]).all()
    assert np.isfinite(np.delete(result[0, 20:30], 5, axis=1)).all()
    assert np.isnan(result[0, 30:]).all()


@pytest.mark.parametrize(("fn", "shapes", "values"), [
    (attention.differential_attention, ("ik", "nk", "ik", "nk", "nd"), (4,)),
    (attention.unequal_values_attention, ("ik", "nk", "nd", "ne"), (2, 3)),
    (attention.sink_attention, ("ik", "nk", "nd", "i"), (2,)),
], ids=lambda x: getattr(x, "__name__", ""))  # fmt: skip
def test_cascades_without_a_kernel_elsewhere(fn: Function, shapes: tuple[str, ...], values: tuple[int, ...]) -> None:
    lengths = {"i": 20, "n": 70, "k": 16, "d": 16, "e": 8}
    arrays = inputs(*(tuple(lengths[a] for a in s) for s in shapes))
    f = fused(fn)
    results, expected = f(*arrays), fn(*map(wide, arrays))
    if not isinstance(expected, tuple):
        results, expected = (results,), (expected,)
    for got, right, at in zip(results, expected, values, strict=len(values) == len(expected)):
        most = 2.0 * np.abs(wide(arrays[at])).max()  # weights sum to 2 at most, in absolute values
        assert np.abs(wide(got) - right).max() <= 2.1 * ROUNDOFF[F16] * most
    assert "multiply<" in source(f, *arrays)


def test_routing_keeps_the_best_in_registers() -> None:
    """Equal scores: the first expert wins. Scores are exact, so the order is that of the definition."""
    rng = np.random.default_rng(0)
    f = fused(gate)
    for tokens, experts in ((50, 60), (20, 130), (3, 4)):
        x = rng.integers(-3, 4, (tokens, 32)).astype(F16)
        w = (rng.integers(-1, 2, (experts, 32)) * 0.25).astype(F16)
        values, indices = f(x, w)
        right, best = gate(wide(x), wide(w))
        assert (indices == best).all()
        assert np.abs(wide(values) - right).max() <= 1.1 * ROUNDOFF[F16]
    kernel = f.lower(x, w).gpu_tiles("sm_80")[0]
    assert len(kernel.phases) == 1
    assert "insert_sorted<" in source(f, x, w)


def test_more_rows_per_warp_and_short_blocks() -> None:
    """Decisions that a caller asks for: two fragments of rows one under the other in each warp."""
    q, k, v = inputs((1, 140, 32), (1, 140, 32), (1, 140, 32))
    f = rf.fuse(causal)
    (fusion,) = f.lower(q, k, v).fusion
    sizes = {a: {"d": 32, "c": 32}.get(a, 140) for a in (x.name for x in fusion.cascade.axes)}
    chosen = pipeline.gpu_plan_step(fusion, sizes, {}, "float32", "sm_80", Options(tile=128, block=16))
    kernel = pipeline.tile_step(chosen)
    assert "tiles of 128 rows x 16 elements of n" in kernel.notes
    out = np.empty_like(q[0])
    with scheduled(2):
        HostCudaKernel(kernel).run([q[0], k[0], v[0]], [out], sizes)
    assert_within_half(causal, out[None], q, k, v)
    with pytest.raises(NoTiles, match="do not fit into registers"):
        pipeline.gpu_plan_step(fusion, sizes, {}, "float32", "sm_80", Options(tile=1024, strategy="tiles"))


def test_the_second_front_end_runs_tiles() -> None:
    q, k, v = inputs((1, 40, 32), (1, 70, 32), (1, 70, 32), dtype=BF16)
    kernel = rf.fuse(dense).lower(q, k, v).gpu_tiles("sm_80")[0]
    host = HostCudaKernel(kernel)
    host.module = cast(Any, HeaderModule(host.source))
    out = np.empty(q[0].shape, kernel.outs[0].dtype)
    host.run([q[0], k[0], v[0]], [out], {"i": 40, "n": 70, "c": 32, "d": 32})
    assert_within_half(dense, out[None], q, k, v)


def test_a_wide_product_is_shared_out() -> None:
    x, g, w = inputs((40, 70), (70,), (70, 300), dtype=BF16)
    f = fused(normalised_product)
    result, expected = f(x, g, w), normalised_product(wide(x), wide(g), wide(w))
    size = normalised_product(np.abs(wide(x)), np.abs(wide(g)), np.abs(wide(w)))
    assert (np.abs(wide(result) - expected) <= 2.1 * ROUNDOFF[BF16] * size).all()
    notes = f.lower(x, g, w).gpu_tiles("sm_80")[0].notes
    assert any("each task computes 256 elements" in n for n in notes)


def test_deep_rows_stay_in_shared_memory() -> None:
    q, c = inputs((10, 240), (70, 240))
    f = fused(latent)
    result, expected = f(q, c), latent(wide(q), wide(c))
    assert np.abs(wide(result) - expected).max() <= 2.1 * ROUNDOFF[F16] * np.abs(wide(c)).max()
    assert "multiply_panels<" in source(f, q, c)


def test_weights_without_a_bound_stay_out_of_float16() -> None:
    def linear(q: Any, k: Any, v: Any) -> Any:
        s = np.einsum("hmd,hnd->hmn", q, k)
        return (s / s.sum(axis=-1, keepdims=True)) @ v

    for dtype, units in (("float16", False), ("bfloat16", True)):
        specs = [rf.spec((2, 100, 32), dtype)] * 3
        kernel = rf.fuse(linear).lower(*specs).gpu_tiles("sm_80")[0]
        assert (kernel.notes[0] == "schedule: tiles") == units
        assert units or any("may exceed the range of float16" in n for n in kernel.notes)


# -------------------------------- what compilers make of it


@cache
def compiled(fn: Function, d: int, arch: str) -> tuple[Resources, Any]:
    specs = [rf.spec((64, 1024, d), "float16")] * 3
    cubin = compile_cuda(source(rf.fuse(fn), *specs, arch=arch), arch, kind="cubin")
    (name,) = cubin.resources
    return cubin.resources[name], instruction_mix(cubin.data)[name]


@pytest.mark.parametrize(("fn", "d", "arch"), [
    (dense, 64, "sm_80"), (dense, 128, "sm_90a"), (causal, 96, "sm_90a"), (causal, 128, "sm_80"),
    (capped_window, 64, "sm_80"),
])  # fmt: skip
def test_no_register_is_spilled(fn: Function, d: int, arch: str) -> None:
    resources, mix = compiled(fn, d, arch)
    assert resources.spill_stores == resources.spill_loads == 0
    assert not mix["LDL"]
    assert not mix["STL"]
    assert resources.registers <= (168 if d == 64 and fn is dense else 255)
    # 4 warps of 16 rows, blocks of 64: (64 x d + d x 64) / (8 x 16) products a block, once in the text
    assert mix["HMMA"] == 64 // 8 * (d // 16) + d // 8 * (64 // 16)
    assert mix["LDGSTS.128"] >= 3  # queries, keys and values
    assert mix["LDSM"] == mix["HMMA"] // 2 + d // 16




def test_banks_do_not_conflict() -> None:
    """Eight rows of one column of a panel lie in different banks, whatever its width."""
    for chunks in range(2, 80, 2):
        power = min(chunks & -chunks, 8)
        for chunk in range(chunks):
            places = [(row * chunks + (chunk ^ (row // (8 // power) % power))) % 8 for row in range(8)]
            assert sorted(places) == list(range(8))
            assert all(0 <= (chunk ^ (row // (8 // power) % power)) < chunks for row in range(8))
