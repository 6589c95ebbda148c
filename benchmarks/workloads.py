"""Four workloads side by side on this CPU: naive, PyTorch eager and compiled, fused; and what each idea is worth.

    python benchmarks/workloads.py [--only REGEX] [--seconds S] [--json FILE] [--markdown]

Shapes are stand-ins: heads, head sizes, experts and widths are those of the models named, batches and lengths what a
CPU does in a moment. All candidates of a row take turns, one call at a time; times are medians. Bytes and passes are
those of the report, times for GPUs its predictions by the roofline of the fused form (no GPU was used). The ablations
change one decision of the plan at a time.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cpu import OURS, interleaved  # pyright: ignore[reportAttributeAccessIssue]  # not tests/cpu
from families import attention, quantised, routing
from model import Entry, kernel, measure

import redfuser as rf
from redfuser.extract import Options

GPUS = ("a10", "h800", "h200")


@dataclass(frozen=True)
class Row:
    """One workload at one shape. torch: the same on tensors, written with PyTorch's operators."""

    name: str
    fn: Callable[..., Any]
    make: Callable[[np.random.Generator], Sequence[Any]]
    torch: Callable[..., Any]
    fuse: Mapping[str, Any]


def _normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Sequence[Any]]:
    return lambda rng: [rng.standard_normal(s, dtype=np.float32) for s in shapes]


def _heads(h: int, n: int, d: int) -> Callable[[np.random.Generator], Sequence[Any]]:
    return _normal(*[(1, h, n, d)] * 3)


def _sdpa(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v)


def _latent(q: Any, cache: Any, scale: float) -> Any:
    return (q @ cache.mT * scale).softmax(-1) @ cache[..., :512]


def _route(x: Any, gate: Any, k: int) -> Any:
    return tuple((x @ gate).softmax(-1).topk(k))


def _quantise(x: Any, w: Any, scale_w: Any) -> Any:
    import torch

    top = x.abs().amax(-1, keepdim=True)
    scale = torch.where(top > 0, top, 1) / 448
    return (x / scale).to(torch.float8_e4m3fn).to(x.dtype) @ w.to(x.dtype) * scale * scale_w


def _e4m3(rng: np.random.Generator) -> Sequence[Any]:
    import ml_dtypes

    x, w, s = _normal((128, 2048), (2048, 512), (512,))(rng)
    return [x, w.astype(ml_dtypes.float8_e4m3fn), s]


def rows() -> Iterator[Row]:
    """The workloads."""
    for name, h, n, d in (("BERT", 12, 512, 64), ("ViT", 12, 197, 64), ("LLaMA-65B", 64, 256, 128)):
        yield Row(f"attention, {name} ({h} heads, {n} x {d})", attention.heads_first, _heads(h, n, d), _sdpa, {})
    yield Row("latent attention, DeepSeek-R1 (128 heads, 576/512, 1024 cached)", attention.latent_cache,
              lambda rng: [*_normal((1, 128, 576), (1, 1024, 576))(rng), 192**-0.5], _latent, {})
    for name, width, e, k in (("Switch", 768, 128, 1), ("ERNIE", 2560, 64, 6), ("DeepSeek-V2-Lite", 2048, 64, 6),
                              ("Qwen3", 2048, 128, 8)):
        yield Row(f"routing, {name} (256 tokens x {width}, {e} experts, top-{k})", partial(routing.softmax_topk, k=k),
                  _normal((256, width), (width, e)), partial(_route, k=k), {})
    yield Row("e4m3 by token and product (128 x 2048 x 512)", quantised.e4m3_product, _e4m3, _quantise, {})
    yield Row("the same, requantised in one pass", quantised.e4m3_product, _e4m3, _quantise,
              {"allow": ("requantize",)})


def _error(found: Any, exact: Any) -> float:
    """Largest error relative to the largest value; share of wrong ones for integers."""
    if exact.dtype.kind != "f":
        return float(np.mean(found != exact))
    return float(np.max(np.abs(found.astype("f8") - exact)) / np.max(np.abs(exact)))


def _tensors(args: Sequence[Any]) -> list[Any]:
    import torch

    return [a.view(torch.float8_e4m3fn) if isinstance(a, torch.Tensor) and a.dtype == torch.uint8 else a
            for a in (torch.from_numpy(a.view("u1") if a.dtype.itemsize == 1 else a) if isinstance(a, np.ndarray) else a
                      for a in args)]


def run(row: Row, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    args = row.make(np.random.default_rng(0))
    fused = rf.fuse(row.fn, **row.fuse)
    found = fused(*args)
    many = isinstance(found, tuple)
    outs = list(found) if many else [found]
    wanted = row.fn(*(a.astype("f8") if isinstance(a, np.ndarray) and a.dtype == np.float32 else a for a in args))
    error = max(_error(a, np.asarray(b)) for a, b in zip(outs, wanted if many else [wanted], strict=True))
    report = fused.explain(*args)
    out = tuple(outs) if many else outs[0]
    candidates: dict[str, Callable[[], Any]] = {OURS: lambda: fused(*args, out=out), "naive": lambda: row.fn(*args)}
    failed = {}
    for name in ("eager", "compiled"):
        try:
            candidates[name] = _by_torch(row, _tensors(args), name == "compiled")
        except Exception as problem:
            failed[name] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]
    samples = interleaved(candidates, seconds)
    predicted = {g: sum(c.prediction.seconds for c in fused.explain(*args, device=g).cascades) for g in GPUS}
    return {"case": row.name, "ms": {n: round(statistics.median(s) * 1e3, 4) for n, s in samples.items()},
            "bytes": dict(report.bytes), "verdict": str(report.verdict), "passes": report.passes,
            "passes before": report.passes_before, "error": error, "failed": failed,
            "predicted us": {g: round(s * 1e6, 2) for g, s in predicted.items()}}


def _by_torch(row: Row, tensors: Sequence[Any], compiled: bool) -> Callable[[], Any]:
    """A call of PyTorch's, which has run once."""
    import torch

    torch._dynamo.reset()
    fn: Any = torch.compile(row.torch, dynamic=False) if compiled else row.torch

    def call() -> Any:
        with torch.no_grad():
            return fn(*tensors)

    call()
    return call


# ---- what each idea is worth


def ablations() -> Iterator[tuple[str, str, Entry]]:
    """(question, answer, kernel)."""
    rows: dict[str, int] = {"p": 512, "n": 4096}
    for block in (4096, 64, 512, 2048):
        yield ("incremental or whole rows, softmax 512 x 4096",
               "whole rows" if block == rows["n"] else f"incremental, blocks of {block}",
               kernel("softmax", rows, Options(block=block), ""))
    long = {"p": 2, "n": 2_000_000}
    for words, options in (("one segment per row", Options(chunk=0)),
                           *((f"segments of {c}", Options(chunk=c)) for c in (2**14, 2**16, 2**18))):
        yield "segments and waves, moments 2 x 2000000", words, kernel("moments", long, options, "")
    heads = {"h": 8, "i": 1024, "n": 1024, "k": 64, "d": 64}
    levels = (("lane: element by element", Options(strategy="rows")), ("cache: tiles, blocks of 32", Options(block=32)),
              ("cache: tiles, blocks of 256", Options(block=256)), ("default", Options()))
    for words, options in levels:
        yield "fusion level, attention 8 x 1024 x 64", words, kernel("attention", heads, options, "")
    decode = {"k": 128, "n": 32768, "d": 128}
    yield "split stream, one query, 32768 keys", "default (split)", kernel("decode", decode, Options(), "")
    yield "split stream, one query, 32768 keys", "one segment", kernel("decode", decode, Options(chunk=0), "")


def ablate(seconds: float) -> list[dict[str, Any]]:
    """All of them, kernels of one question by turns."""
    found = list(ablations())
    measure([e for _, _, e in found], seconds)
    return [{"question": q, "answer": a, "ms": round(e.measured * 1e3, 4), "predicted ms": round(e.predicted * 1e3, 4)}
            for q, a, e in found]


def markdown(result: Mapping[str, Any]) -> str:
    """Both tables."""
    lines = ["| workload | naive ms | eager | compiled | fused | bytes before/after | passes | error | " +
             " | ".join(f"{g} us" for g in GPUS) + " |", "|---" * (8 + len(GPUS)) + "|"]
    for r in result["rows"]:
        ms = [f"{r['ms'][n]:.3g}" if n in r["ms"] else "-" for n in ("naive", "eager", "compiled", OURS)]
        ratio = r["bytes"]["before"] / r["bytes"]["after"]
        lines.append(f"| {r['case']} | {' | '.join(ms)} | {ratio:.1f} | {r['passes before']} to {r['passes']} | "
                     f"{r['error']:.1e} | {' | '.join(str(t) for t in r['predicted us'].values())} |")
    lines += ["", "| question | answer | ms | predicted |", "|---|---|---|---|"]
    lines += [f"| {a['question']} | {a['answer']} | {a['ms']:.3g} | {a['predicted ms']:.3g} |"
              for a in result["ablations"]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads whose name matches")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each workload")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    found = []
    for row in rows():
        if re.search(given.only, row.name):
            found.append(run(row, given.seconds))
            print(json.dumps(found[-1]), flush=True)
    result = {"command": " ".join(["python benchmarks/workloads.py", *sys.argv[1:]]), "rows": found,
              "ablations": [] if given.only else ablate(given.seconds / 10)}
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    if given.markdown:
        print(markdown(result))


if __name__ == "__main__":
    main()
