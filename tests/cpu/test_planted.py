"""`check_fusion` finds every fault that is planted by seed, on an input of a few elements."""

from __future__ import annotations

import numpy as np
import pytest

from redfuser.testing.planted import BLOCK, LEVELS, fault

pytestmark = pytest.mark.usefixtures("session_cache")

FAULTS = 30


@pytest.mark.parametrize("seed", range(FAULTS))
def test_found_on_a_minimal_input(seed):
    planted = fault(seed)
    check = planted.check()
    assert not check.ok, f"{planted.text}\n{check}"
    found = check.counterexample
    assert found.kind == "unsound"
    for array in found.arrays.values():
        assert array.shape[0] == 1, "one row is enough for every fault"
        assert array.shape[1] <= BLOCK + 1, "a correction is needed once the second block begins, no earlier"
        plain = np.isin(np.abs(array), (0.0, 1.0, 2.0)).mean()
        assert plain >= 0.5 or array.size <= 3
    assert "check_fusion" in found.snippet or "run_fused" in found.snippet


def test_seeds_reach_every_level_and_are_the_same_again():
    assert {fault(s).level for s in range(len(LEVELS))} == set(LEVELS)
    assert [fault(s).text for s in range(6)] == [fault(s).text for s in range(6)]
