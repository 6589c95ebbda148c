"""Every law is sampled by name; wrong laws are caught; the rule language reports mistakes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from redfuser.errors import RuleError
from redfuser.ir import Part
from redfuser.rules import APPROXIMATE, GROUPS, check_rule, default, fact, online, rule, ruleset
from redfuser.rules.language import Best, Max, Sum, changes, nonnegative, nonzero, positive
from redfuser.rules.theory import TABLES, Theory, law_text

LAWS = [*default, *APPROXIMATE["requantize"]]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_law_holds(law):
    check = check_rule(law, samples=40)
    assert check.ok, check.counterexample
    assert check.samples >= 20


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_law_has_a_text_and_states_itself(law):
    assert law.name in law_text(law, "r")
    assert law.law
    if hasattr(law, "latex"):
        assert "=" in law.latex()


def wrong_laws():
    @rule("exact")
    def exp_sign(a, b):
        """e^(a - b) = e^(b - a)"""
        return np.exp(a - b), np.exp(b - a)

    @rule("exact")
    def unguarded_inverse(a):
        """a / a = 1, also for a = 0"""
        return a * (1 / a), 1

    @rule("exact", free_of="f", varying="a")
    def unguarded_scale(a, f):
        """max (a f) = (max a) f for any f"""
        return Max(a * f), Max(a) * f

    @rule("exact")
    def unguarded_log(a, b):
        """log(a b) = log a + log b for any a, b"""
        return np.log(a * b), np.log(a) + np.log(b)

    @rule("exact")
    def hoist_varying(a, f):
        """sum (a f) = (sum a) f for any f"""
        return Sum(a * f), Sum(a) * f

    @fact(where=[nonnegative("a")])
    def positive_from_nonnegative(a):
        """a >= 0 gives a > 0"""
        return positive(a)

    return [exp_sign, unguarded_inverse, unguarded_scale, unguarded_log, hoist_varying, positive_from_nonnegative]


@pytest.mark.parametrize("law", wrong_laws(), ids=lambda law: law.name)
def test_wrong_law_is_caught_with_a_counterexample(law):
    check = check_rule(law)
    assert not check
    assert set(check.counterexample) == set(law.variables)


def test_an_untested_rule_is_not_ok():
    @rule("exact", where=lambda a: (positive(a - a),))
    def never(a):
        """holds never"""
        return a, a + 1

    assert not check_rule(never).ok


def test_samples_without_a_value_check_nothing():
    @rule("exact")
    def nowhere(a):
        """log(-e^a) = sqrt(-e^a), where neither has a value"""
        return np.log(-np.exp(a)), np.sqrt(-np.exp(a))

    check = check_rule(nowhere)
    assert not check.ok
    assert check.samples == 0
    assert check.counterexample is None

    @fact(where=lambda a: (positive(np.exp(a)),))
    def nothing(a):
        """log(-e^a) > 0, where it has no value"""
        return positive(np.log(-np.exp(a)))

    assert not check_rule(nothing).ok


def test_roundings_are_measured_in_steps():
    @rule("approximate", tolerance=1.0)
    def opposite(a, f):
        """round(a + f) is about -round(a + f)"""
        return np.rint(a + f), -np.rint(a + f)

    @rule("approximate", tolerance=1.0)
    def nothing_left(a):
        """round(a) is about 0"""
        return np.rint(a), 0 * a

    @rule("approximate", tolerance=1.0, varying="a", where=[changes("old", "new"), nonzero("old")])
    def unscaled(a, old, new):
        """round(a new) is about round(a old)"""
        return np.rint(a * new), np.rint(a * old)

    for law in (opposite, nothing_left, unscaled):
        assert check_rule(law).counterexample is not None, law


def test_facts_hold_while_a_list_is_not_full():
    def best_is(place):
        @fact(where=[positive("a")])
        def best(a):
            """a > 0 gives a best one > 0"""
            return positive(Part("value", place, Best(a)))

        return check_rule(best)

    assert best_is((0,)).ok
    assert best_is(()).ok
    assert not best_is(("*",)).ok
    assert not best_is((2,)).ok


def test_rule_reads_like_the_documentation():
    @rule("exact")
    def exp_sum_anywhere(x, y):
        """e^(x+y) = e^x e^y"""
        return np.exp(x + y), np.exp(x) * np.exp(y)

    assert exp_sum_anywhere.name == "exp-sum-anywhere"
    assert exp_sum_anywhere.law == "e^(x+y) = e^x e^y"
    assert exp_sum_anywhere.latex() == r"e^{x + y} = e^{x} \, e^{y}"
    assert check_rule(exp_sum_anywhere)


def test_malformed_rules_are_refused():
    with pytest.raises(RuleError, match="docstring"):
        rule("exact")(lambda a: (a, a))
    with pytest.raises(RuleError, match="truth"):
        rule("true")  # type: ignore[arg-type]
    with pytest.raises(RuleError, match="tolerance"):
        rule("approximate")

    def one_side(a):
        """a"""
        return a

    with pytest.raises(RuleError, match="two sides"):
        rule("exact")(one_side)

    def loose(a, b):
        """b from nowhere"""
        return np.exp(a), np.exp(a) + 0 * b

    with pytest.raises(RuleError, match="does not determine b"):
        rule("exact")(loose)

    def misnamed(a):
        """a condition on a stranger"""
        return np.exp(a), np.exp(a)

    with pytest.raises(RuleError, match="not among its parameters"):
        rule("exact", where=[positive("z")])(misnamed)


def test_rule_sets_add_and_subtract():
    assert len(default - online) == len(default) - len(online)
    assert {x.name for x in online} >= {"telescope", "telescope-from", "solve-quotient"}
    assert set((default - online) + online) == set(default)
    assert len(default + online) == len(default)
    assert {x.group for x in default} == set(GROUPS)


def test_two_rules_of_one_name_are_refused():
    @rule("exact", name="telescope")
    def other(a):
        """a = a"""
        return np.exp(a), np.exp(a)

    with pytest.raises(RuleError, match="telescope"):
        default + ruleset("mine", [other])
    with pytest.raises(RuleError, match="telescope"):
        ruleset("mine", [other, *online])


def test_names_are_unique_and_the_theory_has_one_ruleset_per_law():
    text = Theory(default).text
    assert all(text.count(f':ruleset law{i} :name "{law.name}"') == 1 for i, law in enumerate(default))
    assert all(text.count(f"(ruleset law{i})") == 1 for i in range(len(default)))


def test_laws_of_nodes_and_relations_without_rows_are_left_out():
    theory = Theory(default)
    names = {law.name: f"law{i}" for i, law in enumerate(default)}
    sine = next(law.name for law in default if "sin(" in str(law) and law.phase != "fact")

    def active(*tables):
        return set(theory.combined("p", frozenset(tables)).replace(")", " ").split())

    plain = active("Num", "Leaf", "Sum", "Add", "Mul")
    assert {names["sum-of-sum"], "axes-Add"} <= plain
    assert not {names[sine], names["telescope"], "axes-Sin"} & plain
    assert names["telescope"] in active("Num", "Leaf", "Add", "Mul", "changes")
    assert set(names.values()) <= active(*TABLES)


def test_a_rule_set_is_the_same_key_after_pickling():
    copy = pickle.loads(pickle.dumps(default))
    assert copy == default
    assert {default: 1}[copy] == 1
    assert "_hash" not in vars(pickle.loads(pickle.dumps(copy)))


def test_a_set_without_approximate_laws_is_its_own_exact_part():
    assert default.exact() is default
    assert APPROXIMATE["requantize"].exact().laws == ()
