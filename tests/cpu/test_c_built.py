"""Programs that the scheduler builds, compiled: rows, tiles and elementwise pieces against the definition."""

from __future__ import annotations

import ctypes
import zlib
from functools import cache

import fused_examples
import numpy as np
import pytest
from programs import compiled, variants
from tile_runs import TOLERANCE, definition, empty_outs, error, kernel_for

from redfuser.extract import Options

pytestmark = pytest.mark.usefixtures("session_cache")

MACHINES = pytest.mark.parametrize(
    ("dtype", "variant"),
    [*(("float32", v) for v in variants()), ("float64", variants()[-1])],
    ids=[*(f"float32-{v[0]}" for v in variants()), f"float64-{variants()[-1][0]}"],
)


@cache
def fused(kind: str, name: str, dtype: str):
    examples = {**vars(fused_examples), "elementwise": {"": fused_examples.elementwise}}[kind]
    return examples[name](dtype)


def settings(dtype, variant, **forced) -> list[Options]:
    """Small forced blocks, so that corrections run; the scheduler's own choice on the machine's own width."""
    return [Options(**forced), *([Options()] if dtype == "float32" and variant == variants()[-1] else [])]


def check(cascade, sizes_list, options, dtype, variant):
    """One kernel, compiled once for the first sizes, runs them all."""
    kernel = kernel_for(cascade, sizes_list[0], options, dtype, variant[0])
    program = compiled(kernel, variant)
    for sizes in sizes_list:
        seed = zlib.crc32(str(sizes).encode())
        arrays, outs = fused_examples.arrays_for(cascade, sizes, seed), empty_outs(cascade, sizes)
        program.run([arrays[b.name] for b in kernel.tensors], [outs[b.name] for b in kernel.outs], sizes)
        worst = error(outs, definition(cascade, arrays))
        assert worst < TOLERANCE[dtype], f"{sizes}: {worst}"


@MACHINES
@pytest.mark.parametrize("name", fused_examples.ROWS)
def test_rows(name, dtype, variant):
    lengths = [17, 1, 2, 33, 100, 1009]
    for options in settings(dtype, variant, block=5):
        check(fused("ROWS", name, dtype), [{"p": 3, "n": n} for n in lengths], options, dtype, variant)


def tile_sizes(cascade, n: int, rows: int) -> dict[str, int]:
    """Lengths for the axes of a tile example: the stream, the rows, and small odd numbers for all others."""
    sizes = {"n": n, "i": rows, "p": rows}
    names = {a.name.rstrip("'") for a in cascade.cascade.axes}
    return {a: sizes.get(a, 5) for a in names}


@MACHINES
@pytest.mark.parametrize("name", fused_examples.TILES)
def test_tiles(name, dtype, variant):
    cascade = fused("TILES", name, dtype)
    sizes = [tile_sizes(cascade, n, rows) for n, rows in ((40, 13), (1, 1), (7, 3), (100, 50))]
    for options in settings(dtype, variant, block=16, tile=6):
        check(cascade, sizes, options, dtype, variant)


@MACHINES
@pytest.mark.parametrize("name", ["attention_causal", "decode", "rms_dot"])
def test_tiles_with_chunks(name, dtype, variant):
    cascade = fused("TILES", name, dtype)
    sizes = [tile_sizes(cascade, n, rows) for n, rows in ((100, 7), (1, 1), (33, 13))]
    check(cascade, sizes, Options(block=16, tile=6, chunk=16), dtype, variant)


@MACHINES
def test_elementwise(dtype, variant):
    check(fused("elementwise", "", dtype), [{"p": 3, "n": n} for n in (17, 1, 100)], None, dtype, variant)


def test_the_same_bits_on_every_call_and_number_of_threads():
    cascade = fused("ROWS", "layernorm", "float32")
    sizes = {"p": 300, "n": 1000}
    kernel = kernel_for(cascade, sizes)
    program, arrays = compiled(kernel, variants()[0]), fused_examples.arrays_for(cascade, sizes)
    results = []
    for threads in (1, 2, 3, 2):
        outs = empty_outs(cascade, sizes)
        program.run(
            [arrays[b.name] for b in kernel.tensors],
            [outs[b.name] for b in kernel.outs],
            sizes,
            threads=threads,
        )
        results.append(outs)
    for other in results[1:]:
        assert all(np.array_equal(other[name], results[0][name]) for name in other)


class _Runtime(ctypes.Structure):
    """`struct runtime` of the generated C."""

    _fields_ = (("run", ctypes.c_void_p), ("acquire", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)),
                ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)))


@pytest.mark.parametrize("name", ["attention_causal", "decode", "rms_dot"])
def test_the_workspace_is_what_the_kernel_asks_for(name):
    cascade = fused("TILES", name, "float32")
    sizes = tile_sizes(cascade, 300, 40)
    kernel = kernel_for(cascade, sizes, Options(block=32, tile=12))
    program = compiled(kernel, variants()[-1])
    asked: list[int] = []
    blocks = []

    def acquire(n):
        asked.append(n)
        blocks.append(ctypes.create_string_buffer(n))
        return ctypes.addressof(blocks[-1])

    runtime = _Runtime(None, _Runtime._fields_[1][1](acquire), _Runtime._fields_[2][1](lambda _: None))
    program._runtime = ctypes.addressof(runtime)
    try:
        arrays, outs = fused_examples.arrays_for(cascade, sizes), empty_outs(cascade, sizes)
        program.run([arrays[b.name] for b in kernel.tensors], [outs[b.name] for b in kernel.outs], sizes)
    finally:
        compiled.cache_clear()
    buffers = len(kernel.shared) + max(len(p.local) for p in kernel.phases)
    known = program.workspace(sizes, threads=1)
    assert known <= asked[0] <= known + 64 + buffers * 192
    assert program.workspace(sizes, threads=2) > known
