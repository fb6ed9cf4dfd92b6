"""A case: one point of an operator's grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilebench_core.dtypes import dtype_named

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A shape and a dtype for one operator.

    `params` are the operator's parameters, e.g. `{"rows": 2048, "cols": 512}`; `case["rows"]` reads one.
    `kind` is "grid" (timed), "edge" (verified only) or "smoke"; `index` is the place in its kind's list, from 0.
    """

    operator: str
    dtype: str
    params: Mapping[str, Any]
    kind: str = "grid"
    index: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    @property
    def dtype_size(self) -> int:
        """Bytes per element of the case's dtype."""
        return dtype_named(self.dtype).size_bytes

    @property
    def label(self) -> str:
        """The parameters as a person reads them: `rows=2048 cols=512`."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())
