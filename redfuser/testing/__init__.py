"""Property-based tests of fusions: of redfuser's own, and of your functions, cascades and rules.

    from redfuser.testing import check_fusion
    print(check_fusion(my_function, rf.spec(("rows", "n"), "float32")))

Needs the extra `testing` (hypothesis, mpmath). `python -m redfuser.testing.fuzz` tries random cascades, `plant` plants
faults in CUDA kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redfuser.rules import check_rule
from redfuser.testing.check import Counterexample, FusionCheck, check_fusion
from redfuser.testing.grammar import random_cascade
from redfuser.testing.mutate import mutants, mutate_fused

if TYPE_CHECKING:
    from redfuser.testing.faults.run import plant as plant
    from redfuser.testing.strategies import cascade_inputs as cascade_inputs
    from redfuser.testing.strategies import cascades as cascades

__all__ = ["Counterexample", "FusionCheck", "cascade_inputs", "cascades", "check_fusion", "check_rule", "mutants",
           "mutate_fused", "plant", "random_cascade"]


def __getattr__(name: str) -> Any:
    """The hypothesis strategies and the faults of CUDA kernels, imported on first use."""
    if name in ("cascade_inputs", "cascades"):
        from redfuser.testing import strategies

        return getattr(strategies, name)
    if name == "plant":
        from redfuser.testing.faults.run import plant

        return plant
    raise AttributeError(f"module 'redfuser.testing' has no attribute {name!r}")
