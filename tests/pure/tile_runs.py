"""Run a fusion through plan, build, check and the tile interpreter, and compare with the definition in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from fused_examples import arrays_for

from redfuser.codegen import Kernel, build, check_kernel, run_kernel
from redfuser.codegen.nodes import If, Stmt
from redfuser.codegen.passes.bodies import map_bodies
from redfuser.codegen.passes.prune import prune
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Options, Profile, plan
from redfuser.ir import run_cascade
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis

Array = np.ndarray[Any, Any]
TOLERANCE = {"float32": 3e-5, "float64": 1e-12}


def empty_outs(fused: FusedCascade, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Output arrays full of a value no kernel writes."""
    outs = fused.cascade.outs
    return {o.name: np.full([sizes[base_axis(a)] for a in o.axes], 77, numpy_dtype(o.dtype)) for o in outs}


def kernel_for(
    fused: FusedCascade,
    sizes: Mapping[str, int],
    options: Options | None = None,
    dtype: str = "float32",
    vector_bytes: int = 32,
    layouts: Mapping[str, str | None] | None = None,
) -> Kernel:
    """Plan, build and check."""
    kernel = build(plan(fused, sizes, Profile.generic(vector_bytes), layouts, dtype, options))
    check_kernel(kernel)
    return kernel


def without_repair(kernel: Kernel) -> Kernel:
    """The kernel without the second summation of rows that are not finite: where all inputs are, nothing needs it.

    With it, a program that reads scratch nobody wrote (NaN in the interpreter) could still end in the right result.
    """

    def kept(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        repairs = [s for s in body if isinstance(s, If) and "_odd" in str(s.condition)]
        return tuple(map_bodies(s, kept) for s in body if s not in repairs)

    loops = [replace(p.loop, body=prune(kept(p.loop.body))) for p in kernel.phases]
    return replace(kernel, phases=tuple(replace(p, loop=x) for p, x in zip(kernel.phases, loops, strict=True)))


def run(
    kernel: Kernel, fused: FusedCascade, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Outputs of the interpreter."""
    outs = empty_outs(fused, sizes)
    run_kernel(kernel, arrays, outs, sizes)
    return outs


def definition(fused: FusedCascade, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by definition, in float64."""
    results = run_cascade(fused.cascade, arrays, np.float64)
    return {o.name: results[o.name] for o in fused.cascade.outs}


def error(got: Mapping[str, Array], want: Mapping[str, Array]) -> float:
    """Largest difference relative to max(1, |value|); NaN and infinities must agree exactly."""
    worst = 0.0
    for name, w in want.items():
        g = got[name]
        if g.dtype == np.bool_:
            worst = max(worst, float(np.any(g != w)))
            continue
        odd = ~np.isfinite(w)
        if (
            not np.array_equal(g[odd], w[odd].astype(g.dtype), equal_nan=True)
            or not np.isfinite(g[~odd]).all()
        ):
            return np.inf
        if (~odd).any():
            worst = max(worst, float(np.max(np.abs(g[~odd] - w[~odd]) / np.maximum(1, np.abs(w[~odd])))))
    return worst


def assert_runs(
    fused: FusedCascade,
    sizes: Mapping[str, int],
    options: Options | None = None,
    dtype: str = "float32",
    *,
    arrays: Mapping[str, Array] | None = None,
    planned_for: Mapping[str, int] | None = None,
    **how: Any,
) -> Kernel:
    """The interpreted kernel must equal the definition; returns the kernel."""
    kernel = kernel_for(fused, planned_for or sizes, options, dtype, **how)
    data = arrays if arrays is not None else arrays_for(fused, sizes)
    finite = all(np.isfinite(a).all() for a in data.values())
    with np.errstate(all="ignore"):
        got = run(without_repair(kernel) if finite else kernel, fused, data, sizes)
        want = definition(fused, data)
    assert error(got, want) <= TOLERANCE[dtype], f"{fused.cascade.name} {sizes} {options}\n{kernel}"
    return kernel
