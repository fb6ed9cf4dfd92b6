# operator: quantize_global, backend: triton
import torch
import triton
import triton.language as tl


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n).to(tl.float16), mask=i < n)


def programs(device):
    if device.type != "cuda":
        return 4
    properties = torch.cuda.get_device_properties(device)
    return 4 * properties.multi_processor_count


def run(x):
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    cast_kernel[(min(programs(x.device), triton.cdiv(x.numel(), 2048)),)](x, out, x.numel(), BLOCK=2048)
    return out
