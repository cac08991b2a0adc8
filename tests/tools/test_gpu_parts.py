"""The parts of the GPU check that the dry mode leaves out, over the fake of torch.cuda: they run, and write this."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest
import torch

from s13lib.device import cuda_record
from s13lib.model import DecoderConfig
from s13lib.profiling import read_trace
from tests.device.fake_cuda import cuda_device, fake  # noqa: F401 — fixtures
from tests.device.test_cuda import FakeProfile
from tests.profiling.kineto import launch_and_kernel

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from gpu_parts import costs, speed, warm
from gpu_parts.bench import Bench

TINY = DecoderConfig(1, 16, 16, 2, 1, 8, 12, 1e4, 1e-5, True, 48)


class Event:
    """A CUDA event: two of them are a millisecond apart."""

    def __init__(self, enable_timing=False):
        pass

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return 1.0


@pytest.fixture
def bench(cuda_device, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 2 << 30))
    monkeypatch.setattr(Bench, "config", lambda self, name, layers=None: TINY)
    for module in (speed, costs, warm):
        monkeypatch.setattr(module, "CONTEXT", 20)
    monkeypatch.setattr(speed, "BATCHES", (1, 3))
    monkeypatch.setattr(costs, "PINNED_SIZES", (2, 1))
    bench = Bench("part", io.StringIO(), tmp_path, False, 0)
    bench.__dict__["device"] = cuda_device
    return bench


def lines(bench):
    return [json.loads(text) for text in bench.out.getvalue().splitlines()]


def test_the_speed_of_a_shape_is_a_line_for_each_stage_path_and_batch(bench):
    speed.shape("llama-3-8b")(bench)
    found = {(row["stage"], row["path"], row["batch"]): row for row in lines(bench)}
    assert set(found) == {(s, p, b) for s in ("torch", 7, 5) for p in ("eager", "graph") for b in (1, 3)}
    # float32 here: q, k, v, o, gate, up, down, head and three norms, once; keys and values of each row's 20 tokens.
    weights = 4 * (2 * 16 * 16 + 2 * 8 * 16 + 3 * 16 * 16 + 12 * 16 + 3 * 16)
    assert found[7, "graph", 3]["bytes"] == weights + 2 * 3 * 20 * 8 * 4
    assert {row["us"] for row in found.values()} == {1000 / 5}  # a millisecond for a burst of five
    assert {row["shape"] for row in found.values()} == {"llama-3-8b"}


def test_a_shape_that_does_not_fit_is_said_and_costs_no_other_batch(bench, monkeypatch):
    measure = speed.one_batch_size

    def tight(bench, name, models, rows):
        if rows == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        measure(bench, name, models, rows)

    monkeypatch.setattr(speed, "one_batch_size", tight)
    speed.shape("llama-3-8b")(bench)
    *first, last = lines(bench)
    assert len(first) == 6
    assert (last["name"], last["value"]) == ("batch 3", "left out: it does not fit into this GPU's memory")


def test_memory_is_told_for_private_pools_and_for_a_shared_one(bench, fake):  # noqa: F811
    fake.segments[:] = [{"total_size": 2 << 20, "segment_pool_id": (0, number)} for number in range(1, 40)]
    costs.memory(bench)
    found = {row["name"]: (row["value"], row["unit"]) for row in lines(bench)}
    told = {
        "a pool each, by the allocator": (4.0, "MiB for 2 graphs, 2.00 a graph"),
        "a pool each, by the driver": (0.0, "MiB for 2 graphs, 0.00 a graph"),
        "one pool, by the allocator": (2.0, "MiB for 2 graphs, 1.00 a graph"),
        "one pool, by the driver": (0.0, "MiB for 2 graphs, 0.00 a graph"),
    }
    assert found == {f"stage {stage}, {name}": value for stage in ("torch", 5) for name, value in told.items()}


def test_launches_and_replays_are_measured_at_each_node_count(bench, monkeypatch):
    monkeypatch.setattr(costs, "NODES", (2, 5))
    costs.launches(bench)
    costs.replays(bench)
    counted = [row for row in lines(bench) if row["name"].endswith("counted by the driver")]
    assert [(row["value"], row["ok"]) for row in counted] == [(2, True), (5, True)]
    assert [row["nodes"] for row in lines(bench) if "host_us" in row] == [2, 5]


def test_traces_are_small_files_that_the_reader_takes(bench, monkeypatch):
    monkeypatch.setattr(cuda_record, "profile", FakeProfile)
    FakeProfile.events = [*launch_and_kernel(1000, 1, name="gemv"), *launch_and_kernel(1010, 2, name="norm")]
    speed.traces(bench)
    files = sorted(bench.folder.iterdir())
    assert [file.name for file in files] == [
        "cuda-stage-5-eager.json.gz",
        "cuda-stage-5-graph.json.gz",
        "cuda-stage-torch-eager.json.gz",
    ]
    for file in files:
        trace = read_trace(file)
        assert trace.source == "recorded"
        assert "SmolLM2-360M, random weights, batch 1" in trace.timeline.provenance
        assert [span.name for span in trace.timeline.device] == ["gemv", "norm"]
        assert len(gzip.decompress(file.read_bytes())) > 0
    counted = [row for row in lines(bench) if row["name"].endswith("counted")]
    assert [(row["value"], row["unit"]) for row in counted] == [(2, "(2.0 a layer of 1, all told)")] * 3


def test_warming_up_binds_what_later_parts_launch(bench, fake):  # noqa: F811
    warm.compile_step(bench, warm.Task("llama-3-8b", 5, 3))
    assert fake.bound == [
        "embedding",
        "rms_norm_qkv",
        "rope_append_attention",
        "linear_add",
        "rms_norm_gate_up_silu_mul",
        "linear_add",
        "rms_norm",
        "linear",
    ]


def test_a_kernel_that_does_not_compile_is_told_and_ends_nothing(bench, monkeypatch):
    monkeypatch.setattr(warm, "_bench", bench, raising=False)

    def broken(bench, name):
        raise ValueError("no such tile\nmore")

    monkeypatch.setattr(warm, "compile_kernel", broken)
    task, error = warm.compile_task(warm.Task("linear"))
    assert (str(task), error) == ("linear", "ValueError: no such tile")
    assert str(warm.Task("llama-3-8b", 5, 3)) == "llama-3-8b, stage 5, batch 3"
