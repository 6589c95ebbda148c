"""Predicted times of plans: beside recorded measurements, and what a schedule must cost."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fused_examples import TILES, attention, softmax

from redfuser.codegen import build
from redfuser.extract import Options, Profile, plan
from redfuser.extract.device import CPU_SLOTS, GPU_SLOTS, GPU_SPECIAL, Device
from redfuser.extract.plan_time import predict_plan
from redfuser.extract.roofline import predict, work_on
from redfuser.extract.work import CLASSES, work
from redfuser.ir import Load, Out, op
from redfuser.runtime.library import workspace_bytes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
AVX2 = Profile.generic(32)


@pytest.fixture(scope="module")
def model():
    if not (BENCHMARKS / "model.py").exists():
        pytest.skip("an sdist has no benchmarks")
    spec = importlib.util.spec_from_file_location("model_benchmark", BENCHMARKS / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_benchmark"] = module
    spec.loader.exec_module(module)
    return module


def test_predictions_rank_what_was_measured(model):
    """The recorded times, predicted anew for the machine they were taken on."""
    from scipy.stats import spearmanr

    recorded = json.loads((BENCHMARKS / "results" / "model.json").read_text())
    measured = {p["plan"]: p["measured us"] for p in recorded["plans"]}
    profile = Profile(**recorded["machine"]["profile"])
    found = {}
    for group, case, sizes, options in model.plans():
        seconds = predict_plan(model.planned(case, sizes, options, profile), sizes).seconds
        found[model.titled(case, sizes, options)] = group, seconds * 1e6
    assert found.keys() == measured.keys()
    assert len(found) >= 50

    def rank(group=None):
        names = [n for n, (g, _) in found.items() if group in (None, g)]
        return spearmanr([found[n][1] for n in names], [measured[n] for n in names]).statistic

    assert rank() > 0.95
    assert rank("held out") > 0.93
    ratios = sorted(measured[n] / p for n, (_, p) in found.items())
    assert 0.7 < np.median(ratios) < 1.4
    assert 0.2 < ratios[0] < ratios[-1] < 5


def time_of(fused, sizes, options=None, layouts=None, profile=AVX2):
    return predict_plan(plan(fused, sizes, profile, layouts, "float32", options), sizes).seconds


def test_what_a_schedule_costs():
    long, heads = {"p": 64, "n": 131_072}, {"h": 8, "i": 512, "n": 512, "k": 64, "d": 64}
    assert time_of(softmax(), long, Options(block=64)) > 1.1 * time_of(softmax(), long, Options(block=4096))
    one_row = {"p": 1, "n": 4_000_000}
    assert time_of(softmax(), one_row, Options(chunk=0)) > 1.3 * time_of(softmax(), one_row)
    square = {"p": 1024, "n": 1024}
    across = {"x": "p", "o": "p"}
    assert time_of(softmax(), square, Options(strategy="rows"), across) > 5 * time_of(softmax(), square)
    best = time_of(attention(), heads)
    assert time_of(attention(), heads, Options(register_tile=(1, 1))) > 2 * best
    assert time_of(attention(), heads, Options(register_tile=(8, 3))) > 1.3 * best  # it spills
    assert time_of(attention(), heads, Options(block=16)) > 1.2 * best
    assert time_of(attention(), heads, Options(strategy="rows")) > 10 * best
    assert time_of(attention(mask="causal"), heads) < 0.7 * best
    one = AVX2.with_fields(threads=1)
    assert 1.6 < time_of(attention(), heads, profile=one) / best < 2.1


def test_a_function_of_the_c_library_costs_a_cpu_more_and_a_gpu_nothing():
    def with_(fn):
        base = softmax()
        outs = tuple(Out(o.name, o.axes, op(fn, Load("x", ("p", "n"))), o.dtype) for o in base.cascade.outs)
        return replace(base, cascade=replace(base.cascade, outs=outs))

    sizes = {"p": 64, "n": 1024}
    assert work(with_("tanh"), sizes).operations["libm"] == 64 * 1024
    assert set(CPU_SLOTS) == set(GPU_SLOTS) == set(CLASSES)
    assert GPU_SLOTS["libm"] == GPU_SLOTS["special"]
    assert GPU_SPECIAL["libm"] == GPU_SPECIAL["special"]
    fast, slow = with_("log"), with_("tanh")
    gpu, cpu = Device.load("h100"), Device.load("avx2")
    times = [predict(work_on(gpu, f, sizes), gpu).times for f in (fast, slow)]
    assert times[0] == times[1]
    on_cpu = [predict(work_on(cpu, f, sizes), cpu).seconds for f in (fast, slow)]
    assert on_cpu[1] > 5 * on_cpu[0]
    assert time_of(slow, sizes) > 5 * time_of(fast, sizes)


@pytest.mark.parametrize("name", [n for n in TILES if n.startswith("attention") and n != "attention_scores"])
def test_attention_needs_memory_for_rows_not_for_scores(name):
    found = []
    for n in (8192, 16384):
        sizes = {"h": 1, "i": n, "p": n, "n": n, "k": 64, "d": 64}
        kernel = build(plan(TILES[name]("float32"), sizes, AVX2))
        found.append(workspace_bytes(kernel, sizes, 2))
    assert found[1] <= 2 * found[0]
    assert found[1] < 4 * 16384**2 / 64
