"""Arithmetic of number formats by its definition: exact rational results, rounded once. Shares nothing with the code
under test. Values are Python floats or Fractions; a code is an int."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Form:
    exponent: int
    mantissa: int
    infinite: bool = True
    nan: int = 0

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        """The code of the largest finite value."""
        return self.infinity - 1 if self.infinite else (self.infinity | ((1 << self.mantissa) - 2))

    def value(self, code: int):
        """The number of a code: a Fraction, or a float for infinities and NaN; -0.0 keeps its sign."""
        sign = -1 if code >> (self.width - 1) & 1 else 1
        e, m = code >> self.mantissa & ((1 << self.exponent) - 1), code & ((1 << self.mantissa) - 1)
        if self.infinite and e == (1 << self.exponent) - 1:
            return NAN if m else sign * INF
        if not self.infinite and code & ((1 << (self.width - 1)) - 1) == self.nan:
            return NAN
        if not e and not m:
            return -0.0 if sign < 0 else 0.0
        power = (e or 1) - self.bias - self.mantissa
        return sign * Fraction(m | (1 << self.mantissa if e else 0)) * Fraction(2) ** power

    def sign(self, negative: bool) -> int:
        return int(negative) << (self.width - 1)


F64 = Form(11, 52, nan=0x7FFFFFFFFFFFFFFF)
F32 = Form(8, 23, nan=0x7FFFFFFF)
F16 = Form(5, 10, nan=0x7FFF)
BF16 = Form(8, 7, nan=0x7FFF)
TF32 = Form(8, 10, nan=0x3FFFF)
E4M3 = Form(4, 3, infinite=False, nan=0x7F)
E5M2 = Form(5, 2, nan=0x7F)


def is_nan(x) -> bool:
    return isinstance(x, float) and math.isnan(x)


def is_inf(x) -> bool:
    return isinstance(x, float) and math.isinf(x)


def finite(x) -> bool:
    return not is_nan(x) and not is_inf(x)


def negative(x) -> bool:
    return math.copysign(1, x) < 0 if isinstance(x, float) else x < 0


def as_fraction(x) -> Fraction:
    return Fraction(x)


def rounded(x, form: Form, mode: str = "rn", saturate: bool = False) -> int:
    """The code of a number: mode rn (ties to even), rna (ties away), rz, rm, rp."""
    if is_nan(x):
        return form.nan
    sign = form.sign(negative(x))
    if is_inf(x):
        return sign | (form.largest if saturate else form.infinity if form.infinite else form.nan)
    if x == 0:
        return sign
    exact = abs(Fraction(x))
    exponent = max(_floor_log2(exact), 1 - form.bias)
    scaled = exact / Fraction(2) ** (exponent - form.mantissa)
    whole, rest = scaled.numerator // scaled.denominator, scaled - (scaled.numerator // scaled.denominator)
    half = Fraction(1, 2)
    up = {
        "rn": rest > half or (rest == half and whole % 2 == 1),
        "rna": rest >= half,
        "rz": False,
        "rm": bool(sign) and rest > 0,
        "rp": not sign and rest > 0,
    }[mode]
    code = whole + up + ((exponent - 1 + form.bias) << form.mantissa)
    if code <= form.largest:
        return sign | code
    inward = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and bool(sign))
    if saturate or inward:
        return sign | form.largest
    return sign | (form.infinity if form.infinite else form.nan)


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def flushed(code: int, form: Form) -> int:
    """Denormals become zero of their sign."""
    exponent = code >> form.mantissa & ((1 << form.exponent) - 1)
    return code if exponent else code & form.sign(True)


# ---- exact operations; zero results have the sign that IEEE gives them ----


def add(a, b, mode: str = "rn"):
    if not (finite(a) and finite(b)):
        return NAN if is_nan(a) or is_nan(b) or (is_inf(a) and is_inf(b) and a != b) else (a if is_inf(a) else b)
    total = Fraction(a) + Fraction(b)
    if total:
        return total
    if a == 0 and b == 0 and negative(a) == negative(b):
        return -0.0 if negative(a) else 0.0
    return -0.0 if mode == "rm" else 0.0


def sub(a, b, mode: str = "rn"):
    return add(
        a,
        NAN
        if is_nan(b)
        else -b
        if not (isinstance(b, float) and b == 0)
        else math.copysign(0.0, -1 if not negative(b) else 1),
        mode,
    )


def mul(a, b, mode: str = "rn"):
    if is_nan(a) or is_nan(b):
        return NAN
    sign = negative(a) != negative(b)
    if is_inf(a) or is_inf(b):
        return NAN if a == 0 or b == 0 else (-INF if sign else INF)
    if a == 0 or b == 0:
        return -0.0 if sign else 0.0
    return Fraction(a) * Fraction(b)


def fma(a, b, c, mode: str = "rn"):
    return add(mul(a, b), c, mode)


def div(a, b, mode: str = "rn"):
    if is_nan(a) or is_nan(b) or (is_inf(a) and is_inf(b)) or (a == 0 and b == 0):
        return NAN
    sign = negative(a) != negative(b)
    if is_inf(a) or b == 0:
        return -INF if sign else INF
    if is_inf(b) or a == 0:
        return -0.0 if sign else 0.0
    return Fraction(a) / Fraction(b)


def smaller(a, b):
    """min: a NaN loses, -0 is less than +0."""
    if is_nan(a) or is_nan(b):
        return NAN if is_nan(a) and is_nan(b) else b if is_nan(a) else a
    if a == b == 0:
        return a if negative(a) else b
    return a if a < b else b


def larger(a, b):
    if is_nan(a) or is_nan(b):
        return NAN if is_nan(a) and is_nan(b) else b if is_nan(a) else a
    if a == b == 0:
        return b if negative(a) else a
    return a if a > b else b


def integral(x, mode: str):
    """x rounded to an integer: rni, rzi, rmi, rpi; a Fraction or int, infinities and NaN stay."""
    if not finite(x):
        return x
    exact = Fraction(x)
    result = {
        "rni": round(exact), "rzi": math.trunc(exact), "rmi": math.floor(exact), "rpi": math.ceil(exact),
    }[mode]
    if result == 0:
        return -0.0 if negative(x) else 0.0
    return Fraction(result)


def signed(x: int, width: int) -> int:
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def unsigned(x: int, width: int) -> int:
    return x & ((1 << width) - 1)
