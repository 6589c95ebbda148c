"""Sources of `redfuser.codegen` (mapped by the build; see pyproject.toml).

Tile programs: nodes, checker, text, interpreter, and the builders that turn a plan into a program.
"""

if __name__ != "redfuser.codegen":
    raise ImportError("import redfuser.codegen, not the bare folder name codegen")

from redfuser.codegen.build import build
from redfuser.codegen.check import check_kernel
from redfuser.codegen.interpret import run_kernel
from redfuser.codegen.nodes import Kernel
from redfuser.codegen.show import show_kernel

__all__ = ["Kernel", "build", "check_kernel", "run_kernel", "show_kernel"]
