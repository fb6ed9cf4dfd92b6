"""Where a Triton loop waits for Hopper's tensor cores.

Triton leaves the product at the end of a loop's body running into the next turn, and waits where its result is used. The
assembler can do that only if registers suffice for all that is alive then, and if nothing else writes the sums' registers on the
way; otherwise it waits after each instruction of every product, of which there are four to eight.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["ended"]

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def ended(product):
    """`product`, fp32, once the tensor cores have ended it: of this use comes a wait, but no instruction."""
    if INTERPRETED:
        return product
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [product], dtype=tl.float32, is_pure=True, pack=1)
