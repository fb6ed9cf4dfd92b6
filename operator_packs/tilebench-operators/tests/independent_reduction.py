"""Reductions and normalizations in NumPy, in float64 or exact integers."""

import numpy as np


def softmax(x):
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def layernorm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


def rmsnorm(x, weight, eps):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight


def l2_norm(x, eps):
    return x / np.sqrt((x**2).sum(axis=-1, keepdims=True) + eps)


def batch_normalization(x, gamma, beta, N, C, eps):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + eps) * gamma + beta


def cross_entropy(logits, targets):
    return np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(targets)), targets]


def kl_divergence(log_predicted, true):
    terms = np.zeros_like(true)
    present = true > 0
    terms[present] = true[present] * (np.log(true[present]) - log_predicted[present])
    return terms.sum(axis=1)


def histogramming(x, N, num_bins):
    hist = np.zeros(num_bins, dtype=np.int64)
    np.add.at(hist, x, 1)
    return hist


def moe_topk_gating(logits, M, E, k):
    # lexsort orders by its last key first: descending logits, then ascending columns.
    indices = np.stack([np.lexsort((np.arange(E), -row))[:k] for row in logits])
    return softmax(np.take_along_axis(logits, indices, axis=1)), indices


INDEPENDENT = {
    "softmax": softmax,
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "l2_norm": l2_norm,
    "batch_normalization": batch_normalization,
    "mean_reduction": lambda x, dim: x.mean(axis=dim),
    "argmax": lambda x, dim: np.array([np.flatnonzero(row == row.max())[0] for row in x]),
    "cross_entropy": cross_entropy,
    "kl_divergence": kl_divergence,
    "histogramming": histogramming,
    "moe_topk_gating": moe_topk_gating,
}
