"""Functions as public NumPy code writes them, unchanged: helpers, defaults, early returns, masks, in-place steps."""

import numpy as np
import pytest
from contract import assert_contract

import redfuser as rf

pytestmark = pytest.mark.usefixtures("session_cache")


# ---- special functions


def softmax(x, axis=None):
    x_max = np.amax(x, axis=axis, keepdims=True)
    exp_x_shifted = np.exp(x - x_max)
    return exp_x_shifted / np.sum(exp_x_shifted, axis=axis, keepdims=True)


def softmax_with_temperature(logits, temperature=1.0, axis=-1):
    z = np.array(logits) / temperature
    z -= z.max(axis=axis, keepdims=True)
    p = np.exp(z, out=z)
    p /= p.sum(axis=axis, keepdims=True)
    return p


def logsumexp(a, axis=None, b=None, keepdims=False):
    if b is not None:
        a = np.where(b == 0, -np.inf, a)
    a_max = np.amax(a, axis=axis, keepdims=True)
    if a_max.ndim > 0:
        a_max[~np.isfinite(a_max)] = 0
    elif not np.isfinite(a_max):
        a_max = 0
    tmp = np.exp(a - a_max) if b is None else b * np.exp(a - a_max)
    out = np.log(np.sum(tmp, axis=axis, keepdims=keepdims))
    if not keepdims:
        a_max = np.squeeze(a_max, axis=axis)
    return out + a_max


def entropy(pk, qk=None, base=None, axis=0):
    if base is not None and base <= 0:
        raise ValueError("`base` must be a positive number or `None`.")
    pk = np.asarray(pk)
    pk = 1.0 * pk / np.sum(pk, axis=axis, keepdims=True)
    if qk is None:
        vec = np.where(pk > 0, -pk * np.log(pk), 0)
    else:
        qk = np.asarray(qk)
        pk, qk = np.broadcast_arrays(pk, qk)
        qk = 1.0 * qk / np.sum(qk, axis=axis, keepdims=True)
        vec = pk * np.log(pk / qk)
    total = np.sum(vec, axis=axis)
    if base is not None:
        total /= np.log(base)
    return total


def kl_divergence(p, q, eps=1e-10):
    p, q = np.clip(p, eps, None), np.clip(q, eps, None)
    p, q = (a / a.sum(axis=-1, keepdims=True) for a in (p, q))
    return np.sum(np.where(p != 0, p * np.log(p / q), 0), axis=-1)


# ---- scaling


def standard_scale(X, with_mean=True, with_std=True, ddof=0):
    mean = np.mean(X, axis=0) if with_mean else 0
    scale = np.std(X, axis=0, ddof=ddof) if with_std else 1
    scale = np.where(scale == 0.0, 1.0, scale)
    return (X - mean) / scale


def minmax_scale(X, feature_range=(0, 1)):
    data_min, data_max = np.min(X, axis=0), np.max(X, axis=0)
    data_range = data_max - data_min
    data_range[data_range == 0.0] = 1.0
    scale = (feature_range[1] - feature_range[0]) / data_range
    X = X * scale
    X += feature_range[0] - data_min * scale
    return X


def normalize(a, axis=-1, order=2):
    norms = np.atleast_1d(np.linalg.norm(a, order, axis))
    norms[norms == 0] = 1
    return a / np.expand_dims(norms, axis)


def zscore(a, axis=0, ddof=0, nan_policy="propagate"):
    if nan_policy == "omit":
        mn = np.nanmean(a, axis=axis, keepdims=True)
        std = np.nanstd(a, axis=axis, ddof=ddof, keepdims=True)
    else:
        mn = a.mean(axis=axis, keepdims=True)
        std = np.std(a, axis=axis, ddof=ddof, keepdims=True)
    return (a - mn) / std


# ---- distances and kernels


def cosine_similarity(X, Y=None, eps=1e-8):
    if Y is None:
        Y = X
    X_normalized = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), eps)
    Y_normalized = Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), eps)
    return np.dot(X_normalized, Y_normalized.T)


def rbf_kernel(X, Y=None, gamma=None):
    if Y is None:
        Y = X
    if gamma is None:
        gamma = 1.0 / X.shape[1]
    XX = np.einsum("ij,ij->i", X, X)[:, np.newaxis]
    YY = np.einsum("ij,ij->i", Y, Y)[np.newaxis, :]
    d = -2 * np.dot(X, Y.T)
    d += XX
    d += YY
    np.maximum(d, 0, out=d)
    d *= -gamma
    np.exp(d, d)
    return d


def mahalanobis(X, mu, VI):
    delta = X - mu
    return np.sqrt(np.einsum("ij,jk,ik->i", delta, VI, delta))


def assign_clusters(X, centroids):
    distances = ((X[:, np.newaxis, :] - centroids[np.newaxis]) ** 2).sum(axis=2)
    return np.argmin(distances, axis=1), float(distances.min(axis=1).sum())


# ---- losses


def cross_entropy(logits, labels, reduction="mean"):
    n = logits.shape[0]
    z = logits - np.max(logits, axis=1, keepdims=True)
    log_probs = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    losses = -log_probs[range(n), labels]
    return losses.mean() if reduction == "mean" else losses


def softmax_gradient(scores, y):
    num_train = scores.shape[0]
    shifted = scores - np.max(scores, axis=1, keepdims=True)
    probs = np.exp(shifted) / np.sum(np.exp(shifted), axis=1, keepdims=True)
    dscores = probs.copy()
    dscores[np.arange(num_train), y] -= 1
    return dscores / num_train


def one_hot_cross_entropy(logits, y, num_classes=7, eps=1e-9):
    targets = np.eye(num_classes)[y]
    return -np.mean(np.sum(targets * np.log(softmax(logits, axis=1) + eps), axis=1))


def multiclass_hinge(scores, y, delta=1.0):
    num = scores.shape[0]
    correct = scores[np.arange(num), y][:, np.newaxis]
    margins = np.maximum(0, scores - correct + delta)
    margins[np.arange(num), y] = 0
    return margins.sum() / num


def perplexity(logits, targets, ignore_index=-100):
    mask = targets != ignore_index
    safe = np.where(mask, targets, 0)
    m = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - m).sum(axis=-1)) + m.squeeze(-1)
    nll = lse - np.take_along_axis(logits, safe[..., None], axis=-1).squeeze(-1)
    return np.exp((nll * mask).sum() / mask.sum())


def dice_loss(pred, target, smooth=1.0):
    pred = pred.reshape(pred.shape[0], -1)
    target = target.reshape(target.shape[0], -1).astype(pred.dtype)
    intersection = np.sum(pred * target, axis=1)
    return 1 - ((2.0 * intersection + smooth) / (pred.sum(axis=1) + target.sum(axis=1) + smooth)).mean()


# ---- layers


def layer_norm(x, g, b, eps=1e-5):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.var(x, axis=-1, keepdims=True)
    return g * (x - mean) / np.sqrt(variance + eps) + b


def batch_norm(x, gamma, beta, running_mean, running_var, train=True, momentum=0.9, eps=1e-5):
    if x.ndim == 4:
        axes, shape = (0, 2, 3), (1, -1, 1, 1)
    else:
        axes, shape = (0,), (1, -1)
    if train:
        mu, var = x.mean(axis=axes), x.var(axis=axes)
        running_mean = momentum * running_mean + (1 - momentum) * mu
        running_var = momentum * running_var + (1 - momentum) * var
    else:
        mu, var = running_mean, running_var
    x_hat = (x - mu.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    return gamma.reshape(shape) * x_hat + beta.reshape(shape), running_mean, running_var


def split_heads(x, num_heads):
    n, d = x.shape
    return x.reshape(n, num_heads, d // num_heads).transpose(1, 0, 2)


def multi_head_attention(x, w_qkv, w_out, num_heads=4):
    q, k, v = (split_heads(t, num_heads) for t in np.split(x @ w_qkv, 3, axis=-1))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    causal = np.tril(np.ones((x.shape[0], x.shape[0]), dtype=bool))
    weights = softmax(np.where(causal, scores, -1e9), axis=-1)
    return (weights @ v).transpose(1, 0, 2).reshape(x.shape) @ w_out


def swiglu(x, w):
    gate, value = np.split(x @ w, 2, axis=-1)
    return np.divide(gate, 1 + np.exp(-gate)) * value


# ---- statistics and signals


def skew_and_kurtosis(a, axis=-1, fisher=True):
    mean = np.expand_dims(a.mean(axis), axis)
    m2, m3, m4 = (np.mean((a - mean) ** p, axis) for p in (2, 3, 4))
    zero = m2 <= (np.finfo(m2.dtype).resolution * mean.squeeze(axis)) ** 2
    kurtosis = np.where(zero, 0, m4 / m2**2.0)
    return np.where(zero, 0, m3 / m2**1.5), kurtosis - 3 if fisher else kurtosis


def weighted_avg_and_std(values, weights):
    average = np.average(values, axis=0, weights=weights)
    variance = np.average((values - average) ** 2, axis=0, weights=weights)
    return average, np.sqrt(variance)


def ttest_ind(a, b, equal_var=True):
    n1, n2 = a.shape[0], b.shape[0]
    v1, v2 = np.var(a, axis=0, ddof=1), np.var(b, axis=0, ddof=1)
    if equal_var:
        df = n1 + n2 - 2
        denom = np.sqrt(((n1 - 1) * v1 + (n2 - 1) * v2) / df * (1.0 / n1 + 1.0 / n2))
    else:
        vn1, vn2 = v1 / n1, v2 / n2
        with np.errstate(divide="ignore", invalid="ignore"):
            df = (vn1 + vn2) ** 2 / (vn1**2 / (n1 - 1) + vn2**2 / (n2 - 1))
        df = np.where(np.isnan(df), 1, df)
        denom = np.sqrt(vn1 + vn2)
    return np.divide(a.mean(0) - b.mean(0), denom)[()], df


def pearson(x, y):
    xm, ym = x - x.mean(axis=0), y - y.mean(axis=0)
    r_num = np.add.reduce(xm * ym)
    r_den = np.sqrt((xm * xm).sum(axis=0) * (ym * ym).sum(axis=0))
    return np.clip(r_num / r_den, -1.0, 1.0)


def crest_factor_db(x, axis=-1):
    rms = np.sqrt(np.mean(np.square(x), axis=axis))
    return 20 * np.log10(np.max(np.abs(x), axis=axis) / rms)


def signal_to_noise(a, axis=0, ddof=0):
    a = np.asanyarray(a)
    m, sd = a.mean(axis), a.std(axis=axis, ddof=ddof)
    return np.divide(m, sd, out=np.zeros_like(m), where=sd != 0)


def ewma(x, alpha=0.1):
    weights = (1 - alpha) ** np.arange(x.shape[-1])[::-1]
    weights /= weights.sum()
    return x @ weights


def masked_mean(x, lengths):
    mask = np.arange(x.shape[1])[None, :] < lengths[:, None]
    total = np.sum(x, axis=1, where=mask[..., None])
    return total / np.maximum(mask.sum(axis=1, keepdims=True), 1)


def roc_margin(scores, is_positive):
    margins = scores[:, None] - scores[None, :]
    pairs = is_positive[:, None] & ~is_positive[None, :]
    return np.count_nonzero((margins > 0) & pairs) / np.count_nonzero(pairs)


rng = np.random.default_rng(0)
X, Y, W = rng.normal(size=(37, 12)), rng.normal(size=(20, 12)), rng.normal(size=(12, 36))
V = [rng.normal(size=12), rng.normal(size=12), rng.normal(size=12), rng.random(12)]
IMAGE, C = rng.normal(size=(4, 5, 6, 7)), [rng.normal(size=5), rng.normal(size=5), rng.normal(size=5), rng.random(5)]
SCORES, LABELS, P, Q = rng.normal(size=(37, 7)), rng.integers(0, 7, 37), rng.random((9, 31)), rng.random((9, 31))
COVARIANCE = Y.T @ Y / 20
GAPS = np.where(rng.random((37, 12)) < 0.1, np.nan, X)

CALLS = [
    (softmax, SCORES), (softmax, SCORES, -1), (softmax_with_temperature, SCORES, 0.7), (logsumexp, SCORES),
    (logsumexp, SCORES, 1), (logsumexp, SCORES, 1, np.abs(SCORES), True), (entropy, P), (entropy, P, Q, 2, 1),
    (kl_divergence, P, Q), (standard_scale, X), (standard_scale, X, False, True, 1), (minmax_scale, X), (normalize, X),
    (normalize, X, 0, 1), (zscore, X), (zscore, GAPS, 1, 1, "omit"), (cosine_similarity, X), (cosine_similarity, X, Y),
    (rbf_kernel, X, Y), (mahalanobis, X, V[0], COVARIANCE), (assign_clusters, X, Y), (cross_entropy, SCORES, LABELS),
    (cross_entropy, SCORES, LABELS, "none"), (softmax_gradient, SCORES, LABELS), (multiclass_hinge, SCORES, LABELS),
    (one_hot_cross_entropy, SCORES, LABELS), (perplexity, SCORES, np.where(LABELS == 3, -100, LABELS)),
    (dice_loss, rng.random((4, 5, 6)), rng.random((4, 5, 6)) > 0.5), (layer_norm, X, V[0], V[1]),
    (batch_norm, IMAGE, *C), (batch_norm, X, *V, False), (multi_head_attention, X, W, W[:, :12].copy()), (swiglu, X, W),
    (skew_and_kurtosis, X), (weighted_avg_and_std, SCORES, np.abs(SCORES[:, 0])), (ttest_ind, X, Y),
    (ttest_ind, X, Y, False), (pearson, X, X**3), (crest_factor_db, X), (signal_to_noise, X), (ewma, SCORES),
    (masked_mean, rng.normal(size=(4, 9, 3)), np.array([9, 0, 3, 5])), (roc_margin, SCORES[:, 0], LABELS % 2 == 0),
]


def leaves(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c[0].__name__}-{len(c) - 1}")
def test_unchanged(call, dtype):
    fn, *args = call
    args = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in args]
    kept = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    # a tuple of numbers is an array, which decides dtypes, unless it is part of the program
    fused = rf.fuse(fn, static_argnames="feature_range") if fn is minmax_scale else rf.fuse(fn)
    results = leaves(fused(*args))
    for i, (found, wanted) in enumerate(zip(results, leaves(fn(*args)), strict=True)):
        assert type(found) is type(wanted)
        if isinstance(found, (int, float)):
            assert found == pytest.approx(wanted, rel=1e-5)
        elif found.dtype.kind == "f":
            assert_contract(found, lambda *a, i=i: leaves(fn(*a))[i], *args, condition=32)
        else:
            np.testing.assert_array_equal(found, wanted)
    for a, before in zip(args, kept, strict=True):
        np.testing.assert_array_equal(a, before)


# ---- what NumPy runs between kernels, and what cannot work


def median_absolute_deviation(x, axis=-1):
    med = np.median(x, axis=axis, keepdims=True)
    return np.median(np.abs(x - med), axis=axis)


def fitted_mahalanobis(X):
    delta = X - X.mean(axis=0)
    VI = np.linalg.inv(np.cov(X, rowvar=False))
    return np.sqrt(np.einsum("nj,jk,nk->n", delta, VI, delta))


def roc_margin_by_selection(scores, is_positive):
    return (scores[is_positive][:, None] > scores[~is_positive][None, :]).mean()


def total_variation(x):
    return np.abs(x[1:] - x[:-1]).sum(axis=0)


def scaled_in_place(x):
    x[x < 0] *= 0.1
    return x


def heads_side_by_side(x, w):
    return np.hstack([softmax(x, -1), softmax(-x, -1)]) @ w


def power_spectrum(x):
    return np.abs(np.fft.rfft(x - x.mean(axis=0), axis=0)) ** 2


def selected_second(x):
    return x[x[:, 0] > 0, 1].mean()


@pytest.mark.parametrize(("fn", "args"), [
    (median_absolute_deviation, (X,)), (fitted_mahalanobis, (X,)), (total_variation, (X,)),
    (roc_margin_by_selection, (SCORES[:, 0], LABELS > 3)), (heads_side_by_side, (SCORES, np.ones((14, 2)))),
])
def test_numpy_runs_what_no_kernel_expresses(fn, args):
    fused = rf.fuse(fn)
    np.testing.assert_allclose(fused(*args), fn(*args), rtol=1e-10)
    assert any(said in note for note in fused.explain(*args).notes
               for said in ("run by NumPy between the kernels", "a view of an argument, taken by NumPy"))


@pytest.mark.parametrize(("fn", "args", "message"), [
    (scaled_in_place, (X,), r"np\.where"), (selected_second, (X,), r"a mask.*use np\.where to choose elements"),
    (power_spectrum, (X,), r"numpy\.fft\.rfft cannot be recorded; split the function there: fuse the parts"),
])
def test_a_refusal_says_what_to_do(fn, args, message):
    with pytest.raises(rf.errors.TraceError, match=message):
        rf.fuse(fn)(*args)


def test_split_as_the_message_says():
    """Two fused parts with NumPy between them."""
    @rf.fuse
    def moments(x):
        return x - x.mean(axis=0), np.cov(x, rowvar=False)

    @rf.fuse
    def distances(delta, inverse):
        return np.sqrt(np.einsum("nj,jk,nk->n", delta, inverse, delta))

    delta, covariance = moments(X)
    np.testing.assert_allclose(distances(delta, np.linalg.inv(covariance)), fitted_mahalanobis(X), rtol=1e-10)
