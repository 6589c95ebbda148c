"""Stand-ins for the modules `numpy` and `math` while a function is traced.

NumPy's protocols hand functions of *arrays* to the tracer, but not functions of *sizes* (`np.arange(n)`) nor those of
`math`. A stand-in has these few replaced and passes every other attribute on to the real module.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend import creation
from redfuser.frontend.scalars import NUMPY_TYPES
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer

NUMPY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arange": creation.arange, "ones": creation.ones, "zeros": creation.zeros, "empty": creation.zeros,
    "full": creation.full_array, "tri": creation.tri, "eye": creation.eye, "identity": creation.identity,
    "indices": creation.indices, "asarray": creation.asarray, "asanyarray": creation.asarray,
    "ascontiguousarray": creation.asarray, "array": creation.array,
}

_MATH_UFUNCS: dict[str, np.ufunc] = {
    "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "atan": np.arctan, "fabs": np.absolute,
    "pow": np.power,
}


def _math_function(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    real = getattr(math, name)

    def function(*args: Any) -> Any:
        tracer = next((a for a in args if isinstance(a, Tracer)), None)
        if tracer is None:
            return real(*args)
        values = [tracer.lift(a) for a in args]
        if not all(v.weak for v in values):
            raise TraceError(located(f"math.{name} takes Python numbers, not arrays; use np.{ufunc.__name__}"))
        return tracer.wrap(tracer.recorder.python(ufunc, *values))

    return function


def _math_log(x: Any, base: Any = math.e) -> Any:
    if not isinstance(x, Tracer):
        return math.log(x, base) if base is not math.e else math.log(x)
    natural = _math_function("log", np.log)
    return natural(x) if base is math.e else natural(x) / math.log(base)


MATH_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _math_function(name, ufunc) for name, ufunc in _MATH_UFUNCS.items()}, "log": _math_log,
}


class StandIn(ModuleType):
    """A module with some members replaced; everything else is the real module's."""

    def __init__(self, real: ModuleType, replaced: Mapping[str, Any]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self._real = real
        for name, member in replaced.items():
            setattr(self, name, member)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Random(ModuleType):
    """`numpy.random`, and every generator: drawing would happen once, while tracing, and be frozen into the program."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(np.random, name, None)
        if isinstance(found, type):
            return found  # isinstance(rng, np.random.Generator) has an answer
        return functools.partial(_refuse_draw, name)


def _refuse_draw(name: str, *_: Any, **__: Any) -> NoReturn:
    raise TraceError(located(f"random numbers ({name}) would be drawn once, while tracing, and be the same in every "
                             "call; draw them outside and pass the array as an argument"))


RANDOM = Random("numpy.random")
_GENERATORS = (np.random.Generator, np.random.RandomState)


def random_stand_in(value: Any) -> Any:
    """What stands for a generator of random numbers or for one of its methods; None for anything else."""
    if isinstance(value, _GENERATORS):
        return RANDOM
    if isinstance(getattr(value, "__self__", None), _GENERATORS):
        return getattr(RANDOM, value.__name__)
    return None


NUMPY = StandIn(np, {**NUMPY_FUNCTIONS, **NUMPY_TYPES, "random": RANDOM})
MATH = StandIn(math, MATH_FUNCTIONS)

MODULES: dict[int, ModuleType] = {id(np): NUMPY, id(math): MATH, id(np.random): RANDOM}
"""id of a real module -> its stand-in."""

FUNCTIONS: dict[int, Callable[..., Any]] = {
    **{id(getattr(np, name)): function for name, function in NUMPY_FUNCTIONS.items()},
    **{id(getattr(np, name)): kind for name, kind in NUMPY_TYPES.items()},
    **{id(getattr(math, name)): function for name, function in MATH_FUNCTIONS.items()},
}
"""id of a real function, for names imported from the modules -> its replacement."""
