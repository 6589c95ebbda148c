"""Memory for large results: kept when the last view of a result dies, and used again for the next one.

Fresh memory costs more than most kernels: the system clears every page at the first touch (64 MB: 10 to 30 ms, where
a softmax of as many bytes takes 5). What is kept stays mapped, on huge pages where the system has them.
"""

from __future__ import annotations

import math
import mmap
import os
from functools import lru_cache
from typing import Any

import numpy as np

from redfuser import settings
from redfuser.runtime.locks import Locked

LEAST = 1 << 20
"""Smaller results come from NumPy, whose own cache of small blocks is faster."""
HUGE_PAGE = 2 << 20
KEPT_MB = 256
SPARE = 2
"""A kept block serves results of at least its size over this."""


class _Block:
    """A piece of memory as NumPy takes it over. Views of views refer to it alone, so it dies with the last of them."""

    __slots__ = ("__array_interface__", "_home", "_memory")

    def __init__(self, home: Pool, memory: mmap.mmap, nbytes: int) -> None:
        self._home, self._memory = home, memory
        address = np.frombuffer(memory, np.uint8, 1).__array_interface__["data"][0]
        self.__array_interface__: dict[str, Any] = {
            "data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._home.give_back(self._memory)


class Pool(Locked):
    """Blocks that no array uses, the last used first. Thread-safe; a forked child starts with none of them."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes that are kept at most."""
        super().__init__()  # the lock lets its thread in twice: __del__ may run at any allocation
        self._limit = limit
        self._free: list[mmap.mmap] = []
        self._process = os.getpid()

    @property
    def kept(self) -> int:
        """Bytes that wait for a result."""
        return sum(map(len, self._free))

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array like `numpy.empty`: C order, contents arbitrary.

        Raises
        ------
        MemoryError
            when the system has none.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST or not self._limit:
            return np.empty(shape, dtype)
        return np.asarray(_Block(self, self._take(nbytes), nbytes)).view(dtype).reshape(shape)

    def _take(self, nbytes: int) -> mmap.mmap:
        with self._lock:
            self._own()
            for i in range(len(self._free) - 1, -1, -1):
                if nbytes <= len(self._free[i]) <= max(SPARE * nbytes, HUGE_PAGE):
                    return self._free.pop(i)
        return _mapped(-(-nbytes // HUGE_PAGE) * HUGE_PAGE)

    def give_back(self, memory: mmap.mmap) -> None:
        """Keep a block, or return it to the system where enough is kept; the longest unused go first."""
        with self._lock:
            self._own()
            self._free.append(memory)
            while self._free and self.kept > self._limit:
                del self._free[0]

    def clear(self) -> None:
        """Return all that is kept to the system."""
        with self._lock:
            self._free.clear()

    def _own(self) -> None:
        """Kept memory is not shared with a child: it would be copied page by page, which is no gain."""
        if self._process != os.getpid():
            self._free, self._process = [], os.getpid()


def _mapped(nbytes: int) -> mmap.mmap:
    try:
        if not hasattr(mmap, "MAP_PRIVATE"):
            return mmap.mmap(-1, nbytes)
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"the system has no {nbytes} bytes for a result: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@lru_cache(maxsize=1)
def pool() -> Pool:
    """The pool of this process, with the limit that `$REDFUSER_POOL_MB` sets.

    Raises
    ------
    SettingError
        when that is no number.
    """
    megabytes = settings.count(settings.POOL, least=0)
    return Pool((KEPT_MB if megabytes is None else megabytes) << 20)
