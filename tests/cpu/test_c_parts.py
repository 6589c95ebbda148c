"""Kernels for sorted lists and users' monoids, compiled: every schedule of rows, columns, layouts, odd elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fused_examples import arrays_for
from order_examples import ORDER_EXAMPLES, SHORTEST, TILE_EXAMPLES, best, peak
from programs import compiled, variants
from tile_runs import TOLERANCE, definition, empty_outs, error, kernel_for

from redfuser.extract import Options

pytestmark = pytest.mark.usefixtures("session_cache")

NATIVE = variants()[-1]
MACHINES = pytest.mark.parametrize(
    ("dtype", "variant", "schedules"),
    [
        ("float32", NATIVE, [Options(), Options(block=5), Options(block=4, chunk=8)]),
        ("float64", NATIVE, [Options(block=5)]),
        ("float32", variants()[0], [Options(block=4, chunk=8)]),
    ],
    ids=["float32", "float64", "narrow"],
)


def run(fused, kernel, variant, arrays, sizes):
    outs = empty_outs(fused, sizes)
    program = compiled(kernel, variant)
    program.run([arrays[b.name] for b in kernel.tensors], [outs[b.name] for b in kernel.outs], sizes)
    return outs


@MACHINES
@pytest.mark.parametrize("example", ORDER_EXAMPLES)
def test_equal_to_the_definition(example, dtype, variant, schedules):
    fused = ORDER_EXAMPLES[example](dtype)
    rng = np.random.default_rng(0)
    for options in schedules:
        kernel = kernel_for(fused, {"p": 3, "n": 17}, options, dtype, variant[0])
        for length in (17, 1, 2, 3, 8, 33, 100, 1009):
            sizes = {"p": 3, "n": length, "k": fused.cascade.axes[-1].size or 0}
            if length < SHORTEST.get(example, 1):
                continue
            arrays = {t: rng.integers(-3, 4, (3, length)).astype(dtype) for t in ("x", "y")}
            worst = error(run(fused, kernel, variant, arrays, sizes), definition(fused, arrays))
            assert worst < TOLERANCE[dtype], f"{sizes} {options}: {worst}"


@pytest.mark.parametrize("example", ["peak", "composed", "spread"])
def test_columns(example):
    """The stream strided, the rows contiguous: lanes on the rows."""
    fused = ORDER_EXAMPLES[example]("float32")
    layouts = {"x": "p", "y": "p", **{o.name: "p" for o in fused.cascade.outs}}
    kernel = kernel_for(fused, {"p": 40, "n": 17}, Options(block=5), vector_bytes=NATIVE[0], layouts=layouts)
    assert "columns: lanes on p" in str(kernel)
    rng = np.random.default_rng(1)
    for length in (17, 1, 4, 100):
        for rows in (40, 1, 9):
            sizes = {"p": rows, "n": length}
            arrays = {t: rng.integers(-3, 4, (length, rows)).astype("f4").T for t in ("x", "y")}
            assert error(run(fused, kernel, NATIVE, arrays, sizes), definition(fused, arrays)) < 3e-5


@pytest.mark.parametrize("example", TILE_EXAMPLES)
def test_tiles(example):
    """Lists filled from the tile of a matrix product."""
    fused = TILE_EXAMPLES[example]("float32")
    axes = {a.name.rstrip("'") for a in fused.cascade.axes}
    lengths = [{a: {"n": n, "i": rows, "k": 3}.get(a, 5) for a in axes} for n, rows in ((40, 13), (3, 1), (33, 50))]
    kernel = kernel_for(fused, lengths[0], Options(block=16, tile=6), vector_bytes=NATIVE[0])
    assert "schedule: tiles" in str(kernel)
    for sizes in lengths:
        arrays = arrays_for(fused, sizes)
        assert error(run(fused, kernel, NATIVE, arrays, sizes), definition(fused, arrays)) < 3e-5


@pytest.mark.parametrize("options", [Options(), Options(block=8, chunk=16)], ids=["rows", "split"])
@pytest.mark.parametrize("monoid", ["argmax", "argmin", "topk:3", "bottomk:3"])
def test_nan_and_infinities(monoid, options):
    """As NumPy: the first NaN wins; among infinities the lower index."""
    fused = peak(monoid=monoid) if monoid.startswith("arg") else best(monoid=monoid)
    kernel = kernel_for(fused, {"p": 6, "n": 21, "k": 3}, options, vector_bytes=NATIVE[0])
    rng = np.random.default_rng(5)
    for length in (1, 2, 4, 9, 40, 100):
        x = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (6, length)).astype("f4")
        x[0], x[1] = -np.inf, np.inf
        for rows in (6, 1):
            sizes = {"p": rows, "n": length, "k": 3}
            arrays = {"x": x[:rows], "y": x[:rows]}
            got, want = run(fused, kernel, NATIVE, arrays, sizes), definition(fused, arrays)
            for name in ("v", "i"):
                np.testing.assert_array_equal(got[name], want[name])
            if monoid.startswith("arg"):
                np.testing.assert_array_equal(got["i"], getattr(np, monoid)(x[:rows], 1))


@pytest.mark.parametrize("dtype", ["float16", "int8", "int32", "bool"])
def test_other_dtypes_of_the_elements(dtype):
    """Keys convert on load; equal ones keep the order of their positions."""
    fused = best(dtype)
    outs = tuple(replace(o, dtype="float64") if o.name == "v" else o for o in fused.cascade.outs)
    fused = replace(fused, cascade=replace(fused.cascade, outs=outs))
    kernel = kernel_for(fused, {"p": 2, "n": 50, "k": 3}, None, "float64" if dtype == "int32" else "float32",
                        NATIVE[0])
    x = np.random.default_rng(2).integers(0, 2 if dtype == "bool" else 90, (2, 50)).astype(dtype)
    if dtype == "int32":
        x[:, 7] = 2**31 - 1
    sizes = {"p": 2, "n": 50, "k": 3}
    got = run(fused, kernel, NATIVE, {"x": x, "y": x}, sizes)
    order = np.argsort(-x.astype("f8"), axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(got["i"].T, order)
    np.testing.assert_array_equal(got["v"], np.take_along_axis(x, order, 1).astype("f8"))


def test_strided_and_reversed_rows():
    fused = best()
    kernel = kernel_for(fused, {"p": 3, "n": 50, "k": 3}, vector_bytes=NATIVE[0], layouts={"x": None, "y": None})
    base = np.random.default_rng(3).normal(size=(6, 200)).astype("f4")
    for x in (base[::2, ::3], base[::-1, ::-1][:3], base.T[:3], np.broadcast_to(base[:1, :9], (3, 9))):
        sizes = {"p": 3, "n": x.shape[1], "k": 3}
        arrays = {"x": x, "y": x}
        assert error(run(fused, kernel, NATIVE, arrays, sizes), definition(fused, arrays)) == 0


def test_the_same_bits_for_any_number_of_threads():
    """One long row: chunks meet in the merge, in order."""
    fused = best(monoid="topk:8")
    sizes = {"p": 1, "n": 400_000, "k": 8}
    kernel = kernel_for(fused, sizes, vector_bytes=NATIVE[0])
    x = np.random.default_rng(4).integers(0, 1000, (1, sizes["n"])).astype("f4")
    order = np.argsort(-x, axis=1, kind="stable")[:, :8]
    program = compiled(kernel, NATIVE)
    for threads in (1, 2, 3):
        outs = empty_outs(fused, sizes)
        program.run([x] * len(kernel.tensors), [outs[b.name] for b in kernel.outs], sizes, threads=threads)
        np.testing.assert_array_equal(outs["i"].T, order)
        np.testing.assert_array_equal(outs["v"], np.take_along_axis(x, order, 1))
