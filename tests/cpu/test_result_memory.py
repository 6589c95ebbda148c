"""Memory of large results is used again, and never while a view of it lives."""

import gc
import os
import threading

import numpy as np
import pytest
from functions import softmax

import redfuser as rf
from redfuser.errors import SettingError
from redfuser.runtime import memory
from redfuser.runtime.memory import LEAST, Pool

FLOAT = np.dtype(np.float32)
LARGE = (LEAST // 4 + 3,)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_after_the_last_view():
    pool = Pool(64 << 20)
    array = pool.empty(LARGE, FLOAT)
    first = address(array)
    views = [array[5:], array.reshape(1, -1).T[3:4], memoryview(array), array.view(np.int32)[::2]]
    del array
    while views:
        gc.collect()
        assert pool.kept == 0
        other = pool.empty(LARGE, FLOAT)
        assert not np.may_share_memory(other, np.asarray(views[-1]))
        del other
        pool.clear()
        views.pop()
    assert pool.kept > 0
    assert address(pool.empty(LARGE, FLOAT)) == first


def test_results_that_are_kept_stay_as_they_are():
    fused = rf.fuse(softmax)
    x = np.random.default_rng(0).normal(size=(512, 1024)).astype(np.float32)
    kept = [fused(x * k) for k in range(4)]
    for k in range(8):
        fused(x + k)
    for k, r in enumerate(kept):
        np.testing.assert_allclose(r, softmax(x * k), rtol=2e-5)
        assert r.flags.c_contiguous
        assert r.flags.writeable
        assert r.dtype == x.dtype


def test_small_results_and_a_pool_of_nothing_come_from_numpy():
    assert Pool(64 << 20).empty((3, 4), FLOAT).flags.owndata
    assert Pool(0).empty(LARGE, FLOAT).flags.owndata


def test_no_more_is_kept_than_the_limit():
    pool = Pool(8 << 20)
    arrays = [pool.empty((1 << 20,), FLOAT) for _ in range(4)]
    del arrays
    assert pool.kept == 8 << 20
    huge = pool.empty((16 << 18,), FLOAT)
    del huge
    assert pool.kept <= 8 << 20


def test_a_large_block_does_not_serve_a_small_result():
    pool = Pool(256 << 20)
    del (big := [pool.empty((16 << 20,), FLOAT)])[0]
    del big
    kept = pool.kept
    small = pool.empty(LARGE, FLOAT)
    assert pool.kept == kept
    assert small.shape == LARGE


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "float16"])
def test_shapes_and_dtypes(dtype):
    array = Pool(64 << 20).empty((3, LEAST, 1), np.dtype(dtype))
    assert array.shape == (3, LEAST, 1)
    assert array.dtype == dtype
    array[...] = 1
    assert array.sum(dtype=np.int64) == 3 * LEAST


def test_threads_never_share_a_block():
    pool = Pool(64 << 20)
    wrong = []

    def work(i):
        for _ in range(50):
            array = pool.empty(LARGE, FLOAT)
            array.fill(i)
            if not (array[::1024] == i).all():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_keeps_nothing_and_changes_nothing():
    pool = Pool(64 << 20)
    array = pool.empty(LARGE, FLOAT)
    array.fill(7)
    del (other := [pool.empty(LARGE, FLOAT)])[0]
    child = os.fork()
    if child == 0:
        mine = pool.empty(LARGE, FLOAT)
        mine.fill(1)
        array.fill(2)
        os._exit(0 if pool.kept == 0 and mine[0] == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 7).all()
    assert not other


def test_the_setting_must_be_a_number(monkeypatch):
    memory.pool.cache_clear()
    monkeypatch.setenv("REDFUSER_POOL_MB", "many")
    try:
        with pytest.raises(SettingError, match=r"REDFUSER_POOL_MB.*0 or more"):
            memory.pool()
    finally:
        memory.pool.cache_clear()
