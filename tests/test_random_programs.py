"""Random cascades: every level computes what plain NumPy computes, on lengths that exercise blocks and tails."""

import numpy as np
import pytest
from contract import exact
from grammar import generate

import redfuser as rf
from redfuser import pipeline

SEEDS = range(60)
COMPILED = range(0, 60, 3)
FAR = (0, 9, 11, 16, 18, 21, 33, 39, 45, 63, 80, 81, 92, 100, 109, 121, 137)
"""Programs that subtract means of sums, products and multiples of the inputs from these."""


def inputs(seed, n, rows=3):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(rows, n)), "y": rng.normal(size=(rows, n)), "w": rng.normal(size=n)}


def close(got, want, what):
    for g, w in zip(got, want, strict=True):
        scale = np.abs(w).max(initial=1.0)
        got_, want_ = np.asarray(g, float), np.asarray(w, float)
        np.testing.assert_allclose(got_, want_, rtol=1e-9, atol=1e-10 * scale, err_msg=what)


@pytest.mark.parametrize("seed", SEEDS)
def test_trace_term_and_fusion_agree_with_numpy(seed):
    from redfuser.derivation import run_fused

    program = generate(seed)
    arrays = inputs(seed, 37)
    want = exact(program.fn, *arrays.values())
    lowered = rf.fuse(program.fn).lower(**arrays)
    close(lowered.trace.run(arrays), want, "trace")
    close(lowered.partition.run(arrays).values(), want, "partition")
    for how in ({"chunks": 5, "seed": seed}, {"chunks": 6, "seed": seed, "tree": seed}):
        known = dict(arrays)
        for fused in lowered.fusion:
            known |= run_fused(fused, known, **how)
        close([known[o.name] for o in lowered.term.outs], want, f"fusion {how}\n{lowered.fusion}\n{program.text}")


@pytest.mark.parametrize("seed", COMPILED)
def test_the_tile_program_and_the_kernel_agree_with_numpy(seed):
    program = generate(seed)
    f, g = rf.fuse(program.fn), rf.fuse(program.fn, target="interpret")
    for n in (1, 2, 17, 67, 5003):
        arrays = inputs(seed, n)
        with np.errstate(all="ignore"):
            want = exact(program.fn, *arrays.values())
        close(f(**arrays), want, f"kernel, n = {n}\n{program.text}")
        if n < 5000:
            close(g(**arrays), want, f"tile interpreter, n = {n}\n{program.text}")
        if n == 2:  # length 1 is a kind of its own; from here on every length is served
            compiled = f.stats.compilations
    assert f.stats.compilations == compiled


@pytest.mark.parametrize("seed", FAR)
def test_float32_keeps_its_digits_far_from_zero(seed):
    """Mean 1e3, spread 1: forms like sum x^2 - (sum x)^2 / n have no digit left."""
    from redfuser.derivation import run_fused

    program = generate(seed)
    arrays = {k: (a + 1e3 * (k != "w")).astype(np.float32) for k, a in inputs(seed, 999).items()}
    want = exact(program.fn, *arrays.values())
    lowered = rf.fuse(program.fn).lower(**arrays)
    known = dict(arrays)
    for fused in lowered.fusion:
        known |= run_fused(fused, known, chunks=8, seed=seed)
    for got, careful, w in zip((known[o.name] for o in lowered.term.outs), program.fn(*arrays.values()), want,
                               strict=True):
        scale = np.abs(w).max()
        allowed = 4 * np.abs(careful - w).max() + 1e-4 * scale
        assert np.abs(got - w).max() <= allowed, f"{lowered.fusion}\n{program.text}"


def test_the_grammar_reaches_long_chains_and_refusals():
    depths = [generate(seed).depth for seed in range(200)]
    assert max(depths) >= 4
    assert sum(d >= 2 for d in depths) > 100
    verdicts = {str(d.verdict) for seed in range(12) for d in derivations(seed)}
    assert "FUSIBLE" in verdicts


def derivations(seed):
    program = generate(seed)
    specs = {n: rf.spec(a.shape) for n, a in inputs(seed, 5).items()}
    term = pipeline.term_step(pipeline.trace_step(program.fn, specs, "program"))
    return [pipeline.fusion_step(c, pipeline.Options()) for c in pipeline.partition_step(term).cascades]
