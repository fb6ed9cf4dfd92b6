"""Inputs for a compiler, which looks at no values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilebench_core.definition import Draw

if TYPE_CHECKING:
    import torch

__all__ = ["UnfilledDraw"]


class UnfilledDraw(Draw):
    """Draws tensors of the right shape and dtype whose memory is never touched: a compiler looks at no values."""

    def __init__(self) -> None:
        super().__init__("cpu", 0)

    def _empty(self, shape: Sequence[int], dtype: Any) -> torch.Tensor:
        empty: torch.Tensor = self._torch.empty(shape, dtype=self._dtype(dtype))
        return empty

    def normal(self, *shape: int, dtype: Any) -> torch.Tensor:
        """See `Draw.normal`."""
        return self._empty(shape, dtype)

    def uniform(self, *shape: int, dtype: Any, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """See `Draw.uniform`."""
        return self._empty(shape, dtype)

    def integers(self, *shape: int, dtype: Any, low: int, high: int) -> torch.Tensor:
        """See `Draw.integers`."""
        return self._empty(shape, dtype)

    def permutation(self, n: int, *, dtype: Any = "int64") -> torch.Tensor:
        """See `Draw.permutation`."""
        return self._empty((n,), dtype)
