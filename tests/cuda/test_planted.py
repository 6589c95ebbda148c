"""Faults planted by seed: every kind has places, all faults are caught, and nothing else is."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from fused_examples import logsumexp, pivoted_variance, softmax, sums
from order_examples import best, composed, peak, routing, top_positions

import redfuser as rf
from redfuser.codegen.cuda import TeamPhase
from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.passes.bodies import nested
from redfuser.errors import ArgumentError
from redfuser.extract import Options
from redfuser.testing import plant
from redfuser.testing.faults import Printed, faults_of, kinds
from redfuser.testing.faults.registry import LOOP_KINDS, TEXT_KINDS, draw
from redfuser.testing.faults.run import campaign, main
from redfuser.testing.faults.trials import Subject, alarms
from redfuser.testing.faults.waits import Unguarded

BLOCKS, SPLIT, COLUMNS = Options(block=64), Options(block=64, chunk=256), Options(strategy="columns")


def subject(name, fused, options=BLOCKS, hint=64, contiguous=""):
    """A fusion by hand, its definition as it is."""
    return Subject(name, fused.cascade, fused, options, hint, contiguous)


SUBJECTS = [
    subject("softmax", softmax()),
    subject("softmax of a warp", softmax(), Options()),
    subject("softmax of a block", softmax(), Options(), 2048),
    subject("variance", pivoted_variance(), SPLIT),
    subject("columns", logsumexp(), COLUMNS, contiguous="p"),
    subject("list", best()),
    subject("list of a block", best(), Options(), 2048),
    subject("router", routing()),
    subject("position", peak(), SPLIT),
    subject("in order", composed()),
    subject("masked by position", top_positions()),
]


def softmax_of(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_every_kind_has_places():
    found = {f.kind for s in SUBJECTS for f in faults_of(s.scheduled)}
    assert found == set(kinds())
    assert len(found) >= 40


def test_the_schedules_need_no_further_barrier():
    """Otherwise a barrier could seem to be needed that is not."""
    for s in SUBJECTS:
        for p in s.scheduled.phases:
            assert isinstance(p, TeamPhase)
            assert not Unguarded(p).anywhere(), s.name


def test_every_barrier_of_a_warp_is_needed():
    phase = SUBJECTS[5].scheduled.phases[0]
    barriers = sum(isinstance(s, Barrier) for s in nested(phase.loop.body))
    assert barriers == len(faults_of(SUBJECTS[5].scheduled, ["barrier missing"])) > 0


def test_each_fault_changes_the_program():
    for s in SUBJECTS[1:2]:
        good = s.scheduled.program
        for f in faults_of(s.scheduled):
            made = f.make()
            assert (made.source, made.launches) != (good.source, good.launches), f


@pytest.mark.parametrize("seed", [0, 1])
def test_faults_are_caught_and_good_programs_raise_no_alarm(host, seed):
    chosen = SUBJECTS[seed::2]
    planted = campaign(chosen, 4, seed)
    assert len(planted.results) == 4
    assert planted.ok, str(planted)
    assert len({r.fault.kind for r in planted.results}) == 4


def test_a_function_of_ones_own(host):
    planted = plant(softmax_of, rf.spec(("rows", "n"), "float32"), count=2, seed=5)
    assert planted.ok, str(planted)
    assert "2 of 2 faults caught (100 %)" in str(planted)


def test_the_seed_decides_which_faults():
    places = [(s.name, f) for s in SUBJECTS for f in faults_of(s.scheduled)]
    first, again, other = (draw(places, 60, random.Random(seed)) for seed in (3, 3, 4))
    assert first == again != other
    assert len({f.kind for _, f in first}) == len(kinds())
    assert len(draw(places, 10**6, random.Random(0))) == len(places)


def idle(p: Printed):
    """A fault that is none."""
    yield "an empty statement", p.with_line(0, p.lines[0], "  ;")


def test_what_nothing_catches_is_told(host, monkeypatch, capsys):
    monkeypatch.setitem(TEXT_KINDS, "nothing", idle)
    planted = campaign(SUBJECTS[:1], 1, 0, ["nothing"])
    assert not planted.ok
    assert [r.fault.kind for r in planted.survivors] == ["nothing"]
    assert "SURVIVED" in str(planted)
    assert main(["--kind", "nothing", "--subject", "causal", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["caught"], told["false_alarms"]) == (0, [])


def test_a_fault_that_leaves_the_text_as_it_is_does_not_count(monkeypatch):
    monkeypatch.setitem(LOOP_KINDS, "none", lambda loop, free: iter([("nothing", loop)]))
    assert not campaign(SUBJECTS[:1], 5, 0, ["none"]).results


def test_a_wrong_program_is_an_alarm(host):
    """The kernel of one fusion against the definition of another one."""
    fused = logsumexp()
    other = sums().cascade
    wrong = replace(subject("other", fused), cascade=other)
    assert alarms(wrong)


def test_wrong_calls():
    with pytest.raises(ArgumentError, match="no kind of fault"):
        plant(softmax_of, rf.spec(("rows", "n"), "float32"), only=["other"])
    with pytest.raises(ArgumentError, match="has none"):
        plant(lambda x: x + 1, rf.spec(("rows", "n"), "float32"))
    for wrong in (["--subject", "other"], ["--kind", "other"], ["--faults", "0"]):
        with pytest.raises(SystemExit) as found:
            main(wrong)
        assert found.value.code == 2


def test_kernels_without_a_place_for_any_kind_are_refused():
    """Nothing planted would be nothing survived."""
    def mixed(q, k, v):
        s = q @ k.T
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v

    a = rf.spec((64, 64), "float16")
    with pytest.raises(ArgumentError, match="no fault of these kinds has a place"):
        plant(mixed, a, a, a, count=2)
