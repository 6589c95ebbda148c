"""Run a function with other globals: the stand-ins in the place of `numpy` and `math`, helpers treated alike.

Nothing of the user's is changed: functions are rebuilt around copies of their globals and closures. What they read
from there (numbers, arrays, helpers) is noted as guards, so that a later call knows whether the trace is still valid.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from redfuser.frontend.record import Recorder
from redfuser.frontend.scalars import PYTHON_TYPES
from redfuser.frontend.standin import FUNCTIONS, MODULES, random_stand_in

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def home_of(fn: Any) -> str:
    """Where the code that belongs to a traced function lives: its package's folder (installed or not), or its file."""
    top = sys.modules.get((getattr(fn, "__module__", None) or "").partition(".")[0])
    folders = list(getattr(top, "__path__", ()))
    return folders[0] + os.sep if folders else getattr(getattr(fn, "__code__", None), "co_filename", "<none>")


class Rebinder:
    """Rebuilds functions for one trace, each once (so recursion works). `traced`: the function traced."""

    def __init__(self, recorder: Recorder, traced: Any) -> None:
        self.recorder = recorder
        self._home = home_of(traced)
        self._functions: dict[int, FunctionType] = {}
        self._modules: dict[int, ModuleType] = {}

    def value(self, value: Any) -> Any:
        """The value to use in the place of `value` while tracing."""
        if isinstance(value, ModuleType):
            return self._module(value)
        if id(value) in FUNCTIONS:
            return FUNCTIONS[id(value)]
        drawing = random_stand_in(value)
        if drawing is not None:
            return drawing
        if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            names = frozenset(_names(value.__func__.__code__))
            self.recorder.guard({"self": value.__self__}, "self", names)
            return MethodType(self.value(value.__func__), value.__self__)
        if isinstance(value, functools.partial):
            keywords = {name: self.value(x) for name, x in value.keywords.items()}
            return functools.partial(self.value(value.func), *map(self.value, value.args), **keywords)
        if isinstance(value, FunctionType):
            return self.function(value) if self._is_user_file(value.__code__.co_filename) else value
        written = unwrap(value)  # a function that is itself fused is traced as part of this one
        return value if written is value else self.value(written)

    def _is_user_file(self, path: str | None) -> bool:
        """True for code that is not part of Python, of another installed library, or of redfuser."""
        if path is None or path.startswith("<frozen"):
            return False
        return path.startswith(self._home) or not path.startswith((_PACKAGE, *_LIBRARIES))

    def _is_user_value(self, value: Any) -> bool:
        """True for what the user may rebind or change between calls: not modules, classes, and libraries' functions."""
        if isinstance(value, FunctionType):
            return self._is_user_file(value.__code__.co_filename)
        return not isinstance(value, (ModuleType, type, np.ufunc, BuiltinFunctionType)) and id(value) not in FUNCTIONS

    def function(self, f: FunctionType) -> FunctionType:
        """A copy of `f` whose globals and closure are rebound."""
        known = self._functions.get(id(f))
        if known is not None:
            return known
        names = frozenset(_names(f.__code__))
        # a function looks its builtins up when it is made, so they come first
        scope: dict[str, Any] = {
            **f.__globals__, "__builtins__": {**_builtins_of(f), **PYTHON_TYPES, "__import__": self._import}}
        closure = tuple(CellType() for _ in f.__closure__ or ())
        copy = FunctionType(f.__code__, scope, f.__name__, f.__defaults__, closure)
        copy.__kwdefaults__ = f.__kwdefaults__
        self._functions[id(f)] = copy  # before its globals: they may lead back to it
        for name in sorted(names & scope.keys()):
            scope[name] = self.read(f.__globals__, name, names)
        cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
        contents = _CellScope(cells)
        for cell, name in zip(closure, f.__code__.co_freevars, strict=True):
            if name in contents:
                cell.cell_contents = self.read(contents, name, names)
        return copy

    def read(self, scope: Mapping[str, Any], name: str, attributes: frozenset[str] = frozenset()) -> Any:
        """The rebound value of a name; arrays are noted by name, and what the user may change is guarded."""
        value = scope[name]
        if isinstance(value, np.ndarray):
            self.recorder.array_names.setdefault(id(value), name)
        if self._is_user_value(value):
            self.recorder.guard(scope, name, attributes)
        return self.value(value)

    def _module(self, module: ModuleType) -> ModuleType:
        """The stand-in for numpy or math; a user's module gets a view of it with rebound members."""
        if id(module) in MODULES:
            return MODULES[id(module)]
        if not self._is_user_file(getattr(module, "__file__", None)):
            return module
        return self._modules.setdefault(id(module), _ModuleView(module, self))

    def _import(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(builtins.__import__(*args, **kwargs))


class _ModuleView(ModuleType):
    """A user's module whose members are rebound when they are read."""

    def __init__(self, real: ModuleType, rebinder: Rebinder) -> None:
        super().__init__(real.__name__)
        self._real, self._rebinder = real, rebinder

    def __getattr__(self, name: str) -> Any:
        if name not in vars(self._real):
            return getattr(self._real, name)
        return self._rebinder.read(vars(self._real), name)


class _CellScope(Mapping[str, Any]):
    """The filled cells of a closure by name, always as they are now."""

    def __init__(self, cells: Mapping[str, CellType]) -> None:
        self._cells = cells

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError:  # an empty cell
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._cells if name in self)

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # type: ignore[index]
        except KeyError:
            return False
        return True

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _names(code: CodeType) -> Iterator[str]:
    """Global names that a code object and the functions inside it may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _builtins_of(f: FunctionType) -> dict[str, Any]:
    found = f.__globals__.get("__builtins__", builtins)
    return dict(vars(found) if isinstance(found, ModuleType) else found)


def unwrap(value: Any) -> Any:
    """The function that was written, below redfuser's own wrappers; anything else stays."""
    while type(value).__module__.partition(".")[0] == "redfuser" and hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value


def callable_name(fn: Callable[..., Any]) -> str:
    """A name for messages: that of the function, or of the class of a callable object."""
    name = getattr(inspect.unwrap(fn), "__name__", type(fn).__name__)
    return name if name.isidentifier() else "lambda_" if name == "<lambda>" else "fn"


