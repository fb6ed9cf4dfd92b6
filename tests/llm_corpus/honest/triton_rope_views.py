# operator: rope, backend: triton
import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(q_ptr, cos_ptr, sin_ptr, y_ptr, S, H, half, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # of B·S·H
    s = row // H % S
    c = tl.arange(0, BLOCK)
    mask = c < half
    q1 = tl.load(q_ptr + row * 2 * half + c, mask=mask).to(tl.float32)
    q2 = tl.load(q_ptr + row * 2 * half + half + c, mask=mask).to(tl.float32)
    cos = tl.load(cos_ptr + s * half + c, mask=mask).to(tl.float32)
    sin = tl.load(sin_ptr + s * half + c, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * 2 * half + c, (q1 * cos - q2 * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + row * 2 * half + half + c, (q2 * cos + q1 * sin).to(y_ptr.dtype.element_ty), mask=mask)


def run(q, cos, sin):
    B, S, H, d = q.shape
    y = torch.empty_like(q)
    rows = q.view(-1, d)
    rope_kernel[(rows.size(0),)](
        rows, cos, sin, y, S, H, d // 2, BLOCK=triton.next_power_of_2(max(2, d // 2)), num_warps=1
    )
    return y
