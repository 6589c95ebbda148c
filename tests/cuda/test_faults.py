"""A test of the tests: every planted mistake is found, by a finding of the right kind or by a wrong result."""

from __future__ import annotations

import re
from functools import lru_cache

import kernels_by_hand as hand
import pytest
from faults import FAULTS, WRONG, Fault
from kernels_by_hand import KERNELS

from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.host import HostModule

SEEDS = (0, 1, 5)


@lru_cache(maxsize=1)
def broken() -> HostModule:
    """All broken kernels in one module, their long loops not unrolled: that makes it a third as long."""
    text = hand.joined([(f.text, f.kernel, f"bad{i}") for i, f in enumerate(FAULTS)])
    return HostModule(re.sub(r"for \(int (i|t|k0|r|s) = ", r'_Pragma("unroll 1") \g<0>', text), optimise="-O0")


def outcome(fault: Fault, kernel) -> tuple[str, CudaFault | None]:
    """What the first schedule that shows anything shows."""
    for seed in SEEDS:
        try:
            if KERNELS[fault.kernel].run(kernel, seed) > 1:
                return WRONG, None
        except CudaFault as found:
            return found.kind, found
    return "nothing", None


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[f"{f.kernel}: {f.title}" for f in FAULTS])
def test_every_mistake_is_found(host, number):
    fault = FAULTS[number]
    kind, found = outcome(fault, broken().kernel(f"{fault.kernel}_bad{number}"))
    assert kind == fault.found, found
    if found is not None and found.line:
        assert 0 < found.line <= broken().source.count("\n")
        assert found.kernel == f"{fault.kernel}_bad{number}"


def test_there_are_many():
    assert len(FAULTS) >= 60
    assert len({(f.kernel, f.title) for f in FAULTS}) == len(FAULTS)
