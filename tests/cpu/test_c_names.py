"""Names in printed C: those of programs, of the printer and of the prelude never meet."""

from __future__ import annotations

import re

import numpy as np
import pytest
from programs import (
    N,
    R,
    agree,
    all_reductions,
    elementwise,
    r,
    row_buffer,
    row_cell,
    task_kernel,
    variants,
)

from redfuser.codegen.c import CTarget, print_c
from redfuser.codegen.nodes import At, Buf, Put, Red, Set, Sweep
from redfuser.ir import Const, Size, Var, op

pytestmark = pytest.mark.usefixtures("session_cache")


def test_a_name_of_the_program_never_meets_a_name_of_the_printer():
    """Axes, arrays and variables called like words of C, of the prelude, or of the printer's own temporaries."""
    names = ["at", "count", "left", "vec", "load", "int", "acc0", "val1", "ptr0", "args", "exp", "LANES"]
    body = []
    x = Buf("splat", (R, Size("head")), "global", "float32", 1)
    y = Buf("first", (R, Const(len(names))), "global", "float32", 1)
    for k, name in enumerate(names):
        loop = f"{name}'"
        body += [
            Sweep(
                loop, Const(0), Size("head"), (Red(name, "sum", At(x, (r, Var(loop))) * float(k + 1)),), (), 2
            ),
            Set(At(y, (r, Const(k))), Var(name)),
        ]
    kernel = task_kernel("while", "float32", [x], [y], body, ("r", "head"))
    agree(
        kernel,
        variants()[0],
        [np.random.default_rng(0).normal(size=(2, 21)).astype("f4")],
        {"r": 2, "head": 21},
        rtol=1e-4,
        atol=1e-5,
    )


def test_every_variable_of_the_printer_is_reserved():
    """Whatever the printer declares in its own name may not be the name of anything in a program."""
    from programs import product_in_place, product_packed

    from redfuser.codegen.c.names import is_own
    from redfuser.codegen.c.prelude import reserved_words

    x = row_cell("x", "float32")
    index = row_cell("index", "int64")
    table = Buf("table", (Size("k"),), "global", "float32", 0)
    kernels = [
        all_reductions("float32", 3),
        elementwise(x * 2.0, [x.buf], stream=True),
        product_in_place("panel", 3, 24),
        product_in_place("dot", 3, 5),
        product_packed(6, 32),
        elementwise(op("pow", x * x, 3), [x.buf], unit=None),
        task_kernel(
            "gather",
            "float32",
            [table, index.buf],
            [row_buffer("y", "float32")],
            (Sweep("n", Const(0), N, (), (Put(row_cell("y", "float32"), At(table, (index,))),), 2),),
            ("r", "n", "k"),
        ),
    ]
    program = {
        "i_",
        "j_",
        "l_",
        "c_",
        "x",
        "y",
        "a",
        "b",
        "r",
        "t",
        "n",
        "p",
        "i",
        "i2",
        "table",
        "index",
        "rows",
        "total",
        "packed",
    }
    for kernel in kernels:
        text = print_c(kernel, CTarget(32)).split("struct args {")[1]
        declared = re.findall(
            r"(?:int|int64_t|float|char|double|vec|ints|nan_lanes|void) (?:\*const )?\*?(?:const )?(\w+)(?= =|,|\)|;)",
            text,
        )
        assert len(declared) > 10
        for name in set(declared):
            assert (
                is_own(name)
                or name in reserved_words()
                or name in program
                or name.startswith("kernel_")
                or re.match(r"y_\w+$|\w+_(size|stride_\d|b|v)$", name)
                or name in ("prod", "max", "min", "any", "all", "sum")
            ), name


def test_only_the_needed_prelude_is_printed():

    x = row_cell("x", "float32")
    plain = print_c(elementwise(x + 1.0, [x.buf]), CTarget(32))
    assert "exponential" not in plain
    assert "double" not in plain
    assert "VECTOR_BYTES ==" not in plain
    assert print_c(elementwise(x + 1.0, [x.buf]), CTarget(32)) == plain
    assert "INLINE vec exponential(" in print_c(elementwise(op("exp", x), [x.buf]), CTarget(32))
