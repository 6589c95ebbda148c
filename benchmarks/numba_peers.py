"""Hand-written Numba kernels: one fused loop nest a function, rows over threads."""

from __future__ import annotations

import numba  # pyright: ignore[reportMissingImports]
import numpy as np

FAST = {"reassoc", "contract", "arcp", "nsz"}
kernel = numba.njit(parallel=True, fastmath=FAST, error_model="numpy")


@kernel
def softmax(x, out):
    for i in numba.prange(x.shape[0]):
        m = x[i].max()
        s = np.float32(0)
        for j in range(x.shape[1]):
            e = np.exp(x[i, j] - m)
            out[i, j] = e
            s += e
        for j in range(x.shape[1]):
            out[i, j] *= np.float32(1) / s


@kernel
def logsumexp(x, out):
    for i in numba.prange(x.shape[0]):
        m = x[i].max()
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += np.exp(x[i, j] - m)
        out[i] = np.log(s) + m


@kernel
def layernorm(x, weight, bias, out):
    for i in numba.prange(x.shape[0]):
        n = np.float32(x.shape[1])
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        mean = s / n
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += (x[i, j] - mean) ** 2
        scale = np.float32(1) / np.sqrt(s / n + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * weight[j] + bias[j]


@kernel
def rmsnorm(x, weight, out):
    for i in numba.prange(x.shape[0]):
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j] * x[i, j]
        scale = np.float32(1) / np.sqrt(s / np.float32(x.shape[1]) + np.float32(1e-6))
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * weight[j]


@kernel
def variance(x, out):
    for i in numba.prange(x.shape[0]):
        n = np.float32(x.shape[1])
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        mean = s / n
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += (x[i, j] - mean) ** 2
        out[i] = s / n


@kernel
def variance_flat(x, out):
    n = x.shape[0]
    s = 0.0
    for j in numba.prange(n):
        s += x[j]
    mean = np.float32(s / n)
    s = 0.0
    for j in numba.prange(n):
        s += (x[j] - mean) ** 2
    out[()] = s / n


@kernel
def pearson(x, y, out):
    n = x.shape[0]
    a = b = 0.0
    for j in numba.prange(n):
        a += x[j]
        b += y[j]
    mx, my = np.float32(a / n), np.float32(b / n)
    xx = yy = xy = 0.0
    for j in numba.prange(n):
        dx, dy = x[j] - mx, y[j] - my
        xx += dx * dx
        yy += dy * dy
        xy += dx * dy
    out[()] = xy / np.sqrt(xx * yy)


@kernel
def cosine(x, y, out):
    for i in numba.prange(x.shape[0]):
        xx = yy = xy = np.float32(0)
        for j in range(x.shape[1]):
            xx += x[i, j] * x[i, j]
            yy += y[i, j] * y[i, j]
            xy += x[i, j] * y[i, j]
        out[i] = xy / np.sqrt(xx * yy)


@kernel
def entropy(x, out):
    for i in numba.prange(x.shape[0]):
        m = x[i].max()
        s = t = np.float32(0)
        for j in range(x.shape[1]):
            d = x[i, j] - m
            e = np.exp(d)
            s += e
            t += e * d
        out[i] = np.log(s) - t / s


@kernel
def heat_capacity(e, out):
    for i in numba.prange(e.shape[0]):
        m = e[i].min()
        s = a = b = np.float32(0)
        for j in range(e.shape[1]):
            d = e[i, j] - m
            w = np.exp(-d)
            s += w
            a += w * d
            b += w * d * d
        out[i] = b / s - (a / s) ** 2


@kernel
def softmax_variance(x, v, out):
    for i in numba.prange(x.shape[0]):
        m = x[i].max()
        s = a = b = np.float32(0)
        for j in range(x.shape[1]):
            w = np.exp(x[i, j] - m)
            s += w
            a += w * v[i, j]
        mean = a / s
        for j in range(x.shape[1]):
            w = np.exp(x[i, j] - m)
            b += w * (v[i, j] - mean) ** 2
        out[i] = b / s


@kernel
def skew_and_kurtosis(x, skew, kurtosis):
    for i in numba.prange(x.shape[0]):
        n = np.float32(x.shape[1])
        s = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        mean = s / n
        a = b = c = np.float32(0)
        for j in range(x.shape[1]):
            d = x[i, j] - mean
            a += d * d
            b += d * d * d
            c += d * d * d * d
        skew[i] = b / n / (a / n) ** np.float32(1.5)
        kurtosis[i] = c / n / (a / n) ** 2
