"""GPUs: the data-sheet figures that bound a kernel's time, and the kernel-time law."""

from __future__ import annotations

from dataclasses import dataclass

from s13lib.errors import require


@dataclass(frozen=True)
class GPU:
    """One accelerator.

    Args:
        name: for print-outs.
        bandwidth_tb_s: memory bandwidth of the data sheet, 10^12 bytes a second.
        peak_tflop_s: dense 16-bit matrix throughput of the data sheet, 10^12 operations a second.
        efficiency: share of the bandwidth that a long, well-written kernel reaches.
        floor_us: shortest time of a kernel, its boundary to the next one included.
        source: where the figures come from.
    """

    name: str
    bandwidth_tb_s: float
    peak_tflop_s: float
    efficiency: float = 0.614
    floor_us: float = 2.0
    source: str = "given by the user"

    def __post_init__(self) -> None:
        for name in ("bandwidth_tb_s", "peak_tflop_s"):
            value = getattr(self, name)
            require(1e-6 <= value <= 1e6, f"gpu {name}", value, "from 0.000001 to 1,000,000")
        require(0.001 <= self.efficiency <= 1, "gpu efficiency", self.efficiency, "from 0.001 to 1")
        require(0 <= self.floor_us <= 1e6, "gpu floor_us", self.floor_us, "from 0 to 1,000,000")

    def kernel_us(self, bytes_moved: float, flops: float) -> float:
        """Modelled time of one kernel: a floor plus the slower of memory and arithmetic.

        Arithmetic is taken to reach 0.6 of the peak, a usual figure for large matrix products.
        """
        memory_us = bytes_moved / (self.efficiency * self.bandwidth_tb_s * 1e6)
        arithmetic_us = flops / (COMPUTE_EFFICIENCY * self.peak_tflop_s * 1e6)
        return self.floor_us + max(memory_us, arithmetic_us)


COMPUTE_EFFICIENCY = 0.6

# efficiency 0.614 and floor 2.0 µs are a fit: with them SmolLM2-360M on an H100 takes the 0.89 ms of the lesson's
# simulator. They are modelling constants, used for every GPU until one is calibrated.
GPUS: dict[str, GPU] = {
    gpu.name: gpu
    for gpu in (
        GPU("a100", 2.039, 312, source="NVIDIA A100 data sheet, SXM 80 GB"),
        GPU("h100", 3.35, 989, source="NVIDIA H100 data sheet, SXM, dense BF16"),
        GPU("h200", 4.8, 989, source="NVIDIA H200 data sheet, SXM, dense BF16"),
        GPU("b200", 8.0, 2250, source="NVIDIA B200 data sheet, dense BF16"),
        GPU("l4", 0.3, 121, source="NVIDIA L4 data sheet, dense BF16"),
        GPU("rtx-4090", 1.008, 165, source="NVIDIA Ada architecture paper, dense BF16 with FP32 accumulation"),
    )
}
