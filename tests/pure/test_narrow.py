"""A reduction that a single element enters reads that element."""

import numpy as np
import pytest

import redfuser as rf
from redfuser.codegen.names import Names
from redfuser.codegen.narrow import only_place, read_place
from redfuser.codegen.nodes import At, Buf, If, Red, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.ir import Const, Size, Var, op, select

N = Size("n")
X = At(Buf("x", (N,), "global", "float32", 0), (Var("n"),))
J = At(Buf("j", (), "global", "int64"), ())
F = At(Buf("f", (), "global", "float32"), ())


@pytest.mark.parametrize(("monoid", "expr", "place"), [
    ("sum", select(op("eq", Var("n"), J), X, 0.0), J),
    ("sum", select(op("eq", J, Var("n")), X * 2.0, 0.0), J),
    ("max", select(op("eq", Var("n"), Const(3)), X, float("-inf")), Const(3)),
    ("sum", select(op("eq", Var("n"), J), X, 1.0), None),  # others count
    ("max", select(op("eq", Var("n"), J), X, 0.0), None),
    ("sum", select(op("ne", Var("n"), J), X, 0.0), None),
    ("sum", select(op("eq", Var("n"), op("sub", N, Var("n"))), X, 0.0), None),  # another place for each element
    ("sum", select(op("eq", X, J), X, 0.0), None),
    ("sum", select(op("eq", Var("n"), F), X, 0.0), None),  # no whole number
    ("sum", X, None),
])
def test_which_reductions_one_element_enters(monoid, expr, place):
    found = only_place(Red("r", monoid, expr), "n", Names().kinds)
    assert (None if found is None else found[0]) == place


def test_the_element_is_read_only_inside_the_range():
    names = Names()
    r = Red(names.scalar("r", "float32").name, "sum", select(op("eq", Var("n"), J), X, 0.0))
    statements = read_place(r, "n", (J, X), Const(0), N, names)
    (guarded,) = [s for s in statements if isinstance(s, If)]
    assert str(guarded.condition) == "0 <= place & place < |n|"
    assert "x" in str(guarded.body[0])


def test_cross_entropy_keeps_one_sweep_for_the_maximum_alone():
    def loss(x, target):
        m = x.max(-1, keepdims=True)
        return np.log(np.exp(x - m).sum(-1)) + m[:, 0] - x[np.arange(x.shape[0]), target]

    x, target = np.zeros((3, 50), np.float32), np.zeros(3, np.int64)
    (kernel,) = rf.fuse(loss, target="interpret").lower(x, target).tiles
    sweeps = [s for p in kernel.phases for s in nested(p.loop.body) if isinstance(s, Sweep)]
    assert [[r.monoid for r in s.reds] for s in sweeps] == [["max"], ["sum"]] * 2
