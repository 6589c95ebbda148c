"""What is drawn can occur: dtypes, positions and bounds; and values that are no rational numbers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import redfuser as rf
from redfuser.derivation import Cascade as Build
from redfuser.derivation import Verdict, axes, certify, derive_cascade, tensor
from redfuser.derivation.batch import BatchSampler
from redfuser.derivation.fusion import Accumulator
from redfuser.derivation.hard import Ieee, hard_streams
from redfuser.derivation.proof import Symbols, positive_names
from redfuser.derivation.sample import Sampler
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.unlock import unlocking
from redfuser.derivation.witness import find_witness
from redfuser.ir import OPS, Cascade, Cast, Const, Idx, Load, op
from redfuser.rules.arithmetic import precision
from redfuser.rules.encoding import Encoder, decode, parse
from redfuser.rules.real import by_table
from redfuser.zoo.outcome import carried

N = axes("n")
X, U, POSITION = tensor("x", N), tensor("u", N), Idx("n")


def built(c: Build, **dtypes: str) -> Cascade:
    cascade = c.build()
    return replace(cascade, tensors=tuple(replace(t, dtype=dtypes.get(t.name, "float32")) for t in cascade.tensors))


def weighted(weight, **dtypes: str) -> Cascade:
    c = Build("c", axis=N)
    m = c.max("m", X)
    c.sum("r", np.exp(X - m) * weight)
    return built(c, **dtypes)


def kink(dtype: str, mean: bool = True) -> Cascade:
    c = Build("c", axis=N)
    y = Cast("float32", U)
    s = c.sum("s", y)
    c.sum("r", abs(y - s / c.size) if mean else abs(y + s))
    return built(c, u=dtype)


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize(("dtype", "lowest"), [("uint8", 0), ("int32", -np.inf)])
def test_numbers_are_drawn_by_dtype(dtype, lowest, fine):
    skeleton = Skeleton(weighted(Cast("float32", U) * op("select", op("gt", POSITION, 2), 1.0, 2.0), u=dtype),
                        fine=fine)
    units = {k: e for k, e in skeleton.units.items() if "u" in str(e)}
    (name,) = units
    for seed in range(8):
        with precision(50):
            sampler = Sampler(skeleton, random.Random(seed), signed=seed % 2 == 0)
            drawn = sampler.units(8).values[name]
            hard = [s.values[name] for _, s in hard_streams(sampler, (3, 3), random.Random(seed))]
        batch = BatchSampler(skeleton, np.random.default_rng(seed), signed=seed % 2 == 0).streams(40, 8, 1.0)
        for values in (drawn, *hard, batch.values[name].ravel()):
            assert all(v == round(v) and v >= lowest for v in values)
    assert lowest == 0 or any(v < 0 for v in drawn) or min(batch.values[name].ravel()) > 0


@pytest.mark.parametrize("position", [POSITION, Cast("float32", POSITION)])
def test_positions_are_positions(position):
    skeleton = Skeleton(weighted(position))
    with precision(50):
        sampler = Sampler(skeleton, random.Random(0))
        streams = [sampler.units(6), *(s for _, s in hard_streams(sampler, (3, 3), random.Random(0)))]
    (name,) = [k for k, e in skeleton.units.items() if e == position]
    assert all(list(s.values[name]) == list(range(6)) for s in streams)


@pytest.mark.parametrize("cascade", [
    weighted(np.maximum(U, 0), u="uint8"),
    weighted(np.maximum(Cast("float32", U), 0), u="uint8"),
    weighted(np.maximum(POSITION + 1, 0)),
    kink("uint8", mean=False),
], ids=["unsigned", "unsigned as float", "position", "distance"])
def test_what_bounds_simplify_is_not_refuted(cascade):
    assert derive_cascade(cascade).verdict == Verdict.FUSIBLE


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_evidence_among_integers(dtype):
    cascade = kink(dtype)
    few = dtype == "uint8"  # values that can be counted one by one
    assert derive_cascade(cascade).verdict == (Verdict.NOT_FOUND if few else Verdict.NOT_FUSIBLE)
    w = find_witness(cascade, "r")
    assert w is not None
    values = [v for p in (w.first, w.second, w.continuation) for v in p["u"]]
    assert all(v == round(v) and (dtype == "int32" or v >= 0) for v in values)


def test_witnesses_meet_assumptions():
    c = Build("c", axis=N)
    mean = c.sum("s", X) / c.size
    c.sum("r", abs(X - mean))
    c.assume((X > 0.75) & (X <= 2.5))
    w = find_witness(c.build(), "r")
    assert w is not None
    assert all(0.75 < v <= 2.5 for p in (w.first, w.second, w.continuation) for v in p["x"])


def test_integers_are_named_in_what_unlocks():
    (fact,) = unlocking(kink("int32", mean=False), "r", frozenset())
    assert "rf.assume((u > 0))" in fact


# ---- values that are no rational numbers

@pytest.mark.parametrize("fn", ["idiv", "imod", "pow"])
@pytest.mark.parametrize("a", [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("b", [-np.inf, -2.0, 0.0, 2.0, 0.5, np.inf, np.nan])
def test_floating_point_has_a_value_everywhere(fn, a, b):
    with np.errstate(all="ignore"):
        expected = OPS[fn].numpy(np.float64(a), np.float64(b))
    with precision(50):
        x, y = Load("x"), Load("y")
        mp = Ieee(by_table({}), 1).mp
        found = Ieee(by_table({x: mp.mpf(a), y: mp.mpf(b)}), 1)(op(fn, x, y))
        assert np.isfinite(expected) == mp.isfinite(found)
        assert not np.isfinite(expected) or abs(found - expected) < 1e-12


def test_a_quotient_of_integers_reads_zero_inside_the_loop():
    with precision(50):
        evaluate = Ieee(by_table({}), 1, loop=True)
        assert evaluate(op("idiv", Const(3), Const(0))) == 0
        assert evaluate(op("imod", Const(3), Const(0))) == 0  # as NumPy has it for integers


def test_an_infinite_power_is_no_failure():
    f = rf.fuse(lambda x: ((x - 1) ** (1 / x.sum())).sum())
    x = np.linspace(1.1, 2.0, 16).astype(np.float32)
    assert f(x) == pytest.approx(float(((x - 1) ** (1 / x.sum())).sum()), rel=1e-5)


@pytest.mark.parametrize("name", ["inf", "nan"])
def test_a_tensor_may_be_called_like_a_constant(name):
    assert derive_cascade(weighted(U * tensor(name), u="float32")).verdict == Verdict.FUSIBLE
    text = Encoder(lambda e: (e.tensor, frozenset()) if isinstance(e, Load) else None)
    for e in (Load(name), Const(float(name))):
        assert repr(decode(parse(text(e)), Load)) == repr(e)


@pytest.mark.parametrize("power", [2**62, 10**30, -(10**30), float("inf")])
def test_powers_beyond_the_engine_are_left_alone(power):
    c = Build("c", axis=N)
    m = c.max("m", X)
    c.sum("r", (X - m) ** power)
    assert derive_cascade(c.build()).passes == 2


# ---- counts

def test_only_counts_are_positive_in_proofs():
    found = positive_names((Accumulator("count", "sum", Const(1.0)), Accumulator("count_2", "sum", Const(1.0)),
                            Accumulator("less", "sum", Const(-1.0))))
    assert found == {"count", "count_2"}
    symbols = Symbols(found)
    assert symbols.symbol("old", "count").is_positive
    assert not symbols.symbol("unit", "count").is_positive


def test_no_count_is_carried():
    c = Build("c", axis=N)
    mean = c.sum("s", X) / c.size
    c.sum("r", abs(X - mean))
    fused = derive_cascade(c.build()).fused
    more = Accumulator("count_2", "sum", Const(1.0))
    assert carried(replace(fused, accumulators=(*fused.accumulators, more))) == carried(fused)
    assert certify(fused).valid
