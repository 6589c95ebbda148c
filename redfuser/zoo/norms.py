"""Normalisations followed by what a network does next."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("norms")


@FAMILY.entry("Ba et al. 2016, layer normalisation of a residual sum", x="i n", r="i n: normal", g="n: normal",
              b="n: normal", accumulators=2, hard="location mixed")
def add_and_norm(x: Any, r: Any, g: Any, b: Any) -> Any:
    y = x + r
    mu = mean(y)
    var = mean((y - mu) ** 2)
    return (y - mu) / np.sqrt(var + 1e-5) * g + b


@FAMILY.entry("layer normalisation and the projection that follows it", x="i n", w="n d: normal", accumulators=4,
              hard="location mixed")
def layernorm_projection(x: Any, w: Any) -> Any:
    mu = mean(x)
    var = mean((x - mu) ** 2)
    return ((x - mu) / np.sqrt(var + 1e-5)) @ w


@FAMILY.entry("backward pass of layer normalisation: the two row sums it needs", x="i n", g="i n: normal",
              accumulators=4, hard="location mixed")
def layernorm_backward(x: Any, g: Any) -> Any:
    mu = mean(x)
    var = mean((x - mu) ** 2)
    return total(g), total(g * ((x - mu) / np.sqrt(var + 1e-5)))


@FAMILY.entry("Zhang and Sennrich 2019, RMSNorm and the projection that follows it", x="i n", w="n d: normal",
              accumulators=2, hard="mixed scores")
def rmsnorm_projection(x: Any, w: Any) -> Any:
    return (x / np.sqrt(mean(x * x) + 1e-6)) @ w


@FAMILY.entry("retrieval: unit vectors compared by their dot product", x="i n", w="n: normal", accumulators=2,
              hard="mixed scores")
def unit_dot(x: Any, w: Any) -> Any:
    return total(x / np.sqrt(total(x * x)) * w)


@FAMILY.entry("cosine similarity, both vectors normalised first", x="i n", y="i n: normal", accumulators=3,
              hard="mixed scores")
def cosine_similarity(x: Any, y: Any) -> Any:
    return total(x / np.sqrt(total(x * x)) * (y / np.sqrt(total(y * y))))


@FAMILY.entry("Qiao et al. 2019, weight standardisation inside a linear layer", w="o n", x="b n: normal",
              accumulators=4, hard="location mixed")
def standardised_weights(w: Any, x: Any) -> Any:
    centred = w - mean(w)
    return x @ (centred / np.sqrt(mean(centred**2) + 1e-5)).T


@FAMILY.entry("sum of features scaled to [0, 1], scikit-learn MinMaxScaler", x="i n", accumulators=3,
              hard="mixed scores")
def minmax_sum(x: Any) -> Any:
    return total((x - low(x)) / (top(x) - low(x)))


@FAMILY.entry("energy of features scaled to [0, 1]", x="i n", accumulators=4, hard="mixed")
def minmax_energy(x: Any) -> Any:
    return total(((x - low(x)) / (top(x) - low(x))) ** 2)


@FAMILY.entry("Ulyanov et al. 2016, instance statistics over positions, channel by channel", x="n c", accumulators=2,
              hard="location mixed")
def instance_norm(x: Any) -> Any:
    mu = x.mean(axis=0)
    return (x - mu) / np.sqrt(((x - mu) ** 2).mean(axis=0) + 1e-5)


@FAMILY.entry("Hu et al. 2018, squeeze and excite: a gate of the mean scales the features before pooling", x="i n",
              w="n: normal", accumulators=2)
def gated_pool(x: Any, w: Any) -> Any:
    gate = 1.0 / (1.0 + np.exp(-mean(x)))
    return total(gate * x * w)


@FAMILY.entry("padding-aware layer statistics: a mask selects the elements", x="i n", m="i n: mask", accumulators=3,
              hard="location mixed", reason="the mask sum, the masked sum and the masked second moment")
def masked_layernorm(x: Any, m: Any) -> Any:
    size = total(m)
    mu = total(np.where(m, x, 0.0)) / size
    var = total(np.where(m, (x - mu) ** 2, 0.0)) / size
    return mu, var


@FAMILY.entry("layer normalisation, then the largest magnitude that a quantiser needs", x="i n", accumulators=4,
              hard="location mixed", reason="max |x - mu| is the larger of max x - mu and mu - min x")
def layernorm_absmax(x: Any) -> Any:
    mu = mean(x)
    y = (x - mu) / np.sqrt(mean((x - mu) ** 2) + 1e-5)
    return top(np.abs(y))


@FAMILY.entry("Nguyen and Salazar 2019, ScaleNorm of centred features and dot", x="i n", w="n: normal",
              accumulators=4, hard="location mixed")
def centred_unit_dot(x: Any, w: Any) -> Any:
    c = x - mean(x)
    return total(c / np.sqrt(total(c * c)) * w)
