"""Work, devices, predictions, the frontier and what is taken from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_variants import MOMENTS, SOFTMAX, cascade_of

from redfuser.derivation import derive_cascade
from redfuser.derivation.probe import Probe
from redfuser.derivation.run import run_fused
from redfuser.extract.device import ALIASES, Device, devices
from redfuser.extract.frontier import MOST, NOISE, Frontier, frontier, measured_forms, stated
from redfuser.extract.roofline import predict, work_on
from redfuser.extract.work import work
from redfuser.ir.contract import expected_results

SIZES = {"rows": 64, "n": 4096}


def sizes_of(cascade, rows=64, length=4096, other=32):
    return {a.name: length if a.name == cascade.axis else rows if a.name == "rows" else other for a in cascade.axes}


def attention(q, k, v):
    s = q @ k.T
    e = np.exp(s - np.max(s, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True) @ v


ATTENTION = cascade_of(attention, q=("m", "k"), k=("n", "k"), v=("n", "d"))


# -------------------------------- counting


def test_work_of_softmax_is_counted_by_hand():
    """Per element: a maximum, a subtraction, an exp, an addition, and the product with v accumulated."""
    sizes = sizes_of(SOFTMAX)
    found = work(derive_cascade(SOFTMAX).fused, sizes, corrects=False).operations
    elements = 64 * 4096
    assert found["compare"] == elements
    assert found["special"] == elements  # once, although two accumulators read it
    assert found["fma"] == pytest.approx(3 * elements, rel=1e-3)
    assert found["matmul"] == 0


def test_products_with_axes_of_their_own_are_matrix_products():
    sizes = dict.fromkeys((a.name for a in ATTENTION.axes), 16)
    sizes[ATTENTION.axis] = 4096
    found = work(derive_cascade(ATTENTION).fused, sizes)
    assert found.operations["matmul"] == 16 * 4096 * (16 + 16)
    assert found.operations["special"] >= 16 * 4096
    assert found.state == 4 * (2 + 16)  # maximum, mass and a row of values


def test_corrections_cost_more_in_shorter_blocks():
    fused = derive_cascade(SOFTMAX).fused
    by_block = [work(fused, sizes_of(SOFTMAX), block=b).total for b in (128, 512, 2048)]
    assert by_block == sorted(by_block, reverse=True)
    assert by_block[-1] > work(fused, sizes_of(SOFTMAX), corrects=False).total


def test_more_segments_mean_more_merges():
    fused = derive_cascade(SOFTMAX).fused
    by_segments = [work(fused, sizes_of(SOFTMAX), segments=s).total for s in (1, 2, 16)]
    assert by_segments == sorted(by_segments)
    assert by_segments[0] < by_segments[1]


def test_bytes_of_a_call():
    w = work(derive_cascade(MOMENTS).fused, sizes_of(MOMENTS))
    assert (w.read, w.written, w.sweeps) == (4 * 64 * 4096, 4 * 2 * 64, 1)
    assert w.row == 4 * 4096


# -------------------------------- devices and predictions


@pytest.mark.parametrize("name", devices())
def test_every_device_file_is_complete(name):
    d = Device.load(name)
    assert d.rate("float32") > d.rate("float64") > 0
    assert d.dram < d.cache
    assert d.chip > 0
    assert predict(work(derive_cascade(SOFTMAX).fused, sizes_of(SOFTMAX)), d).seconds > 0


def test_devices_are_known_by_instruction_set_too():
    assert set(ALIASES) <= set(devices())
    assert {"a10", "a100", "h100", "h200"} <= set(devices())
    assert Device.load("avx512").rate("float32") > Device.load("avx2").rate("float32")
    with pytest.raises(ValueError, match="no device 'abacus'; available: a10, a100"):
        Device.load("abacus")


def test_datasheet_figures_come_out_of_the_files():
    h100 = Device.load("h100")
    assert h100.rate("float32") == pytest.approx(66.9e3 / 2)
    assert h100.matrix["bfloat16"] == pytest.approx(989.4e3 / 2)
    assert Device.load("h200").dram > h100.dram
    assert h100.own["special functions"][0] == pytest.approx(132 * 1.98 * 16)


def test_what_bounds_a_prediction():
    moments = derive_cascade(MOMENTS).fused
    big = sizes_of(MOMENTS, rows=65536)
    on_gpu = predict(work_on(Device.load("h100"), moments, big), Device.load("h100"))
    assert on_gpu.bound == "memory"
    assert on_gpu.seconds == pytest.approx(4 * 65536 * 4096 / 3.35e12, rel=0.05)
    heavy = dict.fromkeys((a.name for a in ATTENTION.axes), 128)
    heavy[ATTENTION.axis] = 8192
    fused = derive_cascade(ATTENTION).fused
    cpu = Device.load("avx2")
    assert predict(work_on(cpu, fused, heavy), cpu).bound == "arithmetic"
    half = predict(work_on(Device.load("h100"), fused, heavy), Device.load("h100"), operands="bfloat16")
    assert "matrix units" in half.times
    assert half.seconds < predict(work_on(Device.load("h100"), fused, heavy), Device.load("h100")).seconds


@pytest.mark.parametrize("name", ["avx2", "h100"])
def test_predictions_grow_with_the_problem(name):
    device = Device.load(name)
    fused = derive_cascade(SOFTMAX).fused
    times = [predict(work_on(device, fused, sizes_of(SOFTMAX, rows, n)), device).seconds
             for rows in (64, 256) for n in (512, 4096, 32768)]
    assert times[:3] == sorted(times[:3])
    assert times[3:] == sorted(times[3:])
    assert all(a <= b for a, b in zip(times[:3], times[3:], strict=True))


# -------------------------------- the frontier


@pytest.fixture(scope="module")
def of_moments() -> Frontier:
    return frontier(measured_forms(derive_cascade(MOMENTS)), Device.load("avx2"), SIZES)


@pytest.fixture(scope="module")
def of_softmax() -> Frontier:
    return frontier(measured_forms(derive_cascade(SOFTMAX)), Device.load("avx2"), SIZES)


def test_no_form_on_the_frontier_is_beaten_by_another(of_moments, of_softmax):
    for f in (of_moments, of_softmax):
        assert f.best
        for p in f.best:
            assert not any(q.measures != p.measures and all(x <= y for x, y in zip(q.measures, p.measures, strict=True))
                           for q in f.points)
        dominated = [p for p in f.points if p.dominated]
        for p in dominated:
            assert any(all(x <= y for x, y in zip(q.measures, p.measures, strict=True)) for q in f.best)


def test_the_stable_choice_is_the_default_derivation(of_moments, of_softmax):
    for f in (of_moments, of_softmax):
        point, why = f.choice("stable")
        assert point is f.points[0]
        assert "derived first" in why
    assert of_softmax.points[0].error <= max(4 * min(p.error for p in of_softmax.points), 4 * NOISE)


def test_fast_never_takes_what_overflows_or_loses_everything(of_moments, of_softmax):
    for f in (of_moments, of_softmax):
        point, _ = f.choice("fast")
        assert point.cost <= f.points[0].cost
        assert point.error <= MOST
        assert point.passes <= f.points[0].passes
    assert of_softmax.choice("fast")[0].name == "stable"  # e^10000
    assert of_moments.choice("fast")[0].name != "base sums"  # 1e8 - 1e8


def test_measured_errors_stay_within_the_stated_bound(of_moments, of_softmax):
    for f in (of_moments, of_softmax):
        for p in f.points:
            if np.isfinite(p.form.bound):
                assert p.error <= p.form.bound, p.name


@pytest.mark.parametrize("seed", range(12))
def test_a_form_keeps_its_own_bound_on_random_data(of_moments, seed):
    """The stated bound is a promise about any data, not about the data sets it was measured on."""
    rng = np.random.default_rng(seed)
    x = (10.0 ** rng.uniform(-3, 4) * rng.normal(size=(4, int(rng.integers(2, 300))))
         + 10.0 ** rng.uniform(-3, 4)).astype(np.float32)
    exact = expected_results([MOMENTS], {"x": x})
    for p in of_moments.points:
        own = stated(p.variant.fused, {"x": x})
        got = run_fused(p.variant.fused, {"x": x}, chunks=5, tree=seed % 2 or None, dtype=np.float32)
        for o in MOMENTS.outs:
            error = np.abs(got[o.name].astype(np.longdouble) - exact[o.name].accepted[0])
            assert (error <= own[o.name].allowed + exact[o.name].allowed).all(), (p.name, o.name)


def test_the_frontier_as_text_and_data(of_moments):
    text = str(of_moments)
    assert "<- stable" in text
    assert "error in units of the contract" in text
    data = of_moments.to_dict()
    assert {p["name"] for p in data["points"]} == {p.name for p in of_moments.points}
    assert set(data["choice"]) == {"stable", "fast"}
    assert all(p["certificate"].startswith("valid") for p in data["points"])


def test_a_form_that_cannot_be_measured_is_never_taken(of_moments):
    blind = replace(of_moments.points[0].form, probe=Probe({}))
    unmeasured = replace(of_moments, points=(of_moments.points[0],
                                             *(replace(p, form=replace(p.form, probe=blind.probe))
                                               for p in of_moments.points[1:])))
    assert unmeasured.choice("fast")[0] is of_moments.points[0]
