"""The cost model of a decode step: shapes, GPUs, fusion stages, the launch recurrence. Standard library only."""

from s13lib.simulator.chrome_trace import chrome_trace
from s13lib.simulator.gpus import GPU, GPUS
from s13lib.simulator.launch import LaunchCosts, closed_form_us, launch_times
from s13lib.simulator.scheduler import Scheduler
from s13lib.simulator.shapes import MODELS, ModelShape
from s13lib.simulator.stages import PARTS, STAGES, DTypes, Kernel, Workload, step_kernels
from s13lib.simulator.step import (
    PRESETS,
    SeedLaw,
    Setup,
    StepReport,
    crossover,
    middle_layer,
    simulate,
    simulate_timeline,
    step_time_curve,
    step_us,
    sweep,
)
from s13lib.simulator.timeline import Gap, Span, Timeline

__all__ = [
    "GPU",
    "GPUS",
    "MODELS",
    "PARTS",
    "PRESETS",
    "STAGES",
    "DTypes",
    "Gap",
    "Kernel",
    "LaunchCosts",
    "ModelShape",
    "Scheduler",
    "SeedLaw",
    "Setup",
    "Span",
    "StepReport",
    "Timeline",
    "Workload",
    "chrome_trace",
    "closed_form_us",
    "crossover",
    "launch_times",
    "middle_layer",
    "simulate",
    "simulate_timeline",
    "step_kernels",
    "step_time_curve",
    "step_us",
    "sweep",
]
