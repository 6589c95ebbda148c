"""Few long rows: partial states of chunks and the derived merge."""

from __future__ import annotations

import numpy as np
import pytest
from fused_examples import ROWS, arrays_for, entropy, logsumexp, softmax, sums, weighted_variance
from tile_runs import assert_runs, kernel_for, run

from redfuser.extract import Options


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("chunk", [4, 8, 16])
def test_merge_of_chunks(name: str, chunk: int) -> None:
    """Chunk counts from 1 to 17, ragged last chunks."""
    for n in (1, 4, 17, 66):
        kernel = assert_runs(ROWS[name]("float32"), {"p": 2, "n": n}, Options(block=4, chunk=chunk))
        assert any("split into chunks" in note for note in kernel.notes)
        assert kernel.shared


@pytest.mark.parametrize("make", [logsumexp, softmax, weighted_variance])
def test_chunks_without_a_live_element(make: object) -> None:
    """Empty partial states on either side of a merge."""
    fused = make()  # type: ignore[operator]
    arrays = arrays_for(fused, {"p": 2, "n": 40})
    arrays["x"][0, :17] = -np.inf
    arrays["x"][1, 9:] = -np.inf
    assert_runs(fused, {"p": 2, "n": 40}, Options(block=4, chunk=8), arrays=arrays)


def test_nan_survives_a_merge() -> None:
    fused = entropy()
    arrays = arrays_for(fused, {"p": 2, "n": 40})
    arrays["x"][0, 33] = np.nan
    kernel = kernel_for(fused, {"p": 2, "n": 40}, Options(block=4, chunk=8))
    got = run(kernel, fused, arrays, {"p": 2, "n": 40})["o"]
    assert np.isnan(got[0])
    assert np.isfinite(got[1])


def test_planned_by_example_lengths_and_decided_when_run() -> None:
    fused = sums()
    assert not kernel_for(fused, {"p": 100, "n": 10**6}).shared
    assert not kernel_for(fused, {"p": 1, "n": 100}).shared
    kernel = kernel_for(fused, {"p": 1, "n": 10**6})
    assert [b.name for b in kernel.shared] == ["part_s", "final_s"]
    for sizes in ({"p": 1, "n": 70000}, {"p": 9, "n": 70000}, {"p": 1, "n": 50}):
        assert_runs(fused, sizes, planned_for={"p": 1, "n": 10**6})


def test_float64() -> None:
    assert_runs(weighted_variance("float64"), {"p": 1, "n": 50}, Options(block=4, chunk=8), "float64")
