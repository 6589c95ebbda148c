"""Calling compiled kernels: arrays of any kind, clear errors, threads, forks, workspace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from programs import N, R, elementwise, n, r, row_buffer, row_cell, task_kernel

from redfuser.codegen.nodes import At, Buf, For, Kernel, Phase, Put, Red, Set, Sweep
from redfuser.errors import DTypeError, ShapeError
from redfuser.ir import Const, Size, Var, op
from redfuser.runtime import compile_kernel

pytestmark = pytest.mark.usefixtures("session_cache")

X = row_cell("x", "float32")
DOUBLE = elementwise(X * 2.0, [X.buf])
ANY_LAYOUT = elementwise(row_cell("x", "float32", None) * 2.0, [row_buffer("x", "float32", None)], unit=None)


def data(rows: int = 3, length: int = 40) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, length)).astype("float32")


def doubled(kernel, x, y) -> bool:
    kernel.run([x], [y], {"r": y.shape[0], "n": y.shape[1]})
    return bool(np.array_equal(y, 2 * np.asarray(x)))


# ---- arrays


def test_byte_order_and_alignment_are_repaired():
    kernel, x = compile_kernel(DOUBLE), data()
    unaligned = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view("float32").reshape(x.shape)
    assert not unaligned.flags.aligned
    unaligned[...] = x
    for source in (x.astype(">f4"), unaligned):
        assert doubled(kernel, source, np.empty_like(x))
    swapped = np.empty(x.shape, ">f4")
    assert doubled(kernel, x, swapped)
    assert doubled(kernel, x, unaligned)


def test_strides_of_broken_elements_are_repaired():
    packed = np.zeros((3, 40), np.dtype([("pad", "u1"), ("value", "f4")]))
    packed["value"] = data()
    assert doubled(compile_kernel(ANY_LAYOUT), packed["value"], np.empty((3, 40), "float32"))


def test_inputs_that_share_memory_with_an_output_are_copied():
    kernel = compile_kernel(ANY_LAYOUT)
    memory = np.arange(300, dtype="float32")
    for source, target in (
        (memory[0:120].reshape(3, 40), memory[7:127].reshape(3, 40)),
        (memory[:120].reshape(3, 40)[:, ::-1], memory[:120].reshape(3, 40)),
    ):
        expected = 2 * source
        kernel.run([source], [target], {"r": 3, "n": 40})
        np.testing.assert_array_equal(target, expected)


def two_outputs() -> Kernel:
    y, z = row_cell("y", "float32"), row_cell("z", "float32")
    return task_kernel(
        "two", "float32", [X.buf], [y.buf, z.buf], [Sweep("n", Const(0), N, (), (Put(y, X), Put(z, X)))]
    )


def test_numpy_scalars_are_arrays_without_axes():
    factor = Buf("factor", (), "global", "float32")
    y = row_cell("y", "float32")
    body = [Sweep("n", Const(0), N, (), (Put(y, X * At(factor)),))]
    kernel = compile_kernel(task_kernel("scaled", "float32", [X.buf, factor], [y.buf], body))
    for value in (np.float32(3), np.array(3, "float32")):
        out = np.empty((3, 40), "float32")
        kernel.run([data(), value], [out], {"r": 3, "n": 40})
        np.testing.assert_array_equal(out, 3 * data())


def test_bad_arrays_are_named():
    kernel, x, y, sizes = compile_kernel(DOUBLE), data(), np.empty((3, 40), "float32"), {"r": 3, "n": 40}
    with pytest.raises(DTypeError, match=r"'x' has dtype float64.*compiled for float32.*astype\('float32'\)"):
        kernel.run([x.astype("f8")], [y], sizes)
    with pytest.raises(DTypeError, match=r"'x' has dtype object"):
        kernel.run([x.astype(object)], [y], sizes)
    with pytest.raises(DTypeError, match=r"'x' is a list.*np.asarray"):
        kernel.run([x.tolist()], [y], sizes)
    with pytest.raises(ShapeError, match=r"'x' has shape \(40, 3\), expected \(3, 40\)"):
        kernel.run([x.T], [y], sizes)
    with pytest.raises(ShapeError, match=r"'y' has shape \(3,\)"):
        kernel.run([x], [y[:, 0]], sizes)
    with pytest.raises(ShapeError, match=r"takes 1 arrays and 1 outputs, got 2 and 1"):
        kernel.run([x, x], [y], sizes)
    y.flags.writeable = False
    with pytest.raises(ShapeError, match=r"output 'y' is read-only"):
        kernel.run([x], [y], sizes)


def test_outputs_need_memory_of_their_own():
    kernel, x = compile_kernel(two_outputs()), data()
    memory = np.empty((4, 40), "float32")
    with pytest.raises(ShapeError, match=r"outputs 'y' and 'z' share memory"):
        kernel.run([x], [memory[:3], memory[1:]], {"r": 3, "n": 40})
    memory = np.empty((6, 40), "float32")
    kernel.run([x], [memory[::2], memory[1::2]], {"r": 3, "n": 40})  # interleaved, not shared
    np.testing.assert_array_equal(memory[::2], x)
    np.testing.assert_array_equal(memory[1::2], x)
    repeated = np.lib.stride_tricks.as_strided(np.empty(40, "float32"), (3, 40), (0, 4))
    with pytest.raises(ShapeError, match=r"output 'y' repeats its elements"):
        compile_kernel(DOUBLE).run([x], [repeated], {"r": 3, "n": 40})


def test_a_specialised_length_is_checked():
    d = Buf("d", (R, Const(4)), "global", "float32", 1)
    y = Buf("y", (R, Const(4)), "global", "float32", 1)
    body = (Sweep("k", Const(0), Size("k"), (), (Put(At(y, (r, Var("k"))), At(d, (r, Var("k"))) * 2.0),)),)
    loop = For("r", Const(0), R, Const(1), body, "task")
    kernel = compile_kernel(Kernel("special", "float32", (d,), (y,), ("r",), (("k", 4),), (Phase(loop),)))
    x, out = np.ones((2, 4), "float32"), np.empty((2, 4), "float32")
    kernel.run([x], [out], {"r": 2, "k": 4})
    assert (out == 2).all()
    with pytest.raises(ShapeError, match=r"axis k has length 5.*compiled for 4"):
        kernel.run([x], [out], {"r": 2, "k": 5})


# ---- phases and workspace


def two_phases() -> Kernel:
    """Row sums into shared memory, then every row divided by the sum of the rows before it: needs the barrier."""
    sums = Buf("sums", (R,), "shared", "float64")
    y = row_cell("y", "float32")
    first = For(
        "r",
        Const(0),
        R,
        Const(2),
        (Sweep("n", Const(0), N, (Red("s", "sum", X),)), Set(At(sums, (r,)), Var("s"))),
        "task",
    )
    add = Sweep("q", Const(0), R, (Red("all", "sum", At(sums, (Var("q"),))),))
    second = For(
        "r", Const(0), R, Const(1), (add, Sweep("n", Const(0), N, (), (Put(y, X / Var("all")),))), "task"
    )
    return Kernel(
        "phases", "float32", (X.buf,), (y.buf,), ("r", "n"), (), (Phase(first), Phase(second)), (sums,)
    )


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_phases_wait_for_each_other(threads):
    kernel = compile_kernel(two_phases())
    for rows in (1, 2, 301):
        x, y = np.abs(data(rows)), np.empty((rows, 40), "float32")
        for _ in range(20):
            y[:] = 0
            kernel.run([x], [y], {"r": rows, "n": 40}, threads=threads)
            np.testing.assert_allclose(y, x / x.sum(dtype="f8"), rtol=1e-5)


def test_conditions_choose_between_phases():
    y = row_cell("y", "float32")

    def phase(value: float, when) -> Phase:
        return Phase(
            For("r", Const(0), R, Const(1), (Sweep("n", Const(0), N, (), (Put(y, X * value),)),), "task"),
            (),
            when,
        )

    phases = (phase(2.0, op("le", N, Const(40))), phase(3.0, op("not", op("le", N, Const(40)))))
    kernel = compile_kernel(Kernel("choice", "float32", (X.buf,), (y.buf,), ("r", "n"), (), phases))
    for length, factor in ((40, 2), (41, 3)):
        x, out = data(3, length), np.empty((3, length), "float32")
        kernel.run([x], [out], {"r": 3, "n": length})
        np.testing.assert_array_equal(out, factor * x)


def test_workspace_that_cannot_be_had_is_a_memory_error():
    huge = Buf("huge", (N, N, N), "shared", "float64")
    y = row_cell("y", "float32")
    kernel = compile_kernel(
        task_kernel(
            "huge", "float32", [X.buf], [y.buf], [Sweep("n", Const(0), N, (), (Put(y, X),))], shared=(huge,)
        )
    )
    row = np.broadcast_to(np.float32(1), (1, 200_000))
    out = np.zeros((1, 200_000), "float32")
    with pytest.raises(MemoryError, match=r"workspace.*200000"):
        kernel.run([np.ascontiguousarray(row)], [out], {"r": 1, "n": 200_000})
    assert not out.any()
    assert doubled(compile_kernel(DOUBLE), data(), np.empty((3, 40), "float32"))


def test_workspace_of_growing_and_shrinking_calls():
    """Blocks are kept between calls: a kept one that is too small must not be handed out."""
    scratch = Buf("scratch", (N,), "local", "float64")
    y, cell = row_cell("y", "float32"), At(scratch, (n,))
    body = [
        Sweep("n", Const(0), N, (), (Put(cell, X * 3.0),)),
        Sweep("n", Const(0), N, (), (Put(y, cell - X),)),
    ]
    kernel = compile_kernel(task_kernel("scratch", "float32", [X.buf], [y.buf], body, local=(scratch,)))
    for length in (5, 1000, 100_000, 7, 3_000_000, 20, 100_000):
        x, out = data(2, length), np.empty((2, length), "float32")
        kernel.run([x], [out], {"r": 2, "n": length}, threads=2)
        np.testing.assert_allclose(out, 2 * x, rtol=1e-5)


# ---- threads and processes


def run_in_threads(count: int, work) -> list[BaseException]:
    """Call `work(i)` in Python threads; the exceptions they raised."""
    errors: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors


def test_python_threads_call_at_the_same_time():
    kernel = compile_kernel(two_phases())

    def work(i: int) -> None:
        rows = 100 + 17 * i
        x, y = np.abs(data(rows)) + i, np.empty((rows, 40), "float32")
        for _ in range(60):
            y[:] = 0
            kernel.run([x], [y], {"r": rows, "n": 40}, threads=3)
            np.testing.assert_allclose(y, x / x.sum(dtype="f8"), rtol=1e-5)

    assert run_in_threads(4, work) == []


def test_the_interpreter_lock_is_released():
    """A second Python thread makes progress while one long call runs."""
    x = row_cell("x", "float32", None)
    kernel = compile_kernel(elementwise(op("sin", x), [x.buf], unit=None))
    row = np.broadcast_to(np.linspace(0, 1, 64, dtype="float32"), (60_000, 64))
    out, ticks, running = np.empty((60_000, 64), "float32"), [], threading.Event()

    def tick() -> None:
        running.wait()
        while running.is_set():
            ticks.append(len(ticks))

    ticker = threading.Thread(target=tick)
    ticker.start()
    running.set()
    before = len(ticks)
    kernel._entry  # noqa: B018  (bound: the call itself is what is observed)
    kernel.run([row], [out], {"r": 60_000, "n": 64}, threads=1)
    during = len(ticks) - before
    running.clear()
    ticker.join()
    assert during > 100


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the signal masks of threads are read from /proc")
def test_workers_leave_signals_to_the_host():
    kernel, x = compile_kernel(two_phases()), np.abs(data(64))
    before = set(os.listdir("/proc/self/task"))
    y = np.empty((64, 40), "float32")
    kernel.run([x], [y], {"r": 64, "n": 40}, threads=12)  # more than any other test starts
    started = set(os.listdir("/proc/self/task")) - before
    assert started
    for task in started:
        status = Path(f"/proc/self/task/{task}/status").read_text()
        blocked = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk"))
        assert blocked & 1 << (signal.SIGINT - 1)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_a_forked_child_can_call():
    """The child has none of the pool's threads; a call there starts its own."""
    kernel, x = compile_kernel(two_phases()), np.abs(data(64))
    y = np.empty((64, 40), "float32")
    kernel.run([x], [y], {"r": 64, "n": 40}, threads=4)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            z = np.empty((64, 40), "float32")
            for _ in range(5):
                kernel.run([x], [z], {"r": 64, "n": 40}, threads=4)
            status = 0 if np.array_equal(y, z) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kernel.run([x], [y], {"r": 64, "n": 40}, threads=4)


THREADS_WHILE_FORKING = """
import os, threading
from programs import *
from test_runtime_calls import two_phases, data
kernel = compile_kernel(two_phases())
x = np.abs(data(50))
stop = threading.Event()
def work():
    y = np.empty((50, 40), "float32")
    while not stop.is_set():
        kernel.run([x], [y], {"r": 50, "n": 40}, threads=3)
t = threading.Thread(target=work); t.start()
codes = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        z = np.empty((50, 40), "float32")
        kernel.run([x], [z], {"r": 50, "n": 40}, threads=3)
        os._exit(0 if np.allclose(z, x / x.sum(), rtol=1e-4) else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set(); t.join()
print(codes)
"""


def test_a_fork_in_the_middle_of_a_call():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", THREADS_WHILE_FORKING],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == str([0] * 10)


STANDALONE = """
#include <stdio.h>
int main(void) {
  float x[6] = {0, 1, 2, 3, 4, 5}, y[6];
  void *data[] = {x, y};
  int64_t size[] = {2, 3}, stride[] = {3, 1, 3, 1};
  int status = kernel_phases(data, size, stride, 4, 0);
  for (int i = 0; i < 6; i++) printf("%g ", y[i] * 15);
  return status;
}
"""


def test_the_printed_file_stands_alone(tmp_path):
    """Without a runtime the exported function allocates by itself and runs on one thread."""
    from redfuser.runtime import find_compiler, kernel_source

    file = tmp_path / "alone.c"
    file.write_text(kernel_source(two_phases()) + STANDALONE)
    compiler = find_compiler()
    subprocess.run(
        [*compiler.command, "-O1", *compiler.native_flags(), str(file), "-o", str(tmp_path / "alone"), "-lm"],
        check=True,
    )
    done = subprocess.run([str(tmp_path / "alone")], capture_output=True, text=True, check=True)
    assert [round(float(v), 3) for v in done.stdout.split()] == [0, 1, 2, 3, 4, 5]
