"""Conditions of rules are needed, and rules are: what fails without them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from redfuser.cli import main
from redfuser.cli.rules import ablation_page, describe, show_ablation
from redfuser.rules import APPROXIMATE, GROUPS, default, rule, ruleset
from redfuser.rules.conditions import needed_conditions
from redfuser.rules.language import Max, nonnegative, positive
from redfuser.zoo.ablation import Loss, ablate

CONDITIONED = [law for law in (*default, *APPROXIMATE["requantize"]) if law.conditions]


GUIDES = {("split-bound", "at_most")}
"""Conditions that are there for the search alone: without it every sum would be split in all ways."""


@pytest.mark.parametrize("law", CONDITIONED, ids=lambda law: law.name)
def test_no_condition_narrows_a_law_for_nothing(law):
    """Where a condition is false some sample breaks the law, or no side has a value. A stream-free operand may be there
    for the search alone."""
    needless = [n for n in needed_conditions(law) if n.role == "not needed" and n.condition.kind != "free"]
    assert [str(n) for n in needless if (law.name, n.condition.kind) not in GUIDES] == []


def test_a_condition_that_is_needed_is_shown_with_a_sample():
    scale = next(law for law in GROUPS["extrema"] if law.name == "max-scale")
    needs = {n.condition.kind: n for n in needed_conditions(scale)}
    assert needs["nonnegative"].role == needs["free"].role == "needed"
    assert needs["nonnegative"].breaks["f"] < 0
    assert "needed: without it the law fails at" in str(needs["nonnegative"])


def test_a_condition_too_many_is_noticed():
    @rule("exact", free_of="f", varying="a", where=[positive("f")])
    def shift(a, f):
        """max (a + f) = max a + f, for f > 0 as if that mattered"""
        return Max(a + f), Max(a) + f

    @rule("exact", where=[nonnegative("a"), positive("a")])
    def twice(a):
        """log(a^2) = 2 log a for a > 0, said twice"""
        return np.log(a * a), 2 * np.log(a)

    roles = {n.condition.kind: n.role for n in needed_conditions(shift)}
    assert roles == {"free": "needed", "positive": "not needed"}
    assert {n.role for n in needed_conditions(twice)} == {"needed"}


def test_without_a_group_its_entries_are_lost():
    found = ablate({g: GROUPS[g] for g in ("exponential", "trigonometry")}, ["softmax", "variance"])
    assert [(x.entry, x.kind) for x in found["exponential"]] == [("softmax", "verdict")]
    assert found["trigonometry"] == []


def test_a_rule_that_nothing_needs_is_dead():
    dead = ruleset("sine", list(GROUPS["trigonometry"])[:1])
    assert ablate({"sine": dead}, ["softmax"]) == {"sine": []}


def test_processes_find_the_same_losses():
    parts, entries = {"exponential": GROUPS["exponential"]}, ["softmax", "rmsnorm_projection", "entropy"]
    assert ablate(parts, entries, jobs=2) == ablate(parts, entries)


def test_the_page_of_the_ablation_reads():
    page = ablation_page({"online": [Loss("online", "softmax", "verdict", "FUSIBLE (1)", "NOT_FOUND (2)")]}, "group")
    assert "| online | 1 |  |  |  | softmax |" in page


def test_the_command_says_which_parts_are_dead(capsys):
    assert not show_ablation(each=False, jobs=1, form="json", entries=("softmax",))
    found = json.loads(capsys.readouterr().out)
    assert set(found["parts"]) == set(GROUPS)
    assert "trigonometry" in found["dead"]
    assert "online" not in found["dead"]


def test_the_command_lists_every_rule(capsys):
    assert main(["rules", "--json", "--no-check"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["name"] for r in rows] == [x.name for x in (*default, *APPROXIMATE["requantize"])]
    assert all(r["ok"] is r["conditions"] is None for r in rows)


def test_a_row_of_the_command_tells_check_and_conditions():
    row = describe(next(law for law in GROUPS["extrema"] if law.name == "max-scale"), check=True)
    assert row["ok"]
    assert row["samples"] >= 20
    assert {c["role"] for c in row["conditions"]} == {"needed"}


def test_the_command_fails_on_a_wrong_rule(monkeypatch, capsys):
    @rule("exact", free_of="f", varying="a")
    def unguarded(a, f):
        """max (a f) = (max a) f, which is false"""
        return Max(a * f), Max(a) * f

    monkeypatch.setattr("redfuser.cli.rules.default", ruleset("wrong", [unguarded]))
    assert main(["rules"]) == 1
    assert "WRONG" in capsys.readouterr().out
