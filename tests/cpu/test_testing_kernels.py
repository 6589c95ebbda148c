"""`check_fusion` down to the compiled kernel: on functions, and on random cascades."""

import functions as F
import pytest

import redfuser as rf
from redfuser.testing import check_fusion, random_cascade
from redfuser.testing.inputs import KINDS

pytestmark = pytest.mark.usefixtures("session_cache")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fn", [F.softmax, F.logsumexp, F.variance, F.entropy], ids=lambda f: f.__name__)
def test_functions(fn, dtype):
    check = check_fusion(fn, rf.spec((3, 5), dtype), targets=("c",), trials=len(KINDS))
    assert check.ok, check
    assert check.steps[-1].startswith(f"compiled kernel: {len(KINDS)} runs")


@pytest.mark.parametrize("seed", range(6))
def test_random_cascades(seed):
    kinds = ("normal", "far", "ties", "nan", "long", "sorted")
    check = check_fusion(random_cascade(seed), targets=("c",), trials=len(kinds), kinds=kinds)
    assert check.ok, check
