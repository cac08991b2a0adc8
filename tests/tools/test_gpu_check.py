"""tools/gpu_check.py without a GPU: the dry mode runs to its end, a hang or a crash costs one part, goals are sums."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRITON = importlib.util.find_spec("triton") is not None

needs_triton = pytest.mark.skipif(not TRITON, reason="triton is not installed (it is for Linux)")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "tools" / "gpu_check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    importlib.import_module("gpu_parts.bench")  # as the script does before it forks
    return module


@needs_triton
@needs_fork
def test_the_dry_mode_runs_to_its_end_and_every_check_holds(tmp_path):
    done = subprocess.run(
        [sys.executable, "tools/gpu_check.py", "--dry", "--seed", "1", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    needs_gpu = {"triton", "llama-3.2-1b", "llama-3-8b", "traces", "memory"}
    told = {part: found["status"] for part, found in results["parts"].items()}
    assert {part for part, status in told.items() if status == "not in the dry mode"} == needs_gpu
    assert {status for part, status in told.items() if part not in needs_gpu} == {"done"}
    lines = [line for found in results["parts"].values() for line in found["lines"]]
    assert not [line for line in lines if line["ok"] is False]
    names = {line["name"] for line in lines}
    assert {
        "rope_append_attention, 3 rows, float16",
        "stage torch, batch 3: error",
        "stage 7, batch 3: replay is eager, bit for bit",
        "stage 5, batch 3: replay is eager, bit for bit",
        "padding naive",
        "an index out of range is skipped and reported",
    } <= names
    assert results["goals"] == []  # no figure of a CPU stands beside a goal for a GPU
    assert (results["environment"]["device"], results["environment"]["seed"]) == ("none (dry mode)", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["kernals"], "error: no part 'kernals': choose from triton, kernels, "),
        ([], "error: nvidia-smi names no GPU here: --dry runs what needs none."),
    ],
)
@needs_triton
@needs_fork
def test_bad_calls_are_one_sentence(arguments, sentence, tmp_path):
    done = subprocess.run(
        [sys.executable, "tools/gpu_check.py", *arguments],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)


@needs_fork
@pytest.mark.parametrize(
    ("ending", "limit", "status"),
    [
        ("hangs", 2.0, "ended after its 2 s: what it found by then is here"),
        ("dies", 60.0, "died (exit code 3)"),
        ("raises", 60.0, "failed: ValueError: wrong"),
        ("returns", 60.0, "done"),
    ],
)
def test_however_a_part_ends_what_it_found_is_kept(check, monkeypatch, tmp_path, ending, limit, status):
    def part(bench):
        bench.line("found", 1, "u", True)
        {
            "hangs": lambda: time.sleep(600),
            "dies": lambda: os._exit(3),
            "raises": wrong,
            "returns": lambda: None,
        }[ending]()

    def wrong():
        raise ValueError("wrong\nmore")

    monkeypatch.setattr(check, "find_part", lambda place: part)
    outcome = check.run_part("a part", "", limit, tmp_path, True, 0)
    assert (outcome.status, [line["name"] for line in outcome.lines]) == (status, ["found"])
    assert outcome.failed is (ending != "returns")
    assert list(tmp_path.iterdir()) == []


def test_a_late_part_is_not_begun_and_the_table_says_so(check, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(check, "TOTAL_SECONDS", 0)
    (outcome,) = check.run_parts(["kernels"], tmp_path, False, 0)
    assert outcome.status == "not begun: the time was up"
    assert "kernels: not begun: the time was up (0 s)" in capsys.readouterr().out


def step(shape, stage, path, us, **facts):
    name = f"{shape} {stage} {path}"
    row = {"name": name, "value": us, "unit": "µs", "ok": None, "shape": shape, "stage": stage, "path": path}
    return row | {"batch": 1, "us": us} | facts


def test_goals_stand_beside_what_was_measured_and_a_gap_is_said(check):
    lines = [
        {"name": "copy", "value": 1, "unit": "GB/s", "ok": None, "copy_bytes_per_us": 4e6},
        step("smollm2-360m", "torch", "eager", 9000.0),
        step("smollm2-360m", 7, "graph", 600.0, bytes=7e8),
        step("smollm2-360m", 5, "graph", 500.0, bytes=7e8),
        step("smollm2-360m", "compile", "reduce-overhead", 525.0),
        step("llama-3-8b", 5, "graph", 5000.0, bytes=16e9),
        {"name": "r", "value": 5, "unit": "µs", "ok": None, "nodes": 32, "host_us": 5.0},
        {"name": "r", "value": 9, "unit": "µs", "ok": None, "nodes": 352, "host_us": 9.0},
    ]
    goals = check.goals_of([check.Outcome("all", "done", 1.0, lines)])
    found = {goal["name"]: (goal["measured"], goal["met"]) for goal in goals}
    assert found == {
        "smollm2-360m: share of copy bandwidth": (pytest.approx(0.35), True),
        "smollm2-360m: over stage torch eager": (pytest.approx(18.0), True),
        "smollm2-360m: over torch.compile, reduce-overhead": (pytest.approx(1.05), False),
        "llama-3.2-1b: share of copy bandwidth": (None, None),
        "llama-3.2-1b: over stage torch eager": (None, None),
        "llama-3.2-1b: over torch.compile, reduce-overhead": (None, None),
        "llama-3-8b: share of copy bandwidth": (pytest.approx(0.8), True),
        "llama-3-8b: over stage torch eager": (None, None),
        "llama-3-8b: over torch.compile, reduce-overhead": (None, None),
        "host time of a replay of 352 nodes, µs": (9.0, True),
        "the same, over a replay of 32 nodes": (pytest.approx(1.8), False),
    }
    text = check.summary([check.Outcome("all", "done", 1.0, lines)], goals, {"device": "a GPU"})
    row = next(line for line in text.splitlines() if line.startswith("llama-3.2-1b: share"))
    assert row.split()[-5:] == ["≥", "0.6", "none", "not", "measured"]
    row = next(line for line in text.splitlines() if line.startswith("smollm2-360m  "))
    assert row.split() == ["smollm2-360m", "1", "9,000.0", "600.0", "500.0", "525.0", "35%"]
