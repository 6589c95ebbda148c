"""Passes between a tile program and CUDA: ranges, homes, staging, barriers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fused_examples import logsumexp, softmax

from redfuser.codegen import build
from redfuser.codegen.cuda import CudaTarget, TeamPhase, schedule
from redfuser.codegen.cuda.barriers import BarrierPass
from redfuser.codegen.cuda.nodes import MEMORY, REGISTER, SHARED, Barrier
from redfuser.codegen.cuda.normal import normal, without_dead_stores
from redfuser.codegen.cuda.ranges import Ranges, bounds_of
from redfuser.codegen.nodes import At, Buf, Fold, For, LetInt, Put, Red, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.errors import SettingError
from redfuser.extract import Options, choose_gpu
from redfuser.extract.gpu import Gpu, gpus
from redfuser.extract.plan_gpu import gpu_plan
from redfuser.ir import Const, Size, Var, op

TARGET = CudaTarget(Gpu.of("sm_80"))
N = Size("n")
LANE = Var("n")
ROW = Buf("row", (Const(128),), "local", "float32")
OTHER = Buf("other", (Const(128),), "local", "float32")
X = Buf("x", (N,), "global", "float32", 0)


def phases(fused, length: int = 64, options: Options | None = None) -> list[TeamPhase]:
    sizes = {a.name: length for a in fused.cascade.axes}
    kernel = build(gpu_plan(fused, sizes, TARGET.gpu, None, "float32", options))
    return [schedule(kernel, p, TARGET) for p in kernel.phases]


def sweep(*puts: Put, reads: At | None = None, name: str = "s") -> Sweep:
    reds = () if reads is None else (Red(name, "sum", reads),)
    return Sweep("n", Const(0), Const(128), reds, puts)


def barriers(*body: Stmt, watched=(ROW, OTHER)) -> list[int]:
    """Positions of barriers in the list."""
    placed, _ = BarrierPass(watched, lambda s: 1).body(body, frozenset())
    return [i for i, s in enumerate(placed) if isinstance(s, Barrier)]


def own(buf: Buf) -> At:
    return At(buf, (LANE,))


# -------------------------------- ranges


def test_conditions_bound_the_lengths_of_axes() -> None:
    assert bounds_of(op("le", N, 64)) == {"n": 64}
    assert bounds_of(op("and", op("le", N, 64), op("le", N, 32))) == {"n": 32}
    assert bounds_of(op("gt", N, 64)) == {}


def test_extents_follow_bindings() -> None:
    body = (LetInt("b1", op("min", op("add", Var("b0"), 256), N)),)
    ranges = Ranges(body, {"n": 64})
    assert ranges.extent(Const(0), N) == 64
    assert ranges.extent(Var("b0"), Var("b1")) == 256
    assert ranges.extent(Const(3), Const(10)) == 7
    assert Ranges(body, {}).extent(Const(0), N) is None


# -------------------------------- barriers


def test_own_elements_need_no_barrier() -> None:
    assert barriers(sweep(Put(own(ROW), Const(1.0))), sweep(Put(own(OTHER), own(ROW)))) == []


def test_elements_of_other_threads_do() -> None:
    turned = At(ROW, (op("sub", 127, LANE),))
    assert barriers(sweep(Put(own(ROW), Const(1.0))), sweep(Put(own(OTHER), turned))) == [1]
    assert barriers(sweep(Put(own(OTHER), turned)), sweep(Put(own(ROW), Const(1.0)))) == [1]


def test_a_value_that_one_thread_stores() -> None:
    store = Set(At(ROW, (Const(0),)), Const(1.0))
    assert barriers(store, sweep(Put(own(OTHER), own(ROW)))) == [1]
    assert barriers(store, Set(At(ROW, (Const(1),)), At(ROW, (Const(0),)))) == []


def test_one_barrier_serves_all_that_is_pending() -> None:
    first = (sweep(Put(own(ROW), Const(1.0))), sweep(Put(own(OTHER), Const(2.0))))
    turned = [At(b, (op("sub", 127, LANE),)) for b in (ROW, OTHER)]
    assert barriers(*first, sweep(reads=turned[0], name="a"), sweep(reads=turned[1], name="b")) == [2]


def test_a_loop_meets_its_own_end() -> None:
    turned = At(ROW, (op("sub", 127, LANE),))
    loop = For("i", Const(0), Const(3), Const(1), (sweep(Put(own(OTHER), turned)), sweep(Put(own(ROW), own(OTHER)))))
    [placed], _ = BarrierPass((ROW, OTHER), lambda s: 1).body((loop,), frozenset())
    assert isinstance(placed, For)
    assert [type(s) for s in placed.body] == [Barrier, Sweep, Barrier, Sweep]


def test_the_next_task_meets_the_end_of_this_one() -> None:
    turned = At(ROW, (op("sub", 127, LANE),))
    body = (sweep(Put(own(ROW), Const(1.0))), sweep(reads=turned))
    assert [type(s) for s in BarrierPass((ROW,), lambda s: 1).task(body)] == [Barrier, Sweep, Barrier, Sweep]


# -------------------------------- normal form


def test_ordered_folds_and_lists_get_sweeps_of_their_own() -> None:
    fold = Fold(("f",), ("float32",), (own(X),), (Const(0.0),), ("a",), ("b",), (op("add", Var("a"), Var("b")),), True)
    both = replace(sweep(Put(own(ROW), own(X)), reads=own(X)), folds=(fold,))
    first, second = normal((both,))
    assert isinstance(first, Sweep)
    assert isinstance(second, Sweep)
    assert (bool(first.puts), bool(first.reds), bool(first.folds)) == (True, True, False)
    assert (bool(second.puts), bool(second.reds), second.folds) == (False, False, (fold,))


def test_stores_that_nothing_reads_disappear() -> None:
    out = Buf("out", (N,), "global", "float32", 0)
    body = (sweep(Put(own(OTHER), own(X))), sweep(Put(own(ROW), own(OTHER))), sweep(Put(own(out), own(X))))
    assert without_dead_stores(body) == body[2:]


# -------------------------------- homes and staging


def loads(phase: TeamPhase) -> Iterator[At]:
    from redfuser.codegen.passes.bodies import lane_expressions
    from redfuser.ir import walk

    for s in nested(phase.loop.body):
        if isinstance(s, Sweep):
            yield from (x for e in lane_expressions(s) for x in walk(e) if isinstance(x, At) and x.buf.name == "x")


@pytest.mark.parametrize("length", [64, 1000, 5000])
def test_a_whole_row_is_read_once_and_stays_in_registers(length: int) -> None:
    whole = phases(softmax(), length)[0]
    assert len(list(loads(whole))) == 1
    assert {h.kind for h in whole.homes} == {REGISTER}
    assert not any(isinstance(s, Barrier) for s in nested(whole.loop.body))
    assert (whole.team, whole.teams) == {64: (8, 16), 1000: (32, 4), 5000: (512, 1)}[length]


def test_a_streamed_block_is_read_once() -> None:
    streamed = phases(logsumexp(), 64)[1]
    assert len(list(loads(streamed))) == 1
    assert {h.kind for h in streamed.homes} == {REGISTER}


def test_state_of_columns_is_in_registers_of_their_thread() -> None:
    fused = logsumexp()
    layouts = {t.name: "p" for t in (*fused.cascade.tensors, *fused.cascade.outs)}
    kernel = build(gpu_plan(fused, {"p": 4096, "n": 64}, TARGET.gpu, layouts))
    [phase] = [schedule(kernel, p, TARGET) for p in kernel.phases]
    assert {(h.kind, h.items) for h in phase.homes} == {(REGISTER, 1)}
    assert not any(isinstance(s, Barrier) for s in nested(phase.loop.body))


def test_shared_memory_before_global_memory() -> None:
    from redfuser.codegen.cuda.homes import homes

    turned = lambda b: sweep(reads=At(b, (op("sub", 127, LANE),)), name=b.name)  # noqa: E731
    body = (sweep(Put(own(ROW), Const(1.0)), Put(own(OTHER), Const(1.0))), turned(ROW), turned(OTHER))
    found = homes(body, (ROW, OTHER), Ranges(body, {}), 32, lambda s: 1, 72, 600)
    assert [h.kind for h in found] == [SHARED, MEMORY]


# -------------------------------- decisions


def test_devices() -> None:
    assert gpus() == ["a10", "a100", "b200", "h100", "h200", "h800"]
    assert Gpu.of("sm_90a").arch == "sm_90a"
    assert (Gpu.of("h100").units, Gpu.of("h100").shared) == (132, 227 << 10)
    assert Gpu.of("sm_120").shared == 99 << 10
    with pytest.raises(SettingError, match="arch='sm_75' is no GPU that kernels are made for; known are a10"):
        Gpu.of("sm_75")
    with pytest.raises(ValueError, match="arch='abacus' is no GPU that kernels are made for; known are a10"):
        Gpu.of("abacus")


@pytest.mark.parametrize(
    ("extent", "threads"),
    [(1, 4), (64, 8), (65, 16), (129, 32), (1024, 32), (1025, 128), (4096, 256), (16384, 512), (32768, 1024),
     (None, 256)],
)  # fmt: skip
def test_teams(extent: int | None, threads: int) -> None:
    assert choose_gpu.team_threads(extent) == threads
    assert choose_gpu.team_threads(extent, once=False) == max(32, threads)


def test_whole_rows_are_octaves_up_to_what_registers_hold() -> None:
    shared = 163 << 10
    assert [choose_gpu.whole_row(n, 4, 2, shared) for n in (1, 64, 65, 5000, 16384)] == [32, 64, 128, 8192, 16384]
    assert choose_gpu.whole_row(40000, 4, 2, shared) == 16384
    assert choose_gpu.whole_row(40000, 4, 1, shared) == 32768
    assert choose_gpu.whole_row(32768, 8, 3, shared) < 32768


def test_vectors_leave_no_thread_idle() -> None:
    assert [choose_gpu.elements_per_load(4, n, 32) for n in (16, 64, 128, None)] == [1, 2, 4, 4]
    assert [choose_gpu.elements_per_load(b, 4096, 32) for b in (1, 2, 4, 8)] == [8, 8, 4, 2]


def test_splits_fill_the_device() -> None:
    assert choose_gpu.chunk(100, 1, 1 << 24, 4096) == 45056
    assert choose_gpu.columns_per_tile(108, 1, 4096) == 32
    assert choose_gpu.columns_per_tile(108, 100, 4096) == 128
