"""Fused functions on arrays of CuPy: the whole road of a call, on a stand-in whose kernels run on the host executor."""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref

import numpy as np
import pytest
from standin_cupy import Cuda

import redfuser as rf
from redfuser.errors import ArgumentError, AssumptionError, DTypeError, LabelError, SettingError, ShapeError, TraceError
from redfuser.runtime.cuda.errors import NoDevice, SharedMemoryShort, UnsupportedArch

RNG = np.random.default_rng(2)
X = RNG.standard_normal((5, 70)).astype("float32")


@pytest.fixture
def cuda(host, monkeypatch):
    """A machine with two GPUs, and CuPy."""
    machine = Cuda()
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy)
    yield machine
    machine.close()


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def close(got, wanted, rtol=1e-5):
    np.testing.assert_allclose(got._np, wanted, rtol=rtol, atol=1e-6)


def test_arrays_of_cupy_go_to_the_gpu(cuda):
    f = rf.fuse(softmax)
    x = cuda.put(X)
    y = f(x)
    assert type(y) is cuda.cupy.ndarray
    close(y, softmax(X))
    assert ("compile", ("-std=c++17", "-arch=sm_90a")) in cuda.log
    assert f.stats.kernel_runs == f.stats.compilations == 1
    cuda.log.clear()
    with cuda.on(9):
        close(f(x), softmax(X))
    # one array from the pool and one launch, both on the current stream; nothing is copied, nothing waits
    assert cuda.log == [("empty", X.nbytes, 9), ("launch", "softmax_phase0", 9, 0)]
    report = str(f.explain(x))
    assert "CUDA" in report
    assert "CuPy's kernel cache" in report
    close(rf.fuse(softmax, target="cuda")(x), softmax(X))
    np.testing.assert_allclose(f(X), softmax(X), rtol=1e-5)  # NumPy arrays still go to C


def test_views_are_read_in_place_and_results_go_where_they_are_asked_for(cuda):
    f = rf.fuse(softmax)
    x = cuda.put(X)
    for view, same in ((x[1:], X[1:]), (x[::-1], X[::-1]), (x[::2, 3:], X[::2, 3:])):
        cuda.log.clear()
        close(f(view), softmax(same))
        assert cuda.count("copy", "fill") == 0
    out = cuda.put(np.zeros_like(X))
    cuda.log.clear()
    assert f(x, out=out) is out
    close(out, softmax(X))
    assert cuda.count("empty", "copy") == 0
    turned = cuda.put(np.zeros((70, 5), "float32"))
    f(x, out=turned.T)
    close(turned, softmax(X).T)
    cuda.log.clear()
    assert f(x, out=x) is x  # the input is copied first: the kernel would overwrite what it reads
    close(x, softmax(X))
    assert cuda.count("copy") == 1


def test_results_over_what_a_later_cascade_reads(cuda):
    def centred(x):
        return x - x.mean(axis=-1, keepdims=True), x - x.mean(axis=0, keepdims=True)

    f, wanted = rf.fuse(centred), centred(X)
    for _ in range(2):
        x, y = cuda.put(X), cuda.put(np.zeros_like(X))
        f(x, out=(x, y))
        close(x, wanted[0])
        close(y, wanted[1])
        x = cuda.put(X)
        f(x, out=(y, x))
        close(y, wanted[0])
        close(x, wanted[1])
        long = cuda.put(np.concatenate([X, X[:2]]))
        f(long[:5], out=(long[2:], y))
        close(long[2:], wanted[0])
        close(y, wanted[1])
        with pytest.raises(ShapeError, match="share memory; pass separate arrays"):
            f(x, out=(y, y))
    assert cuda.count("to host", "to device", "wait") == 0


def test_out_that_cannot_hold_the_results(cuda):
    x = cuda.put(X)
    f = rf.fuse(softmax)
    with pytest.raises(DTypeError, match="out is a ndarray; pass an array on the device"):
        f(x, out=np.zeros_like(X))
    with pytest.raises(DTypeError, match="out has dtype float64"):
        f(x, out=cuda.put(X.astype("float64")))
    with pytest.raises(ShapeError, match="shape"):
        f(x, out=cuda.put(X[:, :3].copy()))


def test_launches_that_share_a_workspace(cuda):
    """Few long rows: chunks, then a launch that merges them. All of it is capturable, and its memory outlives it."""
    x = RNG.standard_normal((2, 70_000)).astype("float32")
    f = rf.fuse(lambda x: x.var(axis=-1))
    given = cuda.put(x)
    close(f(given), x.var(axis=-1), 1e-4)
    launches = cuda.count("launch")
    assert launches >= 2
    cuda.log.clear()
    cuda.capturing.add(7)
    with cuda.on(7):
        y = f(given)
    cuda.capturing.clear()
    assert cuda.count("launch") == launches
    assert cuda.count("wait", "to host", "to device", "compile") == 0
    assert {entry[2] for entry in cuda.log} == {7}
    close(y, x.var(axis=-1), 1e-4)
    kept = [a for p in f._programs.values() for q in p for made in q.home._captured for a in made]
    assert len(kept) == cuda.count("empty") >= 2


SCALE = np.array([2.0, 3.0, 4.0], "float32")


def scaled(x, factor):
    return (x * SCALE).sum(axis=-1) * factor


def test_numbers_travel_as_arguments_and_constants_are_copied_once(cuda):
    x = RNG.standard_normal((4, 3)).astype("float32")
    f, given = rf.fuse(scaled), cuda.put(x)
    close(f(given, 2.0), (x * SCALE).sum(axis=-1) * 2)
    assert cuda.count("to device", "wait") == 2
    cuda.log.clear()
    close(f(given, -0.5), (x * SCALE).sum(axis=-1) * -0.5)
    assert cuda.count("to device", "wait", "to host") == 0
    assert cuda.count("fill") == 1
    SCALE[1] = 7
    close(f(given, 1.0), (x * SCALE).sum(axis=-1))
    signs = rf.fuse(lambda x, a: np.copysign(x, a).sum(axis=-1))
    close(signs(given, -0.0), -np.abs(x).sum(axis=-1))


def test_copies_of_changed_constants_are_kept(cuda):
    """A graph that was captured goes on to read the copy of its time: the pool must not get that memory back."""
    scale = np.array([2.0, 3.0, 4.0], "float32")
    x = RNG.standard_normal((4, 3)).astype("float32")
    f, given = rf.fuse(lambda x: (x * scale).sum(axis=-1)), cuda.put(x)
    f(given)
    (home,) = {q.home for p in f._programs.values() for q in p}
    copies = {name: weakref.ref(copy) for name, (_, copy) in home._constants.items()}
    scale[1] = 7
    close(f(given), (x * scale).sum(axis=-1))
    gc.collect()
    assert copies
    for name, copy in copies.items():
        assert copy() is not None
        assert copy() is not home._constants[name][1]


def test_less_shared_memory_is_planned_for(cuda, monkeypatch):
    """A plan whose launch asks for too much is made again: first by the device's limit, then by what kernels have."""
    x = RNG.standard_normal((1, 16_000))
    roomy = rf.fuse(softmax)
    roomy(cuda.put(x))
    asked = max(e[3] for e in cuda.log if e[0] == "launch")
    assert asked > 120_000, "this test needs a kernel with much shared memory"
    for most, static in ((50_000, 0), (150_000, 40_000)):
        small = Cuda(MaxSharedMemoryPerBlockOptin=most, static=static)
        monkeypatch.setitem(sys.modules, "cupy", small.cupy)
        f = rf.fuse(softmax)
        close(f(small.put(x)), softmax(x), 1e-12)
        assert max(e[3] for e in small.log if e[0] == "launch") <= most - static
        assert f.stats.compilations == 1
        assert small.count("compile") == (2 if static else 1)  # asked for too much, then planned again
        small.close()
    none = Cuda(MaxSharedMemoryPerBlockOptin=48 << 10, static=64 << 10)
    monkeypatch.setitem(sys.modules, "cupy", none.cupy)
    with pytest.raises(SharedMemoryShort, match="the device gives a block 49152"):
        rf.fuse(softmax)(none.put(x))
    none.close()


def test_devices(cuda):
    f = rf.fuse(softmax)
    first, second = cuda.put(X), cuda.put(X, device=1)
    close(f(first), softmax(X))
    assert "CUDA" in str(f.explain(second))  # compiled for its device, although another one is current
    y = f(second)
    assert (y.device.id, cuda.device) == (1, 0)  # the arrays' device, not the current one
    close(y, softmax(X))
    both = rf.fuse(lambda x, y: (x * y).sum(axis=-1))
    with pytest.raises(ArgumentError, match="argument 'y' is on device 1, and 'x' is on device 0; copy"):
        both(first, second)
    with pytest.raises(ArgumentError, match=r"'y' is a NumPy array, and 'x' is on device 0; pass cupy.asarray"):
        both(first, X)
    with pytest.raises(ArgumentError, match=r"argument 'x' is a NumPy array, and target='cuda'.*cupy.asarray\(x\)"):
        rf.fuse(softmax, target="cuda")(X)
    with pytest.raises(ArgumentError, match="are on device 0, and target='c' runs on the CPU"):
        rf.fuse(softmax, target="c")(first)
    with pytest.raises(SettingError, match="none for a GPU yet"):
        rf.fuse(softmax, tune=True)(first)


def test_results_of_every_kind(cuda):
    """Whole reductions, no element, pairs in one array, numbers alone, outputs beside each other in memory."""
    x, pair = cuda.put(X), cuda.put(np.zeros((5, 2), "float32"))
    close(rf.fuse(lambda x: x.sum())(x), X.sum(), 1e-4)
    assert rf.fuse(lambda x: x.sum(axis=-1))(cuda.put(X[:0])).shape == (0,)
    close(rf.fuse(lambda x: np.stack([x.sum(axis=-1), x.max(axis=-1)]))(x), [X.sum(axis=-1), X.max(axis=-1)], 1e-4)
    close(rf.fuse(lambda a: np.exp(a), target="cuda")(3.0), np.exp(3.0))
    both = rf.fuse(lambda x: (x.sum(axis=-1), x.max(axis=-1)))
    both(x, out=[pair[:, 0], pair[:, 1]])
    close(pair, np.stack([X.sum(axis=-1), X.max(axis=-1)], axis=-1), 1e-4)
    with pytest.raises(ShapeError, match="share memory"):
        both(x, out=[pair[:, 0], pair[:, 0]])
    assert cuda.count("to host", "to device", "wait") == 0


def test_axes_streamed_as_one_are_copied_once_where_they_are_apart(cuda):
    x = RNG.standard_normal((3, 4, 50)).astype("float32")
    f = rf.fuse(lambda x: x.var(axis=(0, 2)))
    close(f(cuda.put(x)), x.var(axis=(0, 2)), 1e-4)
    assert (cuda.count("copy"), f.stats.copies) == (1, 1)


def test_what_no_kernel_can_do(cuda):
    x = cuda.put(X)
    with pytest.raises(DTypeError, match="argument 'x' of softmax: dtype uint32"):
        rf.fuse(softmax)(cuda.put(X.astype("uint32")))
    with pytest.raises(ArgumentError, match=r"argument 'y' is a list.*pass cupy.asarray\(y\)"):
        rf.fuse(lambda x, y: (x * y).sum(axis=-1))(cuda.put(X[:, :2].copy()), [1.0, 2.0])
    with pytest.raises(TraceError, match="array of cupy, pass it as an argument"):
        rf.fuse(lambda y: (x * y).sum(axis=-1))(x)
    with pytest.raises(DTypeError, match="foreign byte order"):
        rf.fuse(softmax)(cuda.put(X.astype(">f4")))
    with pytest.raises(TraceError, match=r"NumPy runs np.sort.* on the CPU.*split the function there"):
        rf.fuse(lambda x: np.exp(np.sort(x, axis=-1)).sum(axis=-1))(x)


def test_slices_of_arguments_are_views(cuda):
    def halves(x):
        return softmax(x[:, :32]), x[:, 32:64].max(axis=-1), x[1:]

    x = cuda.put(X)
    soft, most, rest = rf.fuse(halves)(x)
    close(soft, softmax(X[:, :32]))
    close(most, X[:, 32:64].max(axis=-1))
    close(rest, X[1:])
    assert rest.data.ptr != x[1:].data.ptr
    assert cuda.count("to host", "to device") == 0


def test_checks_of_elements_are_for_those_who_ask(cuda, monkeypatch):
    def chosen(s, y):
        return s[np.arange(len(y)), y]

    def roots(x):
        rf.assume(x > 0)
        return np.sqrt(x).sum(axis=-1)

    monkeypatch.delenv("REDFUSER_CHECK", raising=False)
    f, labels = rf.fuse(chosen), cuda.put(np.array([0, 9, 99, 3, 4]))
    y = f(cuda.put(X), labels)
    assert y._np[[0, 1, 3]].tolist() == [X[0, 0], X[1, 9], X[3, 3]]
    assert cuda.count("to host") == 0
    monkeypatch.setenv("REDFUSER_CHECK", "1")
    with pytest.raises(LabelError, match="1 of 5 labels"):
        f(cuda.put(X), labels)
    with pytest.raises(AssumptionError):
        rf.fuse(roots)(cuda.put(X))


def test_machines_that_cannot(monkeypatch):
    for machine, error, message in (
        (Cuda(driver=False), NoDevice, r"no GPU can be used.*redfuser\[cuda13\]"),
        (Cuda(capability="75"), UnsupportedArch, "device 0, Stand-in 0, is sm_75; kernels need sm_80"),
    ):
        monkeypatch.setitem(sys.modules, "cupy", machine.cupy)
        with pytest.raises(error, match=message):
            rf.fuse(softmax, target="cuda").explain(rf.spec((2, 3), "float32"))
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NoDevice, match="CuPy cannot be imported"):
        rf.fuse(softmax, target="cuda").explain(rf.spec((2, 3), "float32"))


def test_threads_share_a_kernel(cuda):
    f, given, found = rf.fuse(softmax), [cuda.put(X + i) for i in range(4)], {}

    def call(i):
        found[i] = f(given[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for y in found.values():
        close(y, softmax(X))
    assert len(found) == 4
    assert cuda.count("compile") == 1


def test_doctor_lists_the_gpus(monkeypatch):
    from redfuser.cli.doctor import collect

    for machine, key, words in ((Cuda(), "device 1", "Stand-in 1, sm_90a, 2 multiprocessors"),
                                (Cuda(capability="75"), "device 0", "kernels need sm_80"),
                                (Cuda(driver=False), "devices", "none: cudaErrorInsufficientDriver")):
        monkeypatch.setitem(sys.modules, "cupy", machine.cupy)
        assert re.search(words, str(collect()["gpu"][key]))
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert not {"devices", "device 0"} & collect()["gpu"].keys()
