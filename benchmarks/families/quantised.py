"""Quantisation by the row's own range, and the products that follow."""

from __future__ import annotations

import numpy as np


def per_token(x, w, scale_w):
    """int8 by token, product, dequantised. x (t, d), w (d, n) int8, scale_w (n,)."""
    top = np.abs(x).max(axis=-1, keepdims=True)
    scale = np.where(top > 0, top, 1) / 127
    q = np.rint(x / scale)
    return q @ w.astype(x.dtype) * scale * scale_w


def per_block(x):
    """int8 by blocks of 128: values and scales."""
    t, d = x.shape
    blocks = x.reshape(t, d // 128, 128)
    top = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = np.where(top > 0, top, 1) / 127
    return np.rint(blocks / scale).astype("int8").reshape(t, d), scale[..., 0]


def e4m3(x):
    """e4m3 by token: values and scales."""
    import ml_dtypes

    top = np.abs(x).max(axis=-1, keepdims=True)
    scale = np.where(top > 0, top, 1) / 448
    return (x / scale).astype(ml_dtypes.float8_e4m3fn), scale[..., 0]


def e5m2(x):
    """e5m2 by token: values and scales."""
    import ml_dtypes

    top = np.abs(x).max(axis=-1, keepdims=True)
    scale = np.where(top > 0, top, 1) / 57344
    return (x / scale).astype(ml_dtypes.float8_e5m2), scale[..., 0]


def e4m3_product(x, w, scale_w):
    """e4m3 by token, product with an e4m3 matrix, dequantised."""
    import ml_dtypes

    top = np.abs(x).max(axis=-1, keepdims=True)
    scale = np.where(top > 0, top, 1) / 448
    q = (x / scale).astype(ml_dtypes.float8_e4m3fn).astype(x.dtype)
    return q @ w.astype(x.dtype) * scale * scale_w


def asymmetric(x):
    """uint8 with zero point."""
    low, high = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    span = high - low
    scale = np.where(span > 0, span, 1) / 255
    zero = np.rint(-low / scale)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype("uint8"), scale[..., 0], zero[..., 0]


def norm_quantised(x, weight, eps=1e-6):
    """RMSNorm, then int8 by token."""
    y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
    top = np.abs(y).max(axis=-1, keepdims=True)
    scale = np.where(top > 0, top, 1) / 127
    return np.rint(y / scale).astype("int8"), scale[..., 0]


def norm_quantised_product(x, weight, w, scale_w, eps=1e-6):
    """RMSNorm, int8 by token, product."""
    y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
    return per_token(y, w, scale_w)
