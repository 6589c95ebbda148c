"""The fragment level: its checker finds every missing statement of a pipeline; formulas of tiles; the tile program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import redfuser as rf
from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.cuda.target import CudaTarget
from redfuser.codegen.cuda.tiles.check import check_fragments
from redfuser.codegen.cuda.tiles.nodes import Clear, Commit, Copy, FragmentPhase, Multiply, Take, Wait, Whole
from redfuser.codegen.cuda.tiles.schedule import fragment_phase, obstacle
from redfuser.codegen.interpret import run_kernel
from redfuser.codegen.nodes import For, If, Kernel, Stmt, Sweep
from redfuser.errors import CheckError
from redfuser.extract.choose_fragments import Fragments, TileShape, shared_bytes, tile_shape
from redfuser.extract.plan_gpu_tiles import HALVES
from redfuser.ir import Const

Body = tuple[Stmt, ...]
TARGET = CudaTarget.of("sm_80")


def causal(q: Any, k: Any, v: Any) -> Any:
    s = np.einsum("hmd,hnd->hmn", q, k) * 0.1
    m, n = s.shape[-2:]
    s = np.where(np.arange(n)[None, :] <= np.arange(m)[:, None], s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


@cache
def tiled() -> tuple[Kernel, FragmentPhase]:
    kernel = rf.fuse(causal).lower(*[rf.spec((2, 300, 64), "float16")] * 3).gpu_tiles("sm_80")[0]
    return kernel, fragment_phase(kernel, kernel.phases[0], TARGET)


def edits(body: Body, kinds: tuple[type[Stmt], ...], edit: Any) -> Iterator[tuple[Stmt, Body]]:
    """The statements with one of some kinds edited: (it, the edited statements)."""
    for i, s in enumerate(body):
        if isinstance(s, kinds):
            yield s, (*body[:i], *edit(s), *body[i + 1:])
        if isinstance(s, (For, If)):
            for x, inner in edits(s.body, kinds, edit):
                yield x, (*body[:i], replace(s, body=inner), *body[i + 1:])
        if isinstance(s, Whole):
            for x, inner in edits(s.ragged, kinds, edit):
                yield x, (*body[:i], replace(s, ragged=inner), *body[i + 1:])


def refused(kinds: tuple[type[Stmt], ...], edit: Any) -> int:
    """How many edits there are; each must be refused."""
    _, phase = tiled()
    count = 0
    for _, body in edits(phase.loop.body, kinds, edit):
        with pytest.raises(CheckError):
            check_fragments(replace(phase, loop=replace(phase.loop, body=body)))
        count += 1
    return count


def test_the_checker_accepts_what_is_scheduled() -> None:
    check_fragments(tiled()[1])


@pytest.mark.parametrize("kind", [Barrier, Wait, Commit, Copy, Take, Clear])
def test_no_statement_of_a_pipeline_can_be_missing(kind: type[Stmt]) -> None:
    assert refused((kind,), lambda s: ()) >= 1


def test_wrong_stages_and_waits_are_refused() -> None:
    assert refused((Copy,), lambda s: (replace(s, stage=Const(s.panel.stages - 1)),) if s.panel.stages > 1 else ()) > 3
    assert refused((Multiply,), lambda s: (replace(s, stage=Const(0)),)) == 2
    assert refused((Wait,), lambda s: (replace(s, pending=s.pending + 1),)) >= 2
    assert refused((Multiply,), lambda s: (replace(s, transposed=s.transposed, depth=s.depth + 16),)) == 2


def test_two_loops_over_the_stream_share_their_panels() -> None:
    def weights(q: Any, k: Any) -> Any:
        s = q @ k.T
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    kernel = rf.fuse(weights).lower(rf.spec((300, 64), "float16"), rf.spec((200, 64), "float16")).gpu_tiles("sm_80")[0]
    phase = fragment_phase(kernel, kernel.phases[0], TARGET)
    check_fragments(phase)
    assert [p.name for p in phase.panels] == ["panel_row_operand", "panel_k"]
    for _, body in edits(phase.loop.body, (Barrier,), lambda s: ()):
        with pytest.raises(CheckError):
            check_fragments(replace(phase, loop=replace(phase.loop, body=body)))


def test_what_has_no_form_as_fragments_is_told() -> None:
    kernel, _ = tiled()
    assert obstacle(kernel, TARGET) == ""
    small = CudaTarget(replace(TARGET.gpu, shared=10000))
    assert "of shared memory" in obstacle(kernel, small)
    blocked = replace(kernel, phases=tuple(replace(p, loop=without_copies(p.loop)) for p in kernel.phases))
    assert "is no row operand" in obstacle(blocked, TARGET)


def without_copies(loop: For) -> For:
    """The row operand is never stored."""
    first = next(s for s in loop.body if isinstance(s, For))
    bare = replace(first, body=tuple(s for s in first.body if not isinstance(s, Sweep)))
    return replace(loop, body=tuple(bare if s is first else s for s in loop.body))


def test_a_phase_prints_its_decisions() -> None:
    text = str(tiled()[1])
    for line in ("tiles of 64 rows, 4 warps of 1 x 16 rows:", "fragment tile of 64 columns", "state max0",
                 "panel panel_k[2, 64, 64]:float16", "take row_operand <- panel_row_operand", "clear tile outside"):
        assert line in text


def test_tile_shapes() -> None:
    a100, h100 = 163 << 10, 227 << 10
    assert tile_shape(Fragments((64,), (64,), 1024, 1024), a100) == TileShape(64, 64)
    assert tile_shape(Fragments((128,), (128,), 1024, 1024), a100) == TileShape(64, 64)
    assert tile_shape(Fragments((128,), (128,), 8, 1024), a100) == TileShape(16, 64)
    assert tile_shape(Fragments((), (4096,), 1024, 4096), a100) == TileShape(64, 32, 256)
    assert tile_shape(Fragments((2048,), (), 1024, 256), h100) == TileShape(16, 16)
    assert tile_shape(Fragments((100000,), (64,), 1024, 1024), h100) is None
    for shape in (Fragments((576,), (512,), 16, 4096), Fragments((256,), (256,), 1024, 1024)):
        found = tile_shape(shape, a100)
        assert found is not None
        part = replace(shape, widths=(found.span or shape.widths[0],))
        assert shared_bytes(part, found.rows, found.block) <= a100


@pytest.mark.parametrize("dtype", HALVES)
def test_the_tile_program_means_the_definition(dtype: str) -> None:
    """The interpreter rounds operands of products as matrix units do."""
    kernel = rf.fuse(causal).lower(*[rf.spec((2, 70, 16), dtype)] * 3).gpu_tiles("sm_80")[0]
    rng = np.random.default_rng(0)
    half = np.dtype(rf.spec((1,), dtype).dtype)
    arrays = [rng.standard_normal((2, 70, 16)).astype(half) for _ in range(3)]
    out = np.empty((2, 70, 16), half)
    sizes = {a: {2: 2, 70: 70, 16: 16}[n] for a, n in zip(kernel.sizes, (2, 70, 70), strict=True)}
    sizes |= dict(kernel.static)
    run_kernel(kernel, {b.name: a for b, a in zip(kernel.tensors, arrays, strict=True)}, {kernel.outs[0].name: out},
               sizes)
    q, k, v = (a.astype(np.float64) for a in arrays)
    expected, size = causal(q, k, v), causal(q, k, np.abs(v))
    u = 2.0**-11 if dtype == "float16" else 2.0**-8
    assert (np.abs(out.astype(np.float64) - expected) <= 2.1 * u * size + 1e-5).all()
