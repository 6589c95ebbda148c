"""Reports as pages: valid and self-contained, every level in them, drawn without overlaps, texts escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import redfuser as rf
from redfuser.api import page as pages
from redfuser.api.page.colour import coloured
from redfuser.api.page.graph import Vertex, drawing
from redfuser.api.page.markup import Markup, element, join
from redfuser.api.page.plots import LEFT, WIDTH, Scale, number
from redfuser.rules import default
from redfuser.rules.language import Rule
from redfuser.rules.mathml import mathml


def attention(q, k, v):
    score = q @ k.T * q.shape[1] ** -0.5
    mass = np.exp(score - score.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True) @ v


def variance(x):
    return x.var(axis=-1)


def refused(x):
    return np.abs(x - x.mean(axis=-1, keepdims=True)).sum(axis=-1)


def partly(x):
    mass = np.exp(x - x.max(axis=-1, keepdims=True))
    share = mass / mass.sum(axis=-1, keepdims=True)
    return np.abs(share - share.mean(axis=-1, keepdims=True)).sum(axis=-1)


def columns(x):
    mass = np.exp(x - x.max(axis=0))
    return mass / mass.sum(axis=0)


def ranked(x):
    ordered = np.sort(x, axis=-1)
    return ordered / ordered.sum(axis=-1, keepdims=True), np.exp(x)


ROWS = (rf.spec((8, 300), "float32"),)
CASES = {
    attention: (rf.spec((64, 16), "float32"),) * 3, variance: ROWS, refused: ROWS, partly: ROWS, columns: ROWS,
    ranked: ROWS,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Function -> its page; that of the variance with all forms."""
    found = {}
    for fn, specs in CASES.items():
        path = tmp_path_factory.mktemp("pages") / "page.html"
        own = {"frontier": True, "device": "h100"} if fn is variance else {}
        rf.fuse(fn).explain(*specs, **own).to_html(path)
        found[fn.__name__] = path.read_text(encoding="utf-8")
    return found


class Reader(HTMLParser):
    """Notes everything, and that every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        names = [n for n, _ in attrs]
        if len(set(names)) != len(names):
            self.wrong.append(f"<{tag}> has an attribute twice")
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes something else")

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def check(text: str, first: int = 1) -> Reader:
    """Valid markup, headings in order, nothing loaded, drawings with names."""
    found = Reader(text)
    assert found.wrong == []
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == first
    assert levels.count(first) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    ids = [a["id"] for _, a in found.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    links = [a["href"] for _, a in found.elements if "href" in a]
    assert all(x.removeprefix("#") in ids and x.startswith("#") for x in links)
    assert not any("src" in a or "style" in a or any(n.startswith("on") for n in a) for _, a in found.elements)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.elements}
    assert "url(" not in text
    assert "@import" not in text
    for svg in found.all("svg"):
        assert svg["role"] == "img"
        assert svg["aria-label"]
    assert all(m["alttext"] for m in found.all("math"))
    regions = [a for a in found.all("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)
    return found


@pytest.mark.parametrize("name", [fn.__name__ for fn in CASES])
def test_pages_are_valid_and_load_nothing(written: dict[str, str], name: str) -> None:
    text = written[name]
    assert len(text.encode()) < 2_000_000
    assert text.startswith("<!doctype html>\n<html lang=\"en\">")
    found = check(text)
    assert f"redfuser: {name}" in found.text
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("name", [fn.__name__ for fn in CASES])
def test_every_level_is_in_the_page(written: dict[str, str], name: str) -> None:
    words = "".join(Reader(written[name]).text)
    for title in pages.TITLES.values():
        assert title in words
    for start in (f"trace {name}", "term ", "cascade ", "fusion ", "plan ", "kernel ", "#include"):
        assert start in words


def test_the_page_says_what_the_report_says(written: dict[str, str]) -> None:
    report = rf.fuse(attention).explain(*CASES[attention])
    words = "".join(Reader(written["attention"]).text)
    [cascade] = report.cascades
    texts = {a["alttext"] for a in Reader(written["attention"]).all("math")}
    for equations in (cascade.update, cascade.merge):
        assert {f"{n} = {text}" for n, text in equations.items()} <= texts
    for rule in report.rules:
        assert rule in words
    for line in (*cascade.derivation.certificate.steps, cascade.certificate.partition(": ")[2], f"seed{cascade.seed}"):
        assert line in words
    for title in ("Update, with", "Merge of", "Epilogue", "Conditions and checks", "Cost", "Chain of reductions"):
        assert title in words


def test_plots_have_axes_with_units(written: dict[str, str]) -> None:
    words = "".join(Reader(written["variance"]).text)
    for title in ("operations per byte of inputs and outputs", "10⁹ operations per second", "memory 3350 GB/s",
                  "predicted time on h100 [µs]", "largest error [units of the contract]", "e-graph nodes"):
        assert title in words
    assert "largest error" not in "".join(Reader(written["attention"]).text)  # no forms were asked for


@pytest.mark.parametrize("name", ["refused", "partly"])
def test_refusals_have_condition_witness_and_hint(written: dict[str, str], name: str) -> None:
    fn = next(f for f in CASES if f.__name__ == name)
    words = "".join(Reader(written[name]).text)
    [cascade] = rf.fuse(fn).explain(*CASES[fn]).cascades
    assert cascade.refusals
    for r in cascade.refusals:
        assert r.witness is not None
        for line in (r.stage, r.reason, r.hint, r.evidence, *(f"{v:.7g}" for v in r.witness.values)):
            assert line in words
    assert 'class="box reduction refused"' in written[name]
    assert 'class="box reduction refused"' not in written["attention"]


def test_what_numpy_runs_is_told(written: dict[str, str]) -> None:
    assert "run by NumPy between the kernels, not fused: np.sort" in "".join(Reader(written["ranked"]).text)


def test_names_are_escaped(tmp_path: Path) -> None:
    def total(p):
        return p["<b>"].sum(axis=-1) * p['"&'].max()

    total.__name__ = "<script>x"
    report = rf.fuse(total).explain({"<b>": np.ones((2, 5), np.float32), '"&': np.ones(3, np.float32)})
    report.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    found = check(text)
    assert "redfuser: <script>x" in found.text
    assert """p["<b>"].sum(axis=-1) * p['"&']""" in "".join(found.text)  # the line of the source, in the trace
    assert not found.all("b")


def test_a_notebook_gets_a_shorter_page_at_once(written: dict[str, str]) -> None:
    report = rf.fuse(attention).explain(*CASES[attention])
    derivation = report.cascades[0].derivation
    vars(derivation).pop("rules", None)  # derivations are shared: another test may have asked
    text = report._repr_html_()
    check(text)
    assert text.startswith('<div class="redfuser"><style>')
    assert "rules" not in vars(derivation)
    assert len(text) < len(written["attention"])
    rules = re.sub(r"@media[^{]*{|^--.*$", "", text[text.index("<style>") + 7 : text.index("</style>")], flags=re.M)
    selectors = [x for group in re.findall(r"([^{}]+){", rules) for x in group.split(",")]
    assert all(".redfuser" in x for x in selectors)  # nothing else in the notebook is styled


def test_long_texts_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    report = rf.fuse(variance).explain(*ROWS)
    monkeypatch.setattr(pages, "ROOM", 2000)
    text = pages.page(report, rules=False)
    check(text)
    assert "more characters: see f.lower(...)" in text
    monkeypatch.undo()
    assert len(text) < len(pages.page(report, rules=False))


def test_an_elementwise_function_has_a_page(tmp_path: Path) -> None:
    rf.fuse(lambda x: np.exp(x) + 1).explain(*ROWS).to_html(tmp_path / "page.html")
    words = "".join(check((tmp_path / "page.html").read_text(encoding="utf-8")).text)
    assert "No reductions: nothing to fuse." in words
    assert "element by element" in words


# ---- its parts

def test_markup_escapes_what_is_not_markup() -> None:
    assert element("b", "<&>", Markup("<i></i>"), title='"') == '<b title="&quot;">&lt;&amp;&gt;<i></i></b>'
    assert join(None, ["a", ("<", None)]) == "a&lt;"


def test_colours_keep_the_text() -> None:
    text = '#include <math.h>\n/* a "b" */ static float x = 1.5e-3f; // end\nchar *s = "int \\" <b>";\n'
    found = Reader(coloured(text))
    assert found.wrong == []
    assert "".join(found.text) == text
    kinds = [a["class"] for a in found.all("span")]
    assert kinds == ["p", "c", "k", "t", "m", "c", "t", "s"]


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = [e.attrib for e in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")]
    return [tuple(float(e[n]) for n in ("x", "y", "width", "height")) for e in found]


def test_boxes_of_a_graph_do_not_overlap_and_lie_inside() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 5, 30):
        names = [f"r{i}" for i in range(count)]
        reads = {n: list(rng.choice(names[:i], min(i, 3), replace=False)) for i, n in enumerate(names)}
        svg = drawing("a < b", [Vertex(n, "reduction", "sum", "x" * int(rng.integers(60))) for n in names], reads)
        found = boxes(svg)
        assert len(found) == count
        width, height = (float(xml.fromstring(svg).attrib[n]) for n in ("width", "height"))
        for i, (x, y, w, h) in enumerate(found):
            assert x >= 0
            assert y >= 0
            assert x + w <= width + 1
            assert y + h <= height
            assert not any(x < b + c and b < x + w and y < d + e and d < y + h for b, d, c, e in found[:i])
        assert svg.count('class="edge"') == sum(map(len, reads.values()))


def test_scales() -> None:
    scale = Scale.over("x", [1.0, 1000.0], log=True)
    assert scale.ticks() == [1.0, 10.0, 100.0, 1000.0]
    assert scale.place(0.5) == 0
    assert scale.place(2000.0) == pytest.approx(1)
    assert Scale.over("x", [73.0]).ticks() == [0.0, 20.0, 40.0, 60.0]
    assert Scale.over("x", [0.0]).ticks()[0] == 0
    assert [number(v) for v in (0, 0.25, 20.0, 1e6, 2.5e-7)] == ["0", "0.25", "20", "10⁶", "2.5·10⁻⁷"]
    assert WIDTH > LEFT


def test_every_law_is_a_formula() -> None:
    for law in default:
        if isinstance(law, Rule):
            for side in (law.left, law.right):
                xml.fromstring(f"<math>{mathml(side, grouped=True)}</math>")
            if law.left != law.right:  # others compute: the sum of two numbers
                assert mathml(law.left, grouped=True) != mathml(law.right, grouped=True)


def test_formulas_have_the_brackets_they_need() -> None:
    def words(e, **how):
        return "".join(xml.fromstring(f"<math>{mathml(e, **how)}</math>").itertext())

    n = rf.axes("n")
    x, y = rf.tensor("x", n), rf.tensor("y", n)
    assert words((x + y) * x) == "(xn+yn)\u2062xn"
    assert words(x - (y - x)) == "xn\u2212(yn\u2212xn)"
    assert words(x + y * x) == "xn+yn\u2062xn"
    assert words((x + y) * (x + y)) == "(xn+yn)2"
    assert words(x * (2 * y)) == "xn\u00d72\u2062yn"
    assert words((x * y) * x, grouped=True) == "(xn\u2062yn)\u2062xn"
    assert words(x * (y * x), grouped=True) == "xn\u2062(yn\u2062xn)"
    assert words(x + (y - x), grouped=True) == "xn+(yn\u2212xn)"
    assert words(x * x, grouped=True) == "xn\u2062xn"
    assert words(-(x + y)) == "\u2212(xn+yn)"
    assert words(np.where(x > 0, x, y)) == "{xnif xn>0ynelse"


def test_the_growth_of_the_search_is_recorded() -> None:
    [cascade] = rf.fuse(variance).explain(*ROWS).cascades
    for step in cascade.derivation.timeline:
        assert len(step.growth) == step.iterations
        assert step.growth[-1] == step.nodes


def test_long_equations_of_the_text_go_on_in_the_next_line() -> None:
    def best(x):
        return ((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)).argmax(-1)

    report = rf.fuse(best).explain(*ROWS)
    [epilogue] = [t for c in report.cascades for n, t in c.epilogue.items() if n.startswith("argmax")]
    assert len(epilogue) > 300
    assert max(map(len, str(report).splitlines())) < 220
    assert epilogue in " ".join(str(report).split())
