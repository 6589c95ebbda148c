"""A child that is forked while another thread holds a lock can work on."""

import os
import threading
import time

import numpy as np
import pytest
from functions import softmax

import redfuser as rf
from redfuser import pipeline
from redfuser.runtime import memory

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
PATIENCE = 60  # seconds


class Halted:
    """A thread that stops in the middle of `work`, where that calls `halt`."""

    def __init__(self, work):
        self.arrived, self.go_on = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=work)

    def halt(self):
        if threading.current_thread() is self.thread:
            self.arrived.set()
            self.go_on.wait(PATIENCE)

    def __enter__(self):
        self.thread.start()
        assert self.arrived.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.thread.join(PATIENCE)


def status_of_child(work):
    """The exit status of a child that does `work`: 0 when that gave True; None when it did not end."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    for _ in range(20 * PATIENCE):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@pytest.mark.parametrize("step", ["trace_step", "kernel_step"])
def test_while_another_thread_makes_the_first_call(monkeypatch, step):
    x = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32)
    expected = softmax(x)
    rf.fuse(softmax)(x)  # so that the thread imports nothing: a child would wait for that
    fused = rf.fuse(softmax)
    usual = getattr(pipeline, step)
    other = Halted(lambda: fused(x))

    def slow(*args):
        other.halt()
        return usual(*args)

    monkeypatch.setattr(pipeline, step, slow)
    with other:
        assert status_of_child(lambda: np.allclose(fused(x), expected, rtol=1e-5)) == 0
    assert np.allclose(fused(x), expected, rtol=1e-5)


def test_while_another_thread_takes_memory(monkeypatch):
    large = (memory.LEAST // 4 + 3,)
    pool = memory.Pool(64 << 20)
    own = pool._own
    other = Halted(lambda: pool.empty(large, np.dtype(np.float32)))
    monkeypatch.setattr(pool, "_own", lambda: (other.halt(), own()))
    with other:
        assert status_of_child(lambda: pool.empty(large, np.dtype(np.float32)).shape == large) == 0


def test_a_function_that_forks_while_it_is_traced():
    """The thread that forks holds the lock, in the child too, and lets go of it there."""
    def forking(x):
        codes.append(status_of_child(lambda: np.allclose(rf.fuse(softmax)(data), softmax(data), rtol=1e-5)))
        return x.sum(axis=1)

    codes = []
    data = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    np.testing.assert_allclose(rf.fuse(forking)(data), data.sum(axis=1), rtol=1e-5)
    assert codes == [0]
