"""redfuser: fuse cascaded reductions into one incremental loop, provably, from plain NumPy code.

    import redfuser as rf

    @rf.fuse
    def logsumexp(x):
        m = x.max(axis=-1, keepdims=True)
        return np.log(np.exp(x - m).sum(axis=-1)) + m[..., 0]

Names are imported on first use: the equality-saturation engine and the computer algebra load only when needed.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "fuse": "redfuser.api", "spec": "redfuser.api", "Fused": "redfuser.api", "Lowered": "redfuser.api",
    "Report": "redfuser.api", "Tuning": "redfuser.api",
    "assume": "redfuser.frontend", "topk": "redfuser.frontend",
    "Cascade": "redfuser.derivation", "Fusion": "redfuser.derivation", "NotFusible": "redfuser.derivation",
    "Verdict": "redfuser.derivation", "monoid": "redfuser.derivation", "axes": "redfuser.derivation",
    "derive": "redfuser.derivation", "tensor": "redfuser.derivation",
    "check_rule": "redfuser.rules", "rule": "redfuser.rules", "ruleset": "redfuser.rules",
}
"""Public name -> module that defines it."""

_MODULES = ("errors", "rules", "testing")

if TYPE_CHECKING:
    from redfuser import errors as errors
    from redfuser import rules as rules
    from redfuser import testing as testing
    from redfuser.api import Fused as Fused
    from redfuser.api import Lowered as Lowered
    from redfuser.api import Report as Report
    from redfuser.api import Tuning as Tuning
    from redfuser.api import fuse as fuse
    from redfuser.api import spec as spec
    from redfuser.derivation import Cascade as Cascade
    from redfuser.derivation import Fusion as Fusion
    from redfuser.derivation import NotFusible as NotFusible
    from redfuser.derivation import Verdict as Verdict
    from redfuser.derivation import axes as axes
    from redfuser.derivation import derive as derive
    from redfuser.derivation import monoid as monoid
    from redfuser.derivation import tensor as tensor
    from redfuser.frontend import assume as assume
    from redfuser.frontend import topk as topk
    from redfuser.rules import check_rule as check_rule
    from redfuser.rules import rule as rule
    from redfuser.rules import ruleset as ruleset

__all__ = ["__version__", *_HOME, *_MODULES]


if os.environ.get("REDFUSER_LOGS"):
    from redfuser.logs import configure

    configure()
    del configure


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"redfuser.{name}")
    else:
        raise AttributeError(f"module 'redfuser' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
