# operator: flash_attention, backend: cutile
import math

import cuda.tile as ct
import torch

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def attention_kernel(q, k, v, o, scale, D: ct.Constant[int], BM: ct.Constant[int], BN: ct.Constant[int]):
    i, head = ct.bid(0), ct.bid(1)
    S = q.shape[1]
    query = ct.load(q, (head, i, 0), (1, BM, D), padding_mode=ZERO).reshape((BM, D))
    acc = ct.zeros((BM, D), ct.float32)
    top = ct.full((BM, 1), -math.inf, ct.float32)
    total = ct.zeros((BM, 1), ct.float32)
    rows = i * BM + ct.arange(BM, dtype=ct.int32)[:, None]
    for n in range(ct.minimum(ct.cdiv((i + 1) * BM, BN), ct.cdiv(S, BN))):
        key = ct.load(k, (head, 0, n), (1, D, BN), order=(0, 2, 1), padding_mode=ZERO).reshape((D, BN))
        scores = ct.mma(query, key, ct.zeros((BM, BN), ct.float32)) * scale
        cols = n * BN + ct.arange(BN, dtype=ct.int32)[None, :]
        scores = ct.where(rows >= cols, scores, -math.inf)
        larger = ct.maximum(top, ct.max(scores, 1, keepdims=True))
        p = ct.exp2(scores - larger)
        shrink = ct.exp2(top - larger)
        total = total * shrink + ct.sum(p, 1, keepdims=True)
        value = ct.load(v, (head, n, 0), (1, BN, D), padding_mode=ZERO).reshape((BN, D))
        acc = ct.mma(p.astype(v.dtype), value, acc * shrink)
        top = larger
    ct.store(o, (head, i, 0), (acc / total).astype(o.dtype).reshape((1, BM, D)))


def scaled_dot_product_attention(q, k, v):
    B, H, S, D = q.shape
    o = torch.empty_like(q)
    heads = [t.view(B * H, S, D) for t in (q, k, v, o)]
    scale = 1.4426950408889634 / math.sqrt(D)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(S, 64), B * H), attention_kernel, (*heads, scale, D, 64, 64))
    return o


def run(q, k, v):
    return scaled_dot_product_attention(q, k, v)
