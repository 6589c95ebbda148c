"""From a cascade to its incremental form: accumulators, corrections, epilogue, passes, certificate."""

from redfuser.derivation.certificate import Certificate, certify
from redfuser.derivation.definition import Cascade, axes, tensor
from redfuser.derivation.derive import DEFAULT_LIMITS, Derivation, derive_cascade
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.derivation.math_level import Fusion, NotFusible, derive
from redfuser.derivation.monoid import UserMonoid, monoid
from redfuser.derivation.run import run_fused
from redfuser.derivation.search import Limits
from redfuser.derivation.state import State
from redfuser.derivation.verdict import StageReport, Verdict

__all__ = [
    "DEFAULT_LIMITS", "Accumulator", "Cascade", "Certificate", "Derivation", "FusedCascade", "Fusion", "Limits",
    "NotFusible", "StageReport", "State", "UserMonoid", "Verdict", "axes", "certify", "derive", "derive_cascade",
    "monoid", "run_fused", "tensor",
]
