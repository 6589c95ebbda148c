"""The tracer: dtypes, symbolic sizes, guards on them, the trace itself and its lowering."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redfuser.errors import CheckError, DTypeError, ShapeError, TraceError
from redfuser.frontend import SizeGuard, Spec, Trace, check_trace, lower, lower_with_sources, trace

X = Spec((3, 5), "float32")


def dtype_of(fn: Callable[..., Any], *specs: Spec) -> str:
    traced = trace(fn, list(specs))
    return traced.nodes[traced.outputs[0]].dtype


# ---- specs


def test_spec_of_values() -> None:
    assert Spec.of(np.zeros((2, 1), "int32")) == Spec((2, 1), "int32")
    assert Spec.of(2.5) == Spec((), "float64", weak=True)
    assert Spec.of(2) == Spec((), "int64", weak=True)
    assert Spec.of(True) == Spec((), "bool")
    assert Spec.of(np.float32(1)) == Spec((), "float32")
    assert str(Spec(("n", 4), "float32")) == "float32[n, 4]"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Spec((-1,)), ShapeError, "negative"),
        (lambda: Spec((1.5,)), ShapeError, "must be an int"),  # type: ignore[arg-type]
        (lambda: Spec(("2n",)), ShapeError, "identifier"),
        (lambda: Spec((2,), "complex64"), DTypeError, "complex64"),
        (lambda: Spec.of("text", "argument 'x'"), DTypeError, "argument 'x'"),
    ],
)
def test_bad_specs(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# ---- dtypes follow NumPy


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 2, lambda x: x * 2.5, lambda x: x * np.float64(2), lambda x: x / 2, lambda x: x > 1,
        lambda x: x**2, lambda x: np.sqrt(2) * x, lambda x: x * np.array(3.0), lambda x: x.sum(dtype=np.float64),
        lambda x: x.sum(), lambda x: x.mean(0), lambda x: np.exp(x), lambda x: x + np.arange(x.shape[1]),
        lambda x: np.where(x > 0, x, 0), lambda x: x.max(1), lambda x: x / math.sqrt(x.shape[0]),
        lambda x: x / np.sqrt(x.shape[0]), lambda x: x * x.shape[1] ** -0.5, lambda x: x @ x.T,
        lambda x: np.zeros(x.shape), lambda x: (x > 0).sum(), lambda x: -abs(x), lambda x: x.astype(np.float64) + x,
        lambda x: np.ones_like(x),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_result_dtype_is_numpys(fn: Callable[..., Any], dtype: str) -> None:
    x = np.arange(1, 7).reshape(2, 3).astype(dtype)
    assert dtype_of(fn, Spec.of(x)) == fn(x).dtype.name


def test_python_scalar_arguments_are_weak() -> None:
    assert dtype_of(lambda x, s: x * s, X, Spec.of(0.5)) == "float32"
    assert dtype_of(lambda x, s: x * s, X, Spec((), "float64")) == "float64"
    term = lower(trace(lambda x, s: x * s, [X, Spec.of(0.5)]))
    assert {t.dtype for t in term.tensors} == {"float32"}  # a Python number must not widen the computation


# ---- sizes


def test_sizes_stay_symbolic_through_arithmetic() -> None:
    traced = trace(lambda x: x * x.shape[-1] ** -0.5 + math.sqrt(x.shape[0]) + x.size // 2, [X])
    assert not any(s.fixed for s in traced.sizes)
    assert traced.guards == ()
    x = np.ones((7, 4), "float32")
    np.testing.assert_allclose(traced.run({"x": x}), x * 4**-0.5 + math.sqrt(7) + 14)


def test_a_size_of_one_is_static() -> None:
    traced = trace(lambda x, y: x + y, [Spec((1, 5)), Spec((3, 5))])
    assert traced.inputs()["x"].shape[0] == 1
    problem = traced.mismatch({"x": Spec((3, 5)), "y": Spec((3, 5))})
    assert problem is not None
    assert "'x'" in problem


def test_concrete_use_fixes_the_size() -> None:
    def unrolled(x):
        total = 0.0
        for i in range(x.shape[0]):
            total = total + x[i]
        return total

    traced = trace(unrolled, [X])
    fixed = [s for s in traced.sizes if s.fixed]
    assert [s.value for s in fixed] == [3]
    x = np.arange(15.0, dtype="float32").reshape(3, 5)
    np.testing.assert_allclose(traced.run({"x": x}), x.sum(0))
    assert traced.mismatch({"x": Spec((4, 5), "float32")}) is not None
    assert traced.mismatch({"x": Spec((3, 9), "float32")}) is None
    assert lower(traced).axes[0].size == 3


def test_branches_on_sizes_become_guards() -> None:
    def branch(x):
        return x.sum(0) if x.shape[0] > 2 else x.max(0)

    traced = trace(branch, [X])
    (guard,) = traced.guards
    assert isinstance(guard, SizeGuard)
    assert guard.expected
    assert "x.shape[0] > 2" in str(guard)
    assert not any(s.fixed for s in traced.sizes)
    assert traced.mismatch({"x": Spec((9, 5), "float32")}) is None
    assert "no longer true" in str(traced.mismatch({"x": Spec((2, 5), "float32")}))


def test_sizes_found_equal_become_one() -> None:
    def checked(x, y):
        assert x.shape == y.shape
        return x.sum(), y.sum()

    traced = trace(checked, [Spec((3, 5)), Spec((3, 5))])
    assert len(traced.sizes) == 2
    assert traced.guards == ()
    with pytest.raises(ShapeError, match="'y'"):
        traced.run({"x": np.ones((3, 5)), "y": np.ones((3, 4))})


def test_a_fixed_position_needs_a_long_enough_axis() -> None:
    traced = trace(lambda x: x[:, 3], [X])
    assert traced.mismatch({"x": Spec((3, 4), "float32")}) is None
    assert traced.mismatch({"x": Spec((3, 2), "float32")}) is not None


def test_a_position_from_the_end_fixes_the_size() -> None:
    traced = trace(lambda x: x[:, -1], [X])
    x = np.arange(15.0, dtype="float32").reshape(3, 5)
    np.testing.assert_array_equal(traced.run({"x": x}), x[:, -1])
    assert traced.mismatch({"x": Spec((3, 6), "float32")}) is not None


def test_a_symbolic_size_has_no_concrete_value() -> None:
    with pytest.raises(TraceError, match=r"axis n, which is symbolic.*\n.*range"):
        trace(lambda x: sum(x[i] for i in range(x.shape[0])), [Spec(("n",))])


def test_equal_names_are_equal_sizes() -> None:
    traced = trace(lambda x, y: (x.sum(), y.sum()), [Spec(("n",)), Spec(("n",))])
    assert [s.label for s in traced.sizes] == ["n"]
    with pytest.raises(ShapeError, match="different names"):
        trace(lambda x, y: x + y, [Spec(("n",)), Spec(("m",))])


def test_stop_may_be_the_size_itself() -> None:
    traced = trace(lambda x: x[: x.shape[0], 0 : x.shape[1]], [X])
    x = np.ones((2, 4), "float32")
    assert traced.run({"x": x}).shape == (2, 4)


# ---- in-place arithmetic


def test_in_place_arithmetic_keeps_dtype_and_reaches_aliases() -> None:
    def fn(x):
        y = x + 1
        z = y
        y *= np.float64(3)
        return z

    traced = trace(fn, [X])
    x = np.ones((3, 5), "float32")
    assert traced.run({"x": x}).dtype == np.float32
    np.testing.assert_array_equal(traced.run({"x": x}), fn(x))


@pytest.mark.parametrize("fn", [
    lambda x: x.__imul__(2),
    lambda x: (y := x + 1, y.T, y.__imul__(2))[2],
])
def test_in_place_arithmetic_on_shared_memory_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match="in-place"):
        trace(fn, [X])


# ---- the trace itself


def small() -> Trace:
    return trace(lambda x: {"a": (x - x.max(1, keepdims=True)).sum(1), "b": [x, 3]}, [X])


def test_text_shows_operations_and_lines() -> None:
    text = str(small())
    assert "reduce" in text
    assert "x.max(1, keepdims=True)" in text
    assert "return %" in text


def test_unflatten_restores_structure_units_and_scalars() -> None:
    traced = trace(lambda x: {"a": x.max(1, keepdims=True), "b": [x.sum(), None]}, [X])
    result = traced.unflatten([np.ones(3), np.array(2.0)])
    assert result["a"].shape == (3, 1)
    assert isinstance(result["b"][0], np.float64)
    assert result["b"][1] is None
    assert traced.output_names() == ("out_a", "out_b_0")
    with pytest.raises(ShapeError, match="2 outputs"):
        traced.unflatten([np.ones(3)])


def test_checker_finds_broken_graphs() -> None:
    good = small()
    check_trace(good)
    nodes = list(good.nodes)
    broken = type(nodes[1])("reduce", (len(nodes),), nodes[1].shape, "float32")
    with pytest.raises(CheckError, match="later node"):
        check_trace(Trace("t", (nodes[0], broken), good.arguments, {}, (1,), good.structure, good.sizes))
    unknown = type(nodes[1])("fft", (0,), nodes[1].shape, "float32")
    with pytest.raises(CheckError, match="unknown operation"):
        check_trace(Trace("t", (nodes[0], unknown), good.arguments, {}, (1,), good.structure, good.sizes))


def test_replay_checks_the_recorded_dtype() -> None:
    good = small()
    wrong = type(good.nodes[0])("reduce", (0,), (good.nodes[0].shape[0],), "float64", ("add", (1,), False))
    bad = Trace("t", (good.nodes[0], wrong), good.arguments, {}, (1,), trace(lambda x: x, [X]).structure, good.sizes)
    with pytest.raises(CheckError, match="replays with dtype float32"):
        bad.run({"x": np.ones((3, 5), "float32")})


def test_shape_errors_name_the_argument() -> None:
    with pytest.raises(ShapeError, match="'x' has 1 dimensions"):
        small().run({"x": np.ones(3, "float32")})


# ---- lowering


def test_equal_reductions_are_one_let() -> None:
    term = lower(trace(lambda x: (x - x.max(-1, keepdims=True)) / (1 + np.max(x, axis=1)[:, None]), [X]))
    assert len(term.lets) == 1


def test_squares_share_their_operand_and_powers_stay() -> None:
    text = str(lower(trace(lambda x: x**2 + np.square(x) + x**3 + x**0.5 + x**-1, [X])).outs[0].expr)
    assert text.count("x[h,i] * x[h,i]") == 2
    assert "** 3" in text
    assert "sqrt" in text
    assert "1 / x" in text


def test_masks_stay_selects_with_infinities() -> None:
    term = lower(trace(lambda x: np.where(np.arange(x.shape[1]) > 2, x, -np.inf).max(1), [X]))
    assert "select(#n > 2, x[i,n], -inf)" in str(term.lets[0])


def test_reserved_and_repeated_names_are_avoided() -> None:
    def fn(x):
        count = (x > 0).sum(1)
        x = x * 2
        m = x.max(1)
        m = m + (x + 1).max(1)
        return count, m

    term = lower(trace(fn, [X]))
    names = [x.name for x in term.lets]
    assert "count" not in names
    assert len(set(names)) == len(names) == 3


def test_casts_keep_what_rounds() -> None:
    def casts(x, n):
        positive = (x > 0).astype("float32")
        return x.astype("float64").astype("float32"), n.astype("float32") + x, positive, x.astype("int32")

    outs = [str(o.expr) for o in lower(trace(casts, [X, Spec((5,), "int64")])).outs]
    assert outs[0].startswith("float64(")  # the outer conversion is the output's own
    assert "float32" not in outs[1]
    assert "select" in outs[2]
    assert "int32" not in outs[3]


def test_lowered_names_are_deterministic() -> None:
    def fn(q, k, v):
        s = q @ k.T
        p = np.exp(s - s.max(1, keepdims=True))
        return p @ v / p.sum(1, keepdims=True)

    specs = [Spec((3, 4)), Spec((5, 4)), Spec((5, 6))]
    assert str(lower(trace(fn, specs))) == str(lower(trace(fn, specs)))
    term = lower(trace(fn, specs))
    assert pickle.loads(pickle.dumps(term)) == term


def test_unit_dimensions_do_not_reach_the_term() -> None:
    lowering = lower_with_sources(trace(lambda x, w: (x * w).sum(1, keepdims=True), [X, Spec((1, 5), "float32")]))
    assert [len(t.axes) for t in lowering.term.tensors] == [2, 1]
    assert [len(o.axes) for o in lowering.term.outs] == [1]
    assert lowering.arrays({"x": np.ones((3, 5)), "w": np.ones((1, 5))})["w"].shape == (5,)
