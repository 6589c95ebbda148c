"""The examples and the demonstration, compiled: the results of plain NumPy, by kernels that really ran."""

from __future__ import annotations

import json
from typing import Any

import minilm
import numpy as np
import pytest
import search
import streaming

import redfuser as rf
from redfuser.cli import main
from redfuser.demo.measure import compare
from redfuser.demo.search import Index

SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "A dictionary must not change size while something iterates over it.",
)


@pytest.fixture(scope="module")
def model() -> Any:
    try:
        return minilm.load_model()
    except minilm.ModelMissing as error:
        pytest.skip(str(error))


def test_transformer_gives_the_same_embeddings_and_ranking(model: Any) -> None:
    functions: Any = minilm.compiled()
    plain, fused = model.encode(SENTENCES, minilm.PLAIN), model.encode(SENTENCES, functions)
    np.testing.assert_allclose(fused, plain, atol=1e-5)
    for query in range(len(SENTENCES)):
        np.testing.assert_array_equal(minilm.ranking(fused[query], fused, 4), minilm.ranking(plain[query], plain, 4))
    assert all(fn.stats.kernel_runs for fn in functions)


def test_one_kernel_serves_every_length(model: Any) -> None:
    functions: Any = minilm.compiled()
    model.encode(SENTENCES, functions)
    compiled = functions.attention.stats.compilations
    model.encode([" ".join(SENTENCES), *SENTENCES], functions)
    assert functions.attention.stats.compilations == compiled


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(rf.fuse)


def test_search_compiled_is_search_in_numpy(index: Index) -> None:
    plain = Index(lambda fn: fn)
    np.testing.assert_allclose(index.keys, plain.keys, atol=2e-6)
    for query in ("how are exceptions caught", "what is a generator"):
        found, expected = index.search(query), plain.search(query)
        assert [m.paragraph for m in found.matches] == [m.paragraph for m in expected.matches]
        assert found.entropy == pytest.approx(expected.entropy, rel=1e-5)
        assert found.blend == expected.blend


def test_every_function_of_the_demo_is_right_and_ran_compiled(index: Index) -> None:
    for fn, args in index.workloads("how are exceptions caught"):
        done = compare(fn, *args, seconds=0.0)
        assert done.fused_error < 4 * done.numpy_error + 1e-6, done.name
        assert all(k.compiled and k.runs for k in done.report.kernels), done.name
        json.dumps(done.to_dict())


def test_only_the_absolute_deviation_needs_two_passes(index: Index) -> None:
    passes = {fn.__name__: rf.fuse(fn).explain(*args).passes for fn, args in index.workloads("exceptions")}
    assert passes.pop("mean_absolute_deviation") == 2
    assert set(passes.values()) == {1}, passes


def test_demo_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "how are exceptions caught", "--seconds", "0", "--top", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["search"]["matches"]) == 3
    assert {f["name"] for f in result["functions"]} >= {
        "attention",
        "entropy",
        "standardise",
        "feature_variance",
    }


def test_demo_prints_matches_and_derivations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "how are exceptions caught", "--seconds", "0"]) == 0
    text = capsys.readouterr().out
    assert "NOT_FUSIBLE" in text
    assert "passes" in text
    assert "dependencies   d1 = mean_sum_shifted[i] / count" in text  # the updates speak of d1
    assert "ratio" in text


def test_demo_refuses_a_query_without_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "?!"]) == 1
    assert "holds no word" in capsys.readouterr().err


def test_search_example(capsys: pytest.CaptureFixture[str]) -> None:
    search.main("what is a generator")
    assert f"attention: {rf.Verdict.FUSIBLE}" in capsys.readouterr().out


def test_streaming_example(capsys: pytest.CaptureFixture[str]) -> None:
    streaming.main()
    errors = [float(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().out.splitlines() if " error " in line]
    assert len(errors) == 2
    assert max(errors) < 1e-12
