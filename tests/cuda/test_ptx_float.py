"""Floating-point instructions against exact rational arithmetic, rounded once, on edge values of every format."""

from __future__ import annotations

import math
from fractions import Fraction

import exact
import instructions
import mpmath
import numpy as np
import pytest
from exact import BF16, F16, F32, F64, Form
from instructions import Case, predicate

EDGES = {
    "f32": [
        0,
        1,
        0x007FFFFF,
        0x00800000,
        0x3F800000,
        0x3F800001,
        0x40490FDB,
        0x4B000001,
        0x7F7FFFFF,
        0x7F800000,
        0x7FC00001,
        0x33800000,
        0x1E3CE508,
    ],
    "f64": [
        0,
        1,
        0x000FFFFFFFFFFFFF,
        0x0010000000000000,
        0x3FF0000000000000,
        0x3FF0000000000001,
        0x400921FB54442D18,
        0x7FEFFFFFFFFFFFFF,
        0x7FF0000000000000,
        0x7FF8000000000000,
    ],
    "f16": [0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x4248, 0x7BFF, 0x7C00, 0x7E00, 0x1400],
    "bf16": [0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x4049, 0x7F7F, 0x7F80, 0x7FC0, 0x3380],
}
FORMS = {"f32": F32, "f64": F64, "f16": F16, "bf16": BF16}
ROUNDINGS = ("rn", "rz", "rm", "rp")


def both_signs(kind: str) -> list[int]:
    sign = 1 << (FORMS[kind].width - 1)
    return EDGES[kind] + [x | sign for x in EDGES[kind]]


def operands(kind: str) -> np.ndarray:
    if kind == "b16":  # the same codes serve both half types: each has its edges among them
        return np.array(sorted({*both_signs("f16"), *both_signs("bf16")})[::2], np.uint64)
    if kind == "b32":
        return np.array([0x3C003F80, 0x7C000001, 0xBC01FFFF, 0x80008000, 0x7BFF7F7F, 0x04000080, 0x42484049], np.uint64)
    return np.array(both_signs(kind), np.uint64)


def value(code: int, kind: str, ftz: bool = False):
    form = FORMS[kind]
    return form.value(exact.flushed(code, form) if ftz else code)


def saturated(x):
    return 0.0 if exact.is_nan(x) or not x > 0 else min(x, 1)


def of(kind: str, function, mode: str = "rn", ftz: bool = False, sat: bool = False):
    """Raw operands to the raw result of an exact function of numbers."""
    form = FORMS[kind]

    def expect(*codes: int) -> int:
        result = function(*[value(c, kind, ftz) for c in codes])
        if sat:
            code = exact.rounded(saturated(result), form, mode)
            return exact.flushed(code, form) if ftz else code
        code = exact.rounded(result, form, mode)
        return exact.flushed(code, form) if ftz else code

    return expect


def places(count: int) -> str:
    return ", ".join(f"%{i}" for i in range(count + 1))


def basic() -> list[Case]:
    """add, sub, mul, fma, div, rcp, sqrt in all roundings."""
    cases = []
    for kind in ("f32", "f64"):
        for mode in ROUNDINGS:
            for name, function in (("add", exact.add), ("sub", exact.sub), ("mul", exact.mul), ("div", exact.div)):
                for ftz in (False, True) if kind == "f32" else (False,):
                    text = f"{name}.{mode}{'.ftz' if ftz else ''}.{kind} {places(2)};"
                    f = of(kind, lambda a, b, f=function, m=mode: f(a, b, m), mode, ftz)
                    cases.append(Case(text, (kind, kind), kind, f))
            cases += [
                Case(f"rcp.{mode}.{kind} {places(1)};", (kind,), kind, of(kind, lambda a: exact.div(1.0, a), mode)),
                Case(f"sqrt.{mode}.{kind} {places(1)};", (kind,), kind, lambda a, k=kind, m=mode: root(a, k, m)),
            ]
            if kind == "f32":
                cases.append(Case(f"fma.{mode}.{kind} {places(3)};", (kind,) * 3, kind,
                                  of(kind, lambda a, b, c, m=mode: exact.fma(a, b, c, m), mode)))
    cases += [
        Case(f"fma.rn.f64 {places(2)}, %1;", ("f64",) * 2, "f64", of("f64", lambda a, b: exact.fma(a, b, a))),
        Case(f"fma.rn.ftz.sat.f32 {places(3)};", ("f32",) * 3, "f32", of("f32", exact.fma, "rn", True, True)),
        Case(f"add.sat.f32 {places(2)};", ("f32",) * 2, "f32", of("f32", exact.add, sat=True)),
        Case(f"mul.ftz.sat.f32 {places(2)};", ("f32",) * 2, "f32", of("f32", exact.mul, "rn", True, True)),
    ]
    return cases


def root(code: int, kind: str, mode: str) -> int:
    form = FORMS[kind]
    x = form.value(code)
    if exact.is_nan(x) or (x < 0):
        return form.nan
    if x == 0 or exact.is_inf(x):
        return code
    shift = 200 + x.denominator.bit_length()
    digits = math.isqrt((x.numerator << 2 * shift) // x.denominator)
    below = Fraction(digits, 1 << shift)
    if below * below != x:
        below += Fraction(1, 1 << (shift + 1))  # between two of these digits: no tie
    return exact.rounded(below, form, mode)


def extremes() -> list[Case]:
    def nan_wins(f):
        return lambda a, b: math.nan if exact.is_nan(a) or exact.is_nan(b) else f(a, b)

    cases = []
    for name, f in (("min", exact.smaller), ("max", exact.larger)):
        for kind in ("f32", "f64"):
            cases += [Case(f"{name}.{kind} {places(2)};", (kind,) * 2, kind, of(kind, f))]
        cases += [
            Case(f"{name}.ftz.f32 {places(2)};", ("f32",) * 2, "f32", of("f32", f, "rn", True)),
            Case(f"{name}.NaN.f32 {places(2)};", ("f32",) * 2, "f32", of("f32", nan_wins(f))),
        ]
        for kind in ("f16", "bf16"):
            cases += [
                Case(f"{name}.{kind} {places(2)};", ("b16",) * 2, "b16", of(kind, f)),
                Case(f"{name}.NaN.{kind} {places(2)};", ("b16",) * 2, "b16", of(kind, nan_wins(f))),
                Case(f"{name}.{kind}x2 {places(2)};", ("b32",) * 2, "b32", pairs(of(kind, f))),
            ]
    cases.append(Case(f"max.xorsign.abs.f32 {places(2)};", ("f32",) * 2, "f32", xorsign))
    return cases


def xorsign(a: int, b: int) -> int:
    strip = 0x7FFFFFFF
    code = of("f32", exact.larger)(a & strip, b & strip)
    return code | ((a ^ b) & 0x80000000)


def pairs(function):
    """A function of half codes, on both halves of words."""
    return lambda *words: function(*[w & 0xFFFF for w in words]) | function(*[w >> 16 for w in words]) << 16


def halves() -> list[Case]:
    cases = []
    for kind in ("f16", "bf16"):
        for name, f in (("add", exact.add), ("sub", exact.sub), ("mul", exact.mul)):
            cases += [
                Case(f"{name}.rn.{kind} {places(2)};", ("b16",) * 2, "b16", of(kind, f)),
                Case(f"{name}.rn.{kind}x2 {places(2)};", ("b32",) * 2, "b32", pairs(of(kind, f))),
            ]
        cases += [
            Case(f"fma.rn.{kind} {places(3)};", ("b16",) * 3, "b16", of(kind, exact.fma)),
            Case(f"fma.rn.{kind}x2 {places(3)};", ("b32",) * 3, "b32", pairs(of(kind, exact.fma))),
            Case(
                f"fma.rn.relu.{kind} {places(3)};",
                ("b16",) * 3,
                "b16",
                of(kind, lambda a, b, c: relu(exact.fma(a, b, c))),
            ),
            Case(f"neg.{kind} {places(1)};", ("b16",), "b16", lambda a: a ^ 0x8000),
            Case(f"abs.{kind}x2 {places(1)};", ("b32",), "b32", lambda a: a & 0x7FFF7FFF),
        ]
    cases += [
        Case(f"add.rn.ftz.sat.f16 {places(2)};", ("b16",) * 2, "b16", of("f16", exact.add, "rn", True, True)),
        Case(f"mul.rn.sat.f16x2 {places(2)};", ("b32",) * 2, "b32", pairs(of("f16", exact.mul, sat=True))),
    ]
    return cases


def relu(x):
    return 0.0 if not exact.is_nan(x) and exact.negative(x) else x


def signs_and_tests() -> list[Case]:
    cases = []
    for kind in ("f32", "f64"):
        sign = 1 << (FORMS[kind].width - 1)
        form = FORMS[kind]
        cases += [
            Case(f"neg.{kind} {places(1)};", (kind,), kind, lambda a, s=sign: a ^ s),
            Case(f"abs.{kind} {places(1)};", (kind,), kind, lambda a, s=sign: a & ~s),
            Case(f"copysign.{kind} {places(2)};", (kind,) * 2, kind, lambda a, b, s=sign: (b & ~s) | (a & s)),
        ]
        classes = {
            "finite": exact.finite, "infinite": exact.is_inf, "number": lambda x: not exact.is_nan(x),
            "notanumber": exact.is_nan,
            "normal": lambda x, f=form: exact.finite(x) and abs(x) >= f.value(1 << f.mantissa),
            "subnormal": lambda x, f=form: exact.finite(x) and 0 < abs(x) < f.value(1 << f.mantissa),
        }
        for name, f in classes.items():
            text = predicate(f"testp.{name}.{kind} %p, %1;")
            cases.append(Case(text, (kind,), "b32", lambda a, f=f, form=form: int(f(form.value(a)))))
    cases.append(Case(f"neg.ftz.f32 {places(1)};", ("f32",), "f32", lambda a: exact.flushed(a, F32) ^ 0x80000000))
    return cases


def comparisons() -> list[Case]:
    ordered = {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }
    cases = []
    for kind, register in (("f32", "f32"), ("f64", "f64"), ("f16", "b16"), ("bf16", "b16")):
        def test(f, on_nan: int, kind=kind, ftz: bool = False):
            def expect(a: int, b: int) -> int:
                x, y = value(a, kind, ftz), value(b, kind, ftz)
                return on_nan if exact.is_nan(x) or exact.is_nan(y) else int(f(x, y))

            return expect

        for name, f in ordered.items():
            cases += [
                Case(predicate(f"setp.{name}.{kind} %p, %1, %2;"), (register,) * 2, "b32", test(f, 0)),
                Case(predicate(f"setp.{name}u.{kind} %p, %1, %2;"), (register,) * 2, "b32", test(f, 1)),
            ]
        cases += [
            Case(predicate(f"setp.num.{kind} %p, %1, %2;"), (register,) * 2, "b32", test(lambda a, b: True, 0)),
            Case(predicate(f"setp.nan.{kind} %p, %1, %2;"), (register,) * 2, "b32", test(lambda a, b: False, 1)),
        ]
        if kind == "f32":
            cases.append(
                Case(predicate("setp.lt.ftz.f32 %p, %1, %2;"), ("f32",) * 2, "b32", test(ordered["lt"], 0, ftz=True))
            )
            less = test(ordered["lt"], 0)
            cases.append(
                Case("set.lt.f32.f32 %0, %1, %2;", ("f32",) * 2, "f32", lambda a, b, t=less: 0x3F800000 * t(a, b))
            )
    return cases


CASES = [*basic(), *extremes(), *halves(), *signs_and_tests(), *comparisons()]


def test_every_instruction_rounds_once(host):
    assert instructions.run(CASES, "sm_90", operands) == {}


# ---- approximate functions: within the error that the manual allows on the device, exact at special values ----

FUNCTIONS = {  # name -> (function, largest relative error 2^-x, or ("absolute", 2^-x))
    "ex2": (lambda x: mpmath.power(2, x), 2.0**-22),
    "lg2": (lambda x: mpmath.log(x, 2), 2.0**-22),
    "rcp": (lambda x: 1 / x, 2.0**-23),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 2.0**-22.9),
    "sqrt": (mpmath.sqrt, 2.0**-23),
    "tanh": (mpmath.tanh, 2.0**-11),
    "sin": (mpmath.sin, 2.0**-20.9),
    "cos": (mpmath.cos, 2.0**-20.9),
}
SPECIAL = {  # what the manual tabulates: argument -> result, as bits
    "ex2": {0xFF800000: 0, 0x7F800000: 0x7F800000, 0: 0x3F800000, 0x80000000: 0x3F800000, 0x7FC00001: 0x7FFFFFFF},
    "lg2": {0: 0xFF800000, 0x80000000: 0xFF800000, 0x7F800000: 0x7F800000, 0xBF800000: 0x7FFFFFFF},
    "rcp": {0: 0x7F800000, 0x80000000: 0xFF800000, 0x7F800000: 0, 0xFF800000: 0x80000000},
    "rsqrt": {0: 0x7F800000, 0x80000000: 0xFF800000, 0x7F800000: 0, 0xBF800000: 0x7FFFFFFF},
    "sqrt": {0: 0, 0x80000000: 0x80000000, 0x7F800000: 0x7F800000, 0xBF800000: 0x7FFFFFFF},
    "tanh": {0: 0, 0x80000000: 0x80000000, 0x7F800000: 0x3F800000, 0xFF800000: 0xBF800000},
    "sin": {0: 0, 0x80000000: 0x80000000, 0x7F800000: 0x7FFFFFFF},
    "cos": {0: 0x3F800000, 0x80000000: 0x3F800000, 0x7F800000: 0x7FFFFFFF},
}


def _arguments(name: str) -> np.ndarray:
    x = np.random.default_rng(7).uniform(-30, 30, 200).astype(np.float32)
    if name in ("lg2", "rsqrt", "sqrt"):
        x = np.abs(x) + np.float32(2)
    if name in ("sin", "cos"):
        x = np.clip(x, -3.1, 3.1)
    return x


def _run_functions(tail: str) -> tuple[dict[str, dict[int, int]], tuple[Case, ...]]:
    cases = tuple(
        Case(f"{name}.approx{'' if name == 'tanh' else tail}.f32 %0, %1;", ("f32",), "f32", int) for name in FUNCTIONS
    )
    module = instructions.build(cases, "sm_90")
    given = np.concatenate([*[_arguments(n).view(np.uint32) for n in FUNCTIONS],
                            np.array([k for s in SPECIAL.values() for k in s], np.uint32)])
    given = np.unique(np.concatenate([given, np.array([1, 0x00400000, 0x80000001, 0xC2FE0000, 0x7E800000], np.uint32)]))
    raw, n = given.astype(np.uint64), len(given)
    out, zero = np.zeros((len(cases), n), np.uint64), np.zeros(n, np.uint64)
    from redfuser.runtime.cuda.host import In, Out

    module.kernel("f32_to_f32").launch((n + 255) // 256, 256, [In(raw), In(zero), In(zero), Out(out), np.int32(n)])
    return {
        name: dict(zip(given.tolist(), row.tolist(), strict=True)) for name, row in zip(FUNCTIONS, out, strict=True)
    }, cases


def test_approximate_functions(host):
    got, _ = _run_functions(".ftz")
    for name, (function, bound) in FUNCTIONS.items():
        for bits in _arguments(name).view(np.uint32).tolist():
            exact_value = function(mpmath.mpf(float(F32.value(bits))))
            result = float(F32.value(got[name][bits]))
            scale = 1 if name in ("sin", "cos") else max(abs(exact_value), mpmath.mpf(2) ** -126)
            assert abs(result - exact_value) <= bound * scale, (name, hex(bits), result)
        for bits, result in SPECIAL[name].items():
            assert got[name][bits] == result, (name, hex(bits), hex(got[name][bits]))


def test_denormals_are_flushed_only_where_the_opcode_says(host):
    flushed, _ = _run_functions(".ftz")
    kept, _ = _run_functions("")
    assert flushed["rcp"][1] == 0x7F800000  # 1 / 0
    assert kept["rcp"][1] == 0x7F800000  # beyond the largest
    assert kept["rcp"][0x7E800000] == 0x00800000
    assert flushed["rcp"][0x00400000] == 0x7F800000
    assert kept["rcp"][0x00400000] == 0x7F000000
    assert flushed["ex2"][0xC2FE0000] == 0  # 2^-127
    assert kept["ex2"][0xC2FE0000] == 0x00400000
    assert flushed["sqrt"][1] == 0
    assert kept["sqrt"][1] == F32.largest // 0x7F7FFFFF * 0x1A3504F3


def test_ptxas_accepts_every_spelling(nvrtc):
    from redfuser.runtime.cuda.nvrtc import compile_cuda

    compile_cuda(instructions.source(CASES), "sm_90", kind="cubin")


def test_formats_agree_with_numpy():
    """The oracle itself, against NumPy's and ml_dtypes' conversions."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = np.arange(1 << 16, dtype=np.uint16)
    table: list[tuple[Form, np.ndarray]] = [(F16, codes.view(np.float16)), (BF16, codes.view(ml_dtypes.bfloat16)),
                                            (exact.E4M3, codes[:256].astype(np.uint8).view(ml_dtypes.float8_e4m3fn)),
                                            (exact.E5M2, codes[:256].astype(np.uint8).view(ml_dtypes.float8_e5m2))]
    for form, numbers in table:
        with np.errstate(invalid="ignore"):
            every = list(enumerate(numbers.astype(np.float64).tolist()))
        for code, number in every[:: 97 if len(every) > 256 else 1]:
            mine = form.value(code)
            assert mine == number or (exact.is_nan(mine) and math.isnan(number))
            if not exact.is_nan(mine):
                assert exact.rounded(mine, form) == code
