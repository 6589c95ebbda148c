"""A small grammar of NumPy programs with cascaded reductions: random text, executed by NumPy and traced by redfuser.

Each program is a function of `x` [i, n], `y` [i, n] and `w` [n], written stage by stage. A stage's body may use the
results of earlier stages the way people write them: shifted by a maximum, centred by a mean, scaled by a sum or by the
largest magnitude. Some stages are not fusible on purpose.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STREAMS = ("x", "y", "x * w", "x + y", "x * 0.5")


@dataclass
class Program:
    """The text of a random function and how many dependent reductions its longest chain has."""

    text: str
    depth: int
    fn: Callable[..., Any] = field(repr=False)


@dataclass
class _State:
    rng: random.Random
    lines: list[str] = field(default_factory=list)
    depth: dict[str, int] = field(default_factory=dict)
    shifts: list[tuple[str, str]] = field(default_factory=list)  # (stream text, its maximum)
    masses: list[tuple[str, str]] = field(default_factory=list)  # (weight text, its sum)
    means: list[tuple[str, str]] = field(default_factory=list)  # (stream text, its mean)

    def stage(self, body: str, reduction: str, uses: tuple[str, ...]) -> str:
        name = f"r{len(self.depth)}"
        self.lines.append(f"    {name} = ({body}).{reduction}(axis=-1, keepdims=True)")
        self.depth[name] = 1 + max((self.depth[u] for u in uses), default=0)
        return name


def _maximum(s: _State) -> None:
    stream = s.rng.choice(STREAMS)
    s.shifts.append((stream, s.stage(stream, "max", ())))


def _mean(s: _State) -> None:
    stream = s.rng.choice(STREAMS)
    s.means.append((stream, s.stage(stream, "mean", ())))


def _mass(s: _State) -> None:
    stream, top = s.rng.choice(s.shifts)
    weight = f"np.exp({stream} - {top})"
    s.masses.append((weight, s.stage(weight, "sum", (top,))))


def _weighted(s: _State) -> None:
    weight, mass = s.rng.choice(s.masses)
    stream = s.rng.choice(STREAMS)
    s.means.append((stream, s.stage(f"{weight} / {mass} * ({stream})", "sum", (mass,))))


def _spread(s: _State) -> None:
    (a, mean_a), (b, mean_b) = s.rng.choice(s.means), s.rng.choice(s.means)
    s.stage(f"(({a}) - {mean_a}) * (({b}) - {mean_b})", "sum", (mean_a, mean_b))


def _weighted_spread(s: _State) -> None:
    weight, mass = s.rng.choice(s.masses)
    stream, mean = s.rng.choice(s.means)
    s.stage(f"{weight} / {mass} * (({stream}) - {mean}) ** 2", "sum", (mass, mean))


def _surprise(s: _State) -> None:
    stream, top = s.rng.choice(s.shifts)
    s.stage(f"np.exp({stream} - {top}) * (({stream}) - {top})", "sum", (top,))


def _deviation(s: _State) -> None:
    stream, mean = s.rng.choice(s.means)
    s.stage(f"np.abs(({stream}) - {mean})", s.rng.choice(("sum", "max")), (mean,))


def generate(seed: int, stages: int = 4) -> Program:
    """The program of a seed: 2 to `stages` + 1 reductions."""
    s = _State(random.Random(seed))
    s.rng.choice((_maximum, _mean))(s)
    for _ in range(s.rng.randint(1, stages)):
        moves: list[Callable[[_State], None]] = [_maximum, _mean]
        moves += [_mass, _mass, _surprise] if s.shifts else []
        moves += [_weighted, _weighted] if s.masses else []
        moves += [_spread, _spread, _deviation] if s.means else []
        moves += [_weighted_spread] if s.masses and s.means else []
        s.rng.choice(moves)(s)
    results = [f"{name}[:, 0]" for name in s.depth]
    if s.masses and s.rng.random() < 0.4:
        weight, mass = s.rng.choice(s.masses)
        results.append(f"{weight} / {mass}")
    s.lines.append(f"    return {', '.join(results)},")
    text = "def program(x, y, w):\n" + "\n".join(s.lines) + "\n"
    return Program(text, max(s.depth.values()), compile_text(text, f"<program {seed}>"))


def compile_text(text: str, filename: str) -> Callable[..., Any]:
    """The function of a program text; its lines are known to tracebacks and to the tracer."""
    scope: dict[str, Any] = {"np": np}
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), scope)
    fn: Callable[..., Any] = scope["program"]
    return fn
