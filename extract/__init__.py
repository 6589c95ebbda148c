"""Sources of `redfuser.extract` (mapped by the build; see pyproject.toml).

Scheduling decisions: device profiles, formulas, roles of axes, the plan.
"""

if __name__ != "redfuser.extract":
    raise ImportError("import redfuser.extract, not the bare folder name extract")

from redfuser.extract.decisions import Options
from redfuser.extract.plan import Plan, plan
from redfuser.extract.profile import Profile

__all__ = ["Options", "Plan", "Profile", "plan"]
