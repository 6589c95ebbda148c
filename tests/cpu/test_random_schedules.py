"""Random schedules of every kind compute the definition; see `redfuser.testing.schedules`.

`REDFUSER_SCHEDULES=1000` runs as many, `REDFUSER_SCHEDULES_SEED` starts elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from redfuser.codegen.build import build
from redfuser.extract import Options
from redfuser.testing import schedules
from redfuser.testing.schedule_cases import CASES

pytestmark = pytest.mark.usefixtures("session_cache")

NUMBER = int(os.environ.get("REDFUSER_SCHEDULES", 2 * len(CASES)))
SEED = int(os.environ.get("REDFUSER_SCHEDULES_SEED", 0))


@pytest.mark.parametrize("number", range(SEED, SEED + NUMBER))
def test_a_random_schedule_computes_the_definition(number):
    assert schedules.check(schedules.draw(number)) is None


def test_every_decision_is_drawn():
    drawn = [schedules.draw(n) for n in range(200)]
    assert {s.case for s in drawn} == set(CASES)
    for name in Options.__dataclass_fields__:
        values = {getattr(s.options, name) for s in drawn}
        assert None in values
        assert len(values) > 2
    assert {s.dtype for s in drawn} == {"float32", "float64"}
    assert any(order != tuple(sorted(order)) for s in drawn for order, _ in s.memory.values())
    assert any(gap == 2 for s in drawn for _, gap in s.memory.values())
    assert schedules.draw(7) == schedules.draw(7)


def test_a_wrong_kernel_is_found(monkeypatch):
    """A schedule that loses corrections, one that reads beyond its rows' results, one that differs between runs."""
    soft = replace(schedules.draw(0), case="softmax", dtype="float32", options=Options(block=4, strategy="rows"),
                   sizes={"p": 3, "n": 33}, memory={"x": ((0, 1), 1), "out": ((0, 1), 1)})
    assert schedules.check(soft) is None

    def uncorrected(plan):
        assert plan.flat.corrections
        return build(replace(plan, flat=replace(plan.flat, corrections=())))

    monkeypatch.setattr(schedules, "build", uncorrected)
    assert "times what is allowed" in str(schedules.check(soft))
    monkeypatch.setattr(schedules, "build", build)

    def restless(kernel, **how):
        made = compiled(kernel, **how)
        run = made.run

        def moved(arrays, outs, sizes, *, threads):
            run(arrays, outs, sizes, threads=threads)
            if threads == 1:
                outs[0][...] = np.nextafter(outs[0], np.float32(2))

        made.run = moved
        return made

    compiled = schedules.compile_kernel
    monkeypatch.setattr(schedules, "compile_kernel", restless)
    assert "kernel on 1 thread gives other bits of out than kernel on 2 threads" in str(schedules.check(soft))
