"""What the machine can do, measured in the run that needs it: multiply-adds, exponentials, reading, copying.

Each probe is a C loop (GNU vector extensions) that every thread runs on its own share; the best of several runs counts.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SOURCE = r"""
#include <stdint.h>
typedef float vec __attribute__((vector_size(WIDTH)));
typedef float near_vec __attribute__((vector_size(WIDTH), aligned(4)));
enum { L = WIDTH / 4 };
#define TEXT(x) #x
#define UNROLL(n) _Pragma(TEXT(GCC unroll n))
float multiply_add(int64_t n) { /* 12 independent chains of n multiply-adds each */
  vec a[12], x = {0}, y = {0};
  for (int i = 0; i < L; i++) x[i] = 0.999f, y[i] = 1e-3f;
  UNROLL(12) for (int j = 0; j < 12; j++) a[j] = y * (float)j;
  for (int64_t i = 0; i < n; i++)
    UNROLL(12) for (int j = 0; j < 12; j++) a[j] = a[j] * x + y;
  float s = 0;
  UNROLL(12) for (int j = 0; j < 12; j++) s += a[j][0];
  return s;
}
float read(const float *p, int64_t n, int64_t times) {
  vec a[8] = {{0}};
  for (int64_t t = 0; t < times; t++)
    for (int64_t i = 0; i + 8 * L <= n; i += 8 * L)
      UNROLL(8) for (int j = 0; j < 8; j++) a[j] += *(const near_vec *)(p + i + j * L);
  float s = 0;
  UNROLL(8) for (int j = 0; j < 8; j++) s += a[j][0];
  return s;
}
void copy(float *q, const float *p, int64_t n) { /* non-temporal stores, q aligned to a vector */
  for (int64_t i = 0; i + L <= n; i += L) {
    vec x = *(const near_vec *)(p + i);
#if defined(__x86_64__) && WIDTH == 32
    __asm__ volatile("vmovntps %1, %0" : "=m"(*(vec *)(q + i)) : "x"(x));
#elif defined(__x86_64__) && WIDTH == 64
    __asm__ volatile("vmovntps %1, %0" : "=m"(*(vec *)(q + i)) : "v"(x));
#else
    *(vec *)(q + i) = x;
#endif
  }
}
"""


def _library() -> tuple[ctypes.CDLL, int]:
    """The probes, and the bytes of a vector."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    width = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    folder = Path(tempfile.mkdtemp())
    (folder / "probe.c").write_text(SOURCE)
    command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", f"-DWIDTH={width}", "-o", str(folder / "probe.so")]
    subprocess.run([*command, str(folder / "probe.c")], check=True)
    library = ctypes.CDLL(str(folder / "probe.so"))
    library.multiply_add.restype = library.read.restype = ctypes.c_float
    return library, width


def _best(work: Callable[[int], object], threads: int, repeats: int = 7) -> float:
    """Seconds of the fastest run of `work(thread)` on all threads at once."""
    times = []
    for _ in range(repeats):
        start = threading.Barrier(threads + 1)
        workers = [threading.Thread(target=lambda i=i, s=start: (s.wait(), work(i))) for i in range(threads)]
        for w in workers:
            w.start()
        start.wait()
        begin = time.perf_counter()
        for w in workers:
            w.join()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure() -> dict[str, float]:
    """Limits of this process: threads, float32 GFLOP/s, GB/s read from memory and from the last cache, GB/s copied."""
    (library, width), threads = _library(), len(os.sched_getaffinity(0))
    lanes = width // 4
    rounds = ctypes.c_int64(20_000_000 // lanes)
    flops = 2 * 12 * lanes * rounds.value * threads / _best(lambda _: library.multiply_add(rounds), threads)
    big = 2**26 // 4  # 64 MB a thread
    source = [np.ones(big, np.float32) for _ in range(threads)]
    target = [np.ones(big + 16, np.float32) for _ in range(threads)]
    aligned = [t.ctypes.data + -t.ctypes.data % 64 for t in target]

    def read(i: int, n: int, times: int) -> object:
        return library.read(ctypes.c_void_p(source[i].ctypes.data), ctypes.c_int64(n), ctypes.c_int64(times))

    def copy(i: int) -> object:
        data = ctypes.c_void_p(source[i].ctypes.data)
        return library.copy(ctypes.c_void_p(aligned[i]), data, ctypes.c_int64(big))

    small = 2**20  # 4 MB a thread: beyond the second cache, inside the last
    return {
        "threads": threads,
        "gflops": round(flops / 1e9, 1),
        "read GB/s": round(4 * big * threads / _best(lambda i: read(i, big, 1), threads) / 1e9, 1),
        "cache GB/s": round(4 * small * 20 * threads / _best(lambda i: read(i, small, 20), threads) / 1e9, 1),
        "copy GB/s": round(8 * big * threads / _best(copy, threads) / 1e9, 1),
    }


if __name__ == "__main__":
    print(measure())
