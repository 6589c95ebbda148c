"""The frontend: plain NumPy code is traced to a graph with symbolic sizes, then lowered to index notation."""

from redfuser.frontend.assume import assume
from redfuser.frontend.graph import Trace, check_trace
from redfuser.frontend.guards import ScopeGuard, SizeGuard
from redfuser.frontend.lower import Lowering, lower, lower_with_sources
from redfuser.frontend.order import topk
from redfuser.frontend.spec import Spec
from redfuser.frontend.trace import trace

__all__ = [
    "Lowering", "ScopeGuard", "SizeGuard", "Spec", "Trace", "assume", "check_trace", "lower", "lower_with_sources",
    "topk", "trace",
]
