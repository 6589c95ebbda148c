"""What the CPU benchmark runs: each case with its arguments, its peers, its work, and what is aimed at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cpu_functions as F
import numpy as np

EXPONENTIAL = 30
"""Floating-point operations that one exponential is worth: a polynomial of degree 5 and what surrounds it."""

Peer = Callable[[Sequence[Any], Sequence[Any]], Callable[[], Any]]
"""Makes a call from the arrays and the output arrays."""


@dataclass
class Case:
    """One row of the table.

    arguments  makes the arrays
    bytes      read and written once; `written` of them are written
    flops      of matrix products and arithmetic, exponentials included
    bar        (per cent of the limit, ratio to the best peer) aimed at
    rtol       error allowed against NumPy in float64, relative to the largest value
    reference  computes the same as `fn` in less memory, to be checked against
    scores     what the positions among the results choose from: those of equal scores are as good
    checked_peers  peers that are checked as well
    """

    name: str
    fn: Callable[..., Any]
    arguments: Callable[[np.random.Generator], list[Any]]
    flops: float
    bar: tuple[float, float]
    peers: Mapping[str, Peer] = field(default_factory=dict)
    rtol: float = 1e-4
    reference: Callable[..., Any] | None = None
    scores: Callable[..., Any] | None = None
    checked_peers: tuple[str, ...] = ()


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Any]]:
    """Standard normal float32 arrays."""
    return lambda rng: [rng.standard_normal(s, dtype=np.float32) for s in shapes]


def bfloat16(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[Any]]:
    """The same as tensors of bfloat16."""

    def make(rng: np.random.Generator) -> list[Any]:
        import torch

        return [torch.from_numpy(rng.standard_normal(s, dtype=np.float32)).bfloat16() for s in shapes]

    return make


# ---- peers


def numpy_peer(fn: Callable[..., Any]) -> Peer:
    return lambda args, outs: lambda: fn(*args)


def torch_peer(write: Callable[[Sequence[Any], Sequence[Any]], Any]) -> Peer:
    """`write(tensors, output tensors)` runs eagerly."""

    def make(args: Sequence[Any], outs: Sequence[Any]) -> Callable[[], Any]:
        import torch

        given = [a if isinstance(a, torch.Tensor) else torch.from_numpy(a) for a in args]
        made = [o if isinstance(o, torch.Tensor) else torch.from_numpy(o) for o in outs]
        return lambda: write(given, made)

    return make


def compiled_peer(fn: Callable[..., Any]) -> Peer:
    """`fn` of tensors, by torch.compile."""

    def make(args: Sequence[Any], outs: Sequence[Any]) -> Callable[[], Any]:
        import torch

        torch._dynamo.reset()
        run = torch.compile(fn, dynamic=False)
        given = [a if isinstance(a, torch.Tensor) else torch.from_numpy(a) for a in args]
        return lambda: run(*given)

    return make


def jax_peer(fn: Callable[..., Any]) -> Peer:
    """The NumPy text under jax.jit."""

    def make(args: Sequence[Any], outs: Sequence[Any]) -> Callable[[], Any]:
        import jax  # pyright: ignore[reportMissingImports]
        import jax.numpy as jnp  # pyright: ignore[reportMissingImports]

        def traced(*values: Any) -> Any:
            kept = F.np
            F.np = jnp  # type: ignore[misc]
            try:
                return fn(*values)
            finally:
                F.np = kept  # type: ignore[misc]

        run = jax.jit(traced)
        given = [jnp.asarray(a) for a in args]
        return lambda: jax.block_until_ready(run(*given))

    return make


def numba_peer(name: str) -> Peer:
    def make(args: Sequence[Any], outs: Sequence[Any]) -> Callable[[], Any]:
        import numba_peers

        run = getattr(numba_peers, name)
        return lambda: run(*args, *outs)

    return make


def masked_peer(keep: Callable[[Any, Any], Any]) -> Peer:
    """PyTorch's attention with a mask of truth values, made before; `keep(i, n)` says which keys n a row i reads."""

    def make(args: Sequence[Any], outs: Sequence[Any]) -> Callable[[], Any]:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        q, k, v = map(torch.from_numpy, args)
        mask = keep(torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None, :])
        return lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return make


def flex_peer(keep: Callable[[Any, Any], Any] | None) -> Peer:
    """FlexAttention, compiled; its block mask is made before."""

    def make(args: Sequence[Any], outs: Sequence[Any]) -> Callable[[], Any]:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch._dynamo.reset()
        run: Any = torch.compile(flex_attention, dynamic=False)
        q, k, v = map(torch.from_numpy, args)
        mask = None
        if keep is not None:
            chosen, rows, keys = keep, q.shape[-2], k.shape[-2]
            mask = create_block_mask(lambda b, h, i, n: chosen(i, n), None, None, rows, keys, device="cpu")
        return lambda: run(q, k, v, block_mask=mask)

    return make


def by_heads(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` of one head after the other."""
    return lambda *args: np.concatenate([fn(*(a[:, h : h + 1] for a in args)) for h in range(args[0].shape[1])], 1)


def usual(fn: Callable[..., Any], eager: Any = None, compiled: Any = None, numba: str = "", jax: bool = True,
          numpy: bool = True) -> dict[str, Peer]:
    """The peers of a case by name."""
    peers: dict[str, Peer] = {}
    if numpy:
        peers["numpy"] = numpy_peer(fn)
    if eager is not None:
        peers["torch"] = torch_peer(eager)
    if compiled is not None:
        peers["torch.compile"] = compiled_peer(compiled)
    if jax:
        peers["jax"] = jax_peer(fn)
    if numba:
        peers["numba"] = numba_peer(numba)
    return peers


# ---- rows


def _rows() -> Iterator[Case]:
    import torch
    from torch.nn import functional as T

    long, square = (64, 131072), (4096, 4096)
    bars = {"softmax": ((75, 2.5), (60, 2)), "logsumexp": ((75, 3), (55, 3.5)), "layernorm": ((80, 1.5), (60, 1.3)),
            "variance": ((85, 1.45), (70, 3))}
    for i, (m, n) in enumerate((square, long)):
        size, title = m * n, f"{m}x{n}"
        yield Case(f"softmax {title}", F.softmax, normal((m, n)), size * (EXPONENTIAL + 3), bars["softmax"][i],
                   usual(F.softmax, lambda a, o: torch.softmax(a[0], -1, out=o[0]), lambda x: torch.softmax(x, -1),
                         "softmax"))
        yield Case(f"logsumexp {title}", F.logsumexp, normal((m, n)), size * (EXPONENTIAL + 2), bars["logsumexp"][i],
                   usual(F.logsumexp, lambda a, o: torch.logsumexp(a[0], -1, out=o[0]),
                         lambda x: torch.logsumexp(x, -1), "logsumexp"))
        yield Case(f"layernorm {title}", F.layernorm, normal((m, n), (n,), (n,)), size * 7, bars["layernorm"][i],
                   usual(F.layernorm,
                         lambda a, o: torch.ops.aten.native_layer_norm.out(
                             a[0], [a[0].shape[-1]], a[1], a[2], 1e-5, out0=o[0], out1=torch.empty(0),
                             out2=torch.empty(0)),
                         lambda x, w, b: T.layer_norm(x, x.shape[-1:], w, b), "layernorm"))
        yield Case(f"variance {title}", F.variance, normal((m, n)), size * 4, bars["variance"][i],
                   usual(F.variance, lambda a, o: torch.var(a[0], -1, correction=0, out=o[0]),
                         lambda x: torch.var(x, -1, correction=0), "variance"))
    m, n = square
    yield Case("rmsnorm 4096x4096", F.rmsnorm, normal((m, n), (n,)), m * n * 4, (82, 2.5),
               usual(F.rmsnorm, lambda a, o: T.rms_norm(a[0], a[0].shape[-1:], a[1], 1e-6),
                     lambda x, w: T.rms_norm(x, x.shape[-1:], w, 1e-6), "rmsnorm"))
    yield Case("cross-entropy 512x50257", F.cross_entropy,
               lambda rng: [*normal((512, 50257))(rng), rng.integers(0, 50257, 512)], 512 * 50257 * (EXPONENTIAL + 2),
               (75, 3.5),
               usual(F.cross_entropy, lambda a, o: T.cross_entropy(a[0], a[1], reduction="none"),
                     lambda x, t: T.cross_entropy(x, t, reduction="none")))
    for n, ratio in ((64, 6), (256, 8.5)):
        yield Case(f"softmax top-8 16384x{n}", F.router, normal((16384, n)), 16384 * n * (EXPONENTIAL + 3), (0, ratio),
                   usual(F.router, lambda a, o: torch.topk(torch.softmax(a[0], -1), 8, out=tuple(o)),
                         lambda x: torch.topk(torch.softmax(x, -1), 8), numpy=False, jax=False), scores=F.softmax)
    yield Case("cosine 4096x4096", F.cosine, normal(square, square), 4096**2 * 6, (95, 1.8),
               usual(F.cosine, lambda a, o: T.cosine_similarity(a[0], a[1], -1),
                     lambda x, y: T.cosine_similarity(x, y, -1), "cosine"))
    yield Case("pearson 16M", F.pearson, normal((2**24,), (2**24,)), 2**24 * 8, (88, 2.7),
               usual(F.pearson, None, lambda x, y: torch.corrcoef(torch.stack([x, y]))[0, 1], "pearson"), rtol=1e-3)
    yield Case("variance 100M", F.variance, normal((10**8,)), 10**8 * 4, (85, 1.1),
               usual(F.variance, lambda a, o: torch.var(a[0], -1, correction=0, out=o[0]),
                     lambda x: torch.var(x, -1, correction=0), "variance_flat", numpy=False))
    yield Case("moments to 4, 4096x4096", F.moments, normal(square), 4096**2 * 8, (80, 2), usual(F.moments))


# ---- cascades that no peer fuses


def _unfused() -> Iterator[Case]:
    square = (4096, 4096)
    size = 4096**2
    for fn, count, work in ((F.entropy, 1, EXPONENTIAL + 5), (F.softmax_variance, 2, EXPONENTIAL + 8),
                            (F.heat_capacity, 1, EXPONENTIAL + 7), (F.skew_and_kurtosis, 1, 9),
                            (F.kl_divergence, 2, 2 * EXPONENTIAL + 6)):
        name = fn.__name__
        hand = name if name != "kl_divergence" else ""
        yield Case(f"{name} 4096x4096", fn, normal(*[square] * count), size * work, (0, 3), usual(fn, numba=hand))


# ---- attention


def _attention() -> Iterator[Case]:
    import torch
    from torch.nn import functional as T

    def sdpa(causal: bool) -> Any:
        return lambda a, o: T.scaled_dot_product_attention(*a, is_causal=causal)

    def exponentials(rows: float) -> float:
        return rows * (EXPONENTIAL + 3)

    for n, d, h in ((1024, 64, 8), (1024, 128, 8), (4096, 64, 4), (4096, 128, 4)):
        shapes = [(1, h, n, d)] * 3
        pairs = h * n * n
        for causal in (False, True):
            fn = F.causal_attention if causal else F.attention
            part = (n + 1) / 2 / n if causal else 1
            peers = {"torch": torch_peer(sdpa(causal)), "jax": jax_peer(fn)}
            if n == 1024:
                peers |= {"numpy": numpy_peer(fn), "flex": flex_peer(F.below if causal else None)}
            yield Case(f"{'causal' if causal else 'dense'} {h}x{n}x{d}", fn, normal(*shapes),
                       part * (pairs * 4 * d + exponentials(pairs)), (74, 1.5) if causal else (77, 1.2), peers)
    for d in (64, 128):
        yield Case(f"dense bf16 8x1024x{d}", F.attention, bfloat16(*[(1, 8, 1024, d)] * 3),
                   8 * 1024**2 * (4 * d + EXPONENTIAL), (0, 1), {"torch": torch_peer(sdpa(False))}, rtol=2e-2)
    yield Case("window 128 8x4096x64", F.window_attention, normal(*[(1, 8, 4096, 64)] * 3),
               8 * 4096 * 128 * (4 * 64 + EXPONENTIAL), (0, 2),
               {"torch": masked_peer(F.in_window), "flex": flex_peer(F.in_window)},
               reference=by_heads(F.window_attention), checked_peers=("torch", "flex"))
    shapes = [(4, 8, 4, 128), (4, 8, 8192, 128), (4, 8, 8192, 128)]
    work = 4 * 32 * 8192 * (4 * 128 + EXPONENTIAL)
    yield Case("GQA decode float32", F.attention, normal(*shapes), work, (80, 2.3),
               {"torch": torch_peer(sdpa(False)), "jax": jax_peer(F.attention)})
    yield Case("GQA decode bfloat16", F.attention, bfloat16(*shapes), work, (75, 2.7),
               {"torch": torch_peer(sdpa(False))}, rtol=2e-2)
    for heads, bar in ((16, (50, 1.5)), (128, (70, 1.1))):
        work = 2 * heads * 4096 * (2 * (576 + 512) + EXPONENTIAL)
        yield Case(f"MLA decode H{heads}", F.latent_decode, normal((2, heads, 576), (2, 4096, 576)), work, bar,
                   {"numpy": numpy_peer(F.latent_decode), "jax": jax_peer(F.latent_decode),
                    "torch": torch_peer(lambda a, o: T.scaled_dot_product_attention(
                        a[0][:, None], a[1][:, None], a[1][:, None, :, :512], scale=192**-0.5))})
    torch.set_grad_enabled(False)


# ---- products with a prologue or an epilogue


def _products() -> Iterator[Case]:
    import torch
    from torch.nn import functional as T

    shapes = [(1024, 4096), (4096, 4096)]
    work = 2 * 1024 * 4096**2
    yield Case("RMSNorm + GEMM 1024x4096x4096", F.rmsnorm_gemm, normal(*shapes), work, (80, 1),
               usual(F.rmsnorm_gemm, lambda a, o: torch.mm(T.rms_norm(a[0], a[0].shape[-1:], None, 1e-6), a[1],
                                                           out=o[0])))
    yield Case("absmax-quantise + GEMM 1024x4096x4096", F.quantised_gemm, normal(*shapes), work, (80, 1),
               usual(F.quantised_gemm), rtol=2e-3)  # near-ties round otherwise in float64
    yield Case("gate 4096x2048x256 + top-8", F.gate, normal((4096, 2048), (2048, 256)),
               2 * 4096 * 2048 * 256 + 4096 * 256 * EXPONENTIAL, (78, 1.3),
               usual(F.gate, lambda a, o: torch.topk(torch.softmax(a[0] @ a[1], -1), 8, out=tuple(o)), jax=False,
                     numpy=False), scores=lambda x, w: F.softmax(x @ w))


# ---- calls


def _small() -> Iterator[Case]:
    import torch

    yield Case("softmax 32x128", F.softmax, normal((32, 128)), 32 * 128 * 33, (0, 1),
               usual(F.softmax, lambda a, o: torch.softmax(a[0], -1, out=o[0]), lambda x: torch.softmax(x, -1),
                     "softmax"))


def cases() -> Iterator[Case]:
    """All of them, in the order of the table."""
    for family in (_rows, _unfused, _attention, _products, _small):
        yield from family()
