"""Golden files: what every level prints for five cascades, on a fixed machine profile.

`pytest --accept` rewrites them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import functions as F
import pytest

import redfuser as rf
from redfuser import pipeline
from redfuser.codegen.c import CTarget, print_c
from redfuser.codegen.cuda import CudaTarget, print_cuda
from redfuser.extract import Profile

GOLDEN = Path(__file__).parent / "golden"
ROWS = (4096, 1000)
HEADS = (8, 1024, 64)

CASES: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "softmax": (F.softmax, {"x": ROWS}),
    "logsumexp": (F.logsumexp, {"x": ROWS}),
    "variance": (F.variance, {"x": ROWS}),
    "layernorm": (F.layernorm, {"x": ROWS, "weight": ROWS[1:], "bias": ROWS[1:]}),
    "causal-attention": (F.causal_attention, {"q": HEADS, "k": HEADS, "v": HEADS}),
}


AS_CUDA = ("softmax", "variance")


def levels(fn: Callable[..., Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """The text of every level, for 32-byte vectors whatever machine this is."""
    specs = {name: rf.spec(shape, "float32") for name, shape in shapes.items()}
    traced = pipeline.trace_step(fn, specs, fn.__name__)
    term = pipeline.term_step(traced)
    [cascade] = pipeline.partition_step(term).cascades
    options = pipeline.Options()
    fused = pipeline.fused_of(cascade, pipeline.fusion_step(cascade, options), options)
    lengths = {a: n for t in term.tensors for a, n in zip(t.axes, shapes[t.name], strict=True)}
    layouts = {x.name: x.axes[-1] for x in (*cascade.tensors, *cascade.outs) if x.axes}
    plan = pipeline.plan_step(fused, lengths, layouts, "float32", Profile.generic(32))
    kernel = pipeline.tile_step(plan)
    cuda = {}
    if fn.__name__ in AS_CUDA:
        gpu = pipeline.gpu_plan_step(fused, lengths, layouts, "float32", "a100")
        cuda["kernel.cu"] = print_cuda(pipeline.tile_step(gpu), CudaTarget.of("a100"))
    return cuda | {
        "1-traced.txt": f"{traced}\n\n{term}\n",
        "2-fusion.txt": f"{fused}\n",
        "3-tiles.txt": f"{plan}\n\n{kernel}\n",
        "kernel.c": print_c(kernel, CTarget(32)),
    }


@pytest.mark.parametrize("case", CASES)
def test_every_level_prints_what_was_accepted(case: str, accept: bool) -> None:
    folder = GOLDEN / case
    printed = levels(*CASES[case])
    if accept:
        folder.mkdir(exist_ok=True)
        for name, text in printed.items():
            (folder / name).write_text(text, encoding="utf-8")
    for name, text in printed.items():
        accepted = (folder / name).read_text(encoding="utf-8")
        assert text == accepted, f"{case}/{name} changed; if it is right, run: pytest {Path(__file__).name} --accept"
    assert {p.name for p in folder.iterdir()} == set(printed)
