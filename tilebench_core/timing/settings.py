"""How a case is timed, as it stands in the configuration group `timing`."""

from __future__ import annotations

from dataclasses import dataclass

from tilebench_core.errors import ConfigError

__all__ = ["PROTOCOLS", "TimingSettings"]

PROTOCOLS = ("fixed", "adaptive")


@dataclass(frozen=True, kw_only=True)
class TimingSettings:
    """One timing protocol.

    `clock` is used on a GPU, `cpu_clock` on a CPU. `protocol` "fixed" takes `repeat` samples after `warmup` calls;
    "adaptive" takes at least `min_samples` and stops once the 95 % interval of the median is within `precision` of it,
    at `repeat` samples, or after `time_limit_s`. `graph` replays a CUDA graph; `cold` evicts the L2 cache before each
    launch. With `operator_benchmark` the `benchmark` block of an operator's config.yaml stands above these numbers.
    """

    name: str = "default"
    clock: str = "cupti"
    cpu_clock: str = "cpu"
    protocol: str = "adaptive"
    warmup: int = 5
    repeat: int = 100
    min_samples: int = 10
    precision: float = 0.005
    time_limit_s: float = 1.0
    graph: bool = True
    cold: bool = True
    operator_benchmark: bool = False
    keep_profile: bool = False
    profile_dir: str | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"timing.protocol={self.protocol!r}; expected one of {', '.join(PROTOCOLS)}")
        for key in ("warmup", "repeat", "min_samples"):
            if getattr(self, key) < (0 if key == "warmup" else 1):
                raise ConfigError(f"timing.{key}={getattr(self, key)}; expected a positive number")
        if not 0 < self.precision < 1:
            raise ConfigError(f"timing.precision={self.precision}; expected a share between 0 and 1, such as 0.005")
        if self.time_limit_s <= 0:
            raise ConfigError(f"timing.time_limit_s={self.time_limit_s}; expected a positive number of seconds")
