"""Calls that were made before, on other arrays of the same dtypes, shapes and strides: nothing is left to decide.

A call binds and checks its arguments, looks for a kernel, and prepares sizes and strides for it. All of that depends on
what arrays are like, not on where they lie. A `Replay` keeps what one call found out; the next like it only passes
addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from redfuser.runtime.arrays import Array, data_pointer, extent
from redfuser.runtime.memory import LEAST, pool

Likeness = tuple[Any, ...]


def likeness(arrays: Sequence[Array]) -> Likeness:
    """What decides how a call on these arrays runs, but for their addresses."""
    return tuple([(a.dtype, a.shape, a.strides) for a in arrays])


class Counted(Protocol):
    """What counts its runs."""

    @property
    def runs(self) -> int:
        """How many there were."""
        ...

    @runs.setter
    def runs(self, count: int, /) -> None: ...


@dataclass(frozen=True)
class Launch:
    """One kernel of a call. `call`: takes the addresses of inputs and outputs; `places`: (slot, bytes behind it)."""

    call: Callable[[list[int]], None]
    places: tuple[tuple[int, int], ...]
    built: Counted

    def takes_all(self, slots: int) -> bool:
        """Whether it takes every slot as it is, in order."""
        return self.places == tuple((slot, 0) for slot in range(slots))


@dataclass
class Notes:
    """What a call found out, written down while it runs: `sound` is False once something cannot be repeated.

    slots     name of an array -> its slot: arguments first, then captured arrays, then what kernels make
    fixed     captured arrays
    made      name, shape and dtype of each array that kernels make
    """

    arguments: dict[str, Array]
    captured: Mapping[str, Array]
    outs: Mapping[str, Array]
    sound: bool = True
    launches: list[Launch] = field(default_factory=list)
    made: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    arrays: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        self.arrays = {**self.arguments, **self.captured}
        self.sound = all(a.size and not a.strides.count(0) for a in self.arrays.values())

    def result(self, name: str, array: Array) -> None:
        """An array that a kernel fills: a new one, or the caller's."""
        self.arrays[name] = array
        self.sound &= array.size > 0
        if name not in self.outs:
            self.made[name] = array.shape, array.dtype

    def launch(self, call: Callable[[list[int]], None] | None, built: Counted,
               sources: Sequence[tuple[str, Array]]) -> None:
        """A kernel that ran on arrays made from those of these names."""
        if call is None:
            self.sound = False
        if not self.sound or call is None:
            return
        slots = {name: i for i, name in enumerate(self.arrays)}
        places = []
        for name, array in sources:
            behind = data_pointer(array) - data_pointer(self.arrays[name])
            if not np.may_share_memory(array, self.arrays[name]):
                self.sound = False
            places.append((slots[name], behind))
        self.launches.append(Launch(call, tuple(places), built))


class Replay:
    """A call on arrays of one likeness: `run` does it again. Captured arrays may have moved since."""

    def __init__(self, notes: Notes, outputs: Sequence[tuple[str, tuple[int, ...]]], stats: Any) -> None:
        """`outputs`: the name of each output, and its shape for the caller."""
        shapes = dict(outputs)
        self._launches = tuple((launch, launch.takes_all(len(notes.arrays))) for launch in notes.launches)
        self._captured = tuple(notes.captured.values())
        self._captured_likeness = likeness(self._captured)
        self._given = bool(notes.outs)
        made = {n: (shapes.get(n, shape), dtype) for n, (shape, dtype) in notes.made.items()}
        order = [n for n in notes.arrays if n not in notes.arguments and n not in notes.captured]
        # a slot of an array to be made, or the position among the caller's
        names = [name for name, _ in outputs]
        self._fill = tuple((*made[n], -1) if n in made else ((), None, names.index(n)) for n in order)
        self._outputs = tuple(order.index(n) for n in names)
        inputs = (*notes.arguments.values(), *self._captured)
        self._masks = tuple(a.dtype.alignment - 1 for a in inputs)
        self._extents = tuple(extent(a) for a in inputs)
        outs = [notes.outs[n] for n in names if n in notes.outs]
        self._out_places = tuple((a.dtype.alignment - 1, *extent(a)) for a in outs)
        self._apart: tuple[list[int], list[int]] | None = None  # where inputs and outputs lay that were apart
        large = any(math.prod(shape) * dtype.itemsize >= LEAST for shape, dtype in made.values())
        self._empty: Callable[..., Array] = pool().empty if large else np.empty
        self._stats = stats

    def run(self, arrays: Sequence[Array], outs: Sequence[Array] = ()) -> list[Array] | None:
        """The outputs; None where these arrays need more care: one is not aligned, an output lies over another array
        or must not be written, or a captured array has another shape than it had.

        Raises
        ------
        MemoryError
            when the workspace of a kernel cannot be allocated.
        """
        addresses = [data_pointer(a) for a in arrays]
        if self._captured:
            if likeness(self._captured) != self._captured_likeness:
                return None
            addresses += [data_pointer(a) for a in self._captured]
        for address, mask in zip(addresses, self._masks, strict=True):
            if address & mask:
                return None
        given = [data_pointer(a) for a in outs]
        if outs:
            for array in outs:
                if not array.flags.writeable:
                    return None
            together = (addresses, given)
            if together != self._apart:
                if not self._are_apart(addresses, given):
                    return None
                self._apart = list(addresses), given
        made: list[Array] = []
        for shape, dtype, position in self._fill:
            array = self._empty(shape, dtype) if position < 0 else outs[position]
            made.append(array)
            addresses.append(data_pointer(array) if position < 0 else given[position])
        for launch, whole in self._launches:
            launch.call(addresses if whole else [addresses[slot] + behind for slot, behind in launch.places])
            launch.built.runs += 1
        self._stats.kernel_runs += len(self._launches)
        return [made[i] for i in self._outputs]

    def _are_apart(self, addresses: Sequence[int], given: Sequence[int]) -> bool:
        """Whether outputs at the addresses `given` are aligned and lie over no other array."""
        taken = [(a + lo, a + hi) for a, (lo, hi) in zip(addresses, self._extents, strict=True)]
        for address, (mask, lo, hi) in zip(given, self._out_places, strict=True):
            if address & mask or any(address + lo < end and begin < address + hi for begin, end in taken):
                return False
            taken.append((address + lo, address + hi))
        return True
