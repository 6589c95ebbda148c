"""Expressions that are deep, or exponentially large when written out: work is bounded by what is distinct in them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from derive_examples import ROW, X, cascade, reduction, row

import redfuser
import redfuser as rf
from redfuser.derivation import Verdict, assemble, derive_cascade, fusion, passes, selected, simplify
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.errors import DepthError
from redfuser.ir import (
    Cascade,
    Expr,
    Let,
    Load,
    Node,
    Out,
    Ref,
    free_axes,
    refs,
    rename_axes,
    rewrite,
    show,
    substitute,
    walk,
    written_size,
)
from redfuser.ir.dtypes import expr_dtype
from redfuser.ir.names import counted, free_name, numbered, unique_name

derive = importlib.import_module("redfuser.derivation.derive")  # the package has a function of that name
A, B = Load("a", ("n",)), Load("b", ("n",))


def doubled(e: Expr, times: int) -> Expr:
    """Reads itself twice, so often."""
    for _ in range(times):
        e = e * e + 1.0
    return e


def deep(e: Expr, times: int) -> Expr:
    """One operation upon the other."""
    for _ in range(times):
        e = e * 0.5 + B
    return e


def chain(length: int) -> Cascade:
    """r_i = sum x (r_{i-1} + r_{i-2})."""
    stages = [reduction("r0", "sum", X), reduction("r1", "sum", X * row("r0"))]
    stages += [reduction(f"r{i}", "sum", X * (row(f"r{i - 1}") + row(f"r{i - 2}"))) for i in range(2, length)]
    return cascade("chain", stages, "x", (Out("o", ROW, row(stages[-1].name)),))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Counts the calls of an attribute; more than a bound fails at once, instead of taking years."""

    def count(owner: Any, name: str, bound: int) -> list[int]:
        original, seen = getattr(owner, name), [0]

        def counting(*args: Any, **kwargs: Any) -> Any:
            seen[0] += 1
            assert seen[0] <= bound, f"{name} was called more than {bound} times"
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)
        return seen

    return count


def test_walking_visits_what_is_distinct():
    assert sum(1 for _ in islice(walk(doubled(A, 40)), 10_000)) == 2 + 2 * 40
    assert [str(e) for e in walk((A + B) * (A + B))] == ["(a[n] + b[n]) * (a[n] + b[n])", "a[n] + b[n]", "a[n]", "b[n]"]
    assert written_size(doubled(A, 3)) == 29


def test_what_is_shared_is_renamed_and_substituted_once(calls):
    e = doubled(A, 40)
    calls(Node, "_key", 2000)
    assert free_axes(rename_axes(e, {"n": "m"})) == {"m"}
    assert refs(substitute(e, {A: Ref("r")})) == {"r"}


def test_equal_expressions_are_compared_part_by_part_once(calls):
    one, other, different = doubled(A, 16), doubled(A, 16), doubled(B, 16)
    calls(Node, "_key", 1000)
    assert one == other
    assert one != different


def test_deep_expressions_need_no_deep_stack():
    e = deep(A, 5000)
    assert free_axes(rename_axes(e, {"n": "m"})) == {"m"}
    assert refs(substitute(e, {A: Ref("r")})) == {"r"}
    assert A not in walk(rewrite(e, lambda x: B if x == A else None))
    assert expr_dtype(e, {"a": "float32", "b": "float32"}) == "float32"


def test_large_expressions_are_printed_with_names_for_what_they_share():
    assert "where" in show(doubled(A, 12))
    text = show(doubled(A, 40))
    assert text.startswith("$39 * $39 + 1 where $1 = a[n] * a[n] + 1, $2 = $1 * $1 + 1")
    assert len(text) < 2000
    assert text != show(doubled(B, 40))
    assert "where" not in show(doubled(A, 7))


def test_long_chains_of_results_are_written_once(calls):
    calls(assemble._Builder, "expression", 100)
    calls(assemble._Reachable, "_visit", 200)
    found = derive_cascade(chain(16))
    assert (found.verdict, found.passes, found.certificate.valid) == (Verdict.FUSIBLE, 1, True)
    assert len(str(found.fused)) < 20_000


def test_levels_and_depths_are_found_once_per_name(calls):
    long = chain(60)
    calls(derive, "refs", 100)
    assert derive.dependent_stages(long) == 60
    calls(fusion, "refs", 200)
    names = [f"d{i}" for i in range(60)]
    reads = [Ref("s", ROW), Ref("s", ROW), *(Ref(a, ROW) + Ref(b, ROW) for a, b in pairwise(names))]
    dependencies = tuple(Let(n, ROW, e) for n, e in zip(names, reads, strict=False))
    fused = FusedCascade(long, (Accumulator("s", "sum", X, ROW), Accumulator("t", "sum", X * Ref("d59", ROW), ROW)),
                         dependencies, (), ())
    assert [fused.level(n) for n in ("s", "d0", "d59", "t")] == [0, 1, 1, 1]


def test_common_exponentials_are_looked_for_once(calls):
    calls(simplify, "_factors", 100_000)
    e = doubled(A, 40)
    assert simplify.cancel_exponentials(e) is e
    square: Expr = A
    for _ in range(40):
        square = square * square
    assert simplify.cancel_exponentials(square) is square
    m = Ref("m")
    assert str(simplify.cancel_exponentials(np.exp(m) * A / np.exp(m))) == "a[n]"


def test_quotients_are_looked_for_once():
    fused = derive_cascade(chain(3)).fused
    found = selected._Marking(fused)._quotients(doubled(X / row("r0"), 40), (), set())
    assert [str(q) for q, _ in islice(found, 100)] == ["1 / r0[p]"]


def test_a_function_too_deep_to_compile_is_refused_with_a_remedy():
    def nested(x, v, times):
        for _ in range(times):
            x = x * 0.5 + v
        m = x.max(-1, keepdims=True)
        return np.exp(x - m).sum(-1)

    x = np.ones((2, 8), "float32")
    for times, said in ((100, "nests 20[0-9] operations in one expression, at most [0-9]+"), (400, "chains too many")):
        with pytest.raises(DepthError, match=f"{said}.*split it into several functions"):
            rf.fuse(lambda x, v, times=times: nested(x, v, times))(x, x)


def test_a_late_stage_whose_accumulators_were_given_up_is_reported():
    skeleton = SimpleNamespace(readable=lambda e: e, cascade=None)
    model = SimpleNamespace(stage_accumulators={"s": ["acc 1", "acc 2"]}, skeleton=skeleton,
                            accumulators={"acc 2": SimpleNamespace(body=X * row("m"))})
    stage = SimpleNamespace(name="s", monoid="sum", body=X)
    report = passes._report_late(model, SimpleNamespace(changing=["m"]), stage, "why")
    assert "while m changes" in report.reason


def test_free_names():
    taken = {"d1", "sum_w", "count"}
    assert [free_name(numbered("d"), taken) for _ in range(2)] == ["d2", "d3"]
    assert [free_name(counted("sum_w"), taken) for _ in range(2)] == ["sum_w_2", "sum_w_3"]
    assert [unique_name(w, taken) for w in ("a b", "a b", "count", "2")] == ["a_b", "a_b1", "count1", "_2"]
    assert unique_name("sum", taken, always=True) == "sum0"


def test_levels_below_the_frontend_and_the_derivation_do_not_import_it():
    folder = Path(redfuser.__file__).parent
    for file in (*(folder / "derivation").glob("*.py"), *(folder / "ir").glob("*.py")):
        if file.name in ("definition.py", "monoid.py"):  # what users write by hand is traced
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        read = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not any(m.startswith("redfuser.frontend") for m in read), file.name
