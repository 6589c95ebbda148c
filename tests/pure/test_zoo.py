"""The catalogue against the derivation: a sample of labels, data that are hard, and the command."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from redfuser.cli import main
from redfuser.cli.zoo import failed, run_zoo, summary
from redfuser.derivation import Verdict, derive_cascade
from redfuser.errors import RedfuserError
from redfuser.zoo import ENTRIES, KNOWN_WRONG, Argument, Outcome, examine, examine_all, select
from redfuser.zoo.data import arguments, contract_error

SLOW = {"six_moments", "coskewness", "importance_variance", "huber_about_mean", "gaussian_about_mean", "cross_response",
        "energy_cumulants"}
SETTLED = sorted(set(ENTRIES) - set(KNOWN_WRONG) - SLOW)
SAMPLE = random.Random(2026).sample(SETTLED, 20)
UNPROVED = {"ties_of_maximum", "ties_of_range", "value_at_maximum", "value_at_minimum", "value_at_largest_magnitude",
            "masked_layernorm", "scaled_product", "sine_squared_about_mean"}
"""Sums over what equals a running extreme, a product, selections and sines beyond what SymPy decides: the certificates
hold, the proofs stay undecided."""
FUSIBLE = [n for n in SETTLED if ENTRIES[n].verdict == "FUSIBLE" and n not in UNPROVED]
PROVED = [*random.Random(7).sample(FUSIBLE, 12), "weighted_variance",
          "quadrupole", "heat_capacity", "spectral_spread"]
"""The last four need multiples of the state's invariants."""


@pytest.mark.parametrize("name", SAMPLE)
def test_sampled_labels(name: str) -> None:
    outcome = examine(ENTRIES[name])
    assert not outcome.problem
    assert outcome.right, outcome.refusals
    assert outcome.certificate
    assert outcome.errors
    assert outcome.accurate, outcome.errors


@pytest.mark.parametrize("name", PROVED)
def test_sampled_proofs(name: str) -> None:
    proved = derive_cascade(ENTRIES[name].cascade()).certificate.prove()
    assert proved.valid, proved.steps


@pytest.mark.parametrize("name", ["near_maximum", "width_at_half_maximum", "clipped_scores", "nearest_to_mean",
                                  "largest_residual"])
def test_refusals_are_shown(name: str) -> None:
    derived = derive_cascade(ENTRIES[name].cascade())
    assert derived.verdict == ENTRIES[name].verdict
    assert derived.passes == derived.lower_bound == ENTRIES[name].passes
    assert all(s.evidence for s in derived.stages)


# ---- hard data

def test_a_dropped_correction_breaks_the_contract() -> None:
    entry = ENTRIES["softmax"]
    parts = entry.partition()
    chained = entry.cascade(parts)
    fused = derive_cascade(chained).fused
    assert fused.corrections
    assert contract_error(entry, parts, chained, fused, "mixed") <= 1
    assert contract_error(entry, parts, chained, replace(fused, corrections=()), "mixed") > 1


def test_data_sets() -> None:
    entry = ENTRIES["cross_entropy"]
    location, scores = arguments(entry, "location"), arguments(entry, "scores")
    assert abs(location["x"].mean() - 1e4) < 1
    assert location["x"].std() < 0.01
    assert scores["x"].max() > 9e3
    assert scores["x"].min() < -9e3
    np.testing.assert_array_equal(scores["t"].sum(axis=-1), 1)
    np.testing.assert_array_equal(scores["x"], arguments(entry, "scores")["x"])
    assert {a.dtype for a in scores.values()} == {np.dtype("float32")}


def test_unknown_kind_of_argument() -> None:
    with pytest.raises(ValueError, match="'x' is of kind 'integer'"):
        Argument.parse("x", "i n: integer")


# ---- verdict on an outcome

def test_what_counts_as_failed() -> None:
    entry = ENTRIES["variance"]
    good = Outcome(entry, Verdict.FUSIBLE, 2, 1, certificate=True)
    assert good.right
    assert good.minimal
    assert not failed(good, {})
    more = replace(good, accumulators=3)
    assert more.right
    assert not more.minimal
    assert not failed(more, {})
    for bad in (replace(good, found=Verdict.NOT_FOUND, passes=2), replace(good, certificate=False),
                replace(good, accumulators=1), replace(good, proved=False), replace(good, errors={"mixed": 1.5}),
                Outcome(entry, problem="EngineError: x")):
        assert failed(bad, {})
        assert not failed(bad, {"variance": "known"})
    claimed = Outcome(ENTRIES["mean_absolute_deviation"], Verdict.FUSIBLE, 2, 1, certificate=True)
    assert claimed.unsound
    assert failed(claimed, KNOWN_WRONG)


def test_a_crash_is_a_finding() -> None:
    def crash(x: object) -> None:
        raise KeyError("gone")

    outcome = examine(replace(ENTRIES["variance"], fn=crash))
    assert outcome.problem == "KeyError: 'gone'"
    assert failed(outcome, {})


def test_processes_give_the_same() -> None:
    chosen = select(["rmsnorm_projection", "sigmoid_attention"])
    (a, b), (c, d) = list(examine_all(chosen)), list(examine_all(chosen, jobs=2))
    assert replace(a, milliseconds=c.milliseconds).to_dict() == c.to_dict()
    assert replace(b, milliseconds=d.milliseconds).to_dict() == d.to_dict()


# ---- the command

def test_command_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "softmax", "absmax_matmul"]) == 0
    printed = capsys.readouterr().out
    assert "absmax_matmul" in printed
    assert "2 entries: 2 ok" in printed
    assert main(["zoo", "softmax"]) == 0
    assert "1 entry: 1 ok" in capsys.readouterr().out


def test_summary_says_what_more_is() -> None:
    outcome = replace(examine(ENTRIES["softmax"]), accumulators=3)
    assert "1 entry: 1 right with more accumulators than the least." in summary([outcome], {})


@pytest.mark.parametrize(
    ("name", "wrong", "word"),
    [
        ("softmax", {"verdict": Verdict.NOT_FUSIBLE, "passes": 2}, "UNSOUND"),
        ("softmax", {"accumulators": 3}, "WRONG"),
        ("tilt_by_mean", {"verdict": Verdict.FUSIBLE, "passes": 1}, "WRONG"),
    ],
)
def test_planted_wrong_label(name: str, wrong: dict[str, object], word: str, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(ENTRIES, name, replace(ENTRIES[name], **wrong))  # type: ignore[call-overload]
    assert main(["zoo", name]) == 1
    assert word in capsys.readouterr().out


def test_a_known_miss_is_said_aloud_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = replace(ENTRIES["softmax"], accumulators=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENTRIES, "softmax", wrong)  # type: ignore[arg-type]
        assert not run_zoo(["softmax"], family=None, jobs=1, prove=False, form="table", known={"softmax": "planted"})
    assert "WRONG: 1 of 1 entry missed the label" in capsys.readouterr().out


def test_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "softmax", "--json", "--prove"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "softmax"
    assert row["expected"] == {"verdict": "FUSIBLE", "accumulators": 2, "passes": 1}
    assert (row["found"], row["accumulators"], row["passes"]) == ("FUSIBLE", 2, 1)
    assert row["certificate"]
    assert row["proved"]
    assert row["right"]
    assert set(row["errors"]) == {"mixed", "scores", "location"}


def test_command_as_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "regret", "--markdown"]) == 0
    assert "| `regret` | FUSIBLE | 2 | 1 |" in capsys.readouterr().out


def test_page_in_the_documentation_lists_every_entry() -> None:
    page = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(ENTRIES)


def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "softmx"]) == 1
    assert "did you mean softmax?" in capsys.readouterr().err
    assert main(["zoo", "--family", "plants"]) == 1
    assert "attention, norms" in capsys.readouterr().err


def test_selection() -> None:
    assert select() == list(ENTRIES.values())
    assert [e.name for e in select(["softmax"], "losses")] == ["softmax"]
    with pytest.raises(RedfuserError, match="'variance' is of the family 'statistics', not 'losses'"):
        select(["variance", "softmax"], "losses")
    with pytest.raises(RedfuserError, match="there is no entry 'variances'; did you mean variance"):
        select(["variances"])
