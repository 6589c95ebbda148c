"""Operations that NumPy itself computes, between kernels: sorting, cumulative sums, matrix inverses, other libraries'
ufuncs. No kernel expresses them; the function around them is fused all the same.

Shape and dtype of a result are those that the function itself gives for random arrays of several sets of lengths, that
of the call among them if it is small: a length of the result that is one of an operand's in all of them is that one,
any other is a length of its own. Every run checks what was concluded (`redfuser.frontend.stages`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.dims import Dim, Shape, show_shape
from redfuser.frontend.record import Value
from redfuser.frontend.remedies import missing
from redfuser.frontend.source import located
from redfuser.frontend.spec import SUPPORTED_DTYPES
from redfuser.frontend.tracer import Tracer
from redfuser.ir.views import array_of

_NAMES = (
    "sort", "argsort", "partition", "argpartition", "lexsort", "median", "nanmedian", "quantile", "nanquantile",
    "percentile", "nanpercentile", "cumsum", "cumprod", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod",
    "diff", "ediff1d", "gradient", "trapezoid", "interp", "searchsorted", "digitize", "fliplr", "flipud",
    "roll", "rot90", "convolve", "correlate", "histogram", "kron", "cross", "repeat", "tile", "pad", "unwrap",
    "vander", "linalg.inv", "linalg.pinv", "linalg.det", "linalg.slogdet",
    "linalg.solve", "linalg.lstsq", "linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.svdvals", "linalg.eigh",
    "linalg.eigvalsh", "linalg.matrix_power", "linalg.matrix_rank", "linalg.cond", "linalg.tensorsolve",
    "linalg.tensorinv",
)
_SELECTING = ("unique", "nonzero", "flatnonzero", "argwhere", "extract", "compress", "union1d", "intersect1d",
              "setdiff1d", "trim_zeros")


def _functions(names: tuple[str, ...]) -> dict[Callable[..., Any], str]:
    found = {}
    for name in names:
        owner: Any = np
        for part in name.split("."):
            owner = getattr(owner, part, None)
        if owner is not None:  # NumPy 2.0 has fewer
            found[owner] = f"np.{name}"
    return found


SELECTING = _functions(_SELECTING)
"""Functions like those of `HOST` whose values tell the length of the result."""
HOST = _functions(_NAMES) | SELECTING
"""Functions that NumPy runs between kernels -> their names. Nothing but the result is changed."""
METHODS = frozenset({"argsort", "argpartition", "cumsum", "cumprod", "repeat", "searchsorted"})
"""Array methods that are such functions of the array."""

_LENGTHS = (13, 17, 19, 23, 29, 31, 37), (211, 199, 197, 193, 191, 181, 179)
"""Lengths of the two trials: small and large, in opposite orders, so that the smaller of two lengths is neither."""
FEW_ELEMENTS, MOST_ELEMENTS = 2**14, 2**20
"""Elements of the largest operand up to which the lengths of the call are tried too: first, and as a last resort."""


@dataclass(frozen=True)
class Operand:
    """Stands for the array number `position` among the arguments of a call."""

    position: int


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a function that NumPy runs; results with several arrays have several nodes of one call.

    arguments, keywords  as the user gave them, with `Operand`s for recorded arrays
    text                 how to show it; "" for a call with its arguments
    view                 whether what it gives is a view of its only operand: nothing is computed
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    text: str = ""
    view: bool = False

    @property
    def label(self) -> str:
        """A short name for what it gives."""
        return "chosen" if self.text else self.name.rpartition(".")[2]

    def __call__(self, operands: Sequence[Any]) -> Any:
        """The result for these operands."""
        arguments, keywords = _filled((self.arguments, self.keywords), operands)
        with np.errstate(all="ignore"):  # kernels do not warn either
            return self.function(*arguments, **keywords)

    def __str__(self) -> str:
        if self.text:
            return self.text
        shown = [*map(_shown, self.arguments), *(f"{k}={_shown(v)}" for k, v in self.keywords.items())]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Result:
    """What a node holds: the array that a call gives, or number `part` of several.

    groups  for each operand, how many dimensions of it the function sees as one; None: it sees them as they are
    """

    call: Call
    part: int | None = None
    groups: tuple[tuple[int, ...], ...] | None = None

    def of(self, found: Any) -> Any:
        """The array among what the call gave."""
        return array_of(found if self.part is None else found[self.part])

    def run(self, operands: Sequence[Any]) -> Any:
        """What the call gives for these operands."""
        if self.groups is not None:
            operands = [_merged(x, g) for x, g in zip(operands, self.groups, strict=True)]
        return self.call(operands)

    def __str__(self) -> str:
        return str(self.call) + ("" if self.part is None else f"[{self.part}]")


def _merged(x: Any, groups: Sequence[int]) -> Any:
    """An array with groups of its dimensions as one each."""
    lengths = iter(np.shape(x))
    shape = [math.prod(next(lengths) for _ in range(k)) for k in groups]
    return x if len(shape) == np.ndim(x) else np.reshape(x, shape)


def run_by_numpy(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
                 text: str = "", selecting: bool = False, shape: Shape | None = None) -> Any:
    """Record a call that NumPy will run on the values of the arrays among its arguments.

    `text`: how to show it; `selecting`: values tell the length of the result; `shape`: that of a view of the only
    operand, where it is known.

    Raises
    ------
    TraceError
        when the function fails on arrays of such shapes and dtypes, changes one of them, or gives something that is
        no array of a dtype that kernels know.
    """
    operands: list[Tracer] = []

    def template(x: Any) -> Any:
        if isinstance(x, Tracer):
            if x.is_size or (x.value.weak and x.dtype.kind == "i"):  # numbers that may decide shapes
                return x.recorder.specialise(x.value, name)
            operands.append(x)
            return Operand(len(operands) - 1)
        if isinstance(x, (tuple, list)):
            return type(x)(*map(template, x)) if hasattr(x, "_fields") else type(x)(map(template, x))
        if isinstance(x, slice):
            return slice(*map(template, (x.start, x.stop, x.step)))
        return x

    call = Call(name, function, tuple(map(template, args)), {k: template(v) for k, v in kwargs.items()}, text,
                shape is not None)
    if not operands:
        return call(())
    if shape is not None:
        return _recorded(call, operands, shape, operands[0].dtype, None, operands[0])
    trials = _trials(call, [x.value for x in operands], selecting or _selects(call))
    found = trials[0].found
    if isinstance(found, (tuple, list)):
        results = [_record(call, operands, trials, i) for i in range(len(found))]
        return type(found)(*results) if hasattr(found, "_fields") else type(found)(results)
    return _record(call, operands, trials, None)


def _selects(call: Call) -> bool:
    """Whether values tell the length of the result."""
    rule = any(isinstance(x, str) for x in (*call.arguments[1:], call.keywords.get("bins")))
    return call.function in SELECTING or (call.function is np.histogram and rule)


@dataclass(frozen=True)
class _Trial:
    """What a call gave for some arrays, and the sizes that each length stood for. `exact`: different sizes had
    different lengths; `actual`: the lengths were those at hand."""

    given: Sequence[Any]
    found: Any
    known: Mapping[int, Sequence[Dim]]
    exact: bool
    actual: bool


def _record(call: Call, operands: Sequence[Tracer], trials: Sequence[_Trial], part: int | None) -> Tracer:
    """The node of one array of the result."""
    result = Result(call, part)
    arrays = [result.of(t.found) for t in trials]
    dtype = arrays[0].dtype
    if dtype.name not in SUPPORTED_DTYPES:
        raise TraceError(located(f"{call.name} gives {dtype} arrays, which cannot be recorded; {missing(call.name)}"))
    if any((a.dtype, a.ndim) != (dtype, arrays[0].ndim) for a in arrays):
        raise TraceError(located(f"{call.name} gives arrays whose rank or dtype depends on its arguments, which cannot "
                                 f"be recorded; {missing(call.name)}"))
    shape = tuple(_size(lengths, trials) for lengths in zip(*(a.shape for a in arrays), strict=True))
    views = [x for x, given in zip(operands, trials[0].given, strict=True) if np.may_share_memory(arrays[0], given)]
    return _recorded(call, operands, shape, dtype, part, views[0] if views else None)


def _recorded(call: Call, operands: Sequence[Tracer], shape: Shape, dtype: np.dtype[Any], part: int | None,
              owner: Tracer | None) -> Tracer:
    """The node of a result; `owner`: the array that it is a view of."""
    recorder = operands[0].recorder
    value = recorder.add("host", [x.value for x in operands], shape, dtype, Result(call, part))
    own = {id(d.find()) for x in operands for d in x.value.shape if isinstance(d, Dim)}
    recorder.made += [(d, value) for d in shape if isinstance(d, Dim) and id(d.find()) not in own]
    return operands[0].wrap(value) if owner is None else owner.sharing(value)


def _size(lengths: Sequence[int], trials: Sequence[_Trial]) -> Dim | int:
    """The size of a dimension that had these lengths in the trials."""
    candidates = [t.known.get(n, ()) for n, t in zip(lengths, trials, strict=True)]
    same = [d for d in candidates[0] if all(any(d is other for other in c) for c in candidates[1:])]
    if same and (len(same) == 1 or not any(t.exact for t in trials)):  # of those that must be equal, any will do
        return same[0]
    constant = len(set(lengths)) == 1 and len(lengths) > 1
    if constant and lengths[0] == 1:
        return 1
    return Dim(value=lengths[0] if constant or trials[0].actual else None)


def _trials(call: Call, operands: Sequence[Value], selecting: bool) -> list[_Trial]:
    """What the call gives for random arrays: of the lengths at hand if they are small, and of two sets of other ones.
    Where the function fails on those, sizes that are equal in this call are equal there too, then numbers are sorted.

    Raises
    ------
    TraceError
        with what NumPy says, when it fails.
    """
    sizes = list(dict.fromkeys(d.find() for v in operands for d in v.shape if isinstance(d, Dim)))
    dims = list(dict.fromkeys(a for d in sizes for a in d.atoms()))
    actual = {d: d.value for d in dims if d.value is not None}
    most = max((math.prod(d.value or 1 for d in v.shape if isinstance(d, Dim)) for v in operands), default=0)
    near = [actual] if len(actual) == len(dims) and most <= FEW_ELEMENTS else []
    alike = [actual.get(d, d) for d in dims]  # equal for sizes that are equal in this call
    kinds = list(dict.fromkeys(alike))
    far = [dict(zip(dims, lengths, strict=False)) for lengths in _LENGTHS if len(lengths) >= len(dims)]
    tied = [{d: lengths[kinds.index(k)] for d, k in zip(dims, alike, strict=True)} for lengths in _LENGTHS
            if len(lengths) >= len(kinds)]
    problem: Exception | None = None
    for sets, ordered in ((far, False), (tied, False), (tied, True)):
        found, problem = _run(call, operands, sizes, [*near, *sets], ordered)
        if selecting and found:
            return [replace(found[0], known={}, actual=False)]
        if len(found) == len(near) + len(sets):
            return found
    if not found and not near and len(actual) == len(dims) and most <= MOST_ELEMENTS:
        found, problem = _run(call, operands, sizes, [actual], False)
    if found:
        return found
    shapes = " and ".join(show_shape(v.shape) for v in operands)
    raise TraceError(located(f"{call.name} fails on random arrays like these (shapes {shapes}): {problem}; split the "
                             "function there")) from problem


def _run(call: Call, operands: Sequence[Value], sizes: Sequence[Dim], sets: Sequence[Mapping[Dim, int]],
         ordered: bool) -> tuple[list[_Trial], Exception | None]:
    """The trials that succeed, and the last failure."""
    found: list[_Trial] = []
    problem: Exception | None = None
    for number, lengths in enumerate(sets):
        own = [_length(d, lengths) for d in sizes]
        given = [_sample(v, lengths, (number, i), ordered) for i, v in enumerate(operands)]
        before = [np.copy(x) for x in given]
        try:
            result = call(given)
        except Exception as error:  # whatever NumPy says of these arguments
            problem = error
            continue
        if not all(map(np.array_equal, before, given)):
            raise TraceError(located(f"{call.name} changes its argument in place, which cannot be recorded; leave out "
                                     "out= and the like, and assign the result to a name"))
        known = {n: [d for d, k in zip(sizes, own, strict=True) if k == n] for n in own}
        actual = all(d.value == k for d, k in zip(sizes, own, strict=True))
        found.append(_Trial(given, result, known, len(set(own)) == len(own), actual))
    return found, problem


def _length(d: Dim | int, lengths: Mapping[Dim, int]) -> int:
    return math.prod(lengths[a] for a in d.atoms()) if isinstance(d, Dim) else d


def _sample(v: Value, lengths: Mapping[Dim, int], seed: tuple[int, int], ordered: bool) -> Any:
    """A random array of the shape and dtype of a value: matrices are symmetric and well conditioned, like those that
    can be inverted; single integers are 2, 3, 4, so that what they count differs from trial to trial."""
    shape = [_length(d, lengths) for d in v.shape]
    rng = np.random.default_rng(seed)
    if v.dtype.kind == "b":
        return rng.random(shape) < 0.5
    if v.dtype.kind in "iu":
        return np.asarray(np.asarray(rng.random(shape)) * 3 if shape else 2 + seed[0]).astype(v.dtype)
    values = np.asarray(rng.random(shape))
    if ordered and shape:
        values = np.sort(values, axis=-1)
    elif len(shape) >= 2 and shape[-1] == shape[-2]:
        values = (values + values.swapaxes(-1, -2)) / (4 * max(shape[-1], 1)) + np.eye(shape[-1])
    return values.item() if v.weak else values.astype(v.dtype)


def _filled(x: Any, operands: Sequence[Any]) -> Any:
    """A template with operands in their places."""
    if isinstance(x, Operand):
        return operands[x.position]
    if isinstance(x, (tuple, list)):
        items = [_filled(item, operands) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, slice):
        return slice(*(_filled(item, operands) for item in (x.start, x.stop, x.step)))
    if isinstance(x, Mapping):
        return {key: _filled(item, operands) for key, item in x.items()}
    return x


def _shown(x: Any) -> str:
    if isinstance(x, Operand):
        return "..."
    if isinstance(x, (tuple, list)):
        return f"({', '.join(map(_shown, x))})"
    return f"<array {x.shape}>" if isinstance(x, np.ndarray) else repr(x)


