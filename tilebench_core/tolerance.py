"""How far a result may be from its reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilebench_core.errors import ConfigError

__all__ = ["DEFAULT_TOLERANCES", "Tolerance"]

SCALES = ("none", "row_rms")


@dataclass(frozen=True)
class Tolerance:
    """|actual - expected| <= atol·scale + rtol·|expected|, elementwise; all zero means equal.

    `scale` is "none" (1) or "row_rms": the root mean square of the expected values along the last axis, for results
    whose rows differ in size. `ulp` > 0 instead allows that many units in the last place of the output's own dtype
    (for fp8, whose steps are too coarse for a relative bound).
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulp: int = 0
    scale: str = "none"

    def __post_init__(self) -> None:
        if not all(math.isfinite(bound) and bound >= 0 for bound in (self.atol, self.rtol, self.ulp)):
            raise ConfigError(f"tolerance {self}: bounds must be finite and not negative")
        if self.scale not in SCALES:
            raise ConfigError(f"tolerance scale {self.scale!r}; expected one of {', '.join(SCALES)}")

    @property
    def is_exact(self) -> bool:
        """True where only equal values pass."""
        return self.atol == self.rtol == self.ulp == 0


DEFAULT_TOLERANCES = {
    "fp32": Tolerance(1e-5, 1.3e-6),
    "fp16": Tolerance(1e-3, 1e-3),
    "bf16": Tolerance(1e-2, 1.6e-2),
    "fp8_e4m3": Tolerance(ulp=1),
}
