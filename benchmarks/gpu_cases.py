"""What the GPU benchmark runs: functions in plain NumPy, their sizes, and PyTorch's way to compute the same.

Families are added to `FAMILIES`: rows and columns, whose limit is memory, and products, whose limit is that of matrix
units ("matrix" in the table; peers: SDPA, FlexAttention, `torch.compile`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cpu_functions as F
import numpy as np

import redfuser as rf

Size = tuple[int, ...]
Peer = Callable[..., Any]
"""The same computation of tensors; gets the torch module first."""


@dataclass(frozen=True)
class GpuCase:
    """One function of the table.

    arguments  makes host arrays of a size
    sizes      that are timed, the most telling first
    small      awkward sizes for the comparison with the definition
    cut        axis along which an argument is sliced for the comparison at timed sizes; None: taken whole
    eager      PyTorch, operation by operation or by one of its kernels; `peer` is its name in the table
    compiled   what `torch.compile` gets; None: `eager`
    rtol       error allowed, relative to the largest value
    scores     what positions among the results choose from: those of equal scores are as good
    kind       "memory": the limit is a copy of as many bytes. "matrix": there, too, but a matrix unit could be used
    """

    name: str
    fn: Callable[..., Any]
    arguments: Callable[[np.random.Generator, Size], list[Any]]
    sizes: tuple[Size, ...]
    small: tuple[Size, ...]
    cut: tuple[int | None, ...]
    eager: Peer | None = None
    compiled: Peer | None = None
    peer: str = "torch"
    rtol: float = 1e-4
    scores: Callable[..., Any] | None = None
    kind: str = "memory"
    reference: Callable[..., Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def _one(rng: np.random.Generator, size: Size) -> list[Any]:
    return [_normal(rng, *size)]


def _half(rng: np.random.Generator, size: Size) -> list[Any]:
    return [_normal(rng, *size).astype(np.float16)]


def _weights(count: int) -> Callable[[np.random.Generator, Size], list[Any]]:
    return lambda rng, size: [_normal(rng, *size), *(_normal(rng, size[-1]) for _ in range(count))]


def _masked(rng: np.random.Generator, size: Size) -> list[Any]:
    keep = rng.random(size) < 0.7
    keep[:, 0] = True
    return [_normal(rng, *size), keep]


def _labelled(rng: np.random.Generator, size: Size) -> list[Any]:
    return [_normal(rng, *size), rng.integers(0, size[-1], size[0])]


def _heads(rng: np.random.Generator, size: Size) -> list[Any]:
    return [_normal(rng, *size).astype(np.float16) for _ in range(3)]


# ---- functions that the CPU benchmark has not


def argmax(x: Any) -> Any:
    return x.argmax(-1)


def quantise(x: Any) -> Any:
    largest = np.abs(x).max(-1, keepdims=True)
    return np.rint(x / largest * 127).astype("int8"), largest


def masked_softmax(x: Any, keep: Any) -> Any:
    s = np.where(keep, x, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def column_variance(x: Any) -> Any:
    return x.var(axis=0)


def best_of_row(x: Any) -> Any:
    return rf.topk(x, 32)


# ---- families


ROWS: tuple[Size, ...] = ((4096, 4096), (16384, 1024), (64, 131072))
AWKWARD: tuple[Size, ...] = ((5, 64), (3, 251), (2, 4097))


def _rows() -> Iterator[GpuCase]:
    yield GpuCase("softmax", F.softmax, _one, (*ROWS, (16384, 64)), (*AWKWARD, (33, 7)), (0,),
                  lambda t, x: t.softmax(x, -1))
    yield GpuCase("softmax top-8", F.router, _one, ((16384, 64), (16384, 256)), ((5, 64), (7, 70)), (0,),
                  lambda t, x: t.topk(t.softmax(x, -1), 8), scores=F.softmax)
    yield GpuCase("layernorm", F.layernorm, _weights(2), ROWS, AWKWARD, (0, None, None),
                  lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], w, b))
    yield GpuCase("rmsnorm", F.rmsnorm, _weights(1), ROWS, AWKWARD, (0, None),
                  lambda t, x, w: t.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6))
    yield GpuCase("logsumexp", F.logsumexp, _one, ROWS, AWKWARD, (0,), lambda t, x: t.logsumexp(x, -1))
    yield GpuCase("cross-entropy", F.cross_entropy, _labelled, ((512, 50257), (8192, 32000)), AWKWARD, (0, 0),
                  lambda t, x, y: t.nn.functional.cross_entropy(x, y, reduction="none"))
    yield GpuCase("quantise to int8", quantise, _one, ((4096, 4096), (16384, 1024)), AWKWARD, (0,), _quantised,
                  rtol=0.009)  # a tie may round otherwise: one step in 127
    yield GpuCase("masked softmax", masked_softmax, _masked, ((4096, 4096), (16384, 1024)), AWKWARD, (0, 0),
                  lambda t, x, m: t.softmax(x.masked_fill(~m, -t.inf), -1))
    yield GpuCase("softmax of halves", F.softmax, _half, ((4096, 4096), (16384, 1024)), AWKWARD, (0,),
                  lambda t, x: t.softmax(x, -1), rtol=2e-3)
    yield GpuCase("argmax", argmax, _one, ((512, 32000), (16384, 1024)), AWKWARD, (0,), lambda t, x: t.argmax(x, -1))
    yield GpuCase("variance", F.variance, _one, (*ROWS, (1, 1 << 26)), AWKWARD, (0,),
                  lambda t, x: t.var(x, -1, correction=0))
    yield GpuCase("variance over axis 0", column_variance, _one, ((4096, 4096), (65536, 256)), AWKWARD, (1,),
                  lambda t, x: t.var(x, 0, correction=0))
    yield GpuCase("entropy", F.entropy, _one, ((4096, 4096),), AWKWARD, (0,), _entropy)
    yield GpuCase("moments to 4", F.moments, _one, ((4096, 4096),), AWKWARD, (0,), _moments)
    yield GpuCase("top-32", best_of_row, _one, ((1024, 32768),), ((3, 64), (2, 300)), (0,),
                  lambda t, x: t.topk(x, 32), scores=lambda x: x)


def _quantised(t: Any, x: Any) -> Any:
    largest = x.abs().amax(-1, keepdim=True)
    return t.round(x / largest * 127).to(t.int8), largest


def _entropy(t: Any, x: Any) -> Any:
    e = t.exp(x - x.amax(-1, keepdim=True))
    total = e.sum(-1)
    return t.log(total) - (e * (x - x.amax(-1, keepdim=True))).sum(-1) / total


def _moments(t: Any, x: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    d = x - mean
    return mean[:, 0], (d**2).mean(-1), (d**3).mean(-1), (d**4).mean(-1)


def _products() -> Iterator[GpuCase]:
    """Cascades with matrix products."""
    heads, small = ((8, 1024, 64), (8, 1024, 128)), ((2, 17, 16), (1, 65, 32))
    for causal in (False, True):
        yield GpuCase("causal attention" if causal else "attention", F.causal_attention if causal else F.attention,
                      _heads, heads, small, (0, 0, 0), _scaled_dot_product(causal), _plain_attention(causal), "SDPA",
                      rtol=1e-2, kind="matrix")
    yield GpuCase("RMSNorm + GEMM", F.rmsnorm_gemm, _pair, ((1024, 1024, 1024),), ((5, 33, 17),), (0, None),
                  lambda t, x, w: t.nn.functional.rms_norm(x, x.shape[-1:], None, 1e-6) @ w, rtol=1e-3, kind="matrix")


def _pair(rng: np.random.Generator, size: Size) -> list[Any]:
    m, k, n = size
    return [_normal(rng, m, k), _normal(rng, k, n)]


def _scaled_dot_product(causal: bool) -> Peer:
    return lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None],
                                                                         is_causal=causal)[0]


def _plain_attention(causal: bool) -> Peer:
    """What a user writes, for the compiler."""

    def attend(t: Any, q: Any, k: Any, v: Any) -> Any:
        s = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        if causal:
            s = s.masked_fill(t.ones(s.shape[-2:], dtype=t.bool, device=s.device).triu(1), -t.inf)
        return t.softmax(s, -1).to(q.dtype) @ v

    return attend


FAMILIES: tuple[Callable[[], Iterator[GpuCase]], ...] = (_rows, _products)


def cases() -> list[GpuCase]:
    """All of them, in the order of the table."""
    return [case for family in FAMILIES for case in family()]
