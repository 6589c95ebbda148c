"""The kernels beside torch's own operators: an oracle that shares no code with NumPy."""

import functions as F
import numpy as np
import pytest

import redfuser as rf

torch = pytest.importorskip("torch", reason="torch is not installed (pip install a CPU build of torch to run these)")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(got, tensor, tolerance=2e-6):
    np.testing.assert_allclose(got, tensor.numpy(), rtol=tolerance * 10, atol=tolerance)


@pytest.mark.parametrize("n", [1, 63, 1000, 100_003])
def test_row_operators(n):
    x = normal(3, n) * 4
    t = torch.from_numpy(x)
    close(rf.fuse(F.softmax)(x), torch.softmax(t, -1))
    close(rf.fuse(F.logsumexp)(x), torch.logsumexp(t, -1))
    close(rf.fuse(F.variance)(x), torch.var(t, -1, correction=0))
    weight, bias = normal(n, seed=1), normal(n, seed=2)
    expected = torch.nn.functional.layer_norm(t, (n,), torch.from_numpy(weight), torch.from_numpy(bias), 1e-5)
    close(rf.fuse(F.layernorm)(x, weight, bias), expected, 1e-5)


@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 8), (33, 65, 16), (128, 300, 72)])
@pytest.mark.parametrize("kind", ["attention", "causal_attention", "masked_attention"])
def test_attention_operators(kind, n, m, d):
    if kind == "causal_attention":
        m = n
    q, k, v = normal(2, 3, n, d), normal(2, 3, m, d, seed=1), normal(2, 3, m, d, seed=2)
    args, options = [q, k, v], {}
    if kind == "causal_attention":
        options["is_causal"] = True
    if kind == "masked_attention":
        mask = np.random.default_rng(3).random((n, m)) < 0.6
        mask[:, 0] = True
        args.append(mask)
        options["attn_mask"] = torch.from_numpy(mask)
    expected = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), **options)
    close(rf.fuse(getattr(F, kind))(*args), expected)
