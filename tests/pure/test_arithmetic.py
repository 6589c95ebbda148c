"""Numbers of many digits: gmpy2's and mpmath's say the same, and the caller's own settings do not matter."""

import math

import mpmath
import pytest

from redfuser.derivation import evidence
from redfuser.derivation.certificate import certify
from redfuser.derivation.derive import derive_cascade
from redfuser.ir import OPS
from redfuser.rules import arithmetic
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.real import Undefined, real_operations
from redfuser.zoo import ENTRIES

gmpy2 = pytest.importorskip("gmpy2", reason="gmpy2 is not installed: there is one arithmetic only")

NUMBERS = ("-2.5", "-1", "-0.5", "0", "0.1", "0.5", "1", "1.5", "2.5", "3", "1e-30", "1e30", "inf", "-inf", "nan")


@pytest.fixture
def by_mpmath(monkeypatch):
    """The arithmetic of those who have no gmpy2."""
    monkeypatch.setattr(arithmetic._local, "context", arithmetic._own_mpmath())


def outcome(f, *args):
    try:
        found = f(*args)
    except (Undefined, OverflowError, ValueError):
        return "undefined"
    return found if isinstance(found, bool) else mpmath.mpf(str(found))


@pytest.mark.parametrize("ieee", [False, True])
@pytest.mark.parametrize("name", real_operations(context(), True))
def test_operations_agree(name, ieee):
    """Every operation on every pair of numbers, to 25 digits."""
    one, other = arithmetic._mpfr(), arithmetic._own_mpmath()
    with one.workdps(30), other.workdps(30), mpmath.workdps(25):
        first, second = (real_operations(mp, True, ieee)[name] for mp in (one, other))
        count = OPS[name].arity
        for a in NUMBERS:
            for b in NUMBERS if count > 1 else ("1",):
                given = [[mp.mpf(x) for x in (a, b, "7")[:count]] for mp in (one, other)]
                left, right = outcome(first, *given[0]), outcome(second, *given[1])
                if left == right or (left != left and right != right):
                    continue
                if name == "pow" and {"1e30", "inf", "-inf", "nan"} & {a, b}:
                    continue  # exponents of gmpy2 end at 2^30, and it follows IEEE where there is no number
                assert not isinstance(left, (str, bool)), (a, b, left, right)
                assert not isinstance(right, (str, bool)), (a, b, left, right)
                assert mpmath.almosteq(left, right, 1e-20), (a, b, left, right)


@pytest.mark.parametrize("name", ["variance", "scaled_attention", "kl_divergence"])
def test_certificates_without_gmpy2(name, by_mpmath):
    found = derive_cascade(ENTRIES[name].cascade())
    assert type(context()) is mpmath.MPContext
    assert certify(found.fused).valid


def test_evidence_without_gmpy2(by_mpmath):
    cascade = ENTRIES["mean_absolute_deviation"].cascade()
    stage = cascade.reductions[-1].name
    evidence._growth.cache_clear()  # or what gmpy2 found would do
    assert evidence.growth(cascade, stage).growing
    evidence._growth.cache_clear()


def test_settings_of_the_caller():
    """Neither precision nor traps of the caller's own numbers reach ours, nor ours theirs."""
    with gmpy2.context(precision=10, trap_divzero=True, trap_inexact=True):
        with precision(50):
            third = context().mpf(1) / 3
            assert str(third).startswith("0." + "3" * 48)
        assert gmpy2.get_context().precision == 10
        assert gmpy2.get_context().trap_inexact
    assert math.isclose(third, 1 / 3)
