"""Matrix products and attention in NumPy, one row at a time where that is plainest."""

import numpy as np


def matmul(a, b):
    return np.einsum("mk,kn->mn", a, b)


def matmul_int8(a, packed):
    quarters = [(packed.astype(np.int64) // 4**field) % 4 - 1 for field in range(4)]
    return (np.einsum("mk,kn->mn", a.astype(np.int64), np.concatenate(quarters)).astype(np.int32),)


def batched_matmul(a, b, batch, m, n, k):
    return (np.einsum("bmk,bkn->bmn", a.reshape(batch, m, k), b.reshape(batch, k, n)).reshape(-1),)


def weighted_mean(scores, values):
    """Softmax of scores [n] over values [n, d]."""
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum()


def flash_attention(q, k, v):
    o = np.zeros_like(q)
    for b, h, i in np.ndindex(q.shape[:3]):
        o[b, h, i] = weighted_mean(k[b, h, : i + 1] @ q[b, h, i] / np.sqrt(q.shape[3]), v[b, h, : i + 1])
    return (o,)


def flash_decode(mid_o, mid_lse, b_seqlen, block_seq):
    o = np.zeros_like(mid_o[:, :, 0])
    for b, h in np.ndindex(o.shape[:2]):
        used = int(np.ceil(b_seqlen[b] / block_seq))
        o[b, h] = weighted_mean(mid_lse[b, h, :used], mid_o[b, h, :used])
    return (o,)


def block_sparse_attention(q, k, v, crow, col, crow_stride, col_stride, layouts, scale, heads, kv_heads, m, block, *_):
    o = np.zeros_like(q)
    for b, h, i in np.ndindex(q.shape[:3]):
        layout = h % layouts
        first, last = crow[layout * crow_stride + i // block :][:2]
        columns = set(col[layout * col_stride :][first:last])
        keys = [n for n in range(i + 1) if n // block in columns]
        if keys:
            g = h * kv_heads // heads
            o[b, h, i] = weighted_mean(k[b, g, keys] @ q[b, h, i] * scale, v[b, g, keys])
    return (o,)


def linear_self_attention(q, k, v, eps):
    q, k = (np.exp(np.minimum(x, 0)) + np.maximum(x, 0) for x in (q, k))
    weights = q @ k.T  # [M, M]: the definition before it is reassociated
    return (weights @ v / (weights.sum(axis=1, keepdims=True) + eps),)


INDEPENDENT = {
    "matmul_fp32_fp16_fp8": lambda a, b: (matmul(a, b),),
    "streamk_matmul": lambda a, b: (matmul(a, b),),
    "matmul_int8": matmul_int8,
    "batched_matmul": batched_matmul,
    "flash_attention": flash_attention,
    "flash_decode": flash_decode,
    "block_sparse_attention": block_sparse_attention,
    "linear_self_attention": linear_self_attention,
}
