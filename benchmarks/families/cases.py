"""The workload family: each function with arguments of a size, and a reference that is computed in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from families import attention, losses, quantised, routing

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """One function of the family.

    fn         plain NumPy
    make       arguments from a generator and sizes; floating ones in double precision
    reference  the same by PyTorch's own operator, given double precision tensors; None: `fn` itself in double
               precision
    half       whether it is also run on float16 and bfloat16 arguments
    fuse       arguments of `rf.fuse`
    choices    positions of results that are indices chosen by values
    passes     sweeps over the inputs that are needed for all reductions
    """

    name: str
    family: str
    fn: Callable[..., Any]
    make: Callable[[np.random.Generator, Mapping[str, int]], Sequence[Any]]
    reference: Callable[..., Any] | None = None
    half: bool = True
    fuse: Mapping[str, Any] = ()  # type: ignore[assignment]
    choices: tuple[int, ...] = ()
    passes: int = 1

    @property
    def title(self) -> str:
        """The first sentence of the function's docstring."""
        return (self.fn.__doc__ or "").partition(". ")[0].split("\n")[0].rstrip(".")


RAGGED: Mapping[str, int] = {"b": 2, "h": 4, "g": 2, "n": 19, "m": 37, "d": 24, "t": 11, "e": 29, "v": 53, "w": 256}
"""Sizes of tests: no two of them alike, none a multiple of a tile. w: a multiple of a block of 128."""


def _q_k_v(rng: np.random.Generator, s: Mapping[str, int], kv: str = "bhm") -> list[Array]:
    keys = [s[a] for a in kv]
    return [rng.standard_normal((s["b"], s["h"], s["n"], s["d"])), rng.standard_normal((*keys, s["d"])),
            rng.standard_normal((*keys, s["d"]))]


def _arrays(*shapes: str) -> Callable[[np.random.Generator, Mapping[str, int]], list[Any]]:
    return lambda rng, s: [rng.standard_normal([s[a] for a in shape]) for shape in shapes]


def _plus(*more: Callable[[np.random.Generator, Mapping[str, int]], Any]) -> Callable[..., list[Any]]:
    return lambda rng, s: [*_q_k_v(rng, s), *(make(rng, s) for make in more)]


def _int8(rng: np.random.Generator, s: Mapping[str, int]) -> Array:
    return rng.integers(-127, 128, (s["d"], s["v"])).astype("int8")


def _e4m3(rng: np.random.Generator, s: Mapping[str, int]) -> Array:
    import ml_dtypes

    return rng.standard_normal((s["d"], s["v"])).astype(ml_dtypes.float8_e4m3fn)


def _labels(axis: str, missing: float = 0) -> Callable[[np.random.Generator, Mapping[str, int]], Array]:
    def make(rng: np.random.Generator, s: Mapping[str, int]) -> Array:
        found = rng.integers(0, s[axis], s["t"])
        return np.where(rng.random(s["t"]) < missing, -100, found)

    return make


# ---- references by PyTorch


def _sdpa(**keywords: Any) -> Callable[..., Any]:
    def run(q: Any, k: Any, v: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        return scaled_dot_product_attention(q, k, v, **keywords)

    return run


def _masked(mask: Callable[..., Any]) -> Callable[..., Any]:
    """Attention with a mask or bias made from the shapes and the further arguments."""

    def run(q: Any, k: Any, v: Any, *more: Any) -> Any:
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        return scaled_dot_product_attention(q, k, v, attn_mask=mask(i, j, *more))

    return run


def _tokens_first(q: Any, k: Any, v: Any) -> Any:
    return _sdpa()(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def _cross_entropy(**keywords: Any) -> Callable[..., Any]:
    def run(logits: Any, labels: Any) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, labels, **keywords)

    return run


def _kl(p: Any, q: Any) -> Any:
    from torch.nn.functional import kl_div

    return kl_div(q.log_softmax(-1), p.log_softmax(-1), log_target=True, reduction="none").sum(-1)


def _gradients(forward: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Gradients of the first `count` arguments by autograd; the last argument is the gradient of the result."""

    def run(*arguments: Any) -> Any:
        given = [a.clone().requires_grad_() if i < count else a for i, a in enumerate(arguments[:-1])]
        forward(*given).backward(arguments[-1])
        found = tuple(a.grad for a in given[:count])
        return found if count > 1 else found[0]

    return run


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x, x.shape[-1:], weight, bias)


def _rms_norm(x: Any, weight: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x, x.shape[-1:], weight, 1e-6)


def _layer_norm_gradients(x: Any, weight: Any, dy: Any) -> Any:
    import torch

    return _gradients(_layer_norm, 3)(x, weight, torch.zeros_like(weight), dy)


def _stored_backward(q: Any, k: Any, v: Any, do: Any, o: Any, lse: Any) -> Any:
    return _gradients(_sdpa(), 3)(q, k, v, do)


def _stored(rng: np.random.Generator, s: Mapping[str, int]) -> list[Array]:
    q, k, v = _q_k_v(rng, s)
    return [q, k, v, rng.standard_normal(q.shape), *attention.with_lse(q, k, v)]


# ---- the family


def _attention() -> Iterator[Workload]:
    a = attention
    causal = _masked(lambda i, j: j <= i)
    yield Workload("heads first", "attention", a.heads_first, _q_k_v, _sdpa())
    yield Workload("tokens first", "attention", a.tokens_first, _arrays("bnhd", "bmhd", "bmhd"), _tokens_first)
    yield Workload("packed", "attention", a.packed,
                   lambda rng, s: [rng.standard_normal((s["b"], s["n"], 3, s["h"], s["d"]))],
                   lambda x: _tokens_first(*x.unbind(2)))
    yield Workload("grouped", "attention", a.grouped, lambda rng, s: _q_k_v(rng, s, "bgm"), _sdpa(enable_gqa=True))
    yield Workload("multi-query", "attention", a.multi_query, lambda rng, s: _q_k_v(rng, s, "bm"),
                   lambda q, k, v: _sdpa()(q, k[:, None].expand(-1, q.shape[1], -1, -1),
                                           v[:, None].expand(-1, q.shape[1], -1, -1)))
    yield Workload("causal, aligned to the start", "attention", a.causal_start, _q_k_v, causal)
    yield Workload("causal, aligned to the end", "attention", a.causal_end, _q_k_v,
                   lambda q, k, v: _masked(lambda i, j: j <= i + k.shape[-2] - q.shape[-2])(q, k, v))
    yield Workload("padding", "attention", a.padded, _plus(lambda rng, s: rng.integers(1, s["m"], s["b"])),
                   _masked(lambda i, j, n: j < n[:, None, None, None]))
    yield Workload("segments", "attention", a.segments,
                   _plus(lambda rng, s: np.sort(rng.integers(0, 3, (s["b"], s["n"]))),
                         lambda rng, s: np.arange(s["m"]) * 3 // s["m"] + np.zeros((s["b"], 1), "int64")),
                   _masked(lambda i, j, x, y: x[:, None, :, None] == y[:, None, None]))
    yield Workload("bias", "attention", a.biased, lambda rng, s: [*_q_k_v(rng, s), *_arrays("hnm")(rng, s)],
                   _masked(lambda i, j, bias: bias))
    yield Workload("ALiBi", "attention", a.alibi, lambda rng, s: [*_q_k_v(rng, s), 2.0 ** -np.arange(1, s["h"] + 1)],
                   _masked(lambda i, j, x: (x[:, None, None] * (j - i)).masked_fill(j > i, -np.inf)))
    yield Workload("window", "attention", a.window, _plus(lambda rng, s: 7),
                   _masked(lambda i, j, w: (j <= i) & (j > i - w)))
    yield Workload("prefix LM", "attention", a.prefix_lm, _plus(lambda rng, s: 9),
                   _masked(lambda i, j, p: (j <= i) | (j < p)))
    yield Workload("soft cap", "attention", a.soft_capped, _plus(lambda rng, s: 3.0))
    yield Workload("sink", "attention", a.with_sink, lambda rng, s: [*_q_k_v(rng, s), *_arrays("h")(rng, s)])
    yield Workload("sigmoid", "attention", a.sigmoid, _plus(lambda rng, s: -2.0))
    yield Workload("differential", "attention", a.differential,
                   lambda rng, s: [*_q_k_v(rng, s)[:2], *_q_k_v(rng, s), 0.3])
    yield Workload("with log-sum-exp", "attention", a.with_lse, _q_k_v)
    yield Workload("shared prefix", "attention", a.shared_prefix,
                   lambda rng, s: [_q_k_v(rng, s)[0], *_arrays("hvd", "hvd")(rng, s), *_q_k_v(rng, s)[1:]], passes=2)
    yield Workload("latent decode", "latent attention", a.latent_decode,
                   lambda rng, s: [*_arrays("bhv", "bhd", "bmv", "bmd")(rng, s), 0.1])
    yield Workload("latent, one cache", "latent attention", a.latent_cache,
                   lambda rng, s: [rng.standard_normal((s["b"], s["h"], 576)),
                                   rng.standard_normal((s["b"], s["m"], 576)), 0.04],
                   lambda q, cache, scale: _sdpa(scale=scale)(q, cache, cache[..., :512]))


def _routing() -> Iterator[Workload]:
    r = routing
    yield Workload("softmax and top-k", "routing", r.softmax_topk, _arrays("td", "de"), half=False, choices=(1,))
    yield Workload("renormalised", "routing", r.renormalised, _arrays("td", "de"), half=False, choices=(1,))
    yield Workload("sigmoid with bias", "routing", r.sigmoid_bias, _arrays("td", "de", "e"), half=False,
                   choices=(1,), passes=3)
    yield Workload("group-limited", "routing", r.group_limited, lambda rng, s: [
        rng.standard_normal((s["t"], 64)), rng.standard_normal(64)], half=False, choices=(1,), passes=4)
    yield Workload("counts and z-loss", "routing", r.with_losses, _arrays("td", "de"), half=False,
                   choices=(1, 2), passes=3)


def _quantised() -> Iterator[Workload]:
    q = quantised
    yield Workload("int8 by token, product", "quantisation", q.per_token,
                   lambda rng, s: [*_arrays("td")(rng, s), _int8(rng, s), *_arrays("v")(rng, s)], half=False, passes=2)
    yield Workload("int8 by token, product, requantised", "quantisation", q.per_token,
                   lambda rng, s: [*_arrays("td")(rng, s), _int8(rng, s), *_arrays("v")(rng, s)], half=False,
                   fuse={"allow": ("requantize",)})
    for fuse, passes in (({}, 2), ({"allow": ("requantize",)}, 1)):
        yield Workload("e4m3 by token, product" + ", requantised" * bool(fuse), "quantisation", q.e4m3_product,
                       lambda rng, s: [*_arrays("td")(rng, s), _e4m3(rng, s), *_arrays("v")(rng, s)], half=False,
                       fuse=fuse, passes=passes)
    yield Workload("int8 by block", "quantisation", q.per_block, _arrays("tw"), half=False)
    yield Workload("e4m3 by token", "quantisation", q.e4m3, _arrays("td"), half=False)
    yield Workload("e5m2 by token", "quantisation", q.e5m2, _arrays("td"), half=False)
    yield Workload("uint8 with zero point", "quantisation", q.asymmetric, _arrays("td"), half=False)
    yield Workload("RMSNorm and int8", "quantisation", q.norm_quantised, _arrays("td", "d"), half=False)
    yield Workload("RMSNorm, int8, product", "quantisation", q.norm_quantised_product,
                   lambda rng, s: [*_arrays("td", "d")(rng, s), _int8(rng, s), *_arrays("v")(rng, s)], half=False,
                   passes=2)


def _losses() -> Iterator[Workload]:
    x = losses
    yield Workload("layer norm with residual", "norms", x.layernorm_residual, _arrays("td", "td", "d", "d"),
                   lambda x, r, w, b: (_layer_norm(x + r, w, b), x + r))
    yield Workload("RMSNorm with residual", "norms", x.rmsnorm_residual, _arrays("td", "td", "d"),
                   lambda x, r, w: (_rms_norm(x + r, w), x + r))
    yield Workload("RMSNorm and product", "norms", x.rmsnorm_product, _arrays("td", "d", "dv"),
                   lambda x, w, m: _rms_norm(x, w) @ m)
    for name, fn, missing, keywords, passes in (
        ("cross-entropy", x.cross_entropy, 0, {}, 2), ("ignored labels", x.ignoring, 0.3, {}, 2),
        ("label smoothing", x.smoothed, 0, {"label_smoothing": 0.1, "reduction": "none"}, 1),
    ):
        yield Workload(name, "losses", fn,
                       lambda rng, s, missing=missing: [*_arrays("te")(rng, s), _labels("e", missing)(rng, s)],
                       _cross_entropy(**keywords), half=False, passes=passes)
    yield Workload("linear and cross-entropy", "losses", x.linear_cross_entropy,
                   lambda rng, s: [*_arrays("td", "vd")(rng, s), _labels("v")(rng, s)],
                   lambda a, w, y: _cross_entropy(reduction="none")(a @ w.T, y), half=False)
    yield Workload("KL divergence", "losses", x.kl, _arrays("te", "te"), _kl)
    yield Workload("InfoNCE", "losses", x.info_nce, _arrays("td", "td"), half=False, passes=3)


def _backward() -> Iterator[Workload]:
    x = losses
    yield Workload("softmax", "backward", x.softmax_backward, _arrays("te", "te"),
                   _gradients(lambda a: a.softmax(-1), 1))
    yield Workload("layer norm", "backward", x.layernorm_backward, _arrays("td", "d", "td"), _layer_norm_gradients,
                   half=False, passes=2)
    yield Workload("RMSNorm", "backward", x.rmsnorm_backward, _arrays("td", "d", "td"), _gradients(_rms_norm, 1))
    yield Workload("cross-entropy", "backward", x.cross_entropy_backward,
                   lambda rng, s: [*_arrays("te")(rng, s), _labels("e")(rng, s), *_arrays("t")(rng, s)],
                   lambda z, y, g: _gradients(lambda a, b: _cross_entropy(reduction="none")(a, b), 1)(z, y, g))
    yield Workload("attention, from its log-sum-exp", "backward", x.attention_backward, _stored, _stored_backward,
                   half=False, passes=3)
    yield Workload("attention, all computed again", "backward", x.attention_backward_whole,
                   lambda rng, s: [*(found := _q_k_v(rng, s)), rng.standard_normal(found[0].shape)],
                   _gradients(_sdpa(), 3), half=False, passes=2)


WORKLOADS: tuple[Workload, ...] = (*_attention(), *_routing(), *_quantised(), *_losses(), *_backward())
