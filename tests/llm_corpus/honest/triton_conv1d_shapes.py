# operator: 1d_conv, backend: triton
"""Direct convolution; much arithmetic on shapes, none on tensors."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    L,
    L_out,
    stride,
    padding,
    Cin,
    Cout,
    cin_group,
    cout_group,
    TAPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    o = tl.program_id(1) % Cout
    b = tl.program_id(1) // Cout
    l = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # noqa: E741
    total = tl.zeros([BLOCK], tl.float32)
    first = o // cout_group * cin_group
    for start in range(0, cin_group, CHANNELS):
        c = start + tl.arange(0, CHANNELS)[:, None]
        for t in tl.static_range(TAPS):
            p = (l * stride + t - padding)[None, :]
            inside = (c < cin_group) & (p >= 0) & (p < L)
            x = tl.load(x_ptr + (b * Cin + first + c).to(tl.int64) * L + p, mask=inside, other=0.0)
            w = tl.load(w_ptr + (o * cin_group + c) * TAPS + t, mask=c < cin_group, other=0.0)
            total += tl.sum(x.to(tl.float32) * w.to(tl.float32), axis=0)
    tl.store(y_ptr + (b * Cout + o).to(tl.int64) * L_out + l, total.to(y_ptr.dtype.element_ty), mask=l < L_out)


def run(input, weight, stride, padding, groups):
    batch, Cin, L = input.shape
    Cout, cin_group, k = weight.shape
    L_out = (L + 2 * padding - k) // stride + 1
    out = torch.empty((batch, Cout, L_out), dtype=input.dtype, device=input.device)
    conv_kernel[(triton.cdiv(L_out, 256), batch * Cout)](
        input,
        weight,
        out,
        L,
        L_out,
        stride,
        padding,
        Cin,
        Cout,
        cin_group,
        Cout // groups,
        TAPS=k,
        CHANNELS=32,
        BLOCK=256,
    )
    return out


# What an export adds:
from tilebench_core import Kernel  # noqa: E402

KERNEL = Kernel(run=run)
