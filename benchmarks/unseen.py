"""Cascades that nobody wrote: drawn by seed, beside those that the back end was tuned on.

    python benchmarks/unseen.py [--count N] [--seed S] [--seconds S] [--json FILE]

A draw chooses the producer of the elements (arithmetic on one or two arrays, or a matrix product with a bias), the axis
of the stream (last, middle, first), the chain (an extreme or an average; a weight about it; its mass; averages of
values, squares, other arrays or vectors under that weight) and what is returned. Draws that are not one pass are
passed over. The efficiency of a kernel is the time of the roofline (memory, arithmetic; no schedule) over the measured
one; a draw is compared with the median efficiency of the listed cascades of its kind: rows, columns or tiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from model import Entry, measure, timed

from redfuser.api import fuse, spec
from redfuser.extract import Plan
from redfuser.testing.schedule_cases import CASES

AIM = 0.6
Shapes = dict[str, tuple[int, ...]]
LISTED = (
    ("softmax", {"p": 1024, "n": 1024}), ("entropy", {"p": 1024, "n": 1024}), ("moments", {"p": 1024, "n": 1024}),
    ("layer_norm", {"p": 1024, "n": 1024}), ("weighted_mean", {"p": 1024, "n": 1024}),
    ("column_softmax", {"n": 1024, "p": 1024}), ("column_variance", {"n": 1024, "p": 1024}),
    ("attention", {"h": 8, "i": 1024, "n": 1024, "k": 64, "d": 64}),
    ("causal_attention", {"h": 8, "i": 1024, "n": 1024, "k": 64, "d": 64}),
    ("masked_attention", {"h": 8, "i": 1024, "n": 1024, "k": 64, "d": 64}),
)


def draw(rng: np.random.Generator) -> tuple[str, Callable[..., Any], Shapes]:
    """(what it is in words, the function, shapes of its arguments)."""
    place = rng.choice(["last", "first", "middle", "product"], p=[0.4, 0.2, 0.1, 0.3])
    wide = {"last": (1024, 1024), "first": (1024, 1024), "middle": (4, 512, 512), "product": ()}[place]
    axis = {"last": -1, "first": 0, "middle": 1, "product": -1}[place]
    producer = rng.choice(["x", "x y", "x - y", "x s + y", "|x|", "x^2 - y"])
    extreme = rng.choice(["max", "min", "mean"])
    weight = rng.choice(["exp", "exp2", "square"] if extreme != "mean" else ["square", "cube"])
    value = rng.choice(["e", "e^2", "y", "|y|"])
    returned = rng.choice(["average", "mass and average", "log mass", "each"], p=[0.5, 0.2, 0.15, 0.15])

    def element(x: Any, y: Any) -> Any:
        return {"x": lambda: x, "x y": lambda: x * y, "x - y": lambda: x - y, "x s + y": lambda: x * 0.3 + y,
                "|x|": lambda: np.abs(x), "x^2 - y": lambda: x * x - y}[producer]()

    def chain(e: Any, y: Any, vectors: Any = None) -> Any:
        m = getattr(np, extreme)(e, axis=axis, keepdims=True)
        off = e - m if extreme != "min" else m - e
        w = {"exp": np.exp, "exp2": np.exp2, "square": np.square, "cube": lambda t: t * t * t}[weight](off)
        mass = w.sum(axis=axis, keepdims=True)
        if vectors is not None and weight in ("exp", "exp2"):
            return (w / mass) @ vectors
        v = {"e": e, "e^2": e * e, "y": y, "|y|": np.abs(y)}[value]
        average = (w * v).sum(axis=axis, keepdims=True) / mass
        return {"average": average, "mass and average": (mass, average), "log mass": np.log(mass) + m,
                "each": w / mass}[returned]

    words = f"{place}: {producer}; {extreme}; {weight}; {value}; {returned}"
    if place == "product":
        shapes: Shapes = {"a": (4, 1024, 64), "b": (4, 1024, 64), "y": (1024, 1024), "v": (4, 1024, 64)}

        def over_products(a: Any, b: Any, y: Any, v: Any) -> Any:
            return chain(element(a @ b.swapaxes(-1, -2) * 0.125, y), y, v)

        return words, over_products, shapes
    return words, lambda x, y: chain(element(x, y), y), {"x": wide, "y": wide}


def entry(title: str, fn: Callable[..., Any], shapes: Shapes) -> Entry | None:
    """The kernel of a function of float32 arrays; None where it is not a single pass of one cascade."""
    lowered = fuse(fn).lower(**{n: spec(s, "float32") for n, s in shapes.items()})
    if len(lowered.fusion) != 1 or len(lowered.fusion[0].passes) != 1:
        return None
    plan = lowered.plan[0]
    assert isinstance(plan, Plan)
    return timed(plan.strategy, title, lowered.fusion[0], plan, lowered.sizes)


def listed() -> Iterator[Entry]:
    """The cascades that the back end was tuned on."""
    for case, sizes in LISTED:
        found = CASES[case]
        shapes = {n: tuple(sizes[a] for a in shape) for n, (shape, kind) in found.arguments.items()}
        made = entry(case, found.fn, shapes)
        assert made is not None
        yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each kernel")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    known, drawn, passed_over = list(listed()), list[Entry](), list[str]()
    while len(drawn) < given.count:
        words, fn, shapes = draw(rng)
        made = entry(words, fn, shapes)
        if made is None:
            passed_over.append(words)
        elif words not in {e.title for e in drawn}:
            drawn.append(made)
    measure([*known, *drawn], given.seconds)
    efficiency = {e.title: e.roofline / e.measured for e in (*known, *drawn)}
    kinds = {e.group for e in known}
    usual = {k: statistics.median(efficiency[e.title] for e in known if e.group == k) for k in kinds}
    rows = []
    for e in (*known, *drawn):
        share = efficiency[e.title] / usual[e.group]
        rows.append({"kind": e.group, "cascade": e.title, "drawn": e in drawn, "ms": round(e.measured * 1e3, 4),
                     "roofline ms": round(e.roofline * 1e3, 4), "efficiency": round(efficiency[e.title], 3),
                     "of the listed": round(share, 3)})
        print(f"{'drawn ' if e in drawn else 'listed'} {e.group:<8}{e.title:<52}{e.measured * 1e3:>9.3f} ms"
              f"{efficiency[e.title]:>7.2f}{share:>7.2f}")
    worst = min(r["of the listed"] for r in rows if r["drawn"])
    print(f"least efficient draw: {worst:.2f} of the listed of its kind (aimed at {AIM}); not one pass: {passed_over}")
    if given.json:
        result = {"command": " ".join(["python benchmarks/unseen.py", *sys.argv[1:]]), "aim": AIM,
                  "least": worst, "not one pass": passed_over, "rows": rows}
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
