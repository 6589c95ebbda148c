"""The engine: a scope leaves no trace, limits hold, a failure is an error with a name and the engine goes on."""

from __future__ import annotations

import numpy as np
import pytest

from redfuser.derivation import Limits, derive_cascade
from redfuser.derivation import engine as engine_module
from redfuser.derivation.commands import program
from redfuser.derivation.cost import CorrectionCost
from redfuser.derivation.engine import Engine, engine_for
from redfuser.derivation.search import Step
from redfuser.errors import EngineError
from redfuser.ir import Expr, Load
from redfuser.rules import default, rule, ruleset
from redfuser.rules.language import STREAM, Sum
from redfuser.rules.theory import TOGETHER
from redfuser.zoo import ENTRIES

X, V = Load("x", (STREAM,)), Load("v", (STREAM,))


def leaf(e: Expr) -> tuple[str, frozenset[str]] | None:
    return (e.tensor, frozenset(map(str, e.axes))) if isinstance(e, Load) else None


@pytest.fixture(scope="module")
def engine():
    return Engine(default)


def sizes(engine: Engine) -> dict[str, int]:
    return {name: rows for name, rows in engine.run("(print-size)")[0].sizes if rows}


def nodes(engine: Engine) -> int:
    counts = engine.counts(sizes(engine).items())
    return sum(rows for name, rows in counts.items() if name[0].isupper() and name != TOGETHER)


def test_a_scope_starts_empty(engine):
    with engine.scope(leaf) as scope:
        start = sizes(engine)
        scope.add(Sum(np.exp(X - X * 0)))
        scope.state("pos", X)
        scope.saturate(Step("fill"), Limits())
        assert nodes(engine) > 3
    with engine.scope(leaf) as scope:
        assert {k: v for k, v in sizes(engine).items() if k[0].islower()} == {
            k: v for k, v in start.items() if k[0].islower()}
        assert nodes(engine) == 3
        assert not scope.holds(["pos"], X)


def test_scopes_do_not_nest(engine):
    with engine.scope(leaf), pytest.raises(EngineError, match="open already"), engine.scope(leaf):
        pass
    with engine.scope(leaf):
        pass


def test_what_was_derived_before_does_not_matter():
    names = ("entropy", "skewness", "causal_attention")
    fresh = {}
    for name in names:
        engine_module._local.__dict__.clear()
        fresh[name] = derive_cascade(ENTRIES[name].cascade()).fused
    assert {n: derive_cascade(ENTRIES[n].cascade()).fused for n in reversed(names)} == fresh


def test_garbage_is_dropped_when_there_is_much(engine, monkeypatch):
    with engine.scope(leaf) as scope:
        scope.add(Sum((X * 1 + 0) * V * 1))
        scope.saturate(Step("fill"), Limits())
    with engine.scope(leaf):
        assert sum(engine._garbage.values()) > 0
    monkeypatch.setattr(engine_module, "MOST_GARBAGE", 0)
    with engine.scope(leaf) as scope:
        assert sum(engine._garbage.values()) == 0
        scope.add(Sum(X * 1))
        assert scope.saturate(Step("again"), Limits()).outcome == "saturated"


@pytest.mark.parametrize(("limits", "outcome"), [(Limits(nodes=30), "limit"), (Limits(iterations=2), "limit"),
                                                 (Limits(seconds=0.0), "time")])
def test_limits_end_a_search(engine, limits, outcome):
    with engine.scope(leaf) as scope:
        scope.state("unbound")
        scope.add(Sum((X + V) * (X * V + 1) * (V + 2)))
        step = scope.saturate(Step("large"), limits)
    assert step.outcome == outcome
    assert step.iterations <= 3


def test_a_round_that_would_explode_is_not_started(engine):
    body = X
    for k in range(8):
        body = (body + Load(f"y{k}", (STREAM,))) * (V + Load(f"z{k}", (STREAM,)))
    with engine.scope(leaf) as scope:
        scope.state("unbound")
        scope.add(Sum(body))
        step = scope.saturate(Step("huge"), Limits(nodes=2000, iterations=100, seconds=600))
    assert step.outcome == "limit"
    assert step.nodes < 2000 * 10


def test_laws_that_prove_nonsense_trip_the_wire():
    @rule("exact")
    def low(a):
        """tanh a = -1"""
        return np.tanh(a), -1

    @rule("exact")
    def high(a):
        """tanh a = 1"""
        return np.tanh(a), 1

    engine = Engine(default + ruleset("limits", [low, high]))
    with engine.scope(leaf) as scope:
        scope.add(Sum(np.tanh(X) * V))
        with pytest.raises(EngineError, match="0 = 1"):
            scope.saturate(Step("nonsense"), Limits())


def test_a_rejected_text_is_an_error_and_the_engine_goes_on(engine):
    with engine.scope(leaf) as scope:
        with pytest.raises(EngineError, match="engine failed"):
            engine.run("(Unheard of)")
        scope.add(Sum(X))
        assert scope.price([Sum(X)])


def test_a_panic_is_an_error_and_the_engine_is_built_again(engine):
    class PanicException(BaseException):
        """As the bindings raise it."""

    class Panicking:
        def run_program(self, *_):
            raise PanicException("index out of bounds")

    with engine.scope(leaf):
        engine._egraph = Panicking()
        with pytest.raises(EngineError, match="index out of bounds"):
            engine.run("(print-size)")
    with engine.scope(leaf) as scope:
        scope.add(Sum(X))
        assert scope.saturate(Step("after"), Limits()).outcome == "saturated"


def test_an_interruption_is_not_swallowed(engine):
    class Interrupted:
        def run_program(self, *_):
            raise KeyboardInterrupt

    kept, engine._egraph = engine._egraph, Interrupted()
    with pytest.raises(KeyboardInterrupt):
        engine.run("(print-size)")
    engine._egraph = kept


def test_engines_are_kept_per_rule_set():
    assert engine_for(default) is engine_for(default)
    assert engine_for(default - default["trigonometry"]) is not engine_for(default)


@pytest.mark.parametrize("text", [
    '(union (Sum (Leaf "x" 1)) (Leaf "a" 0))', "(print-size)",
    '(check (pos (Leaf "x" 0)))', "(pos (Num (bigrat (bigint -1) (bigint 2))))",
    '(extract (Pow (Leaf "x" 0) 3) 0)'])
def test_commands_are_what_the_parser_makes_of_them(engine, text):
    engine.load()
    (own,) = program(text) or ()
    (parsed,) = engine._egraph.parse_program(text)
    assert str(own) == str(parsed)


def test_settling_runs_to_the_fixed_point(engine):
    with engine.scope(leaf) as scope:
        scope.add(X * 1 + 0)
        scope.iterate(set())
        ((price, found),) = scope.extract([X * 1 + 0], CorrectionCost())
        assert (price, found) == (1, X)


def test_declarations_are_left_to_the_parser():
    assert program("(ruleset mine)") is None
    assert program("(Num (bigrat (bigint 1) (bigint 1))) (push)") is None


def test_an_e_graph_is_built_anew_before_its_reports_fill_the_memory(engine, monkeypatch):
    monkeypatch.setattr(engine_module, "MOST_ROUNDS", 5)
    cascade = ENTRIES["softmax_top2"].cascade()
    forms, graphs = set(), []
    for _ in range(4):
        forms.add(str(derive_cascade(cascade).fused))
        graphs.append(engine_for(default)._egraph)
    assert len(forms) == 1
    assert len(set(map(id, graphs))) > 1
