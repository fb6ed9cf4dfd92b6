# operator: histogramming, backend: triton
import torch
import triton
import triton.language as tl


@triton.jit
def count_kernel(x_ptr, counts_ptr, n, num_bins, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=BINS - 1)  # the last of BINS > num_bins is nobody's
    mine = tl.histogram(x, BINS)
    b = tl.arange(0, BINS)
    tl.atomic_add(counts_ptr + b, mine, mask=(b < num_bins) & (mine > 0), sem="relaxed")


def run(x, N, num_bins):
    counts = torch.zeros(num_bins, dtype=torch.int32, device=x.device)
    BINS = triton.next_power_of_2(num_bins + 1)
    count_kernel[(triton.cdiv(N, 4096),)](x, counts, N, num_bins, BINS=BINS, BLOCK=4096)
    return counts
