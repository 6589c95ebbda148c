"""The tracer and the world outside the function: helpers, settings, captured arrays, modules and methods."""

import functools
import importlib
import types
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy import arange, exp

from redfuser.frontend import Spec, trace

X = Spec((3, 5), "float32")
SCALE = 2.0
TABLE = np.arange(5, dtype="float32")


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
