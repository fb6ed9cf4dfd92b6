"""Causal attention in Triton: online softmax over key blocks, one block of scores ahead of the product with the values.

A program owns B query rows of one head. It starts with the diagonal block of keys, which alone needs the mask, and
then walks the others. A step multiplies q by the next keys first and the *previous* weights by their values next, so
that the tensor cores work on the second product while the softmax of the new scores runs. The accumulator is touched
only where no product is in flight; otherwise the assembler would wait after each of its instructions.

SPECIALIZED has Triton give the loads to a warp of its own and 64 rows to each of two warp groups, which then need not
wait for each other: one multiplies while the other takes exponentials. Such a loop must hold every product except the
first, so it takes one step more, whose scores are thrown away. It also cannot reshape tiles: heads lie one below the
other in a matrix, which is safe only where a head is a whole number of blocks.

Programs of one head run side by side, so its keys and values come from the L2 cache, and start with the last rows,
which have most keys: short programs fill the gaps at the end.
"""

import torch
import triton
import triton.language as tl
from tilebench_core import Case, Config, Kernel
from triton.language.target_info import cuda_capability_geq
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634


@triton.jit
def load(desc, head, row, S, B: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr):
    """B rows of one head as [B, D]; of a matrix [heads·S, D] if WHOLE, else of [heads, S, D], with zeros beyond S."""
    if WHOLE:
        return desc.load([head * S + row, 0])
    else:
        return desc.load([head, row, 0]).reshape(B, D)


@triton.jit
def bits(p, dtype: tl.constexpr):
    """Weights as integers: Triton keeps what a loop carries in registers only if the product is not its first use."""
    return p.to(dtype).to(tl.int16, bitcast=True)


@triton.jit
def attention_kernel(
    q_source, k_desc, v_desc, o_ptr, S, scale,
    D: tl.constexpr, B: tl.constexpr, WHOLE: tl.constexpr, SPECIALIZED: tl.constexpr,
):  # fmt: skip
    """o [heads, S, D]; q (a pointer if SPECIALIZED), k, v: see `load`. `scale` holds log2 e, for exp2."""
    hopper: tl.constexpr = cuda_capability_geq(9, 0) and not cuda_capability_geq(10, 0)
    dtype: tl.constexpr = o_ptr.dtype.element_ty
    top = (tl.num_programs(0) - 1 - tl.program_id(0)) * B
    head = tl.program_id(1)
    rows = top + tl.arange(0, B)
    if SPECIALIZED:  # Triton halves the tile of q, which it can only do if it knows how the descriptor was made
        q_desc = tl.make_tensor_descriptor(q_source, [tl.num_programs(1) * S, D], [D, 1], [B, D])
        q = q_desc.load([head * S + top, 0])
    else:
        q = load(q_source, head, top, S, B, D, WHOLE)

    # Keys beyond S lie right of the diagonal of every row that is stored, so one mask serves both.
    scores = tl.dot(q, load(k_desc, head, top, S, B, D, WHOLE).T)
    scores = tl.where(rows[:, None] >= top + tl.arange(0, B)[None, :], scores, float("-inf"))
    maximum = tl.max(scores, axis=1) * scale
    p = tl.exp2(scores * scale - maximum[:, None])
    total = tl.sum(p, axis=1)
    # Clearing the sign (there is none) makes these bits something else than a mere conversion. Otherwise LLVM would
    # move the loop's conversion behind the loop's end, and the loop would carry 32-bit weights: registers spill.
    weights = bits(p, dtype) & 0x7FFF

    accumulator = tl.zeros([B, D], tl.float32)
    shrink = tl.full([B], 1.0, tl.float32)
    end = top
    if SPECIALIZED:
        end = top + B
    for n in tl.range(0, end, B, warp_specialize=SPECIALIZED and hopper):
        accumulator *= shrink[:, None]
        scores = tl.dot(q, load(k_desc, head, n, S, B, D, WHOLE).T)
        v = load(v_desc, head, tl.where(n == 0, top, n - B), S, B, D, WHOLE)  # of the step before
        accumulator = tl.dot(weights.to(dtype, bitcast=True), v, accumulator)
        larger = tl.maximum(maximum, tl.max(scores, axis=1) * scale)
        if SPECIALIZED:
            larger = tl.where(n == top, maximum, larger)
        p = tl.exp2(scores * scale - larger[:, None])
        part = tl.sum(p, axis=1)
        if SPECIALIZED:
            part = tl.where(n == top, 0.0, part)
        shrink = tl.exp2(maximum - larger)
        total = total * shrink + part
        weights = bits(p, dtype)
        maximum = larger
    if not SPECIALIZED:
        v = load(v_desc, head, tl.where(top == 0, top, top - B), S, B, D, WHOLE)
        accumulator = tl.dot(weights.to(dtype, bitcast=True), v, accumulator * shrink[:, None])
    offsets = (head.to(tl.int64) * S + rows)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(o_ptr + offsets, (accumulator / total[:, None]).to(dtype), mask=rows[:, None] < S)


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, B: int, SPECIALIZED: bool, num_warps: int, num_stages: int
) -> torch.Tensor:
    """Return o [B, H, S, D] of q, k, v [B, H, S, D]. SPECIALIZED needs an S that B divides."""
    batch, H, S, D = q.shape
    whole = S % B == 0
    if SPECIALIZED and not whole:
        raise ValueError(f"SPECIALIZED needs whole blocks: {S} rows are not a multiple of {B}")
    if SPECIALIZED:  # memory for the descriptor of q
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=q.device))
    o = torch.empty_like(q)
    shape, block = ((batch * H * S, D), [B, D]) if whole else ((batch * H, S, D), [1, B, D])
    q_desc, k_desc, v_desc = (TensorDescriptor.from_tensor(tensor.view(shape), block) for tensor in (q, k, v))
    attention_kernel[(triton.cdiv(S, B), batch * H)](
        q if SPECIALIZED else q_desc, k_desc, v_desc, o, S, D**-0.5 * LOG2_E,
        D=D, B=B, WHOLE=whole, SPECIALIZED=SPECIALIZED, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o


def _config(B: int, warps: int, stages: int, specialized: bool = False) -> Config:
    return {"B": B, "SPECIALIZED": specialized, "num_warps": warps, "num_stages": stages}


def default(case: Case) -> Config:
    return _config(128, 8, 3)


def space(case: Case) -> list[Config]:
    plain = [_config(b, warps, stages) for b, warps in ((64, 4), (128, 8)) for stages in (2, 3)]
    return plain + ([_config(128, 4, 2, True)] if case["S"] % 128 == 0 else [])


KERNEL = Kernel(run=run, default=default, space=space)
