"""C functions whose text depends on the number of lanes: reductions over lanes and transposes."""

from __future__ import annotations

from collections.abc import Callable


def _indices(lanes: int, index: Callable[[int], int]) -> str:
    return ", ".join(str(index(i)) for i in range(lanes))


def _fold(name: str, lanes: int, vector: str, result: str, combine: str) -> str:
    """A tree over the lanes: halves the distance until every lane holds the result."""
    lines = [f"INLINE {result} {name}({vector} a) {{", f"  {vector} b;"]
    distance = lanes // 2
    while distance:
        lines.append(f"  b = SHUFFLE(a, a, {_indices(lanes, lambda i, d=distance: i ^ d)});")  # type: ignore[misc]
        lines.append(f"  a = {combine};")
        distance //= 2
    return "\n".join([*lines, "  return a[0];", "}"])


def sorting(lanes: int) -> str:
    """`sorted_lanes`, the largest lane first: a bitonic network whose comparisons all point the same way.

    Two runs of sorted lanes become one: lanes that mirror each other in the pair are compared, then those at half the
    distance of a run, and so on.
    """
    lines = ["INLINE vec sorted_lanes(vec a) {", "  vec b;"]
    run = 1
    while run < lanes:
        for flip in (2 * run - 1, *(run >> i for i in range(1, run.bit_length()))):
            other = _indices(lanes, lambda i, f=flip: i ^ f)  # type: ignore[misc]
            ends = _indices(lanes, lambda i, f=flip: i if i < i ^ f else lanes + i)  # type: ignore[misc]
            lines.append(f"  b = SHUFFLE(a, a, {other});")
            lines.append(f"  a = SHUFFLE(larger(a, b), smaller(a, b), {ends});")
        run *= 2
    return "\n".join([*lines, "  return a;", "}"])


def transpose(lanes: int) -> str:
    """`d[c * ldd + l] = s[l * lds + c]` for a square of LANES x LANES.

    Stage by stage, the blocks off the diagonal of every 2 x 2 block matrix change places (distance LANES/2, ..., 1).
    """
    lines = ["INLINE void transpose_square(const real *s, int64_t lds, real *d, int64_t ldd) {"]
    names = [f"r{i}" for i in range(lanes)]
    lines.append("  vec " + ", ".join(f"r{i} = load(s + {i} * lds)" for i in range(lanes)) + ";")
    lines.append("  vec t;")
    distance = lanes // 2
    while distance:
        low = _indices(lanes, lambda i, d=distance: i if not i & d else lanes + i - d)  # type: ignore[misc]
        high = _indices(lanes, lambda i, d=distance: i + d if not i & d else lanes + i)  # type: ignore[misc]
        for i in range(lanes):
            if not i & distance:
                a, b = names[i], names[i + distance]
                lines.append(f"  t = SHUFFLE({a}, {b}, {low}); {b} = SHUFFLE({a}, {b}, {high}); {a} = t;")
        distance //= 2
    lines += [f"  store(d + {i} * ldd, {names[i]});" for i in range(lanes)]
    return "\n".join([*lines, "}"])


def sum_tree(vectors: list[str], lanes: int, block: int) -> tuple[list[str], list[tuple[str, int]]]:
    """C statements that sum the lanes of several vectors together, and where each sum ends up.

    Parameters
    ----------
    vectors : names of the vectors (they are not changed)
    lanes : lanes of a vector
    block : lanes in 128 bits; shuffles inside such blocks are cheap, so they come first

    Returns
    -------
    statements, and for each vector (name of a vector, lane) that holds its sum.

    Two vectors become one of half sums: even neighbours of both plus odd neighbours of both. The positions are found
    by carrying, for every lane, the vector whose partial sum it holds.
    """
    lines: list[str] = []
    level = [(name, [i] * lanes) for i, name in enumerate(vectors)]
    width, number = 1, 0
    while width < lanes:
        span = (
            block if width < block else lanes
        )  # neighbours are looked for inside a block, later among blocks
        unit = 1 if width < block else block
        even, odd = _neighbours(lanes, span, unit)
        following = []
        for k in range(0, len(level), 2):
            (a, who_a), (b, who_b) = level[k], level[min(k + 1, len(level) - 1)]
            name = f"sum{number}"
            number += 1
            lines.append(
                f"const vec {name} = SHUFFLE({a}, {b}, {', '.join(map(str, even))}) + "
                f"SHUFFLE({a}, {b}, {', '.join(map(str, odd))});"
            )
            both = who_a + who_b
            following.append((name, [both[i] for i in even]))
        level = following
        width *= 2
    places = []
    for i in range(len(vectors)):
        name, who = next((n, w) for n, w in level if i in w)
        places.append((name, who.index(i)))
    return lines, places


def _neighbours(lanes: int, span: int, unit: int) -> tuple[list[int], list[int]]:
    """Index lists of the even and of the odd units of two concatenated vectors, span by span."""
    even: list[int] = []
    odd: list[int] = []
    for start in range(0, lanes, span):
        for vector in (0, lanes):
            for group in range(start, start + span, 2 * unit):
                even += [vector + group + i for i in range(unit)]
                odd += [vector + group + unit + i for i in range(unit)]
    return even, odd


def lane_functions(lanes: int, bits: int) -> dict[str, str]:
    """Name -> C text of the functions and constants of this number of lanes."""
    count = ", ".join(map(str, range(lanes)))
    table = {
        "IOTA": f"#define IOTA ((ints){{{count}}})",
        "IOTA_LONG": f"#define IOTA_LONG ((longs){{{count}}})",
        "any_lane": _fold("any_lane", lanes, "ints", "int", "a | b").replace(
            "return a[0]", "return a[0] != 0"
        ),
        "all_lanes": _fold("all_lanes", lanes, "ints", "int", "a & b").replace(
            "return a[0]", "return a[0] != 0"
        ),
        "sum_lanes": _fold("sum_lanes", lanes, "vec", "real", "a + b"),
        "product_lanes": _fold("product_lanes", lanes, "vec", "real", "a * b"),
        "max_lanes": _fold("max_lanes", lanes, "vec", "real", "larger(a, b)"),
        "min_lanes": _fold("min_lanes", lanes, "vec", "real", "smaller(a, b)"),
        "sorted_lanes": sorting(lanes),
        "REVERSED": f"#define REVERSED(a) SHUFFLE(a, a, {_indices(lanes, lambda i: lanes - 1 - i)})",
        "transpose_square": transpose(lanes),
    }
    return table
