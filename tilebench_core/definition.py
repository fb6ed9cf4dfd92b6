"""The contract of an operator's code: what `operator.py` exports as `OPERATOR`, and how its inputs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilebench_core.case import Case
from tilebench_core.dtypes import dtype_named, torch_dtype

if TYPE_CHECKING:
    import torch

__all__ = ["Definition", "Draw"]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """An operator's semantics.

    - `inputs(case, draw)` returns the tuple of positional arguments of every kernel's `run`: tensors and plain values.
      Called again with another seed, it must return the same shapes, dtypes and plain values, with new contents.
    - `reference(*inputs)` is the result that kernels are judged by, with the kernels' output shapes and dtypes,
      computed in higher precision where that is affordable. None: `impl_torch.py` is the reference.
    - `inapplicable_controls` names negative controls that make no sense for this operator, each with the reason, e.g.
      `{"swapped": "all outputs are equal"}`. See `tilebench_core.testing.controls`.
    """

    inputs: Callable[[Case, Draw], tuple[Any, ...]]
    reference: Callable[..., Any] | None = None
    inapplicable_controls: Mapping[str, str] = field(default_factory=dict)


class Draw:
    """Draws an operator's inputs on one device from one seeded generator.

    Every method returns a contiguous tensor of the given shape; `dtype` is one of our names ("fp16") or PyTorch's own.
    """

    def __init__(self, device: str, seed: int) -> None:
        import torch

        self._torch = torch
        self.device = torch.device(device)
        self._generator = torch.Generator(self.device).manual_seed(seed)

    def _dtype(self, dtype: str | torch.dtype) -> torch.dtype:
        return torch_dtype(dtype) if isinstance(dtype, str) else dtype

    def normal(self, *shape: int, dtype: str | torch.dtype) -> torch.Tensor:
        """N(0, 1). Drawn in fp32 and cast, so that narrow types need no generator of their own."""
        wanted = self._dtype(dtype)
        native = (
            wanted
            if wanted in (self._torch.float32, self._torch.float16, self._torch.bfloat16)
            else self._torch.float32
        )
        return self._torch.randn(shape, generator=self._generator, device=self.device, dtype=native).to(wanted)

    def uniform(self, *shape: int, dtype: str | torch.dtype, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Uniform in [low, high)."""
        values = self._torch.rand(shape, generator=self._generator, device=self.device, dtype=self._torch.float32)
        return values.mul_(high - low).add_(low).to(self._dtype(dtype))

    def integers(self, *shape: int, dtype: str | torch.dtype, low: int, high: int) -> torch.Tensor:
        """Whole numbers, uniform in [low, high], both ends included."""
        return self._torch.randint(
            low, high + 1, shape, generator=self._generator, device=self.device, dtype=self._torch.int64
        ).to(self._dtype(dtype))

    def values(self, *shape: int, dtype: str, integers: tuple[int, int] = (-64, 64)) -> torch.Tensor:
        """N(0, 1) for a floating type; for an integer type uniform whole numbers within `integers`, both ends included."""
        if dtype_named(dtype).is_float:
            return self.normal(*shape, dtype=dtype)
        return self.integers(*shape, dtype=dtype, low=integers[0], high=integers[1])

    def permutation(self, n: int, *, dtype: str | torch.dtype = "int64") -> torch.Tensor:
        """A random permutation of 0..n-1, shape [n]."""
        return self._torch.randperm(n, generator=self._generator, device=self.device).to(self._dtype(dtype))
