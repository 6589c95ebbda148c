"""Plots of a report: the frontier of forms, the roofline, the growth of the e-graph. Axes carry names and units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from redfuser.api.page.markup import Markup, element, join
from redfuser.derivation.search import Step
from redfuser.extract.frontier import NOISE, Frontier
from redfuser.extract.roofline import Prediction
from redfuser.extract.work import Work

WIDTH, HEIGHT = 560.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 68.0, 16.0, 14.0, 50.0
FARTHEST = 1e6
"""The largest error that a plot of forms tells apart."""


@dataclass(frozen=True)
class Scale:
    """One axis: its name with the unit, and the range it shows."""

    title: str
    low: float
    high: float
    log: bool = False

    @staticmethod
    def over(title: str, values: Iterable[float], *, log: bool = False) -> Scale:
        """An axis that shows all values with some room around."""
        found = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(found), max(found)
        if log:
            return Scale(title, low / 2, high * 2, True)
        return Scale(title, 0.0, (high or 1.0) * 1.08)

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers inside the range."""
        if not self.log:
            step = 10 ** math.floor(math.log10(self.high - self.low))
            step *= next(f for f in (0.2, 0.5, 1.0, 2.0) if (self.high - self.low) / (f * step) <= 6.5)
            return [i * step for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        decades = range(math.ceil(math.log10(self.low) - 1), math.floor(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if math.log10(self.high / self.low) < 2.5 else (1,)
        stride = max(1, math.ceil(len(decades) / 8))
        found = [f * 10.0**d for d in decades if d % stride == 0 for f in factors]
        return [t for t in found if self.low <= t <= self.high * (1 + 1e-9)]


def number(value: float) -> str:
    """A number on an axis."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{superscript}" if float(mantissa) == 1 else f"{float(mantissa):g}·10{superscript}"


class Chart:
    """A frame with two axes; what is added is drawn in its coordinates."""

    def __init__(self, label: str, x: Scale, y: Scale) -> None:
        self.label = label
        self.x, self.y = x, y
        self._parts: list[Markup] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The position of a point of the data."""
        return (LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - min(self.y.place(y), 1.0) * (HEIGHT - TOP - BOTTOM))

    def line(self, points: Iterable[tuple[float, float]], kind: str = "", title: str = "") -> None:
        """A polyline."""
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in (self.at(*p) for p in points))
        self._parts.append(element("path", element("title", title) if title else None, d=path,
                                   class_=f"line {kind}".rstrip()))

    def dot(self, x: float, y: float, title: str, text: str = "", *, hollow: bool = False, above: bool = True) -> None:
        """A point; `text` stands beside it."""
        cx, cy = self.at(x, y)
        right = cx > WIDTH * 0.62
        self._parts.append(element("circle", element("title", title), cx=cx, cy=cy, r=5,
                                   class_="dot hollow" if hollow else "dot"))
        if text:
            self.note(cx + (-9 if right else 9), cy + (-8 if above else 16), text, end=right)

    def note(self, x: float, y: float, text: str, *, end: bool = False) -> None:
        """Words at a position of the drawing."""
        self._parts.append(element("text", text, x=x, y=y, class_="small", text_anchor="end" if end else None))

    def svg(self) -> Markup:
        """The drawing."""
        base, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts: list[Markup] = []
        for t in self.x.ticks():
            x = self.at(t, self.y.low)[0]
            parts += [element("line", x1=x, x2=x, y1=TOP, y2=base, class_="grid"),
                      element("text", number(t), x=x, y=base + 16, text_anchor="middle", class_="small")]
        for t in self.y.ticks():
            y = self.at(self.x.low, t)[1]
            parts += [element("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"),
                      element("text", number(t), x=LEFT - 7, y=y + 4, text_anchor="end", class_="small")]
        middle = (TOP + base) / 2
        frame = element("rect", x=LEFT, y=TOP, width=right - LEFT, height=base - TOP, class_="frame")
        names = join(element("text", self.x.title, x=(LEFT + right) / 2, y=HEIGHT - 10, text_anchor="middle"),
                     element("text", self.y.title, transform=f"translate(15 {middle:.0f}) rotate(-90)",
                             text_anchor="middle"))
        return element("svg", element("title", self.label), parts, frame, self._parts, names,
                       viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", width=round(WIDTH), height=round(HEIGHT), role="img",
                       aria_label=self.label, xmlns="http://www.w3.org/2000/svg")


def frontier_plot(f: Frontier) -> Markup:
    """Time and error of every form; those that another one dominates are hollow."""
    shown = [(p, min(max(p.error, NOISE), FARTHEST) if math.isfinite(p.error) else FARTHEST) for p in f.points]
    chart = Chart(
        f"Forms by predicted time on {f.device.name} and measured error",
        Scale.over(f"predicted time on {f.device.name} [µs]", [p.prediction.seconds * 1e6 for p, _ in shown], log=True),
        Scale.over("largest error [units of the contract]", [e for _, e in shown], log=True),
    )
    steps = sorted(((p.prediction.seconds * 1e6, e) for p, e in shown if not p.dominated))
    if len(steps) > 1:
        chart.line(steps, "other", "the forms that no other dominates")
    taken = {n: f.choice(n)[0] for n in ("stable", "fast")}
    for p, error in shown:
        marks = [n for n, q in taken.items() if q is p]
        text = f"{p.name} ({', '.join(marks)})" if marks else ""
        chart.dot(p.prediction.seconds * 1e6, error, f"{p.name}: error {p.error:.3g}, {p.passes} passes, "
                  f"state {p.work.state} bytes", text, hollow=p.dominated, above="stable" in marks)
    return chart.svg()


def roofline_plot(work: Work, prediction: Prediction, peak: float, matrix: float | None,
                  bandwidths: Mapping[str, float]) -> Markup:
    """The roofs of a device and the cascade below them.

    peak, matrix  1e9 multiply-adds per second; the latter of matrix products, where there is a unit for them
    bandwidths    name of a memory -> 1e9 bytes per second
    """
    moved = max(work.read + work.written, 1.0)
    intensity, rate = work.total / moved, work.total / prediction.seconds / 1e9
    corners = [roof / b for b in bandwidths.values() for roof in (peak, matrix) if roof]
    shown = [intensity, *corners, min(corners) / 8, max(corners) * 4]
    x = Scale.over("operations per byte of inputs and outputs", shown, log=True)
    y = Scale.over("10⁹ operations per second", [rate, matrix or peak, peak, x.low * min(bandwidths.values())],
                   log=True)
    chart = Chart(f"Roofline on {prediction.device}: {intensity:.3g} operations per byte, "
                  f"{rate:.3g} billion operations per second predicted", x, y)
    for i, (name, bandwidth) in enumerate(bandwidths.items()):
        top = matrix or peak
        start = max(x.low, y.low / bandwidth)
        chart.line([(start, start * bandwidth), (top / bandwidth, top)], "third" if i else "",
                   f"{name}: {bandwidth:.4g} GB/s")
        middle = start**0.25 * (top / bandwidth) ** 0.75
        here, low = chart.at(middle, middle * bandwidth), bandwidth == min(bandwidths.values())
        chart.note(here[0] + (9 if low else -9), here[1] + (16 if low else -4), f"{name} {bandwidth:.4g} GB/s",
                   end=not low)
    for roof, name in ((peak, "multiply-adds"), (matrix, "matrix units")):
        if roof:
            chart.line([(max(x.low, roof / max(bandwidths.values())), roof), (x.high, roof)], "", f"{name}: {roof:.4g}")
            chart.note(WIDTH - RIGHT - 6, chart.at(x.high, roof)[1] - 6, f"{name} {roof:,.0f}·10⁹/s", end=True)
    chart.dot(intensity, rate, f"{intensity:.3g} operations per byte, {rate:.3g} billion per second", "this cascade",
              above=False)
    return chart.svg()


def growth_plot(steps: Sequence[Step]) -> Markup | None:
    """Nodes of the e-graph, round after round, one line for each saturation; None where nothing was recorded."""
    grown = [(i, s) for i, s in enumerate(steps, 1) if s.growth]
    if not grown:
        return None
    rounds = sum(len(s.growth) for _, s in grown)
    largest = max(max(s.growth) for _, s in grown)
    chart = Chart(f"Size of the e-graph: {len(grown)} saturations, {rounds} rounds, at most {largest} nodes",
                  Scale.over("rounds, of all saturations", [float(rounds)]),
                  Scale.over("e-graph nodes", [float(largest)]))
    at, kinds = 0, ("", "other", "third")
    for i, s in grown:
        points = [(at + r, float(n)) for r, n in enumerate(s.growth, 1)]
        chart.line(points, kinds[i % 3], str(s))
        if len(grown) <= 24:
            end = chart.at(*points[-1])
            chart.note(end[0], end[1] - 7, str(i))
        if len(points) == 1:
            chart.dot(*points[0], str(s), hollow=True)
        at += len(points)
    return chart.svg()
