"""Faults planted in CUDA kernels by seed: a test of the host executor, and of the comparison with the definition.

    from redfuser.testing import plant
    print(plant(my_function, rf.spec(("rows", "n"), "float32"), count=40, seed=0))

`python -m redfuser.testing.faults` does so for functions of its own. Kinds of faults are small functions that register
themselves: see `registry`.
"""

from redfuser.testing.faults import bounds, cells, states, threads, waits
from redfuser.testing.faults.registry import (
    Fault,
    Printed,
    Scheduled,
    faults_of,
    kinds,
    loop_kind,
    phase_kind,
    text_kind,
)

__all__ = ["Fault", "Printed", "Scheduled", "bounds", "cells", "faults_of", "kinds", "loop_kind", "phase_kind",
           "states", "text_kind", "threads", "waits"]
