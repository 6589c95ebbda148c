"""Verdicts that are never wrong: evidence grows for what has no finite state, and never for what has one."""

from __future__ import annotations

import json
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import mpmath
import numpy as np
import pytest

from redfuser.derivation import Cascade as Build
from redfuser.derivation import NotFusible, Verdict, axes, certify, derive, derive_cascade, tensor
from redfuser.derivation.derive import dependent_stages
from redfuser.derivation.differentiate import derivative
from redfuser.derivation.evidence import free_skeleton, growth
from redfuser.derivation.finite import is_finite_sum
from redfuser.derivation.observe import Independent, Span, others
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.unlock import unlocking
from redfuser.derivation.verdict import StageReport, lower_bound
from redfuser.derivation.witness import Witness, find_witness
from redfuser.errors import RedfuserError
from redfuser.ir import OPS, Axis, Cascade, Expr, Idx, Load, Reduction, Ref, Tensor, op
from redfuser.ir.ops import BELOW
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.real import RealEvaluator, by_table
from redfuser.testing.grammar import random_cascade
from redfuser.testing.trial import LIMITS
from redfuser.zoo import ENTRIES

N = axes("n")
X, Y = tensor("x", N), tensor("y", N)


def mean_then(stage, monoid="sum"):
    c = Build("c", axis=N)
    mean = c.sum("s", X) / c.size
    c.reduce(monoid, "r", stage(X, mean))
    return c.build()


def top_then(stage, monoid="sum"):
    c = Build("c", axis=N)
    c.reduce(monoid, "r", stage(X, c.max("m", X)))
    return c.build()


FINITE = {  # monoid, stage over the mean, the most numbers that a state needs
    "variance": (mean_then(lambda x, d: (x - d) ** 2), 3),
    "sixth": (mean_then(lambda x, d: (x - d) ** 6), 7),
    "phase": (mean_then(lambda x, d: np.sin(x - d)), 2),
    "extreme distance": (mean_then(lambda x, d: abs(x - d), "max"), 3),
    "largest square": (mean_then(lambda x, d: (x - d) ** 2, "max"), 3),
    "largest": (mean_then(lambda x, d: x - d, "max"), 2),
    "product": (mean_then(lambda x, d: np.exp(x - 2 * d), "prod"), 1),
    "distance to max": (top_then(lambda x, d: abs(x - d)), 2),
    "softmax": (top_then(lambda x, d: np.exp(x - d)), 1),
    "gap": (top_then(lambda x, d: d - x, "max"), 2),
}
INFINITE = {
    "kink": mean_then(lambda x, d: abs(x - d)),
    "step": mean_then(lambda x, d: op("select", x > d, 1.0, 0.0)),
    "exponentials": mean_then(lambda x, d: np.exp(x * d)),
    "poles": mean_then(lambda x, d: np.tanh(x - d)),
    "nearest": mean_then(lambda x, d: abs(x - d), "min"),
    "phase": mean_then(lambda x, d: np.cos(x - d), "max"),
    "product": mean_then(lambda x, d: x - d, "prod"),
    "half": top_then(lambda x, d: op("select", x > 0.5 * d, 1.0, 0.0)),
    "near": top_then(lambda x, d: np.maximum(x - d + 1.0, 0.0)),
}


@pytest.mark.parametrize("name", FINITE)
def test_finite_states_have_finite_rank(name):
    cascade, most = FINITE[name]
    ranks = growth(cascade, "r")
    assert ranks is not None
    assert not ranks.growing
    assert 1 <= ranks.rank <= most


@pytest.mark.parametrize("name", INFINITE)
def test_ranks_grow_where_no_state_is_enough(name):
    ranks = growth(INFINITE[name], "r")
    assert ranks is not None
    assert ranks.growing
    assert str(ranks).endswith("rank 20 with 20 elements")


def test_order_monoids():
    def nearest(monoid, sign):
        c = Build("c", axis=N)
        mean = c.sum("s", X) / c.size
        body = sign * abs(X - mean)
        if monoid == "topk":
            c.topk("r", body, 3)
        else:
            getattr(c, monoid)("r", body)
        return c.build()

    for monoid, sign, grows in (("argmin", 1, True), ("topk", -1, True), ("argmax", 1, False), ("topk", 1, False)):
        ranks = growth(nearest(monoid, sign), "r")
        assert ranks is not None
        assert ranks.growing == grows, monoid


def test_sums_over_a_sorted_list():
    c = Build("c", axis=N)
    third = c.topk("t", X, 3)[0][2]
    c.sum("far", abs(X - third))  # all but two elements lie below: the sum, the count and the list are enough
    c.sum("mass", np.exp(X - third))
    c.sum("half", op("select", 0.5 * third < X, 1.0, 0.0))
    assert growth(c.build(), "half").growing  # type: ignore[union-attr]
    assert growth(c.build(), "far").rank <= 5  # type: ignore[union-attr]
    assert growth(c.build(), "mass").rank == 1  # type: ignore[union-attr]


def test_a_final_dependency_leaves_rank_one():
    ranks = growth(INFINITE["kink"], "r", ["s"])
    assert ranks is not None
    assert ranks.rank == 1


def test_nothing_is_claimed_of_tied_elements():
    first, s = Load("x", (0,)), Ref("s")
    stages = (Reduction("s", "sum", X - first, ()), Reduction("r", "sum", abs(X - s) + first, ()))
    c = Cascade("c", "n", (N,), (Tensor("x", ("n",)),), (), stages, ())
    assert free_skeleton(c) is None
    assert growth(c, "r") is None


def test_selections_by_the_element_are_finite_sums():
    s = Ref("s")
    skeleton = Skeleton(mean_then(lambda x, d: op("select", x > 0, (x - d) ** 2, x * d)), fine=True)
    assert is_finite_sum(skeleton.stages[1].body)
    assert not is_finite_sum(abs(Load("x", ("@stream",)) - s))


# ---- the zoo

def some_cascades(refused: bool, count: int) -> list[Cascade]:
    """Random entries; those whose stream more than one cascade sweeps are passed over."""
    entries = [e for e in ENTRIES.values() if (e.verdict != Verdict.FUSIBLE) == refused]
    found: list[Cascade] = []
    for entry in random.Random(5).sample(entries, len(entries)):
        with suppress(RedfuserError):
            found.append(entry.cascade())
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} of {count} entries are one cascade")


@pytest.mark.parametrize("cascade", some_cascades(True, 14), ids=lambda c: c.name)
def test_every_refusal_has_evidence(cascade):
    assert any(r is not None and r.growing for r in (growth(cascade, s.name) for s in cascade.reductions))


@pytest.mark.parametrize("cascade", some_cascades(False, 24), ids=lambda c: c.name)
def test_no_fusible_entry_has_evidence(cascade):
    for stage in cascade.reductions:
        ranks = growth(cascade, stage.name)
        assert ranks is None or not ranks.growing, stage


@pytest.mark.parametrize("program", random.Random(8).sample(range(10**6), 4))
def test_what_was_fused_has_no_evidence(program):
    cascade = random_cascade(program)
    done = derive_cascade(cascade, limits=LIMITS).groups[0]
    assert done
    for name in done:
        ranks = growth(cascade, name)
        assert ranks is None or not ranks.growing, name


# ---- witnesses

def definition(cascade: Cascade, elements: list[float]) -> dict[str, float]:
    """Every result by its definition, in plain float64."""
    values: dict[str, float] = {}
    x = np.asarray(elements)

    def value(e: Expr):
        if isinstance(e, Load):
            return x
        if isinstance(e, Ref):
            return values[e.name]
        if not hasattr(e, "fn"):
            return float(getattr(e, "value", len(x)))
        return OPS[e.fn].numpy(*map(value, e.args))

    for r in cascade.reductions:
        fold = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[r.monoid]
        values[r.name] = float(fold(np.broadcast_to(value(r.body), x.shape)))
    return values


@pytest.mark.parametrize("name", INFINITE)
def test_witness_agrees_first_and_differs_later(name):
    cascade = INFINITE[name]
    w = find_witness(cascade, "r")
    assert w is not None
    a, b, more = (list(p["x"]) for p in (w.first, w.second, w.continuation))
    assert sorted(a) != sorted(b)
    assert len(a) == len(b) == w.state["count"]
    before = definition(cascade, a), definition(cascade, b)
    assert before[0] == pytest.approx(before[1], abs=1e-12)
    after = definition(cascade, a + more)["r"], definition(cascade, b + more)["r"]
    assert after == pytest.approx(w.values)
    assert abs(after[0] - after[1]) > 1e-7


@pytest.mark.parametrize("name", ["softmax", "product", "largest", "gap"])
def test_no_witness_against_a_sufficient_state(name):
    assert find_witness(FINITE[name][0], "r") is None


def test_witness_of_exponentials_solves_equations():
    entry = ENTRIES["sigmoid_below_maximum"]
    w = find_witness(entry.cascade(), entry.cascade().reductions[-1].name)
    assert w is not None
    assert w.rounded
    assert "about" in str(w)


def test_reports_carry_the_witness_as_data():
    d = derive_cascade(INFINITE["kink"])
    (stage,) = d.stages
    data = json.loads(json.dumps(stage.to_dict()))
    assert data["witness"]["values"][0] != data["witness"]["values"][1]
    assert data["evidence"] == stage.evidence
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage
    assert again.witness == stage.witness


def test_not_fusible_shows_the_witness():
    with pytest.raises(NotFusible) as caught:
        derive(INFINITE["kink"])
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error.witness, Witness)
    assert error.stage == "r"


def test_no_witness_without_evidence():
    assert StageReport("r", "", "", "", INFINITE["kink"]).witness is None


# ---- plans

def three_locations():
    c = Build("c", axis=N)
    mean = c.sum("s", X) / c.size
    deviation = c.sum("a", abs(X - mean)) / c.size
    c.sum("v", (X - mean) ** 2)
    c.sum("t", np.tanh((X - mean) / deviation))
    return c.build()


def test_passes_meet_the_lower_bound():
    cascade = three_locations()
    d = derive_cascade(cascade)
    assert d.verdict == Verdict.NOT_FUSIBLE
    assert d.passes == d.lower_bound == dependent_stages(cascade) == 3
    assert d.groups == (("s", "v"), ("a",), ("t",))
    assert [s.name for s in d.stages] == ["a", "t"]


def test_lower_bound_counts_evidence_alone():
    cascade = three_locations()
    shown = StageReport("a", "", "", "rank", cascade)
    assert lower_bound(cascade, ()) == 1
    assert lower_bound(cascade, (shown,)) == 2
    assert lower_bound(cascade, (StageReport("a", "", "", "", cascade),)) == 1
    assert lower_bound(cascade, (shown, StageReport("t", "", "", "rank", cascade))) == 2  # the mean would do
    assert lower_bound(cascade, (shown, StageReport("t", "", "", "rank", cascade, frozenset({"s"})))) == 3


def test_facts_that_unlock():
    c = Build("c", axis=N)
    s = c.sum("s", X)
    c.sum("r", abs(X + s))
    assert growth(c.build(), "r").growing  # type: ignore[union-attr]
    (fact,) = unlocking(c.build(), "r", frozenset())
    assert "rf.assume((x > 0))" in fact
    assert unlocking(INFINITE["kink"], "r", frozenset()) == ()


def test_rounding_unlocks():
    c = Build("c", axis=N)
    m = c.max("m", abs(X))
    c.sum("r", np.rint(X * (127.0 / m)))
    assert growth(c.build(), "r").growing  # type: ignore[union-attr]
    (fact,) = unlocking(c.build(), "r", frozenset())
    assert "the scale is never 0" in fact
    safe = Build("c", axis=N)
    m = safe.max("m", abs(X))
    safe.sum("r", np.rint(X * (127.0 / op("max", m, 1e-6))))
    assert unlocking(safe.build(), "r", frozenset()) == ('if rounding may be moved: allow=("requantize",)',)
    floored = Build("c", axis=N)
    m = floored.max("m", abs(X))
    floored.sum("r", op("floor", X * (127.0 / m)))
    assert unlocking(floored.build(), "r", frozenset()) == ()  # no law of that group moves it


# ---- tools

@pytest.mark.parametrize(
    "fn", [o.name for o in OPS.values() if o.kind in ("arith", "unary") and o.name not in BELOW.values()]
)
def test_derivatives(fn):
    rng = random.Random(fn)
    x, c = Load("x"), Load("c")
    e = op(fn, *((x * c, c)[: OPS[fn].arity]))
    with precision(40):
        for _ in range(6):
            at, other = context().mpf(rng.uniform(0.3, 1.5)), context().mpf(rng.uniform(0.3, 1.5))

            def value(t, e=e, other=other):
                return RealEvaluator(by_table({x: t, c: other}), 1)(e)

            step = context().mpf(10) ** -12
            rate = (value(at + step) - value(at - step)) / (2 * step)

            slope = RealEvaluator(by_table({x: at, c: other}), 1)(derivative(e, x))
            if fn not in ("floor", "ceil", "rint"):
                assert abs(slope - rate) < 1e-15 * (1 + abs(slope))
            else:
                assert slope == 0


def test_span_counts_dimensions():
    with precision(100):
        rows = [[context().mpf(i**j) for j in range(5)] for i in range(1, 4)]
        span = Span(5)
        assert [span.add(r) for r in rows] == [True] * 3
        assert not span.add([a + b for a, b in zip(rows[0], rows[2], strict=True)])
        assert span.rank == 3


def test_most_independent_rows_come_first():
    table = np.array([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    for whole in (True, False):  # in parts, the rows that are farthest among those at hand are taken
        independent = Independent(3)
        for rows in [table] if whole else [table[:1], table[1:2], table[2:]]:
            independent.add(rows)
        order = independent.order
        assert len(set(order)) == len(order) == 2
        assert np.linalg.matrix_rank(table[order]) == 2
        assert abs(independent.rest).max() < 1e-15
        assert set(others(table, order, 2)) <= set(range(4)) - set(order)
    independent.add(np.eye(3))
    assert len(independent.order) == 3
    assert independent.order[-1] == 6


@pytest.mark.parametrize(("body", "growing"), [
    (lambda x, m, i: np.exp(i * m), False), (lambda x, m, i: x + np.exp(i * m), False),
    (lambda x, m, i: x * np.exp(i * m), True), (lambda x, m, i: np.exp(x - m + 0.5 * i), False),
    (lambda x, m, i: np.tanh(x + i - m), True)])
def test_positions_are_known(body, growing):
    """A sum of functions of positions alone is a function of how many there were."""
    maximum, total = Reduction("m", "max", Load("x", ("n",)), ()), Reduction("r", "sum", body(
        Load("x", ("n",)), Ref("m", ()), Idx("n")), ())
    cascade = Cascade("c", "n", (Axis("n"),), (Tensor("x", ("n",), "float64"),), (), (maximum, total), ())
    found = growth(cascade, "r")
    assert (found is not None and found.growing) == growing


def test_threads_do_not_share_precision():
    """Neither with each other nor with a caller who uses mpmath with few digits."""
    fused = derive_cascade(FINITE["variance"][0]).fused

    def work(i):
        if i % 2:
            return certify(fused, seed=i).valid
        c = Build(f"c{i}", axis=N)
        mean = c.sum("s", X) / c.size
        c.sum("r", np.tanh(X - mean))
        return growth(c.build(), "r").growing  # type: ignore[union-attr]

    done = threading.Event()

    def other():
        while not done.is_set():
            with mpmath.workdps(8):
                assert mpmath.mp.dps == 8

    caller = threading.Thread(target=other)
    caller.start()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(12)))
    done.set()
    caller.join()
    assert all(found)
    assert mpmath.mp.dps == 15
