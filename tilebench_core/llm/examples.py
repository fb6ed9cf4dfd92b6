"""The sizes of the worked examples: small enough to be followed by hand. The numbers are drawn and computed from them.

An operator that is not listed here, of another pack for instance, has its smoke case as its example, with long tensors
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EXAMPLES", "Example"]


@dataclass(frozen=True)
class Example:
    """`params` of a small case, the `step` that floating inputs are rounded to, and a remark about the sizes."""

    params: Mapping[str, Any] = field(default_factory=dict)
    step: float = 0.25
    note: str = ""


_CHANNELS = {"batch": 1, "Cin": 1, "Cout": 1}

EXAMPLES: Mapping[str, Example] = {
    # pointwise
    "vector_add": Example({"n": 4}),
    "mul2": Example({"n": 4}),
    "relu": Example({"n": 4}),
    "leaky_relu": Example({"n": 4}),
    "sigmoid": Example({"n": 4}),
    "swiglu": Example({"M": 2, "N": 3}),
    "fused_activation": Example({"n": 4}),
    "dropout": Example({"n": 6}),
    "rope": Example({"B": 1, "S": 2, "H": 1, "d": 4}),
    "quantize_global": Example({"n": 4}, step=1e-6),  # coarser values would be exact in fp16
    "dequantize_rowwise": Example({"rows": 2, "cols": 3}),
    "weight_dequant": Example({"M": 3, "N": 4, "T": 2}),
    # reduction
    "softmax": Example({"rows": 2, "cols": 4}),
    "layernorm": Example({"rows": 2, "K": 4}),
    "rmsnorm": Example({"rows": 2, "K": 4}),
    "l2_norm": Example({"rows": 2, "K": 4}),
    "batch_normalization": Example({"N": 3, "C": 2}),
    "argmax": Example({"M": 2, "N": 5}),
    "mean_reduction": Example({"M": 2, "N": 4}),
    "cross_entropy": Example({"B": 2, "C": 4}),
    "kl_divergence": Example({"rows": 2, "cols": 4}, step=0.125),
    "histogramming": Example({"N": 10, "num_bins": 4}),
    "moe_topk_gating": Example({"M": 2, "E": 5, "k": 2}),
    # matmul
    "matmul_fp32_fp16_fp8": Example({"M": 2, "N": 2, "K": 3}),
    "matmul_int8": Example({"M": 2, "N": 2, "K": 8}),
    "batched_matmul": Example({"BATCH": 2, "M": 2}),
    "streamk_matmul": Example({"m": 2, "n": 2, "k": 3}),
    "flash_attention": Example({"B": 1, "H": 1, "S": 3, "D": 2}),
    "flash_decode": Example({"B": 2, "H": 1, "D": 2, "seq_len": 9, "block_seq": 2, "ragged": True}),
    "block_sparse_attention": Example(
        {"B": 1, "H": 2, "H_kv": 1, "M": 4, "D": 2, "block": 2, "pattern": "gaps", "num_layout": 2},
        note="D is too small here for BLOCK_D and NUM_D_BLOCKS, the last two arguments; the result does not depend on them.",
    ),
    "linear_self_attention": Example({"M": 3, "D": 2}),
    # stencil
    "1d_conv": Example({**_CHANNELS, "Cin": 2, "L": 5}),
    "2d_conv": Example({**_CHANNELS, "H": 3, "W": 4}),
    "3d_conv": Example({**_CHANNELS, "D": 2, "H": 3, "W": 2, "k": 2, "padding": 0}),
    "gaussian_blur": Example({"rows": 3, "cols": 4, "krows": 3, "kcols": 3}, step=0.0625),
    "jacobi_stencil_2d": Example({"rows": 3, "cols": 4}),
    "2d_max_pooling": Example({"N": 1, "C": 1, "H": 4, "W": 5}),
    # layout
    "bitonic_sort": Example({"n": 5}),
    "radix_sort": Example({"n": 6, "high": 99}),
    "top_k_selection": Example({"N": 6, "k": 3}),
    "destindex": Example({"seq_len": 4, "heads": 1, "head_dim": 2, "rope_dim": 2}),
    "interleave": Example({"n": 3}),
    "matrix_copy": Example({"N": 2}),
    "matrix_transpose": Example({"m": 2, "n": 3}),
    "reverse_array": Example({"n": 4}),
}
