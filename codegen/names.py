"""Names of a phase: every variable gets its own, so nothing is captured whatever axes and accumulators are called."""

from __future__ import annotations

import re
from collections.abc import Iterable

from redfuser.codegen.kinds import BOOL, INT, dtype_kind, kind_of
from redfuser.codegen.nodes import At
from redfuser.ir import Expr, Var, walk

RESERVED = ("i_", "j_", "k_", "l_", "c_", "z_")
"""Index variables of matrix products, packing and sorted lists."""


class Names:
    """Hands out unique identifiers and remembers the dtype of scalar variables."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*RESERVED, *taken}
        self.dtypes: dict[str, str] = {}

    def fresh(self, base: str) -> str:
        """An identifier that reads like `base` and is new."""
        stem = re.sub(r"\W", "_", base.replace("'", "p")).strip("_") or "v"
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name

    def integer(self, base: str) -> Var:
        """A new integer variable."""
        return Var(self.fresh(base))

    def scalar(self, base: str, dtype: str) -> Var:
        """A new scalar variable of a dtype."""
        name = self.fresh(base)
        self.dtypes[name] = dtype
        return Var(name)

    def dtype_of(self, e: Expr, compute: str) -> str:
        """Dtype of a scalar expression: float64 as soon as a float64 scalar takes part, bool for truth values."""
        if kind_of(e, self.kinds) == BOOL:
            return "bool"
        for x in walk(e):
            wide_cell = isinstance(x, At) and x.buf.home != "global" and x.buf.dtype == "float64"
            if wide_cell or (isinstance(x, Var) and self.dtypes.get(x.name) == "float64"):
                return "float64"
        return compute

    @property
    def kinds(self) -> dict[str, str]:
        """Variable name -> kind; names that are absent are integers."""
        return {name: dtype_kind(dtype) for name, dtype in self.dtypes.items() if dtype_kind(dtype) != INT}
