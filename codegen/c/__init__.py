"""The C printer: tile program -> C. Knows nodes and homes, no workloads."""

from redfuser.codegen.c.kernel import entry_name, print_c
from redfuser.codegen.c.target import CTarget

__all__ = ["CTarget", "entry_name", "print_c"]
