"""Integer instructions against Python's integers, on edge values and random ones."""

from __future__ import annotations

import exact
import instructions
import numpy as np
from instructions import Case, predicate

EDGES = {
    16: [0, 1, 2, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1234, 0xA5A5],
    32: [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF, 0xFF, 0x10000],
    64: [0, 1, 63, 64, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0],
}


def operands(kind: str) -> np.ndarray:
    width = int(kind[1:])
    return np.array(EDGES[width], dtype=np.uint64)


def s(x: int, w: int) -> int:
    return exact.signed(x, w)


def u(x: int, w: int) -> int:
    return exact.unsigned(x, w)


def case(text: str, kinds: str, function, gives: str | None = None) -> Case:
    reads = tuple(kinds.split())
    places = ", ".join(f"%{i}" for i in range(len(reads) + 1))
    return Case(f"{text} {places};", reads, gives or reads[0], function)


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def field(x: int, start: int, length: int, width: int, sign: bool) -> int:
    start, length = start & 255, length & 255
    if not length:
        return 0
    last = min(start + length - 1, width - 1)
    filler = x >> last & 1 if sign else 0
    result = 0
    for i in range(width):
        place = start + i
        bit = x >> place & 1 if i < length and place < width else filler
        result |= bit << i
    return result


def insert(a: int, b: int, start: int, length: int, width: int) -> int:
    result = b
    for i in range(length & 255):
        place = (start & 255) + i
        if place < width:
            result = result & ~(1 << place) | (a >> i & 1) << place
    return result


def arithmetic() -> list[Case]:
    cases = []
    for w in (16, 32, 64):
        k = f"b{w}"
        pair = f"{k} {k}"
        cases += [
            case(f"add.s{w}", pair, lambda a, b, w=w: u(a + b, w)),
            case(f"sub.u{w}", pair, lambda a, b, w=w: u(a - b, w)),
            case(f"mul.lo.s{w}", pair, lambda a, b, w=w: u(a * b, w)),
            case(f"mul.hi.s{w}", pair, lambda a, b, w=w: u(s(a, w) * s(b, w) >> w, w)),
            case(f"mul.hi.u{w}", pair, lambda a, b, w=w: a * b >> w),
            case(f"min.s{w}", pair, lambda a, b, w=w: u(min(s(a, w), s(b, w)), w)),
            case(f"max.s{w}", pair, lambda a, b, w=w: u(max(s(a, w), s(b, w)), w)),
            case(f"min.u{w}", pair, min),
            case(f"max.u{w}", pair, max),
            case(f"and.b{w}", pair, lambda a, b: a & b),
            case(f"or.b{w}", pair, lambda a, b: a | b),
            case(f"xor.b{w}", pair, lambda a, b: a ^ b),
            case(f"not.b{w}", k, lambda a, w=w: u(~a, w)),
            case(f"cnot.b{w}", k, lambda a: int(a == 0)),
            case(f"neg.s{w}", k, lambda a, w=w: u(-a, w)),
            case(f"abs.s{w}", k, lambda a, w=w: u(abs(s(a, w)), w)),
            case(f"sad.s{w}", f"{pair} {k}", lambda a, b, c, w=w: u(abs(s(a, w) - s(b, w)) + c, w)),
            case(f"sad.u{w}", f"{pair} {k}", lambda a, b, c, w=w: u(abs(a - b) + c, w)),
            case(f"mad.lo.s{w}", f"{pair} {k}", lambda a, b, c, w=w: u(a * b + c, w)),
            case(f"mad.hi.s{w}", f"{pair} {k}", lambda a, b, c, w=w: u((s(a, w) * s(b, w) >> w) + c, w)),
            case(f"mad.hi.u{w}", f"{pair} {k}", lambda a, b, c, w=w: u((a * b >> w) + c, w)),
        ]
    cases += [
        case("add.sat.s32", "b32 b32", lambda a, b: u(clamp(s(a, 32) + s(b, 32), -(2**31), 2**31 - 1), 32)),
        case("sub.sat.s32", "b32 b32", lambda a, b: u(clamp(s(a, 32) - s(b, 32), -(2**31), 2**31 - 1), 32)),
        case("mul.wide.s32", "b32 b32", lambda a, b: u(s(a, 32) * s(b, 32), 64), "b64"),
        case("mul.wide.u32", "b32 b32", lambda a, b: a * b, "b64"),
        case("mul.wide.s16", "b16 b16", lambda a, b: u(s(a, 16) * s(b, 16), 32), "b32"),
        case("mad.wide.s32", "b32 b32 b64", lambda a, b, c: u(s(a, 32) * s(b, 32) + c, 64), "b64"),
        case("mad.wide.u32", "b32 b32 b64", lambda a, b, c: u(a * b + c, 64), "b64"),
        case("mad.hi.sat.s32", "b32 b32 b32", lambda a, b, c: u(
            clamp((s(a, 32) * s(b, 32) >> 32) + s(c, 32), -(2**31), 2**31 - 1), 32)),
        case("mul24.lo.u32", "b32 b32", lambda a, b: u((a & 0xFFFFFF) * (b & 0xFFFFFF), 32)),
        case("mul24.hi.s32", "b32 b32", lambda a, b: u(s(a, 24) * s(b, 24) >> 16, 32)),
        case("mad24.lo.s32", "b32 b32 b32", lambda a, b, c: u(s(a, 24) * s(b, 24) + c, 32)),
        case("min.s16x2", "b32 b32", lambda a, b: halves(a, b, lambda x, y: min(s(x, 16), s(y, 16)))),
        case("max.u16x2", "b32 b32", lambda a, b: halves(a, b, max)),
        case("dp4a.s32.s32", "b32 b32 b32", lambda a, b, c: dot4(a, b, c, True, True)),
        case("dp4a.u32.s32", "b32 b32 b32", lambda a, b, c: dot4(a, b, c, False, True)),
    ]
    return cases


def halves(a: int, b: int, f) -> int:
    return u(f(a & 0xFFFF, b & 0xFFFF), 16) | u(f(a >> 16, b >> 16), 16) << 16


def dot4(a: int, b: int, c: int, left: bool, right: bool) -> int:
    def parts(x: int, signed: bool) -> list[int]:
        return [s(x >> 8 * i, 8) if signed else x >> 8 * i & 255 for i in range(4)]

    return u(sum(x * y for x, y in zip(parts(a, left), parts(b, right), strict=True)) + c, 32)


def carries() -> list[Case]:
    wide = "{{ .reg .b32 t; {0} t, %1, %2; {1} %0, %3, %3; }}"
    return [
        Case(wide.format("add.cc.u32", "addc.u32"), ("b32",) * 3, "b32",
             lambda a, b, c: u(2 * c + (a + b >> 32), 32)),
        Case(wide.format("sub.cc.u32", "subc.u32"), ("b32",) * 3, "b32", lambda a, b, c: u(-int(a < b), 32)),
        Case("{ .reg .b32 t; mad.lo.cc.u32 t, %1, %2, %3; addc.u32 %0, 0, 0; }", ("b32",) * 3, "b32",
             lambda a, b, c: (u(a * b, 32) + c) >> 32),
        Case("{ .reg .b32 t; add.cc.u32 t, %1, %2; madc.hi.u32 %0, %1, %3, %2; }", ("b32",) * 3, "b32",
             lambda a, b, c: u((a * c >> 32) + b + (a + b >> 32), 32)),
    ]


def bits() -> list[Case]:
    cases = []
    for w in (32, 64):
        k = f"b{w}"
        cases += [
            case(f"popc.b{w}", k, lambda a: bin(a).count("1"), "b32"),
            case(f"clz.b{w}", k, lambda a, w=w: w - a.bit_length(), "b32"),
            case(f"brev.b{w}", k, lambda a, w=w: int(f"{a:0{w}b}"[::-1], 2)),
            case(f"bfind.u{w}", k, lambda a: u(a.bit_length() - 1, 32), "b32"),
            case(f"bfind.s{w}", k, lambda a, w=w: u((~s(a, w) if s(a, w) < 0 else a).bit_length() - 1, 32), "b32"),
            case(f"bfind.shiftamt.u{w}", k, lambda a, w=w: u(w - a.bit_length() if a else -1, 32), "b32"),
            case(f"bfe.u{w}", f"{k} b32 b32", lambda a, b, c, w=w: field(a, b, c, w, False), k),
            case(f"bfe.s{w}", f"{k} b32 b32", lambda a, b, c, w=w: field(a, b, c, w, True), k),
            Case("bfi." + k + " %0, %1, %2, %3, 7;", (k, k, "b32"), k, lambda a, b, c, w=w: insert(a, b, c, 7, w)),
            Case("bfi." + k + " %0, %1, %2, 5, %3;", (k, k, "b32"), k, lambda a, b, c, w=w: insert(a, b, 5, c, w)),
        ]
    for w in (16, 32, 64):
        k = f"b{w}"
        cases += [
            case(f"shl.b{w}", f"{k} b32", lambda a, b, w=w: u(a << min(b, w), w), k),
            case(f"shr.u{w}", f"{k} b32", lambda a, b, w=w: a >> min(b, w), k),
            case(f"shr.s{w}", f"{k} b32", lambda a, b, w=w: u(s(a, w) >> min(b, w), w), k),
            case(f"shr.b{w}", f"{k} b32", lambda a, b, w=w: a >> min(b, w), k),
        ]
    for side, mode in (("l", "wrap"), ("l", "clamp"), ("r", "wrap"), ("r", "clamp")):
        def funnel(a: int, b: int, c: int, side=side, mode=mode) -> int:
            n = c & 31 if mode == "wrap" else min(c, 32)
            both = b << 32 | a
            return u(both << n >> 32, 32) if side == "l" else u(both >> n, 32)
        cases.append(case(f"shf.{side}.{mode}.b32", "b32 b32 b32", funnel))
    cases += [
        Case(f"lop3.b32 %0, %1, %2, %3, {t};", ("b32",) * 3, "b32", lambda a, b, c, t=t: lookup(a, b, c, t))
        for t in (0x80, 0xFE, 0x96, 0xCA, 0xE8, 0x00, 0xFF, 0x1B)
    ]
    cases += [
        case("bmsk.clamp.b32", "b32 b32", lambda a, b: u(((1 << min(b, 64)) - 1) << min(a, 64), 32)),
        case("bmsk.wrap.b32", "b32 b32", lambda a, b: u(((1 << (b & 31)) - 1) << (a & 31), 32)),
        case("szext.clamp.s32", "b32 b32", lambda a, b: sign_extended(a, b)),
        case("szext.wrap.u32", "b32 b32", lambda a, b: a & ((1 << (b & 31)) - 1)),
    ]
    return cases


def sign_extended(a: int, width: int) -> int:
    return a if width >= 32 else 0 if width == 0 else u(s(a, width), 32)


def lookup(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))


def permute() -> list[Case]:
    def by_selector(a: int, b: int, selector: int) -> int:
        data = (b << 32 | a).to_bytes(8, "little")
        out = 0
        for i in range(4):
            nibble = selector >> 4 * i & 15
            byte = data[nibble & 7]
            out |= (0xFF * (byte >> 7) if nibble & 8 else byte) << 8 * i
        return out

    modes = {  # result bytes, the most significant first, for selector 0 to 3, as the manual tabulates them
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    cases = [case("prmt.b32", "b32 b32 b32", by_selector)]
    for mode, table in modes.items():
        cases.append(case(f"prmt.b32.{mode}", "b32 b32 b32",
                          lambda a, b, c, t=table: by_selector(a, b, int(t[c & 3], 16))))
    return cases


def comparisons() -> list[Case]:
    tests = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}
    cases = []
    for w in (16, 32, 64):
        for name, test in tests.items():
            cases.append(Case(predicate(f"setp.{name}.s{w} %p, %1, %2;"), (f"b{w}",) * 2, "b32",
                              lambda a, b, t=test, w=w: int(t(s(a, w), s(b, w)))))
            word = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}.get(name, name)
            cases.append(Case(predicate(f"setp.{word}.u{w} %p, %1, %2;"), (f"b{w}",) * 2, "b32",
                              lambda a, b, t=test: int(t(a, b))))
    cases += [
        Case("{ .reg .pred p, q, r; setp.ne.u32 r, %3, 0; setp.lt.and.s32 p|q, %1, %2, r; selp.u32 %0, 1, 0, p; "
             "@q add.u32 %0, %0, 2; }", ("b32",) * 3, "b32",
             lambda a, b, c: int(s(a, 32) < s(b, 32) and c != 0) + 2 * int(not s(a, 32) < s(b, 32) and c != 0)),
        Case("set.gt.u32.s32 %0, %1, %2;", ("b32",) * 2, "b32", lambda a, b: u(-int(s(a, 32) > s(b, 32)), 32)),
        Case("slct.b32.s32 %0, %1, %2, %3;", ("b32",) * 3, "b32", lambda a, b, c: a if s(c, 32) >= 0 else b),
    ]
    return cases


def divisions() -> list[Case]:
    def quotient(a: int, b: int) -> int:
        return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)

    cases = []
    for w in (16, 32, 64):
        kinds = f"b{w} b{w}"
        # a divisor of 0 is a finding: it is replaced by 1
        guard = f"{{{{ .reg .pred p; .reg .b{w} t; setp.eq.u{w} p, %2, 0; selp.b{w} t, 1, %2, p; {{}} %0, %1, t; }}}}"

        def make(name: str, f, w=w, guard=guard, kinds=kinds) -> Case:
            return Case(guard.format(f"{name}{w}"), tuple(kinds.split()), f"b{w}", f)

        cases += [
            make("div.u", lambda a, b: a // (b or 1)),
            make("rem.u", lambda a, b: a % (b or 1)),
            make("div.s", lambda a, b, w=w: u(quotient(s(a, w), s(b, w) or 1), w)),
            make("rem.s", lambda a, b, w=w: u(s(a, w) - quotient(s(a, w), s(b, w) or 1) * (s(b, w) or 1), w)),
        ]
    return cases


CASES = [*arithmetic(), *carries(), *bits(), *permute(), *comparisons(), *divisions()]


def test_every_instruction_gives_what_its_definition_says(host):
    assert instructions.run(CASES, "sm_90", operands) == {}


def test_ptxas_accepts_every_spelling(nvrtc):
    from redfuser.runtime.cuda.nvrtc import compile_cuda

    compile_cuda(instructions.source(CASES), "sm_90", kind="cubin")
