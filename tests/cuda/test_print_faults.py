"""Mistakes planted in schedules: the executor, or the comparison with the definition, finds each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from fused_examples import logsumexp, pivoted_variance, softmax
from order_examples import best
from printed import cuda_kernel, phases_of, program, worst_error

from redfuser.codegen.cuda import CudaProgram, TeamPhase
from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.nodes import Fold, For, If, Kernel, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, map_bodies, nested
from redfuser.extract import Options
from redfuser.ir import Const, op
from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.kernel import HostCudaKernel

TOLERANCE = 3e-5
SPLIT = Options(block=64, chunk=256)


def changed(phase: TeamPhase, f: Callable[[Stmt], list[Stmt]]) -> TeamPhase:
    """The phase with every statement replaced."""

    def visit(body: Body) -> Body:
        return tuple(map_bodies(x, visit) for s in body for x in f(s))

    return replace(phase, loop=replace(phase.loop, body=visit(phase.loop.body)))


def is_found(fused, kernel: Kernel, made: CudaProgram, lengths=(64, 65, 33, 300)) -> bool:
    """Whether some run fails or computes something else."""
    built = HostCudaKernel(kernel, program=made)
    for length in lengths:
        sizes = {a.name: a.size or (length if a.name == "n" else 5) for a in fused.cascade.axes}
        for seed in (0, 1, 3):
            try:
                if not worst_error(fused, built, sizes, seed) < TOLERANCE:
                    return True
            except CudaFault:
                return True
    return False


def test_barriers_that_are_left_out(host):
    """The lists of top-k are written by some threads of a warp and read by others."""
    fused = best()
    kernel = cuda_kernel(fused)
    phases = phases_of(kernel)
    assert any(isinstance(s, Barrier) for p in phases for s in nested(p.loop.body))
    without = [changed(p, lambda s: [] if isinstance(s, Barrier) else [s]) for p in phases]
    assert is_found(fused, kernel, program(kernel, without))


def test_the_barrier_of_a_reduction(host):
    """Warps of a block hand their results over in shared memory."""
    fused = logsumexp()
    kernel = cuda_kernel(fused)
    made = program(kernel)
    assert made.source.count("__syncthreads();") > 0
    assert is_found(fused, kernel, replace(made, source=made.source.replace("__syncthreads();", "")), (5000,))


def shortened(s: Stmt) -> list[Stmt]:
    """A sweep that leaves out its last element."""
    return [replace(s, hi=op("sub", s.hi, 1)) if isinstance(s, Sweep) and s.reds else s]


def longer(s: Stmt) -> list[Stmt]:
    """A sweep that goes one element too far."""
    return [replace(s, hi=op("add", s.hi, 1)) if isinstance(s, Sweep) and s.puts else s]


def uncorrected(s: Stmt) -> list[Stmt]:
    """No correction when the maximum moves."""
    return [] if isinstance(s, If) and any(isinstance(x, Set) for x in s.body) else [s]


def first_only(s: Stmt) -> list[Stmt]:
    """A merge that forgets all states but the first."""
    return [replace(s, hi=Const(1)) if isinstance(s, For) and s.lo == Const(1) else s]


@pytest.mark.parametrize(
    ("fault", "example", "options"),
    [(shortened, logsumexp, None), (longer, softmax, None), (uncorrected, logsumexp, Options(block=64)),
     (first_only, pivoted_variance, SPLIT)],
)  # fmt: skip
def test_wrong_schedules(host, fault, example, options):
    fused = example()
    kernel = cuda_kernel(fused, options)
    phases = phases_of(kernel)
    wrong = [changed(p, fault) for p in phases]
    assert wrong != phases
    assert is_found(fused, kernel, program(kernel, wrong))


def test_folds_in_the_wrong_order(host):
    from order_examples import composed

    def swapped(s: Stmt) -> list[Stmt]:
        if not isinstance(s, Sweep):
            return [s]
        turned: tuple[Fold, ...] = tuple(replace(f, left=f.right, right=f.left) for f in s.folds)
        return [replace(s, folds=turned)]

    fused = composed()
    kernel = cuda_kernel(fused)
    assert is_found(fused, kernel, program(kernel, [changed(p, swapped) for p in phases_of(kernel)]))
