"""The demonstration as plain NumPy: its functions mean what they say, its features never vary."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from redfuser.demo import functions
from redfuser.demo.corpus import FEATURES, features, paragraphs
from redfuser.demo.measure import interleaved_medians, relative_error
from redfuser.demo.search import EPSILON, Index
from redfuser.errors import RedfuserError


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(lambda fn: fn)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def test_attention_is_the_weighted_average_of_its_definition() -> None:
    queries, keys, values = normal(3, 4), normal(5, 4, seed=1), normal(5, 2, seed=2)
    expected = np.zeros((3, 2))
    for q in range(3):
        weights = [math.exp(sum(queries[q] * keys[n]) / math.sqrt(4)) for n in range(5)]
        for n in range(5):
            expected[q] += weights[n] / sum(weights) * values[n]
    np.testing.assert_allclose(functions.attention(queries, keys, values), expected, rtol=1e-12)


def test_softmax_survives_large_scores() -> None:
    weights = functions.softmax(np.array([[1e14, 0.0, -1e14], [1e3, 1e3, -np.inf]]))
    np.testing.assert_array_equal(weights, [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])


def test_log_partition_moves_with_its_scores() -> None:
    scores = normal(4, 7)
    np.testing.assert_allclose(functions.log_partition(scores), np.log(np.exp(scores).sum(axis=1)), rtol=1e-12)
    np.testing.assert_allclose(functions.log_partition(scores + 1e4), functions.log_partition(scores) + 1e4, rtol=1e-12)


def test_entropy_of_known_weights() -> None:
    scores = np.array([[3.0] * 8, [0.0, *[-1e5] * 7], [math.log(3.0), 0.0, *[-1e5] * 6]])
    expected = [math.log(8), 0.0, -0.75 * math.log(0.75) - 0.25 * math.log(0.25)]
    np.testing.assert_allclose(functions.entropy(scores), expected, atol=1e-12)


def test_standardised_rows_have_mean_0_and_variance_1() -> None:
    rows = functions.standardise(1e3 + 7 * normal(5, 64), EPSILON)
    np.testing.assert_allclose(rows.mean(axis=1), 0.0, atol=1e-10)
    np.testing.assert_allclose(rows.var(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(functions.standardise(np.full((1, 4), 2.0), EPSILON), np.zeros((1, 4)))


def test_spread_along_columns_and_rows() -> None:
    x = normal(9, 4)
    np.testing.assert_allclose(functions.feature_variance(x), x.var(axis=0), rtol=1e-12)
    expected = [sum(abs(v - sum(row) / 4) for v in row) / 4 for row in x]
    np.testing.assert_allclose(functions.mean_absolute_deviation(x), expected, rtol=1e-12)


def test_paragraphs_are_distinct_texts() -> None:
    found = paragraphs()
    assert len({p.text for p in found}) == len(found) > 500
    assert all("\n" not in p.text and p.topic for p in found)


def test_features_tell_texts_apart() -> None:
    a, b, c = features(["the cat sat on the mat", "a cat on a mat", "unrelated exceptions propagate"])
    assert a.shape == (FEATURES,)
    assert a.dtype == np.float32

    def cosine(x: Any, y: Any) -> float:
        return float(x @ y / np.sqrt((x @ x) * (y @ y)))

    assert cosine(a, b) > 0.3 > 2 * abs(cosine(a, c))


def test_features_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "import sys; from redfuser.demo.corpus import features; "
        "sys.stdout.buffer.write(features(['one two']).tobytes())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == features(["one two"]).tobytes()


def test_search_finds_the_paragraph_that_was_quoted(index: Index) -> None:
    for position in (0, 100, len(index.paragraphs) - 1):
        answer = index.search(index.paragraphs[position].text, top=3)
        assert answer.matches[0].paragraph == index.paragraphs[position]
        weights = [m.weight for m in answer.matches]
        assert weights == sorted(weights, reverse=True)
        assert 0.0 <= answer.entropy <= math.log(answer.total)


def test_search_answers_a_question(index: Index) -> None:
    answer = index.search("May I remove items from a dictionary while iterating over it?")
    assert any("iterating" in m.paragraph.text.lower() for m in answer.matches)
    assert answer.to_dict()["matches"][0]["topic"] == answer.matches[0].paragraph.topic


def test_a_query_without_words_is_refused(index: Index) -> None:
    with pytest.raises(RedfuserError, match="holds no word"):
        index.search("?!")


def test_workloads_are_float32_throughout(index: Index) -> None:
    for fn, args in index.workloads("exceptions"):
        small = [a[:3] if isinstance(a, np.ndarray) else a for a in args]
        assert fn(*small).dtype == np.float32, fn.__name__


def test_relative_error() -> None:
    assert relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5
    assert relative_error(np.zeros(2), np.zeros(2)) == 0.0
    assert relative_error(np.zeros(0), np.zeros(0)) == 0.0
    assert math.isnan(relative_error(np.array([np.nan]), np.array([1.0])))


def test_calls_take_turns() -> None:
    log: list[str] = []
    times = interleaved_medians([lambda: log.append("a"), lambda: log.append("b")], seconds=0.0)
    assert len(times) == 2
    assert "".join(log) == "ab" * (len(log) // 2)
    assert len(log) >= 6
