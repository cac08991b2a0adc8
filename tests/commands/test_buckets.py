"""s13 buckets and s13 report: promised values, stable and documented keys, one sentence for bad input."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AZURE = ROOT.parent / "shared" / "data" / "AzureLLMInferenceTrace_conv.csv"
BASELINES = ["seed", "vllm", "sglang", "tensorrt-llm", "nano-vllm", "mini-sglang", "powers-of-two"]


@pytest.fixture
def histogram(tmp_path):
    path = tmp_path / "histogram.json"
    path.write_text('{"1": 100, "5": 50, "40": 10}')
    return path


@pytest.mark.skipif(not AZURE.exists(), reason="the Azure trace is not part of the project")
def test_a_real_trace_pads_3_6_percent_where_the_seeds_list_pads_15_9(s13):
    arguments = ("buckets", "--traffic", AZURE, "--count", 13)
    out = s13(*arguments, "--export", "vllm").out
    assert re.search(r"^best +13 +3\.61%", out, re.M)
    assert re.search(r"^seed +13 +15\.91%", out, re.M)
    assert '--compilation-config \'{"cudagraph_capture_sizes": [' in out
    data = json.loads(s13(*arguments, "--json").out)
    assert data["padding_fraction"] == pytest.approx(0.0361, abs=0.0005)
    assert data["baselines"]["vllm"]["padding_fraction"] == pytest.approx(0.1059, abs=0.0005)
    assert data["traffic"]["steps"] == 140_348


def test_a_layout_found_by_hand(s13, histogram):
    data = json.loads(s13("buckets", "--traffic", histogram, "--count", 2, "--max-batch", "observed", "--json").out)
    # 1 and 5 → 5: 400 padding rows; 5 and 40 → 40: 1,750. Real rows: 100 + 250 + 400.
    assert data["layout"] == [5, 40]
    assert data["padding_fraction"] == pytest.approx(400 / (400 + 750))
    assert data["pinned_rows"] == 40
    assert data["max_batch"] == 40


def test_pools_and_budgets(s13, histogram):
    common = ("buckets", "--traffic", histogram, "--max-batch", 40, "--graph-mib", 10, "--row-mib", 1, "--json")
    private = json.loads(s13(*common, "--budget-mib", 65, "--pool", "private").out)
    assert private["layout"] == [5, 40]  # 15 + 50 MiB; a third graph does not fit
    assert private["pinned_mib"] == 65
    assert private["pinned_rows"] == 45
    shared = json.loads(s13(*common, "--budget-mib", 70).out)
    assert shared["layout"] == [1, 5, 40]  # 3 · 10 + 40
    assert shared["pinned_mib"] == 70


def test_measured_step_times_decide_the_time_objective(s13, histogram, tmp_path):
    times = tmp_path / "times.csv"
    times.write_text("batch,graph_us,eager_us\n1,100,900\n5,100,900\n40,200,1000\n")
    data = json.loads(
        s13(
            "buckets",
            "--traffic",
            histogram,
            "--max-batch",
            40,
            "--count",
            2,
            "--objective",
            "time",
            "--step-times",
            times,
            "--json",
        ).out
    )
    assert data["layout"] == [5, 40]
    assert data["time_waste_fraction"] == 0.0
    assert data["step_us"] == pytest.approx((150 * 100 + 10 * 200) / 160)
    assert data["replay_saves_us"] == pytest.approx(800)
    assert data["step_times"] == "measured: times.csv"


def test_multiples_capture_seconds_and_exports(s13):
    data = json.loads(s13("buckets", "--multiple-of", 8, "--capture-seconds", 0.5, "--export", "sglang", "--json").out)
    assert all(size % 8 == 0 for size in data["layout"])
    assert data["capture_seconds"] == len(data["layout"]) * 0.5
    assert data["export"].startswith("--cuda-graph-bs " + " ".join(map(str, data["layout"])))
    assert list(data["baselines"]) == BASELINES
    assert "cuda_graph_config:" in s13("buckets", "--export", "tensorrt-llm").out


def test_held_out_traffic_is_reported(s13, histogram):
    data = json.loads(s13("buckets", "--traffic", "chat", "--json").out)["held_out"]
    assert list(data["padding_fraction"]) == ["chat, first half", "chat, second half", "code"]
    out = s13("buckets", "--traffic", histogram, "--max-batch", 40).out
    assert "its steps have no order in time" in out


def test_report_has_the_three_parts(s13):
    out = s13("report").out
    assert "352 launches × 6 µs = 2.11 ms of CPU a step." in out
    assert "From batch 99 up the kernels take longer than their launches" in out
    for text in ("15: norm · q · k", "4: norm+q+k+v+rope+append", "powers-of-two", "best 13"):
        assert text in out
    data = json.loads(s13("report", "--json").out)
    assert [r["kernels_per_layer"] for r in data["fusion"]] == [15, 11, 9, 7, 5, 4]
    rows = {r["layout"]: r for r in data["buckets"]}
    assert (rows["seed"]["pinned_rows_private"], rows["seed"]["pinned_rows_shared"]) == (871, 256)
    for row in rows.values():
        assert row["best_padding_fraction_shared"] <= row["padding_fraction"]


def test_without_a_command_it_prints_the_report(s13):
    assert s13().out == s13("report").out
    assert s13("--traffic", "code").out == s13("report", "--traffic", "code").out


def test_every_json_key_is_documented(s13):
    documented = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key not in BASELINES and not re.search(r"[ ,]|chat|code", key):
                    yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    for command in ("report", "simulate", "sweep", "fusion", "buckets"):
        undocumented = set(keys(json.loads(s13(command, "--json").out))) - documented
        assert not undocumented, command


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("nowhere.csv", ("--traffic", "nowhere.csv")),
        ("count is 0", ("--count", "0")),
        ("budget is 1.0: must be at least", ("--budget-mib", "1")),
        ("'nan' is not a finite number", ("--budget-mib", "nan")),
        ("--count and --budget-mib: give one of the two", ("--count", "3", "--budget-mib", "300")),
        ("--pool: unknown name 'sharde'; did you mean shared?", ("--pool", "sharde")),
        ("--export: unknown name 'vlm'; did you mean vllm?", ("--export", "vlm")),
        (
            "--max-batch: 'many' is not a whole number (of at most 18 digits), nor \"observed\".",
            ("--max-batch", "many"),
        ),
        ("max_batch is 0", ("--max-batch", "0")),
        ("the largest size is 8 and chat reaches batch", ("--max-batch", "8")),
        ("objective is 'speed': must be 'rows' or 'time'", ("--objective", "speed")),
        ("step_ms", ("--step-ms", "0")),
        ("load", ("--load", "-1")),
        ("row_mib is -1.0", ("--row-mib", "-1")),
        ("stage is 3", ("--stage", "3")),
        ("seconds_per_graph is -1.0", ("--capture-seconds", "-1")),
    ],
)
def test_bad_input(refuses, words, arguments):
    refuses(words, "buckets", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("a,b\n1,2\n", "traffic.csv"),
        ("batch,count\n1,x\n", "line 2"),
        ("batch,count\n1,0\n", "traffic.csv"),
        ("TIMESTAMP,GeneratedTokens\nyesterday,5\n", "line 2: TIMESTAMP is 'yesterday'"),
        ("TIMESTAMP,GeneratedTokens\n", "traffic.csv"),
        ('{"1": -4}', "traffic.csv"),
        ('{"1": NaN}', "traffic.csv"),
    ],
)
def test_bad_traffic_files(refuses, text, words, tmp_path):
    path = tmp_path / "traffic.csv"
    path.write_text(text)
    refuses(words, "buckets", "--traffic", path)


def test_the_engineers_tools_never_import_the_courses_packages():
    program = (
        "import sys; from s13lib.cli import main; main(['report', '--json']);"
        "bad = {'torch', 'matplotlib', 'numba', 'ipywidgets'} & set(sys.modules); sys.exit(', '.join(bad) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
