"""Random cascades: the grammar reaches fusible chains, strategies draw valid ones, the fuzzer finds mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from derive_examples import EXAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redfuser.derivation import derive_cascade
from redfuser.derivation.derive import dependent_stages
from redfuser.ir import check_cascade, has_parts, parts_monoid, refs, run_cascade
from redfuser.testing import cascade_inputs, cascades, check_fusion, random_cascade
from redfuser.testing import fuzz as fuzzer
from redfuser.testing.fuzz import fuzz, main

PROGRAMS = 300
KINDS = ("normal", "far", "nan")
QUIET = settings(max_examples=12, deadline=None, derandomize=True, database=None,
                 suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(scope="module")
def report():
    return fuzz(PROGRAMS, kinds=KINDS, inputs=3, jobs=2)


def test_random_cascades_are_sound(report):
    assert report.programs == PROGRAMS
    assert not [f for f in report.findings if f.kind != "inaccurate"], report
    assert report.kinds()["inaccurate"] <= PROGRAMS // 20, report  # a spread of computed scores has no pivot
    assert not report.undecided


def test_most_random_cascades_are_fusible_chains(report):
    """At least 40 % run in one pass although they have two or more dependent stages; some are refused."""
    assert report.fusible_chains >= 0.4
    assert {"FUSIBLE", "NOT_FUSIBLE"} <= {verdict for _, verdict in report.table}
    assert max(depth for depth, _ in report.table) >= 4


def test_the_grammar_reaches_what_people_write():
    """Monoids, powers to 6, masks, positions, several dependencies in one term, chains of five."""
    programs = [random_cascade(s) for s in range(3000)]
    assert {"sum", "prod", "max", "min", "any", "all"} <= {r.monoid for c in programs for r in c.reductions}
    text = "\n".join(map(str, programs))
    assert all(part in text for part in ("** 6", "select", "abs(w[n])", "tanh", "prod", "/ |n|"))
    assert max(map(dependent_stages, programs)) >= 5
    assert max(len(refs(r.body)) for c in programs for r in c.reductions) >= 2
    assert {len(c.producers) for c in programs} >= {0, 1, 2}


def test_the_report_reads_and_is_plain_data(report):
    assert f"{PROGRAMS} programs from seed 0" in str(report)
    assert "dependent stages" in str(report)
    plain = json.loads(json.dumps(report.to_dict()))
    assert sum(row["programs"] for row in plain["histogram"]) == PROGRAMS
    assert len(plain["times"]["slowest_derivations"]) == 5


def test_a_seed_gives_one_program():
    assert [random_cascade(s) for s in range(9)] == [random_cascade(s) for s in range(9)]
    assert len({str(random_cascade(s)) for s in range(40)}) > 35


def unsound(cascade):
    """A derivation that forgets every correction."""
    found = derive_cascade(cascade)
    return replace(found, fused=replace(found.fused, corrections=()))


def test_an_unsound_derivation_is_found(monkeypatch, capsys):
    program = next(s for s in range(9) if derive_cascade(random_cascade(s)).fused.corrections)
    wrong = fuzz(1, program, kinds=("normal",), derive=unsound)
    assert {f.kind for f in wrong.findings} == {"unsound"}
    assert "arrays = {" in wrong.findings[0].text
    monkeypatch.setattr(fuzzer, "fuzz", lambda *a, **k: wrong)
    assert main(["--n", "1"]) == 1
    assert f"program {program}: unsound" in capsys.readouterr().out


def test_a_finding_is_made_small():
    """Stages that the mistake does not need are left out of the program, and the input is minimised."""
    program = next(s for s in range(60) if len(random_cascade(s).reductions) >= 5
                   and derive_cascade(random_cascade(s)).fused.corrections)
    (finding,) = fuzz(1, program, kinds=("normal",), inputs=2, derive=unsound).findings
    assert finding.text.count("Reduction(") < len(random_cascade(program).reductions)


def test_rounding_beyond_the_contract_is_not_called_unsound():
    plain = derive_cascade(EXAMPLES["variance"], pivot=False).fused
    found = check_fusion(EXAMPLES["variance"], fused=plain, targets=(), kinds=("far",)).counterexample
    assert found.kind == "inaccurate"
    assert found.excess > 1
    assert "right over the reals" in str(found)
    wrong = check_fusion(EXAMPLES["variance"], fused=replace(plain, corrections=()), targets=(), kinds=("normal",))
    assert wrong.counterexample.kind == "unsound"


def test_processes_find_the_same():
    one, two = (fuzz(4, 3, kinds=KINDS, inputs=2, jobs=jobs).to_dict() for jobs in (1, 2))
    assert {k: v for k, v in one.items() if k != "times"} == {k: v for k, v in two.items() if k != "times"}


def test_a_saved_run_is_continued(tmp_path, capsys):
    file = tmp_path / "run.json"
    options = ["--kinds", "normal", "--inputs", "1", "--json", "--save", str(file)]
    assert main(["--n", "2", *options]) == 0
    assert main(["--n", "4", *options]) == 0
    capsys.readouterr()
    assert main(["--n", "4", *options]) == 0
    continued = json.loads(capsys.readouterr().out)
    assert continued["programs"] == 4
    once = fuzz(4, kinds=("normal",), inputs=1).to_dict()
    assert {k: v for k, v in continued.items() if k != "times"} == {k: v for k, v in once.items() if k != "times"}
    with pytest.raises(SystemExit):
        main(["--n", "4", "--seed", "1", *options])


def test_an_exception_is_a_finding_and_the_run_goes_on():
    def failing(cascade):
        if cascade == random_cascade(1):
            raise RuntimeError("planted")
        return derive_cascade(cascade)

    found = fuzz(3, kinds=("normal",), derive=failing)
    assert found.programs == 3
    assert [(f.program, f.kind) for f in found.findings] == [(1, "exception")]
    assert "planted" in found.findings[0].text
    assert "Cascade('random1'" in found.findings[0].text


def test_a_time_limit_ends_a_run():
    assert fuzz(1000, seconds=0.0).programs <= 1


def test_the_command_line():
    done = subprocess.run([sys.executable, "-m", "redfuser.testing.fuzz", "--n", "2", "--seed", "5", "--json",
                           "--kinds", "normal,ties"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["programs"] == 2
    assert done.stderr == ""


def test_wrong_usage_is_status_2(capsys):
    for arguments in (["--n", "0"], ["--kinds", "odd"]):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
    assert "known are" in capsys.readouterr().err


@QUIET
@given(st.data())
def test_strategies_draw_valid_cascades_and_inputs(data):
    cascade = data.draw(cascades())
    check_cascade(cascade)
    arrays = data.draw(cascade_inputs(cascade))
    results = run_cascade(cascade, arrays)
    names = {r.name for r in cascade.reductions if not has_parts(r.monoid)}
    names |= {f"{r.name}.{p}" for r in cascade.reductions if has_parts(r.monoid) for p in parts_monoid(r.monoid).parts}
    assert results.keys() == names | {x.name for x in cascade.outs}
    assert dependent_stages(cascade) >= 1


@QUIET
@given(cascade_inputs(EXAMPLES["weighted_variance"], kinds=("plain", "ties", "far")))
def test_drawn_inputs_pass_the_check(arrays):
    assert check_fusion(EXAMPLES["weighted_variance"], *arrays.values(), trials=0, targets=())


@QUIET
@given(cascade_inputs(EXAMPLES["softmax"], kinds=("special",)))
def test_special_inputs_are_drawn(arrays):
    assert arrays["x"].ndim == 2
    assert check_fusion(EXAMPLES["softmax"], arrays["x"], trials=0, targets=())


def test_a_spread_about_the_mean_of_nothing_is_nan():
    x = np.full((1, 2), -np.inf)
    assert check_fusion(EXAMPLES["weighted_variance"], x, np.array([[1.0, 2.0]]), trials=0, targets=(), shrink=False)


def test_a_scaled_sum_of_nothing_is_0():
    assert check_fusion(EXAMPLES["rms_dot"], kinds=("empty",), targets=(), shrink=False)


@pytest.mark.parametrize("program", [18748, 19278])
def test_an_infinite_scale_reaches_what_reads_its_readers(program):
    """A scale of infinity divided out of a sum leaves NaN in results that read that sum, not the scale."""
    assert not [f for f in fuzz(1, seed=program).findings if f.kind == "unsound"]
