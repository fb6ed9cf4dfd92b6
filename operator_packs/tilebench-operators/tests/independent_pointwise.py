"""The pointwise operators in NumPy."""

import numpy as np


def leaky_relu(x, n):
    return np.maximum(x, 0) + 0.01 * np.minimum(x, 0)


def sigmoid(x, n=None):
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def fused_activation(x, gate, bias):
    z = x * gate + bias
    return z * sigmoid(z)


def dropout(x, keep, p):
    y = np.zeros_like(x)
    kept = np.flatnonzero(keep)
    y[kept] = x[kept] / (1 - p)
    return y


def rope(q, cos, sin):
    """A rotation is the product of complex numbers: (q1 + i·q2)·(cos + i·sin)."""
    half = q.shape[-1] // 2
    rotated = (q[..., :half] + 1j * q[..., half:]) * (cos + 1j * sin)[np.newaxis, :, np.newaxis, :]
    return np.concatenate((rotated.real, rotated.imag), axis=-1)


def dequantize_rowwise(x, state_x):
    return (x.T * (state_x / 127)).T


def weight_dequant(x, s, m, n, t):
    y = np.empty_like(x)
    for i in range(0, m, t):
        for j in range(0, n, t):
            y[i : i + t, j : j + t] = x[i : i + t, j : j + t] * s[i // t, j // t]
    return y


INDEPENDENT = {
    "vector_add": np.add,
    "mul2": lambda x: x + x,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": leaky_relu,
    "sigmoid": sigmoid,
    "swiglu": lambda x, y: x * y / (1 + np.exp(-x)),
    "fused_activation": fused_activation,
    "dropout": dropout,
    "rope": rope,
    "quantize_global": lambda x: x.astype(np.float16),
    "dequantize_rowwise": dequantize_rowwise,
    "weight_dequant": weight_dequant,
}
