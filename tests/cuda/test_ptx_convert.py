"""cvt between every pair of types that kernels use, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import exact
import instructions
import numpy as np
from exact import BF16, E4M3, E5M2, F16, F32, F64, TF32
from instructions import Case

FORMS = {"f32": F32, "f64": F64, "f16": F16, "bf16": BF16}
REGISTER = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16"}
F32_EDGES = [
    0,
    1,
    0x00800000,
    0x33800000,
    0x387FC000,
    0x387FE000,
    0x38800000,
    0x3F000000,
    0x3F800000,
    0x3F808000,
    0x3F818000,
    0x3FC00000,
    0x40200000,
    0x43DFFFFF,
    0x43E00000,
    0x43E80000,
    0x43F00000,
    0x477FE000,
    0x477FF000,
    0x47800000,
    0x4EFFFFFF,
    0x4F000000,
    0x4F7FFFFF,
    0x4F800000,
    0x5F000000,
    0x5F800000,
    0x7F7F7FFF,
    0x7F7F8000,
    0x7F7FFFFF,
    0x7F800000,
    0x7FC00000,
    0x3B000000,
    0x3A800000,
    0x3A800001,
    0x37800000,
    0x37000001,
    0x3F801000,
    0x3F803000,
]
F64_EDGES = [
    0, 1, 0x3FE0000000000000, 0x3FF0000010000000, 0x3FF0000030000000,
    0x3FF0000010000001, 0x41DFFFFFFFC00000, 0x41E0000000000000, 0x43DFFFFFFFFFFFFF, 0x43E0000000000000,
    0x43F0000000000000, 0x47EFFFFFF0000000, 0x7FF0000000000000, 0x7FF8000000000000, 0x380FFFFFFFFFFFFF,
    0x36A0000000000000, 0x3F50000000000001,
]
INTEGER_EDGES = [
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    2**24 + 1,
    2**24 + 3,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53 + 1,
    2**62 + 2**38 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64 - 2**39,
    2**64 - 128,
    2**11 + 1,
    65519,
    65520,
]


def operands(kind: str) -> np.ndarray:
    edges = {
        "f32": [*F32_EDGES, *[x | 0x80000000 for x in F32_EDGES]],
        "f64": [*F64_EDGES, *[x | 1 << 63 for x in F64_EDGES]],
        "b16": sorted({x & 0xFFFF for x in (*F32_EDGES, *[y >> 16 for y in F32_EDGES], *range(0, 0x10000, 1237))}),
        "b32": sorted({x & 0xFFFFFFFF for x in INTEGER_EDGES}),
        "b64": INTEGER_EDGES,
    }
    return np.array(edges[kind], np.uint64)


def limits(name: str) -> tuple[int, int]:
    width = int(name[1:])
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if name[0] == "s" else (0, (1 << width) - 1)


def clamp(x, name: str) -> int:
    low, high = limits(name)
    if exact.is_inf(x):
        return low if x < 0 else high
    return max(low, min(high, int(x)))


def width_of(name: str) -> int:
    return max(16, int(name[1:]))


def to_integer() -> list[Case]:
    cases = []
    for source, form in FORMS.items():
        for target in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
            for mode in ("rni", "rzi", "rmi", "rpi"):
                def expect(a: int, form=form, target=target, mode=mode, source=source) -> int:
                    x = form.value(a)
                    if exact.is_nan(x):
                        wide = source == "f64" or target[1:] == "64"
                        whole = 1 << (int(target[1:]) - 1) if wide and int(target[1:]) >= 32 else 0
                    else:
                        whole = clamp(exact.integral(x, mode), target)
                    return exact.unsigned(whole, width_of(target))

                if source == "bf16" and target not in ("s32", "u32"):
                    continue
                cases.append(
                    Case(f"cvt.{mode}.{target}.{source} %0, %1;", (REGISTER[source],), f"b{width_of(target)}", expect)
                )
    return cases


def from_integer() -> list[Case]:
    cases = []
    for source in ("u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(source[1:])
        for target, form in FORMS.items():
            if target == "bf16" and width != 32:
                continue
            modes = ("rn", "rz", "rm", "rp") if target in ("f32", "f64") else ("rn",)
            for mode in modes:
                def expect(a: int, form=form, mode=mode, source=source, width=width) -> int:
                    x = exact.signed(a, width) if source[0] == "s" else a
                    return exact.rounded(Fraction(x) if x else 0.0, form, mode)

                cases.append(Case(f"cvt.{mode}.{target}.{source} %0, %1;", (f"b{width}",), REGISTER[target], expect))
    for source, target in (
        ("s32", "s8"),
        ("u32", "u8"),
        ("s32", "u16"),
        ("s64", "s32"),
        ("u64", "s32"),
        ("s16", "u64"),
    ):
        width = int(source[1:])
        for sat in (False, True):
            def expect(a: int, source=source, target=target, width=width, sat=sat) -> int:
                x = exact.signed(a, width) if source[0] == "s" else a
                x = clamp(x, target) if sat else exact.unsigned(x, int(target[1:]))
                if target[0] == "s":
                    x = exact.signed(x, int(target[1:]))
                return exact.unsigned(x, width_of(target))

            cases.append(
                Case(
                    f"cvt{'.sat' if sat else ''}.{target}.{source} %0, %1;",
                    (f"b{width}",),
                    f"b{width_of(target)}",
                    expect,
                )
            )
    return cases


def between_floats() -> list[Case]:
    def expect(source, target, mode="rn", ftz=False, sat=False, relu=False, finite=False):
        def convert(a: int) -> int:
            if ftz and source is F32:
                a = exact.flushed(a, F32)
            x = source.value(a)
            if relu and not exact.is_nan(x) and exact.negative(x):
                x = 0.0
            if sat:
                x = 0.0 if exact.is_nan(x) or not x > 0 else min(x, 1)
            code = exact.rounded(x, target, mode, finite)
            return exact.flushed(code, F32) if ftz and target is F32 else code

        return convert

    cases = []
    for target, form in (("f16", F16), ("bf16", BF16)):
        for mode in ("rn", "rz"):
            cases.append(Case(f"cvt.{mode}.{target}.f32 %0, %1;", ("f32",), "b16", expect(F32, form, mode)))
            cases.append(
                Case(f"cvt.{mode}.relu.{target}.f32 %0, %1;", ("f32",), "b16", expect(F32, form, mode, relu=True))
            )
        cases.append(Case(f"cvt.f32.{target} %0, %1;", ("b16",), "f32", expect(form, F32)))
    for mode in ("rn", "rz", "rm", "rp"):
        cases += [
            Case(f"cvt.{mode}.f16.f64 %0, %1;", ("f64",), "b16", expect(F64, F16, mode)),
            Case(f"cvt.{mode}.f32.f64 %0, %1;", ("f64",), "f32", expect(F64, F32, mode)),
            Case(f"cvt.{mode}.ftz.f32.f64 %0, %1;", ("f64",), "f32", expect(F64, F32, mode, ftz=True)),
            Case(f"cvt.{mode}.sat.f32.f64 %0, %1;", ("f64",), "f32", expect(F64, F32, mode, sat=True)),
        ]
    for mode in ("rni", "rzi", "rmi", "rpi"):
        cases.append(Case(f"cvt.{mode}.f32.f32 %0, %1;", ("f32",), "f32",
                          lambda a, m=mode: exact.rounded(exact.integral(F32.value(a), m), F32)))
        cases.append(Case(f"cvt.{mode}.f64.f64 %0, %1;", ("f64",), "f64",
                          lambda a, m=mode: exact.rounded(exact.integral(F64.value(a), m), F64)))
    cases += [
        Case("cvt.f64.f32 %0, %1;", ("f32",), "f64", expect(F32, F64)),
        Case("cvt.ftz.f64.f32 %0, %1;", ("f32",), "f64", expect(F32, F64, ftz=True)),
        Case("cvt.f64.f16 %0, %1;", ("b16",), "f64", expect(F16, F64)),
        Case("cvt.rna.tf32.f32 %0, %1;", ("f32",), "b32", tf32),
    ]
    return cases


def tf32(a: int) -> int:
    return exact.rounded(F32.value(a), TF32, "rna") << 13


def to_pairs() -> list[Case]:
    cases = []
    for name, form, modes in (("f16x2", F16, ("rn", "rz")), ("bf16x2", BF16, ("rn", "rz"))):
        for mode in modes:
            for relu in (False, True):
                def expect(a: int, b: int, form=form, mode=mode, relu=relu) -> int:
                    codes = []
                    for x in (F32.value(a), F32.value(b)):
                        x = 0.0 if relu and not exact.is_nan(x) and exact.negative(x) else x
                        codes.append(exact.rounded(x, form, mode))
                    return codes[0] << 16 | codes[1]

                text = f"cvt.{mode}{'.relu' if relu else ''}.{name}.f32 %0, %1, %2;"
                cases.append(Case(text, ("f32", "f32"), "b32", expect))
    for name, form in (("e4m3x2", E4M3), ("e5m2x2", E5M2)):
        def expect8(a: int, b: int, form=form) -> int:
            return exact.rounded(F32.value(a), form, "rn", True) << 8 | exact.rounded(F32.value(b), form, "rn", True)

        def expect_half(a: int, form=form) -> int:
            codes = [exact.rounded(F16.value(h), form, "rn", True) for h in (a >> 16, a & 0xFFFF)]
            return codes[0] << 8 | codes[1]

        def back(a: int, form=form) -> int:
            codes = [exact.rounded(form.value(c), F16) for c in (a >> 8, a & 0xFF)]
            return codes[0] << 16 | codes[1]

        cases += [
            Case(f"cvt.rn.satfinite.{name}.f32 %0, %1, %2;", ("f32", "f32"), "b16", expect8),
            Case(f"cvt.rn.satfinite.{name}.f16x2 %0, %1;", ("b32",), "b16", expect_half),
            Case(f"cvt.rn.f16x2.{name} %0, %1;", ("b16",), "b32", back),
        ]
    return cases


def packs() -> list[Case]:
    def pack(a: int, b: int, c: int, name: str) -> int:
        high, low = (exact.unsigned(clamp(exact.signed(x, 32), name), 8) for x in (a, b))
        return exact.unsigned(c << 16, 32) | high << 8 | low

    cases = [Case(f"cvt.pack.sat.{name}.s32.b32 %0, %1, %2, %3;", ("b32",) * 3, "b32",
                  lambda a, b, c, n=name: pack(a, b, c, n)) for name in ("u8", "s8")]
    cases.append(Case("cvt.pack.sat.s16.s32 %0, %1, %2;", ("b32",) * 2, "b32",
                      lambda a, b: exact.unsigned(clamp(exact.signed(a, 32), "s16"), 16) << 16
                      | exact.unsigned(clamp(exact.signed(b, 32), "s16"), 16)))
    return cases


CASES = [*to_integer(), *from_integer(), *between_floats(), *to_pairs(), *packs()]


def test_every_conversion_rounds_once(host):
    assert instructions.run(CASES, "sm_90", operands) == {}


def test_ptxas_accepts_every_spelling(nvrtc):
    from redfuser.runtime.cuda.nvrtc import compile_cuda

    compile_cuda(instructions.source(CASES), "sm_90", kind="cubin")


def test_oracle_has_all_kinds_of_values():
    values = [F32.value(int(x)) for x in operands("f32")]
    assert any(exact.is_nan(v) for v in values)
    assert any(exact.is_inf(v) for v in values)
    assert any(math.copysign(1, v) < 0 and v == 0 for v in values if isinstance(v, float))
