"""simulate, sweep and fusion from the command line: values, files, stable keys, one sentence for bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from s13lib.simulator import MODELS

ROOT = Path(__file__).resolve().parents[2]


def test_simulate_seed_has_the_promised_keys_and_values(s13):
    code, out, _ = s13("simulate", "--preset", "seed", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["kernels_per_step"] == 288
    assert data["step_ms"] == pytest.approx(1.7311)
    assert data["host_ms"] == pytest.approx(1.728)
    assert data["device_ms"] == pytest.approx(0.8928)
    assert data["bottleneck"] == "host"
    assert data["utilization"] == pytest.approx(0.5157, abs=1e-4)
    assert data["speedup"] == 1.0
    assert data["source"] == "modelled"
    assert sum(s["lane"] == "host" for s in data["first_launches"]) == 18


def test_simulate_prints_the_read_outs_and_two_lanes(s13):
    out = s13("simulate", "--preset", "seed").out
    for text in ("288", "1.73 ms", "0.89 ms", "52%", "1.00×", "host: the CPU's launches take longer"):
        assert text in out
    cpu, gpu = out.splitlines()[-2:]
    assert cpu.count("|") == gpu.count("|") == 18
    assert gpu.startswith("GPU .....|")


def test_both_toggles(s13):
    data = json.loads(s13("simulate", "--preset", "seed", "--stage", 4, "--graph", "--json").out)
    assert data["speedup"] == pytest.approx(2.97, abs=0.01)
    assert data["bottleneck"] == "device"


def test_the_seeds_controls(s13):
    data = json.loads(s13("simulate", "--preset", "seed", "--layers", 16, "--launch-us", 8, "--batch", 4, "--json").out)
    assert data["kernels_per_step"] == 144
    assert data["host_ms"] == pytest.approx(144 * 8 / 1000)
    assert data["device_ms"] == pytest.approx((2 * 144 + 9 * 16 * 1.4) / 1000)


def test_prefill_and_dtypes(s13):
    data = json.loads(s13("simulate", "--prefill", 2048, "--weight-bytes", 1, "--json").out)
    assert data["prefill"] == 2048
    assert data["batch"] is None
    assert data["bottleneck"] == "device"


def test_simulate_writes_files_whole(s13, tmp_path):
    trace, picture = tmp_path / "a.json", tmp_path / "a.svg"
    out = s13("simulate", "--preset", "seed", "--chrome-trace", trace, "--svg", picture, "--language", "zh").out
    assert f"wrote {trace}" in out
    assert len(json.loads(trace.read_text())["traceEvents"]) == 3 + 4 * 288
    assert "每步" in picture.read_text(encoding="utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.svg"]


def test_a_model_and_a_gpu_of_ones_own(s13, tmp_path):
    bard = {f: getattr(MODELS["bard"], f) for f in MODELS["bard"].__dataclass_fields__}
    config = tmp_path / "mine.json"
    config.write_text(
        json.dumps(
            {
                "model": bard | {"name": "mine"},
                "gpu": {"name": "toy", "bandwidth_tb_s": 0.02, "peak_tflop_s": 0.1, "efficiency": 0.9, "floor_us": 1},
            }
        )
    )
    data = json.loads(s13("simulate", "--config", config, "--json").out)
    assert (data["model"], data["device"]) == ("mine", "toy")
    assert data["kernels_per_step"] == 15 * 32 + 3


def test_sweep_finds_the_crossover(s13):
    data = json.loads(s13("sweep", "--preset", "seed", "--batches", "1,29,30", "--json").out)
    assert data["crossover_batch"] == 30
    assert [r["bottleneck"] for r in data["rows"]] == ["host", "host", "device"]
    assert data["rows"][0]["graph_step_ms"] == pytest.approx(0.9028)
    out = s13("sweep", "--preset", "seed").out
    assert "288 launches × 6 µs = 1.73 ms" in out
    assert "From batch 30 up" in out


def test_sweep_says_when_launches_never_stop_mattering(s13):
    out = s13("sweep", "--model", "bard", "--gpu", "b200", "--launch-us", "60", "--context", 1).out
    assert "Launch-bound at every batch size up to 4096." in out


def test_fusion_ledger(s13):
    arguments = ("fusion", "--model", "llama-3-8b", "--gpu", "h200", "--context", 1024)
    rows = json.loads(s13(*arguments, "--json").out)["stages"]
    assert [r["kernels_per_layer"] for r in rows] == [15, 11, 9, 7, 5, 4]
    assert [round(r["activation_bytes"] / 1000) for r in rows] == [377, 283, 266, 201, 152, 127]
    assert [r["intermediates_per_layer"] for r in rows] == [15, 11, 11, 11, 7, 4]
    out = s13(*arguments).out
    assert "from 15 to 4 kernels fusion saves 0.06% of the bytes" in out
    assert "4: norm+q+k+v+rope+append · attention+o+add · norm+gate+up+silu_mul · down+add" in out


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("--preset: unknown name 'sead'; did you mean seed?", ("simulate", "--preset", "sead")),
        ("--model: unknown name 'llama-3-8'; did you mean llama-3-8b", ("simulate", "--model", "llama-3-8")),
        ("--gpu: unknown name 'zzz'; allowed: a100, h100", ("simulate", "--gpu", "zzz")),
        ("batch is -1: must be a whole number from 1 to 1,000,000", ("simulate", "--batch", "-1")),
        ("'1.5' is not a whole number", ("simulate", "--batch", "1.5")),
        ("launch_us is -6.0: must be from 0 to 1,000,000", ("simulate", "--launch-us", "-6")),
        ("'nan' is not a finite number", ("simulate", "--launch-us", "nan")),
        ("'inf' is not a finite number", ("simulate", "--gap-us", "inf")),
        ("stage is 8: must be one of 15, 11, 9, 7, 5, 4", ("simulate", "--stage", "8")),
        ("parts: unknown name 'lmhead'; did you mean lm_head?", ("simulate", "--parts", "layers,lmhead")),
        ("the seed's law knows decode steps alone", ("simulate", "--preset", "seed", "--prefill", "8")),
        ("language: unknown name 'fr'", ("simulate", "--svg", "x.svg", "--language", "fr")),
        ("unrecognized arguments: --frobnicate", ("simulate", "--frobnicate")),
        ("batch is 0", ("sweep", "--batches", "0,1")),
        ("'x' is not a whole number", ("sweep", "--batches", "1,x")),
        ("command: unknown name 'simulat'; did you mean simulate?", ("simulat",)),
        ("cannot be read: No such file or directory", ("simulate", "--config", "/nowhere/x.json")),
    ],
)
def test_bad_input(refuses, words, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(words, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", 'must be a JSON object with "model" and/or "gpu"'),
        ('{"modl": {}}', 'must be a JSON object with "model" and/or "gpu"'),
        ('{"model": 3}', "model: must be an object with the fields name, layers"),
        ('{"gpu": {"name": "x"}}', "gpu: missing 2 required positional arguments: 'bandwidth_tb_s'"),
        ('{"gpu": {"nme": "x"}}', "gpu: field: unknown name 'nme'; did you mean name?"),
        (
            '{"gpu": {"name": "x", "bandwidth_tb_s": "fast", "peak_tflop_s": 1}}',
            "bandwidth_tb_s is 'fast': must be a n",
        ),
        ('{"gpu": {"name": "x", "bandwidth_tb_s": NaN, "peak_tflop_s": 1}}', "gpu bandwidth_tb_s is nan"),
    ],
)
def test_bad_config(refuses, text, words, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(text)
    refuses(words, "simulate", "--config", config)


def test_a_failed_write_leaves_no_file(refuses, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "missing" / "bad.svg"
    refuses("cannot be written: No such file or directory", "simulate", "--chrome-trace", good, "--svg", bad)
    assert list(tmp_path.iterdir()) == []
    refuses("is a folder: name a file", "simulate", "--svg", tmp_path)


def test_help_lists_commands_and_each_has_an_example(s13):
    from s13lib.cli import COMMANDS

    out = s13("--help").out
    for name in COMMANDS:
        assert name in out
        result = subprocess.run(
            [sys.executable, "-m", "s13lib", name, "--help"], capture_output=True, text=True, cwd=ROOT, check=True
        )
        assert f"example:\n  s13 {name}" in result.stdout


def test_a_closed_pipe_is_not_an_error():
    command = [sys.executable, "-m", "s13lib", "sweep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        process.stdout.close()  # as head does, before the first line is out
        assert process.stderr.read() == ""
        assert process.wait() == 0
