"""The public programming interface: `fuse`, `spec`, reports and staged views."""

from redfuser.api.built import Stats
from redfuser.api.decorate import fuse, spec
from redfuser.api.fused import Fused
from redfuser.api.lowered import Lowered
from redfuser.api.report import CascadeReport, KernelInfo, Refusal, Report
from redfuser.pipeline import Tuning

__all__ = ["CascadeReport", "Fused", "KernelInfo", "Lowered", "Refusal", "Report", "Stats", "Tuning", "fuse",
           "spec"]
