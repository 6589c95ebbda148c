"""From a cascade to its incremental form: accumulators, corrections, epilogue, passes, certificate."""

from redfuser.derive.certificate import Certificate, certify
from redfuser.derive.derive import DEFAULT_LIMITS, Derivation, derive_cascade
from redfuser.derive.engine import Limits
from redfuser.derive.fusion import Accumulator, FusedCascade
from redfuser.derive.math_level import Cascade, Fusion, NotFusible, axes, derive, tensor
from redfuser.derive.passes import StageReport, Verdict
from redfuser.derive.streaming import State, run_fused

__all__ = [
    "DEFAULT_LIMITS", "Accumulator", "Cascade", "Certificate", "Derivation", "FusedCascade", "Fusion", "Limits",
    "NotFusible", "StageReport", "State", "Verdict", "axes", "certify", "derive", "derive_cascade", "run_fused",
    "tensor",
]
