"""Property-based tests of fusions: of redfuser's own, and of your functions, cascades, rules and operators.

    from redfuser.testing import assert_fusion
    assert_fusion(my_function, rf.spec(("rows", "n"), "float32"))

`check_*` return a result that is true or false and prints what was found; `assert_*` raise `CheckFailed`, an
AssertionError with the same text. Needs the extra `testing` (hypothesis, mpmath). `python -m redfuser.testing.fuzz`
tries random cascades, `python -m redfuser.testing.planted` faults that the checks must find, `plant` and `python -m
redfuser.testing.faults` faults in CUDA kernels.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redfuser.errors import CheckFailed
from redfuser.rules import Check as RuleCheck
from redfuser.rules import check_rule
from redfuser.testing.assertions import assert_close, assert_fusion, assert_monoid, assert_rule
from redfuser.testing.check import check_fusion
from redfuser.testing.grammar import random_cascade
from redfuser.testing.monoid_check import MonoidCheck, check_monoid
from redfuser.testing.mutate import mutants, mutate_fused
from redfuser.testing.mutate_tiles import mutate_tiles, tile_mutants
from redfuser.testing.result import Counterexample, FusionCheck

if TYPE_CHECKING:
    from redfuser.testing.faults.run import plant as plant
    from redfuser.testing.layouts import shapes_and_strides as shapes_and_strides
    from redfuser.testing.monoid_strategy import monoid_values as monoid_values
    from redfuser.testing.monoid_strategy import monoids as monoids
    from redfuser.testing.strategies import cascade_inputs as cascade_inputs
    from redfuser.testing.strategies import cascades as cascades

_LATER = {"cascade_inputs": "strategies", "cascades": "strategies", "monoid_values": "monoid_strategy",
          "monoids": "monoid_strategy", "plant": "faults.run", "shapes_and_strides": "layouts"}
"""Name -> its module, imported on first use: strategies need hypothesis, faults the host executor."""

__all__ = ["CheckFailed", "Counterexample", "FusionCheck", "MonoidCheck", "RuleCheck", "assert_close", "assert_fusion",
           "assert_monoid", "assert_rule", "cascade_inputs", "cascades", "check_fusion", "check_monoid", "check_rule",
           "monoid_values", "monoids", "mutants", "mutate_fused", "mutate_tiles", "plant", "random_cascade",
           "shapes_and_strides", "tile_mutants"]


def __getattr__(name: str) -> Any:
    """Names that are imported on first use."""
    if name in _LATER:
        return getattr(import_module(f"redfuser.testing.{_LATER[name]}"), name)
    raise AttributeError(f"module 'redfuser.testing' has no attribute {name!r}")
