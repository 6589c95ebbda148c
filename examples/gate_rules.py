"""A rule, and a cascade that needs it: try `redfuser lab examples/gate_rules.py --sample 5`."""

from typing import Any

import numpy as np

import redfuser as rf
from redfuser.zoo import Family


@rf.rule("exact", free_of="d", varying="a")
def gate_of_product(a: Any, d: Any) -> Any:
    """max(a d, 0) = max(d, 0) max(a, 0) + min(d, 0) min(a, 0)"""
    return np.maximum(a * d, 0), np.maximum(d, 0) * np.maximum(a, 0) + np.minimum(d, 0) * np.minimum(a, 0)


mine = Family("mine")


@mine.entry("a gate that opens with the sign of a mean", accumulators=3, x="i n")
def gated(x: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    return np.maximum(mean * x, 0).sum(axis=-1)
