"""A CUDA text that runs single PTX instructions on arrays of operands, one column for each instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redfuser.runtime.cuda.host import HostModule, In, Out

KINDS = {
    # type -> (C type, asm constraint, from 64 raw bits, to 64 raw bits)
    "f32": ("float", "f", "__uint_as_float((unsigned){})", "__float_as_uint({})"),
    "f64": ("double", "d", "__longlong_as_double({})", "(u64)__double_as_longlong({})"),
    "b16": ("unsigned short", "h", "(unsigned short){}", "{}"),
    "b32": ("unsigned", "r", "(unsigned){}", "{}"),
    "b64": ("u64", "l", "{}", "{}"),
}


@dataclass(frozen=True)
class Case:
    """One instruction. `text` has the operands %0 (the result), %1, ...; `reads` and `gives` are types of KINDS;
    `expect` maps operands, as ints of raw bits, to the result's raw bits."""

    text: str
    reads: tuple[str, ...]
    gives: str
    expect: Callable[..., int]

    @property
    def group(self) -> str:
        return "_".join([*self.reads, "to", self.gives])


def predicate(text: str) -> str:
    """An instruction whose result is the predicate %p, made a number."""
    return "{ .reg .pred p; " + text.replace("%p", "p") + " selp.u32 %0, 1, 0, p; }"


def source(cases: Sequence[Case]) -> str:
    """The CUDA text: a kernel for each signature."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return "typedef unsigned long long u64;\n" + "\n".join(_kernel(name, group) for name, group in groups.items())


def _kernel(name: str, cases: Sequence[Case]) -> str:
    reads, gives = cases[0].reads, cases[0].gives
    lines = [f'extern "C" __global__ void {name}(const u64* a, const u64* b, const u64* c, u64* out, int n) {{']
    lines.append("  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;")
    for kind, raw, variable in zip(reads, "abc", "xyz", strict=False):
        c_type, _, get, _ = KINDS[kind]
        lines.append(f"  {c_type} {variable} = {get.format(f'{raw}[i]')};")
    for row, case in enumerate(cases):
        inputs = ", ".join(f'"{KINDS[k][1]}"({v})' for k, v in zip(reads, "xyz", strict=False))
        c_type, constraint, _, put = KINDS[gives]
        lines.append(f'  {{ {c_type} d; asm volatile("{case.text}" : "={constraint}"(d) : {inputs});')
        lines.append(f"    out[{row} * (u64)n + i] = {put.format('d')}; }}")
    return "\n".join([*lines, "}"])


@lru_cache(maxsize=8)
def build(cases: tuple[Case, ...], arch: str) -> HostModule:
    return HostModule(source(cases), arch, optimise="-O0")


def run(cases: Sequence[Case], arch: str, operands: Callable[[str], np.ndarray]) -> dict[str, list[str]]:
    """Mismatches: instruction -> descriptions of the first few. `operands(kind)` are the raw values to combine."""
    module = build(tuple(cases), arch)
    failures: dict[str, list[str]] = {}
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    for name, group in groups.items():
        given = [operands(k) for k in group[0].reads]
        if len(given) == 3:
            given[2] = given[2][::2]  # the third operand of all triples: half of the values are enough
        columns = np.meshgrid(*given, indexing="ij")
        columns = [np.ascontiguousarray(c.ravel().astype(np.uint64)) for c in columns]
        n = len(columns[0])
        padded = [*columns, *[np.zeros(n, np.uint64)] * (3 - len(columns))]
        out = np.zeros((len(group), n), np.uint64)
        module.kernel(name).launch((n + 255) // 256, 256, [*map(In, padded), Out(out), np.int32(n)], checks=False)
        for case, row in zip(group, out, strict=True):
            bad = _mismatches(case, columns, row)
            if bad:
                failures[case.text] = bad
    return failures


def _mismatches(case: Case, columns: Sequence[np.ndarray], row: np.ndarray) -> list[str]:
    found = []
    for i, got in enumerate(row.tolist()):
        given = [int(c[i]) for c in columns]
        wanted = case.expect(*given)
        if got != wanted:
            found.append(f"{[hex(g) for g in given]} -> {got:#x}, expected {wanted:#x}")
            if len(found) == 4:
                break
    return found
