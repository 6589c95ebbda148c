"""Data that arrives in pieces: the derived update and merge, used without any kernel.

Two workers each see half of a stream of vectors with scores, in chunks. Each keeps a state of constant size;
the states are merged, and the result is the softmax-weighted mean and variance of all of it.
"""

from __future__ import annotations

import numpy as np

import redfuser as rf


def weighted_moments() -> rf.Fusion:
    """Softmax weights of scores s[n]; mean and variance of x[n, d] under these weights."""
    n, d = rf.axes("n d")
    s, x = rf.tensor("s", n), rf.tensor("x", n, d)
    c = rf.Cascade("weighted_moments", axis=n)
    top = c.max("top", s)
    mass = c.sum("mass", np.exp(s - top))
    mean = c.sum("mean", np.exp(s - top) / mass * x)
    c.sum("variance", np.exp(s - top) / mass * np.square(x - mean))
    return rf.derive(c)


def main() -> None:
    """Derive, stream, merge, and compare with the definition."""
    fusion = weighted_moments()
    for name, correction in fusion.corrections.items():
        print(f"{name} <- {correction}")
    rng = np.random.default_rng(0)
    s, x = 10 * rng.standard_normal(10_000), rng.standard_normal((10_000, 3))
    first, second = fusion.init(), fusion.init()
    for start in range(0, 5_000, 700):
        stop = min(start + 700, 5_000)
        first = fusion.update(first, s=s[start:stop], x=x[start:stop])
        second = fusion.update(second, s=s[5_000 + start : 5_000 + stop], x=x[5_000 + start : 5_000 + stop])
    results = fusion.finalize(fusion.merge(first, second))
    weights = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
    mean = weights @ x
    print("mean", results["mean"], "error", np.abs(results["mean"] - mean).max())
    variance = weights @ np.square(x - mean)
    print("variance", results["variance"], "error", np.abs(results["variance"] - variance).max())


if __name__ == "__main__":
    main()
