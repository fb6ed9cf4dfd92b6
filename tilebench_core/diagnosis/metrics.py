"""Which counters are read, under names of ours, and what Nsight Compute calls them.

The lean set was chosen by the number of passes: 4 of hardware counters (GH100, GB100 and GA100 alike, by CUPTI's own
planner), one of program-counter samples and two of instrumented code. The throughputs of whole units (`full`) take 6 more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["METRICS", "OPCODES", "SETS", "STALLS", "STALL_PREFIX", "Metric", "metric_arguments"]

OPCODES = "sass__inst_executed_per_opcode"
"""Instructions executed, by opcode: an instanced metric, whose correlation ids are opcodes."""

STALLS = "group:smsp__pcsamp_warp_stall_reasons"
"""Samples of program counters by stall reason: instanced metrics, whose correlation ids are addresses."""

STALL_PREFIX = "smsp__pcsamp_warps_issue_stalled_"

SETS = ("lean", "full")


@dataclass(frozen=True)
class Metric:
    """One value of a launch. `additive` values of several launches are summed, others are averages over time.

    `candidates` are Nsight Compute's names, newest first, where versions differ.
    """

    name: str
    unit: str
    candidates: tuple[str, ...]
    additive: bool = False
    full_only: bool = False


def _metric(name: str, unit: str, *candidates: str, additive: bool = False, full_only: bool = False) -> Metric:
    return Metric(name, unit, candidates, additive, full_only)


METRICS: tuple[Metric, ...] = (
    _metric("duration_ns", "ns", "gpu__time_duration.sum", additive=True),
    _metric("cycles", "cycles", "sm__cycles_elapsed.max", additive=True),
    _metric("grid_blocks", "blocks", "launch__grid_size"),
    _metric("block_threads", "threads", "launch__block_size"),
    _metric("registers", "registers", "launch__registers_per_thread"),
    _metric("shared_static_bytes", "bytes", "launch__shared_mem_per_block_static"),
    _metric("shared_dynamic_bytes", "bytes", "launch__shared_mem_per_block_dynamic"),
    _metric("waves", "waves", "launch__waves_per_multiprocessor"),
    _metric("occupancy_limit_registers", "blocks", "launch__occupancy_limit_registers"),
    _metric("occupancy_limit_shared", "blocks", "launch__occupancy_limit_shared_mem"),
    _metric("occupancy_limit_warps", "blocks", "launch__occupancy_limit_warps"),
    _metric("occupancy_limit_blocks", "blocks", "launch__occupancy_limit_blocks"),
    _metric("occupancy_limit_barriers", "blocks", "launch__occupancy_limit_barriers"),
    _metric("occupancy_theoretical_pct", "%", "sm__maximum_warps_per_active_cycle_pct"),
    _metric("occupancy_achieved_pct", "%", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    _metric("instructions", "warp instructions", "smsp__inst_executed.sum", additive=True),
    _metric("issue_active_pct", "%", "smsp__issue_active.avg.pct_of_peak_sustained_active"),
    _metric("dram_throughput_pct", "%", "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    _metric("dram_read_bytes", "bytes", "dram__bytes_read.sum", "dram__bytes_op_read.sum", additive=True),
    _metric("dram_write_bytes", "bytes", "dram__bytes_write.sum", "dram__bytes_op_write.sum", additive=True),
    _metric("l2_sectors", "sectors", "lts__t_sectors.sum", additive=True),
    _metric("l2_hit_pct", "%", "lts__t_sector_hit_rate.pct"),
    _metric("global_load_requests", "requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", additive=True),
    _metric("global_load_sectors", "sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", additive=True),
    _metric("global_store_requests", "requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", additive=True),
    _metric("global_store_sectors", "sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", additive=True),
    _metric("bank_conflicts", "wavefronts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", additive=True),
    _metric("shared_wavefronts", "wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", additive=True),
    _metric("local_loads", "warp instructions", "smsp__inst_executed_op_local_ld.sum", additive=True),
    _metric("local_stores", "warp instructions", "smsp__inst_executed_op_local_st.sum", additive=True),
    _metric("tensor_active_pct", "%", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
    _metric("tensor_instructions", "warp instructions", "sm__inst_executed_pipe_tensor.sum", additive=True),
    _metric("branch_efficiency_pct", "%", "smsp__sass_average_branch_targets_threads_uniform.pct"),
    _metric("sm_throughput_pct", "%", "sm__throughput.avg.pct_of_peak_sustained_elapsed", full_only=True),
    _metric(
        "memory_throughput_pct", "%", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", full_only=True
    ),
)  # fmt: skip


def metric_arguments(chosen: str, absent: Collection[str] = ()) -> list[str]:
    """Nsight Compute's names to ask for in the set `chosen`; of each metric the first that is not in `absent`."""
    names = []
    for metric in METRICS:
        if metric.full_only and chosen != "full":
            continue
        names += [name for name in metric.candidates if name not in absent][:1]
    return names + [name for name in (OPCODES, STALLS) if name not in absent]
