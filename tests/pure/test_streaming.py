"""The fusion level, run: streams and merges equal the definition, on easy and on hard data."""

from __future__ import annotations

import numpy as np
import pytest
from derive_examples import EXAMPLES, arrays_for, derived

from redfuser.derivation import run_fused
from redfuser.errors import ShapeError
from redfuser.ir import run_cascade

WAYS = [{"chunks": 1}, {"chunks": [1] * 23}, {"chunks": 6, "seed": 3}, {"chunks": [0, 5, 0, 18, 0]},
        {"chunks": 7, "tree": 1}, {"chunks": [1] * 23, "tree": 2}]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_streams_and_merges_equal_the_definition(name, rng):
    c = EXAMPLES[name]
    fused = derived(c.name).fused
    arrays = arrays_for(c, rng)
    expected = run_cascade(c, arrays)
    for way in WAYS:
        got = run_fused(fused, arrays, **way)
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-10, err_msg=f"{key} {way}")


def test_dropping_a_correction_shows(rng):
    from dataclasses import replace

    c = EXAMPLES["softmax"]
    fused = replace(derived(c.name).fused, corrections=())
    arrays = arrays_for(c, rng)
    expected = run_cascade(c, arrays)["l"]
    assert not np.allclose(run_fused(fused, arrays, chunks=[1] * 23)["l"], expected)
    np.testing.assert_allclose(run_fused(fused, arrays, chunks=1)["l"], expected)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_masked_prefixes_and_rows(way, rng):
    c = EXAMPLES["logsumexp"]
    x = rng.normal(size=(3, 23))
    x[0, :9] = -np.inf
    x[1, 5:] = -np.inf
    x[2] = -np.inf
    got = run_fused(derived(c.name).fused, {"x": x}, **way)
    live = x[:2]
    top = live.max(1, keepdims=True)
    np.testing.assert_allclose(got["o"][:2], np.log(np.exp(live - top).sum(1)) + top[:, 0], rtol=1e-13)
    assert got["o"][2] == -np.inf
    assert got["l"][2] == 0


def test_fully_masked_rows_of_attention_are_nan(rng):
    """The causal mask leaves row 0 one element; no row is empty, so every output is finite."""
    c = EXAMPLES["attention"]
    got = run_fused(derived(c.name).fused, arrays_for(c, rng), chunks=[1] * 23)
    assert np.isfinite(got["out"]).all()
    masked = run_fused(derived("softmax").fused, {"x": np.full((3, 4), -np.inf)}, chunks=2)
    assert np.isnan(masked["o"]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["softmax", "variance", "layernorm", "entropy"])
def test_nan_and_infinity_propagate_as_in_the_definition(name, bad, rng):
    c = EXAMPLES[name]
    arrays = arrays_for(c, rng)
    arrays["x"][0, 11] = bad
    arrays["x"][1, 0] = bad
    expected = run_cascade(c, arrays)
    for way in WAYS:
        got = run_fused(derived(c.name).fused, arrays, **way)
        for key in (o.name for o in c.outs) if c.outs else expected:
            np.testing.assert_array_equal(np.isnan(got[key]), np.isnan(expected[key]), err_msg=f"{key} {way}")


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_float32_far_from_zero_is_as_good_as_two_passes(shift, rng):
    """Mean 1e4, spread 1e-3: the plain recurrence loses every digit, the pivot none."""
    c = EXAMPLES["variance"]
    x = (shift + 1e-3 * rng.normal(size=(3, 500))).astype(np.float32)
    exact = run_cascade(c, {"x": x}, np.longdouble)["M2"]
    for way in ({"chunks": 1}, {"chunks": 9}, {"chunks": 9, "tree": 4}, {"chunks": [1] * 500}):
        got = run_fused(derived(c.name).fused, {"x": x}, **way)["M2"]
        assert got.dtype == np.float32
        assert np.max(np.abs(got / exact - 1)) < 4e-6, way
        assert (got >= 0).all()
    if shift:
        plain = run_fused(derived(c.name, False).fused, {"x": x}, chunks=9)["M2"]
        assert np.max(np.abs(plain / exact - 1)) > 1e-4


def test_layernorm_output_far_from_zero(rng):
    c = EXAMPLES["layernorm"]
    arrays = arrays_for(c, rng, length=300, scale=1e-2, shift=1e4, dtype=np.float32)
    arrays["w"] = np.ones(300, np.float32)
    exact = run_cascade(c, arrays, np.longdouble)["o"]
    got = run_fused(derived(c.name).fused, arrays, chunks=5)["o"]
    assert np.max(np.abs(got - exact)) < 1e-5


@pytest.mark.parametrize("scale", [300.0, 1e14])
def test_huge_scores_stay_finite(scale, rng):
    c = EXAMPLES["softmax"]
    x = (rng.normal(size=(3, 23)) * scale).astype(np.float32)
    for way in WAYS:
        got = run_fused(derived(c.name).fused, {"x": x}, **way)["o"]
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got.sum(1), 1, rtol=1e-5)


def test_empty_streams():
    sums = EXAMPLES["rms_dot"]
    fused = derived("rms_dot").fused
    arrays = arrays_for(sums, np.random.default_rng(0), length=0)
    got = run_fused(fused, arrays)
    assert (got["A"] == 0).all()
    with pytest.raises(ShapeError, match="max of an empty stream"):
        run_fused(derived("softmax").fused, {"x": np.zeros((3, 0))})


def test_chunks_must_cover_the_stream():
    with pytest.raises(ShapeError, match="covers 5"):
        run_fused(derived("softmax").fused, {"x": np.zeros((3, 9))}, chunks=[2, 3])


def test_accumulation_dtype(rng):
    c = EXAMPLES["variance"]
    x = rng.normal(size=(3, 50)).astype(np.float16)
    assert run_fused(derived(c.name).fused, {"x": x})["M2"].dtype == np.float32
    assert run_fused(derived(c.name).fused, {"x": x}, dtype="float64")["M2"].dtype == np.float64


def test_a_constant_row_has_zero_variance():
    got = run_fused(derived("variance").fused, {"x": np.full((3, 40), 0.1, np.float32)}, chunks=7)
    assert (got["o"] == 0).all()
