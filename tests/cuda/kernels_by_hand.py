"""Kernels written by hand (kernels/*.cu) with their definitions in NumPy: what the executor's tests run and break."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from redfuser.runtime.cuda.host import HostModule, In, Out, Scratch

FOLDER = Path(__file__).parent / "kernels"


class Kernel(Protocol):
    """A kernel of either front end."""

    def launch(self, grid: Any, block: Any, args: Sequence[Any], shared_bytes: int = 0, seed: int = 0) -> Any: ...


@dataclass(frozen=True)
class ByHand:
    """A kernel: `run(kernel, seed)` launches it and gives its error over what is allowed: above 1 is wrong."""

    name: str
    run: Callable[[Kernel, int], float]

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.name}.cu").read_text(encoding="utf-8")


def error(got: np.ndarray, wanted: np.ndarray, allowed: float) -> float:
    """The largest error relative to the largest value, in units of what is allowed; NaN counts as wrong."""
    scale = max(float(np.abs(wanted).max()), 1e-30)
    found = float(np.abs(got.astype(np.float64) - wanted).max()) / scale / allowed
    return found if found == found else np.inf


def rows(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((*shape, n)).astype(np.float32) * 3


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def run_softmax_warp(kernel: Kernel, seed: int, n: int = 332, count: int = 6) -> float:
    x = rows(n, count)
    y = np.empty_like(x)
    kernel.launch((count + 3) // 4, 128, [In(x), Out(y), np.int32(count), np.int32(n)], seed=seed)
    return error(y, softmax(x), 1e-5)


def run_softmax_block(kernel: Kernel, seed: int, n: int = 601, count: int = 3) -> float:
    x = rows(n, count)
    y = np.empty_like(x)
    kernel.launch(count, 256, [In(x), Out(y), np.int32(n)], seed=seed)
    return error(y, softmax(x), 1e-5)


def run_split_merge(kernel: Kernel, seed: int, n: int = 333, count: int = 2, splits: int = 5) -> float:
    x = rows(n, count)
    part, tickets, y = np.empty((count, splits, 2), np.float32), np.zeros(count, np.uint32), np.empty(count, np.float32)
    kernel.launch((splits, count), 64, [In(x), Scratch(part), tickets, Out(y), np.int32(n)], seed=seed)
    assert not tickets.any()
    wide = x.astype(np.float64)
    return error(y, np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1), 1e-5)


def run_pipeline(kernel: Kernel, seed: int, count: int = 75, columns: int = 128) -> float:
    x, w = rows(columns, count), rows(count)
    y = np.empty(columns, np.float32)
    args = [In(x), In(w), Out(y), np.int32(count), np.int32(columns)]
    kernel.launch(columns // 64, 64, args, shared_bytes=3 * 16 * 64 * 4, seed=seed)
    return error(y, w.astype(np.float64) @ x, 1e-5)


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Bits of the nearest bfloat16."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def run_tile(kernel: Kernel, seed: int, m: int = 100, k: int = 96) -> float:
    a, b = bfloat16(rows(k, m)), bfloat16(rows(k, 64))
    c = np.empty((m, 64), np.float32)
    kernel.launch((m + 63) // 64, 128, [In(a), In(b), Out(c), np.int32(m), np.int32(k)], seed=seed)
    return error(c, from_bfloat16(a).astype(np.float64) @ from_bfloat16(b).T, 1e-5)


def run_transpose(kernel: Kernel, seed: int, count: int = 45, columns: int = 70) -> float:
    x = rows(columns, count)
    y = np.empty((columns, count), np.float32)
    grid = ((columns + 31) // 32, (count + 31) // 32)
    kernel.launch(grid, (32, 8), [In(x), Out(y), np.int32(count), np.int32(columns)], seed=seed)
    return error(y, x.T.astype(np.float64), 1e-9)


def run_histogram(kernel: Kernel, seed: int, n: int = 1000, bins: int = 37) -> float:
    labels = np.random.default_rng(3).integers(0, bins, n).astype(np.int32)
    counts, most = np.zeros(bins, np.int32), np.full(1, -1, np.int32)
    args = [In(labels), counts, most, np.int32(n), np.int32(bins)]
    kernel.launch(3, 128, args, shared_bytes=4 * bins, seed=seed)
    wrong = (counts != np.bincount(labels, minlength=bins)).any() or most[0] != labels.max()
    return np.inf if wrong else 0.0


def run_scan(kernel: Kernel, seed: int, n: int = 250, count: int = 2) -> float:
    x = rows(n, count)
    y = np.empty_like(x)
    kernel.launch(count, 256, [In(x), Out(y), np.int32(n)], seed=seed)
    return error(y, x.astype(np.float64).cumsum(1), 1e-5)


def run_exchange(kernel: Kernel, seed: int, count: int = 2) -> float:
    x = rows(64, count, 4)
    y = np.empty_like(x)
    kernel.launch(count, 128, [In(x), Out(y)], seed=seed)
    wanted = x[..., ::-1].astype(np.float64)
    wanted[:, 1] += wanted[:, 0]
    return error(y, wanted, 1e-6)


KERNELS: Mapping[str, ByHand] = {
    k.name: k
    for k in (
        ByHand("softmax_warp", run_softmax_warp), ByHand("softmax_block", run_softmax_block),
        ByHand("split_merge", run_split_merge), ByHand("pipeline", run_pipeline), ByHand("tile", run_tile),
        ByHand("transpose", run_transpose), ByHand("histogram", run_histogram), ByHand("scan", run_scan),
        ByHand("exchange", run_exchange),
    )
}


def variant(text: str, name: str, suffix: str) -> str:
    """A kernel's text with the kernel renamed, in a namespace of its own."""
    renamed = re.sub(rf"\b{name}\(", f"{name}_{suffix}(", text)
    return f"namespace of_{name}_{suffix} {{\n{renamed}\n}}\n"


def joined(variants: Sequence[tuple[str, str, str]]) -> str:
    """Many variants (text, name, suffix) as one text: they are compiled once."""
    return "".join(variant(*v) for v in variants)


@lru_cache(maxsize=4)
def host_module(arch: str = "sm_80") -> HostModule:
    """All kernels as they are."""
    return HostModule(joined([(k.text, k.name, "good") for k in KERNELS.values()]), arch)
