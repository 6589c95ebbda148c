"""Splitting the stream: any number of parts, empty and fully masked ones too, gives the same result in any order."""

import functools

import functions as F
import numpy as np
import pytest

import redfuser as rf
from redfuser.derivation import run_fused

NAMES = ("softmax", "logsumexp", "variance", "layernorm", "attention", "masked_attention")
LENGTH = 97


@functools.cache
def fusion(name):
    [fused] = rf.fuse(getattr(F, name)).lower(*[rf.spec(a.shape, a.dtype) for a in arguments(name)]).fusion
    return fused


def arguments(name, dtype="float32"):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(3, LENGTH)).astype(dtype)
    if name == "layernorm":
        return x, *(rng.normal(size=LENGTH).astype(dtype) for _ in range(2))
    if "attention" in name:
        q, k, v = (rng.normal(size=(n, 8)).astype(dtype) for n in (5, LENGTH, LENGTH))
        mask = rng.random((5, LENGTH)) < 0.5
        mask[0, :60] = False  # the first parts of this row are fully masked
        return (q, k, v, mask) if "mask" in name else (q, k, v)
    if name in ("softmax", "logsumexp"):
        x[0, :60] = -np.inf
    return (x,)


def named(name, args):
    fused = fusion(name)
    return dict(zip((t.name for t in fused.cascade.tensors), args, strict=True))


def outputs(name, **how):
    fused = fusion(name)
    results = run_fused(fused, named(name, arguments(name)), **how)
    return [results[o.name] for o in fused.cascade.outs]


@pytest.mark.parametrize("name", NAMES)
def test_one_to_seventeen_parts_agree(name):
    wanted = np.asarray(getattr(F, name)(*arguments(name)), np.float64)
    for parts in range(1, 18):
        for how in ({"seed": parts}, {"seed": parts, "tree": parts}):
            [got] = outputs(name, chunks=parts, **how)
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6, err_msg=f"{parts} parts, {how}")


@pytest.mark.parametrize("name", NAMES)
def test_empty_parts_change_no_bit(name):
    plain = outputs(name, chunks=[40, 57])
    for tree in (None, 1, 2):
        with_empty = outputs(name, chunks=[0, 40, 0, 0, 57, 0], tree=tree)
        without = outputs(name, chunks=[40, 57], tree=tree)
        for a, b in zip(with_empty, without, strict=True):
            np.testing.assert_array_equal(a, b)
    assert all(np.isfinite(a).all() for a in plain)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_plan_gives_the_same_bits(name):
    for a, b in zip(outputs(name, chunks=5, tree=3), outputs(name, chunks=5, tree=3), strict=True):
        np.testing.assert_array_equal(a, b)
