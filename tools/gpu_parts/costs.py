"""What things cost: a launch, a replay by its nodes, the memory that graphs pin; and what the memory can do."""

from __future__ import annotations

import gc

import torch

from gpu_parts.bench import BLOCK_SIZE, CONTEXT, SHAPES, TORCH, Bench
from s13lib import kernels
from s13lib.graphs import BucketedRunner, GraphRunner

NODES = (32, 128, 352)
PINNED_SIZES = (64, 32, 16, 8, 4, 2, 1)


def bandwidth(bench: Bench) -> None:
    """A device-to-device copy of 2 GiB reads and writes each byte once: the yardstick for all shares of bandwidth."""
    size = 1 << (20 if bench.dry else 31)
    source, target = (bench.device.empty(size, torch.uint8) for _ in range(2))
    source.zero_()
    us = bench.medians_us({"copy": lambda: target.copy_(source)}, rounds=9, burst=3)["copy"]
    bench.line("copy", round(2 * size / us / 1e3, 1), "GB/s", copy_bytes_per_us=2 * size / us)


def launches(bench: Bench) -> None:
    """The host's time for one launch, in bursts that the queue (1024 deep) takes without pushing back."""
    kernels.load("cuda")
    device = bench.device
    x, y = device.zeros(64), device.zeros(64)
    bound = device.bind("copy", x, y)
    device.kernels.copy(x, y)
    ways = {
        "a launch that was bound": bound.launch,
        "a launch by name: checked and bound each time": lambda: device.kernels.copy(x, y),
        "a PyTorch operator (add_)": lambda: x.add_(1.0),
    }
    for name, call in ways.items():
        bench.line(name, round(bench.host_us(call, repeats=9, calls=5 if bench.dry else 300), 2), "µs")


def replays(bench: Bench) -> None:
    """The host's time for a replay of n trivial kernels, and the device's time a node."""
    kernels.load("cuda")
    device = bench.device
    x, y = device.zeros(64), device.zeros(64)
    with device.warm_up():
        device.kernels.copy(x, y)
    for nodes in NODES[:1] if bench.dry else NODES:
        bound = device.bind("copy", x, y)
        with device.graph() as graph:
            for _ in range(nodes):
                bound.launch()
        graph.replay()
        us = bench.host_us(graph.replay, repeats=50)
        bench.line(f"replay of {nodes} nodes: host", round(us, 2), "µs", nodes=nodes, host_us=us)
        bench.line(
            f"replay of {nodes} nodes: counted by the driver", graph.node_count, "nodes", graph.node_count == nodes
        )
        whole = bench.medians_us({"replay": graph.replay}, rounds=9, burst=20)["replay"]
        bench.line(f"replay of {nodes} nodes: device, a node", round(whole / nodes, 3), "µs")


def memory(bench: Bench) -> None:
    """What the graphs of seven batch sizes pin, in a pool each and in a shared one, by the allocator and the driver."""
    bench.needs_gpu()
    models = bench.models(bench.config(SHAPES[0]), PINNED_SIZES[0], (TORCH, 5))
    for stage, model in models.items():
        GraphRunner(model, PINNED_SIZES[0])  # what the first graph of all costs is not any graph's
        free = _free_bytes()
        private = [GraphRunner(model, size) for size in PINNED_SIZES]
        taken = free - torch.cuda.mem_get_info()[0]
        pinned(bench, f"stage {stage}, a pool each", sum(r.graph.pool_bytes for r in private), taken)
        del private
        free = _free_bytes()
        shared = BucketedRunner(model, PINNED_SIZES, max_blocks=-(-CONTEXT // BLOCK_SIZE), progress=False)
        taken = free - torch.cuda.mem_get_info()[0]
        pinned(bench, f"stage {stage}, one pool", shared.pool_bytes, taken)
        del shared


def _free_bytes() -> int:
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def pinned(bench: Bench, name: str, by_allocator: int, by_driver: int) -> None:
    """Two lines: what the allocator holds for the graphs' pools, and what is gone from the driver's free memory."""
    for who, size in (("the allocator", by_allocator), ("the driver", by_driver)):
        mib, graphs = size / 2**20, len(PINNED_SIZES)
        bench.line(f"{name}, by {who}", round(mib, 2), f"MiB for {graphs} graphs, {mib / graphs:.2f} a graph")
