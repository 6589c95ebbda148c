"""A fusion whose plain matrix products NumPy computes, with its BLAS, between kernels of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Plan
from redfuser.extract.library import Apart, Product, flops
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis
from redfuser.runtime.arrays import Array, data_pointer
from redfuser.runtime.library import check_apart
from redfuser.runtime.memory import pool


class Part(Protocol):
    """A kernel of one part (`redfuser.api.built.Built`)."""

    plan: Plan
    compiled: Any


@dataclass(frozen=True)
class LibraryPlan:
    """The plan of a fusion whose products a library computes. tuned: tuning was asked for."""

    name: str
    parts: Apart
    plans: tuple[Plan, ...]
    operations: int
    tuned: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Every decision in words."""
        work = f"{self.operations / 1e9:.3g} GFLOP"
        notes = [f"product {p} by BLAS, through NumPy: no correction touches it" for p in self.parts.products]
        notes.append(f"{work} there; faster than tiles of ours, which keep what surrounds a product in cache")
        return (*notes, "kernels around products by a library are not tuned") if self.tuned else tuple(notes)

    def __str__(self) -> str:
        lines = [f"plan {self.name}: products by a library", *(f"  {n}" for n in self.notes)]
        return "\n".join([*lines, *map(str, self.plans)])


class ProductsApart:
    """Kernels before and after the products of a fusion; runs like a compiled kernel on the arrays of the whole."""

    def __init__(self, fused: FusedCascade, parts: Apart, compile_: Callable[[FusedCascade], Any],
                 sizes: Mapping[str, int], *, tuned: bool = False) -> None:
        """`compile_`: makes the kernel of a part (a `Part`). `tuned`: tuning was asked for."""
        self._inputs = tuple(t.name for t in fused.cascade.tensors)
        self._outputs = tuple(o.name for o in fused.cascade.outs)
        self._axes = {o.name: o.axes for o in fused.cascade.outs}
        self._parts = parts
        self._before = None if parts.before is None else compile_(parts.before)
        self._after = None if parts.after is None else compile_(parts.after)
        self.kernels = tuple(c for c in (self._before, self._after) if c is not None)
        plans = tuple(c.plan for c in self.kernels)
        self.plan = LibraryPlan(fused.cascade.name, parts, plans, flops(parts.products, sizes), tuned)

    def run(self, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Compute `outs` from `arrays`, in the order of the cascade's tensors and outputs.

        Raises
        ------
        MemoryError
            when there is none for a product or a workspace.
        """
        check_apart(self._outputs, outs)
        given = [a.copy() if any(np.may_share_memory(a, o) for o in outs) else a for a in arrays]
        known = dict(zip(self._inputs, given, strict=True)) | dict(zip(self._outputs, outs, strict=True))
        if self._before is not None:
            self._run(self._before, self._parts.before, known, sizes)
        target = dict(self._parts.result)
        for p in self._parts.products:
            out = target.get(p.name)
            own, axes = (None, p.axes) if out is None else (known[out], self._axes[out])
            known[p.name] = _multiply(p, known, own, axes, sizes)
        if self._after is not None:
            self._run(self._after, self._parts.after, known, sizes)

    def _run(self, part: Part, fused: FusedCascade | None, known: dict[str, Array], sizes: Mapping[str, int]) -> None:
        """A kernel. What a product left in the array of an output is replaced there, element by element."""
        assert fused is not None
        c = fused.cascade
        for o in c.outs:
            if o.name not in known:
                known[o.name] = pool().empty(tuple(sizes[base_axis(a)] for a in o.axes), numpy_dtype(o.dtype))
        inputs, outs = [known[t.name] for t in c.tensors], [known[o.name] for o in c.outs]
        call = part.compiled.repeatable(inputs, outs, sizes)
        if call is None:
            part.compiled.run(inputs, outs, sizes)
        else:
            call([data_pointer(a) for a in (*inputs, *outs)])

    def repeatable(self, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Calls are not kept: next to the products, checking costs nothing."""


def _multiply(p: Product, known: Mapping[str, Array], out: Array | None, axes: tuple[str, ...],
              sizes: Mapping[str, int]) -> Array:
    """The product, with the axes `p.axes`. `out`: an array with `axes` that receives it."""
    lane, rows = p.axes[-1], [a for a in p.axes[:-1] if a not in p.right[1]]
    batch = [a for a in p.axes[:-1] if a not in rows]
    left, right = known[p.left[0]], known[p.right[0]]
    own = [a for a in batch if a in p.left[1]]
    a = left.transpose([p.left[1].index(x) for x in (*own, *rows, p.stream)])
    b = right.transpose([p.right[1].index(x) for x in (*batch, p.stream, lane)])
    for i, x in enumerate(batch):
        if x not in own:
            a = np.expand_dims(a, i)
    lengths = {x: sizes[base_axis(x)] for x in (*p.axes, p.stream)}
    merged = (*a.shape[: len(batch)], int(np.prod([lengths[x] for x in rows], dtype=np.int64)), lengths[p.stream])
    if out is None:
        out = pool().empty(tuple(lengths[x] for x in p.axes), b.dtype)
        axes = p.axes
    target = out.transpose([axes.index(x) for x in (*batch, *rows, lane)])
    flat = target.reshape(*target.shape[: len(batch)], merged[-2], lengths[lane])
    np.matmul(a.reshape(merged), b, out=flat)
    if not np.may_share_memory(flat, target):  # the caller's array, whose rows do not follow one another
        target[...] = flat.reshape(target.shape)
    return out.transpose([axes.index(x) for x in p.axes])
