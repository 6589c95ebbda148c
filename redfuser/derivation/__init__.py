"""From a cascade to its incremental form: accumulators, corrections, epilogue, passes, certificate."""

from redfuser.derivation.certificate import Certificate, certify
from redfuser.derivation.derive import DEFAULT_LIMITS, Derivation, derive_cascade
from redfuser.derivation.engine import Limits
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.derivation.math_level import Cascade, Fusion, NotFusible, axes, derive, tensor
from redfuser.derivation.passes import StageReport, Verdict
from redfuser.derivation.streaming import State, run_fused

__all__ = [
    "DEFAULT_LIMITS", "Accumulator", "Cascade", "Certificate", "Derivation", "FusedCascade", "Fusion", "Limits",
    "NotFusible", "StageReport", "State", "Verdict", "axes", "certify", "derive", "derive_cascade", "run_fused",
    "tensor",
]
