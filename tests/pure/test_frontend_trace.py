"""The tracer: dtypes, symbolic sizes, guards, stand-ins, and errors that name the user's line and the remedy."""

import functools
import importlib
import math
import pickle
import types
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy import arange, exp

from redfuser.errors import CheckError, DTypeError, ShapeError, TraceError
from redfuser.frontend import SizeGuard, Spec, Trace, check_trace, lower, lower_with_sources, trace

X = Spec((3, 5), "float32")
SCALE = 2.0
TABLE = np.arange(5, dtype="float32")
GENERATOR = np.random.default_rng(0)
GENERATOR_METHOD = GENERATOR.standard_normal


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


# ---- the world outside the function


def helper(x):
    return exp(x) * SCALE + arange(x.shape[-1])


def uses_globals(x):
    return helper(x).sum() / sqrt(x.shape[0])


def test_helpers_and_imported_names_record() -> None:
    traced = trace(uses_globals, [X])
    x = np.ones((2, 4), "float32")
    np.testing.assert_allclose(traced.run({"x": x}), uses_globals(x), rtol=1e-6)
    assert not any(s.fixed for s in traced.sizes)
    assert arange is np.arange  # the module itself is untouched
    assert uses_globals.__globals__ is helper.__globals__


def test_scalars_from_outside_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(uses_globals, [X])
    assert traced.mismatch({"x": X}) is None
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert "SCALE is 2.0" in str(traced.mismatch({"x": X}))


def test_closures_are_guarded() -> None:
    factor = 2.0

    def scaled(x):
        return x * factor

    traced = trace(scaled, [X])
    assert traced.mismatch({"x": X}) is None
    factor = 4.0
    assert "factor" in str(traced.mismatch({"x": X}))


def test_settings_in_containers_and_objects_are_guarded() -> None:
    class Settings:
        scale = 1.0

    settings, table = Settings(), {"shift": [1.0, 2.0]}
    settings.scale = 2.0

    def fn(x):
        return x * settings.scale + table["shift"][0]

    traced = trace(fn, [X])
    assert traced.mismatch({"x": X}) is None
    settings.scale = 3.0
    assert "settings" in str(traced.mismatch({"x": X}))
    settings.scale = 2.0
    assert traced.mismatch({"x": X}) is None
    table["shift"][0] = 5.0
    assert "table" in str(traced.mismatch({"x": X}))


def test_the_object_of_a_method_is_guarded() -> None:
    class Scaler:
        def __init__(self) -> None:
            self.factor = 2.0

        def __call__(self, x):
            return x * self.factor

    scaler = Scaler()
    traced = trace(scaler, [X])
    assert traced.mismatch({"x": X}) is None
    scaler.factor = 3.0
    assert "self" in str(traced.mismatch({"x": X}))


def test_rebinding_a_captured_array_is_noticed_and_its_elements_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(lambda x: x * TABLE, [X])
    assert traced.captured["TABLE"] is TABLE
    monkeypatch.setitem(globals(), "TABLE", TABLE.copy())
    assert "TABLE" in str(traced.mismatch({"x": X}))


def test_arrays_from_outside_are_captured_once() -> None:
    traced = trace(lambda x: x * TABLE + TABLE, [X])
    assert list(traced.captured) == ["TABLE"]
    assert sum(n.op == "input" for n in traced.nodes) == 2


def test_captured_names_do_not_clash_with_arguments() -> None:
    x = np.ones(5, "float32")

    def inner(y):
        return y * x

    traced = trace(lambda x: inner(x) + x, [X])
    assert list(traced.captured) == ["x1"]
    assert set(traced.inputs()) == {"x", "x1"}


def test_user_modules_are_seen_through(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("mylib")
    module.__file__ = "/home/user/mylib.py"
    exec(compile("import numpy as np\nK = 3\ndef ramp(x):\n    return x * np.arange(x.shape[0])[:, None] * K",
                 module.__file__, "exec"), module.__dict__)

    traced = trace(lambda x: module.ramp(x), [X])  
    assert not any(s.fixed for s in traced.sizes)
    monkeypatch.setattr(module, "K", 4)
    assert "K is 3" in str(traced.mismatch({"x": X}))


def test_imports_inside_the_function_record() -> None:
    def inner(x):
        import math as m

        import numpy as n
        from numpy import ones as unit

        return x / m.sqrt(x.shape[1]) + n.arange(x.shape[1]) * unit(x.shape)

    traced = trace(inner, [X])
    x = np.ones((2, 4), "float32")
    np.testing.assert_allclose(traced.run({"x": x}), inner(x))


def test_methods_partials_and_callable_objects() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = np.arange(5, dtype="float32")

        def forward(self, x):
            return x * self.weight + np.arange(x.shape[1])

        def __call__(self, x):
            return self.forward(x) + np.arange(x.shape[0])[:, None]

    model, x = Model(), np.ones((3, 5), "float32")
    np.testing.assert_allclose(trace(model.forward, [X]).run({"x": x}), model.forward(x))
    np.testing.assert_allclose(trace(model, [X]).run({"x": x}), model(x))
    halved = functools.partial(lambda x, axis: x.sum(axis), axis=1)
    np.testing.assert_allclose(trace(halved, [X]).run({"x": x}), x.sum(1))
    posing = functools.wraps(halved.func)(halved)
    np.testing.assert_allclose(trace(posing, {"x": X}).run({"x": x}), x.sum(1))


def test_recursive_helpers() -> None:
    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)

    x = np.full((3, 5), 2.0, "float32")
    np.testing.assert_allclose(trace(lambda x: power(x, 4), [X]).run({"x": x}), x**4)


def test_static_arguments_and_variadic_arguments() -> None:
    def total(*parts, axis, **named):
        return sum(p.sum(axis) for p in parts) + named["last"].sum(axis)

    traced = trace(functools.partial(total, axis=0), {"last": X})
    assert list(traced.arguments) == ["last"]
    both = trace(lambda *parts: parts[0] + parts[1], [X, X])
    assert list(both.arguments) == ["parts0", "parts1"]


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
    lambda x: (y := x + 1)[0].__iadd__(1) + y,
])
def test_in_place_arithmetic_on_shared_memory_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match="in-place"):
        trace(fn, [X])


# ---- errors


def assign(x):
    x[0] = 1.0
    return x


def branch_on_data(x):
    if x.sum() > 0:
        return x
    return -x


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (assign, TraceError, r"np\.where\(condition"),
        (branch_on_data, TraceError, r"np\.where.*\n.*if x\.sum\(\) > 0"),
        (lambda x: float(x.sum()), TraceError, "float\\(\\)"),
        (lambda x: int(x[0, 0]), TraceError, "int\\(\\)"),
        (lambda x: np.cumsum(x), TraceError, "cumsum cannot be recorded"),
        (lambda x: np.arctan(x), TraceError, "arctan cannot be recorded"),
        (lambda x: x.argsort(), TraceError, "argsort"),
        (lambda x: x[x > 0], TraceError, "mask"),
        (lambda x: x[:, 1:], TraceError, "slice"),
        (lambda x: x[9], ShapeError, "outside axis 0"),
        (lambda x: x[0, 0, 0], ShapeError, "3 indices"),
        (lambda x: x.reshape(5, 3), TraceError, "cuts across"),
        (lambda x: x.reshape(4, -1), ShapeError, "15 elements"),
        (lambda x: x.sum(7), ShapeError, "axis"),
        (lambda x: x + np.ones(4), ShapeError, r"\(3, 5\) and \(4,\)"),
        (lambda x: x @ np.ones((4, 2)), ShapeError, r"\(3, 5\) and \(4, 2\)"),
        (lambda x: np.einsum("ij,jk", x, np.ones((4, 2))), ShapeError, "contract"),
        (lambda x: np.einsum("i,j->ij", x, x), ShapeError, "does not fit"),
        (lambda x: np.einsum("ij->k", x), TraceError, "output"),
        (lambda x: x.squeeze(0), ShapeError, "not of size 1"),
        (lambda x: np.exp(x, out=x), TraceError, "out="),
        (lambda x: x.astype("complex64"), TraceError, "complex64"),
        (lambda x: x % 2.5, TraceError, "floor"),
        (lambda x: x & 1, TraceError, "bitwise"),
        (lambda x: x ^ 1, TraceError, "bitwise"),
        (lambda x: (x > 0) - (x < 1), TraceError, "no meaning"),
        (lambda x: "text", TraceError, "no array"),
        (lambda x: np.stack([x, x]), TraceError, "stack"),
        (lambda x: np.asarray([x.sum(), 1]), TraceError, "real NumPy array"),
        (lambda x: 1 in x, TraceError, "`in`"),
        (lambda x: np.maximum.reduce(x, 0, where=x > 0), TraceError, "initial"),
        (lambda x: math.exp(x), TraceError, "np.exp"),
        (lambda x: x.cumsum(0), TraceError, r"\.cumsum cannot be recorded"),
        (lambda x: x.total(), TraceError, r"\.total does not exist"),
        (lambda x: x + np.random.rand(5), TraceError, r"\(rand\) would be drawn once"),  # noqa: NPY002
        (lambda x: x + np.random.default_rng(0).random(5), TraceError, "pass the array as an argument"),
        (lambda x: x + GENERATOR.integers(5), TraceError, r"random numbers \(integers\)"),
        (lambda x: x + GENERATOR_METHOD(5), TraceError, r"random numbers \(standard_normal\)"),
    ],
)
def test_errors_name_the_problem(fn: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        trace(fn, [X])
    assert "test_frontend_trace.py:" in str(caught.value) or "no array" in message


def test_the_line_is_the_users_not_the_tracers() -> None:
    with pytest.raises(TraceError) as caught:
        trace(assign, [X])
    first = assign.__code__.co_firstlineno
    assert f"test_frontend_trace.py:{first + 1}: x[0] = 1.0" in str(caught.value)


@pytest.mark.parametrize(
    ("fn", "need"),
    [
        (lambda x, k: x.sum(axis=k), "an int"),
        (lambda x, k: x.sum(axis=(k, 1)), "an int"),
        (lambda x, k: x.max(1, keepdims=k), "a branch"),
        (lambda x, k: x if k else -x, "a branch"),
        (lambda x, k: x if k + x.shape[0] > 3 else -x, "a branch"),
        (lambda x, k: x.sum(1) + np.ones(k), "the shape of an array"),
        (lambda x, k: x * float(k), "float"),
        (lambda x, k: sum(x for _ in range(k)), "an int"),
    ],
)
def test_an_argument_that_must_be_static_is_named(fn: Callable[..., Any], need: str) -> None:
    with pytest.raises(TraceError, match=rf"{need}.* depends on the argument 'k'.*static_argnames='k'"):
        trace(fn, [X, Spec((), "int64", weak=True)])


def test_a_tuple_of_axes_must_be_static() -> None:
    with pytest.raises(TraceError, match="static_argnames='axes'"):
        trace(lambda x, axes: x.sum(axes), [X, Spec((2,), "int64")])


def test_elements_of_arrays_are_not_called_static() -> None:
    with pytest.raises(TraceError, match=r"np\.where") as caught:
        trace(lambda x, k: x if x.sum() > k else -x, [X, Spec((), "float64", weak=True)])
    assert "static_argnames" not in str(caught.value)


def test_a_kind_of_generator_may_be_asked_for() -> None:
    trace(lambda x, k: x if isinstance(k, np.random.Generator) else -x, [X, None])


def test_wrong_arguments() -> None:
    with pytest.raises(TraceError, match="cannot be called"):
        trace(lambda x: x, [X, X])


def test_unsupported_captured_dtype() -> None:
    table = np.ones(5, "complex64")
    with pytest.raises(DTypeError, match="'table'"):
        trace(lambda x: x * table, [X])


def test_traced_arrays_do_not_outlive_their_trace() -> None:
    kept: list[Any] = []
    trace(lambda x: kept.append(x) or x, [X])  # type: ignore[func-returns-value]
    with pytest.raises(TraceError, match="another trace"):
        trace(lambda x: x + kept[0], [X])


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


def test_an_installed_library_may_fuse_its_own_functions(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ownlib"
    folder.mkdir()
    (folder / "__init__.py").write_text("from ownlib.masks import positions\n")
    (folder / "masks.py").write_text(
        "import numpy as np\ndef positions(x):\n    return (np.arange(x.shape[-1]) * x).sum(-1)\n"
        "def via_helper(x):\n    return positions(x) + 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("redfuser.frontend.rebind._LIBRARIES", (str(tmp_path),))
    masks = importlib.import_module("ownlib.masks")
    x = np.arange(12.0).reshape(3, 4)
    for fn in (masks.positions, masks.via_helper):
        np.testing.assert_allclose(trace(fn, [Spec((3, 7))]).run({"x": x}), fn(x))
