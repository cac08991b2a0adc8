"""Which batch sizes should an engine capture? Layouts, traffic, costs, an exact optimiser, and engines' settings.

Needs NumPy alone::

    from s13lib.buckets import best_layout, export, preset, read_traffic, row_cost

    traffic = read_traffic("requests.csv")
    layout = best_layout(traffic, max_batch=256, count=13)
    row_cost(layout, traffic).padding_fraction, row_cost(preset("vllm"), traffic).padding_fraction
    print(export(layout, "vllm"))
"""

from s13lib.buckets.cost import (
    POOLS,
    ROWS,
    MemoryModel,
    RowCost,
    TimeCost,
    capture_seconds,
    pinned_mib,
    pinned_rows,
    row_cost,
    time_cost,
)
from s13lib.buckets.export import EXPORTS, export
from s13lib.buckets.generators import WORKLOADS, Workload, chat, code, generate
from s13lib.buckets.held_out import Evaluation, HeldOutReport, held_out
from s13lib.buckets.layout import LARGEST_BATCH, PRESETS, BucketLayout, preset
from s13lib.buckets.optimiser import best_layout, check_max_batch
from s13lib.buckets.readers import read_requests, read_traffic
from s13lib.buckets.step_times import StepTimes, read_step_times
from s13lib.buckets.traffic import Traffic, running_batches
from s13lib.buckets.vllm_log import read_vllm_log

__all__ = [
    "EXPORTS",
    "LARGEST_BATCH",
    "POOLS",
    "PRESETS",
    "ROWS",
    "WORKLOADS",
    "BucketLayout",
    "Evaluation",
    "HeldOutReport",
    "MemoryModel",
    "RowCost",
    "StepTimes",
    "TimeCost",
    "Traffic",
    "Workload",
    "best_layout",
    "capture_seconds",
    "chat",
    "check_max_batch",
    "code",
    "export",
    "generate",
    "held_out",
    "pinned_mib",
    "pinned_rows",
    "preset",
    "read_requests",
    "read_step_times",
    "read_traffic",
    "read_vllm_log",
    "row_cost",
    "running_batches",
    "time_cost",
]
