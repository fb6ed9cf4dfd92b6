"""Data layout in NumPy."""

import numpy as np


def destindex(kv_nope, kv_rope, dest):
    source = np.argsort(dest)  # row r of the result came from the token whose destination is r
    return kv_nope[source], kv_rope[source]


def interleave(a, b, N):
    return np.array([a[i // 2] if i % 2 == 0 else b[i // 2] for i in range(2 * N)])


INDEPENDENT = {
    "matrix_copy": np.copy,
    "matrix_transpose": np.transpose,
    "reverse_array": lambda x: x[::-1].copy(),
    "interleave": interleave,
    "destindex": destindex,
    "bitonic_sort": lambda data, N: np.sort(data[:N], kind="mergesort"),
    "radix_sort": lambda data: np.sort(data, kind="mergesort"),
    "top_k_selection": lambda x, N, k: np.sort(x[:N])[::-1][:k].copy(),
}
