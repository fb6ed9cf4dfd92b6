"""Matrix multiplication in PyTorch: cuBLAS, for fp8 through `torch._scaled_mm` with unit scales.

The fp8 product of cuBLAS needs a column-major second operand, so b is transposed in every call, and extents that are
multiples of 16. It writes fp8 itself, with one saturating rounding. Elsewhere (other extents, a CPU) fp8 operands are
multiplied in fp32.
"""

import torch
from tilebench_core import Kernel


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b; a [M, K], b [K, N], the result [M, N] in their dtype."""
    if a.dtype != torch.float8_e4m3fn:
        return torch.matmul(a, b)
    if not a.is_cuda or any(extent % 16 for extent in (*a.shape, b.shape[1])):
        return torch.matmul(a.float(), b.float()).clamp_(-448, 448).to(a.dtype)
    one = torch.ones((), dtype=torch.float32, device=a.device)
    return torch._scaled_mm(a, b.t().contiguous().t(), scale_a=one, scale_b=one, out_dtype=a.dtype)


KERNEL = Kernel(run=run)
