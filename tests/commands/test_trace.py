"""s13 trace: the three real files, stable and documented keys, comparison, picture, one sentence for bad input."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from s13lib.commands.trace import as_json, as_text
from s13lib.figures import timeline_svg
from s13lib.profiling import TraceReport, read_trace, telling_panel
from s13lib.simulator import chrome_trace
from tests.profiling.kineto import call, kernel, launch_and_kernel, op

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
H100 = DATA / "tracelens_h100_bert-small_eager.json.gz"
MI300X = DATA / "tracelens_mi300x_vllm_decode_fullgraph.json.gz"
V100 = DATA / "hta_v100_train_12cudagraphs.json.gz"
real_traces = pytest.mark.skipif(
    not all(path.exists() for path in (H100, MI300X, V100)), reason="the real traces are not part of the project"
)


@pytest.fixture
def write(tmp_path):
    def make(events, name="trace.json", **headers):
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": events, **headers}))
        return path

    return make


@pytest.fixture
def eager(write):
    return write([event for i in range(20) for event in launch_and_kernel(10 * i, i + 1)], "eager.json")


@pytest.fixture
def graphed(write):
    nodes = [kernel(20 + 4 * i, 4, 1, "k" if i < 12 else "fused") for i in range(15)]
    return write([op(0, 90, "aten::mm"), call(0, 8, 1, "cudaGraphLaunch"), *nodes], "graphed.json")


# ---- real files


@cache
def read(path):
    return TraceReport(read_trace(path))


@real_traces
@pytest.mark.parametrize(
    ("path", "kernels", "calls", "median_us", "busy", "graphs", "verdict"),
    [
        (H100, 60, "34 cudaLaunchKernel, 22 cuLaunchKernel, 4 cudaLaunchKernelExC", "4.93", "7.9%", 0, "launch-bound"),
        (MI300X, 425, "3 hipLaunchKernel, 1 hipExtModuleLaunchKernel", "6.27", "99.8%", 1, "device-bound"),
        (V100, 9876, "4,866 cudaLaunchKernel", "8.00", "96.3%", 12, "device-bound"),
    ],
    ids=["H100", "MI300X", "V100"],
)
def test_real_traces_give_their_table(path, kernels, calls, median_us, busy, graphs, verdict):
    data, out = as_json(read(path)), as_text(read(path))
    assert data["device_kernels"] == kernels
    assert ", ".join(f"{row['count']:,} {row['name']}" for row in data["launches_by_name"]) == calls
    assert data["launch_calls"] == sum(row["count"] for row in data["launches_by_name"])
    assert f"{data['launch_median_us']:.2f}" == median_us
    assert f"{data['device_busy_fraction']:.1%}" == busy
    assert data["graph_launches"] == len(data["graphs"]) == graphs
    assert data["verdict"] == verdict
    assert data["source"] == f"recorded ({path.name})"
    # Gaps within the rounding of the file's time stamps do not count as idle: 388 of 1 ns on the MI300X.
    assert data["device_busy_us"] + data["idle_us"] == pytest.approx(data["extent_us"], rel=1e-4)
    for text in (f"recorded ({path.name})", f"{kernels:,} kernels", f"median {median_us} µs ({calls})", busy, verdict):
        assert text in out


@real_traces
def test_real_graphs_have_their_nodes_and_costs():
    (replay,) = as_json(read(MI300X))["graphs"]
    assert (replay["nodes"], f"{replay['host_us']:.0f}", f"{replay['device_us'] / 1000:.2f}") == (421, "507", "10.39")
    assert "1 of 421 kernels: 507 µs of CPU → 10.39 ms of GPU" in as_text(read(MI300X))
    data = as_json(read(V100))
    assert [g["nodes"] for g in data["graphs"]] == [315, 429] * 6
    assert data["longest_gaps"][0]["host_operation"] == "## load_batch ##"
    assert data["would_help"] == []


@real_traces
def test_a_real_launch_bound_trace_is_told_what_would_help(s13):
    data = json.loads(s13("trace", H100, "--json").out)
    assert data["would_help"] == ["graph", "fusion"]
    assert data["queue_delay_us"] == pytest.approx(1.67, abs=0.005)
    assert data["idle_us_by_reason"]["launch"] == pytest.approx(data["idle_us"])
    assert data["date"] == "2025-07-18"
    assert data["devices"][0]["name"] == "NVIDIA H100 80GB HBM3"


@real_traces
def test_two_real_traces_against_each_other(s13):
    data = json.loads(s13("trace", MI300X, "--against", H100, "--json").out)
    assert data["figures"]["device_kernels"] == {"before": 60, "after": 425}
    assert data["figures"]["verdict"] == {"before": "launch-bound", "after": "device-bound"}
    assert sum(row["count"] for row in data["kernels_added"]) == 425
    assert sum(row["count"] for row in data["kernels_removed"]) == 60


@real_traces
@pytest.mark.parametrize("path", [H100, MI300X, V100], ids=["H100", "MI300X", "V100"])
def test_real_traces_draw_and_export(path, tmp_path):
    picture = timeline_svg([telling_panel(read(path))])
    assert len(picture) < 400_000
    ET.fromstring(picture)
    timeline = read(path).trace.timeline
    exported = tmp_path / "again.json"
    exported.write_text(chrome_trace(timeline), encoding="utf-8")
    assert read_trace(exported).timeline == timeline


# ---- the command


def test_figures_found_by_hand(s13, eager):
    data = json.loads(s13("trace", eager, "--json").out)
    # 20 launches of 5 µs, every 10 µs; each kernel of 3 µs starts 1 µs after its launch.
    assert (data["device_kernels"], data["launch_calls"], data["launch_median_us"], data["graph_launches"]) == (
        20,
        20,
        5,
        0,
    )
    assert (data["device_busy_us"], data["extent_us"], data["idle_us"]) == (60, 199, 139)
    assert data["device_busy_fraction"] == pytest.approx(60 / 199)
    assert (data["gaps"], data["gap_median_us"], data["queue_delay_us"], data["step_us"]) == (20, 7, 1, 199)
    assert (data["verdict"], data["would_help"]) == ("launch-bound", ["graph", "fusion"])
    gap = {"device": 0, "start_us": 9, "duration_us": 7, "reason": "launch", "host_operation": "cudaLaunchKernel"}
    assert data["longest_gaps"][0] == gap | {"ended_by": "k"}
    assert len(data["longest_gaps"]) == 10


def test_the_text_says_where_its_figures_come_from_and_names_the_host_operation(s13, graphed):
    out = s13("trace", graphed).out
    assert out.startswith("recorded (graphed.json)\n=======")
    assert re.search(r"^Graph launches   1 of 15 kernels: 8 µs of CPU → 60 µs of GPU$", out, re.M)
    assert re.search(r"^Launch calls     0$", out, re.M)
    assert re.search(r"^Verdict          device-bound: the device is busy 100\.0% of the time", out, re.M)
    assert re.search(r"^What would help  nothing: ", out, re.M)
    assert all(len(line) <= 120 for line in out.splitlines())


def test_what_changed(s13, eager, graphed):
    data = json.loads(s13("trace", graphed, "--against", eager, "--json").out)
    assert (data["source"], data["against"]) == ("recorded (graphed.json)", "recorded (eager.json)")
    assert data["kernels_added"] == [{"name": "fused", "count": 3}]
    assert data["kernels_removed"] == []
    assert data["kernels_changed"] == [{"name": "k", "before": 20, "after": 12}]
    assert data["figures"]["launch_calls"] == {"before": 20, "after": 0}
    assert data["figures"]["launch_median_us"] == {"before": 5, "after": None}
    assert data["figures"]["graph_launches"] == {"before": 0, "after": 1}
    assert data["figures"]["gaps"] == {"before": 20, "after": 0}
    assert data["figures"]["step_us"] == {"before": 199, "after": 80}
    out = s13("trace", graphed, "--against", eager).out
    assert "recorded (eager.json) → recorded (graphed.json)" in out
    assert re.search(r"^launch_calls +20 +0$", out, re.M)
    assert re.search(r"^step_us +199 µs +80 µs$", out, re.M)
    assert "20 → 12  k" in out
    assert "No figure changed." in s13("trace", eager, "--against", eager).out


def test_one_stream_alone(s13, write):
    events = [
        *launch_and_kernel(0, 1, stream=7),
        *launch_and_kernel(10, 2, stream=9),
        *launch_and_kernel(20, 3, stream=9),
    ]
    path = write(events)
    data = json.loads(s13("trace", path, "--stream", 9, "--json").out)
    assert (data["device_kernels"], data["launch_calls"]) == (2, 2)
    assert data["devices"][0]["streams"] == [{"name": "stream 9", "count": 2}]


def test_an_exported_timeline_is_judged_like_any_other(s13, tmp_path):
    exported = tmp_path / "step.json"
    s13("simulate", "--preset", "seed", "--chrome-trace", exported)
    data = json.loads(s13("trace", exported, "--json").out)
    assert data["source"] == "modelled (step.json)"
    assert (data["device_kernels"], data["launch_calls"], data["launch_median_us"]) == (288, 288, 6)
    assert data["step_us"] == pytest.approx(1731.1, abs=0.05)
    assert data["verdict"] == "launch-bound"
    assert re.search(r"^Where from       modelled: seed on the seed's law", s13("trace", exported).out, re.M)


def test_pictures_in_both_languages_and_of_two_traces(s13, eager, graphed, tmp_path):
    picture = tmp_path / "t.svg"
    assert s13("trace", eager, "--svg", picture).out.endswith(f"wrote {picture}\n")
    assert "The longest gap: 7 µs, the CPU is in cudaLaunchKernel" in picture.read_text(encoding="utf-8")
    s13("trace", graphed, "--against", eager, "--svg", picture, "--language", "zh")
    text = picture.read_text(encoding="utf-8")
    assert text.index("最长的一次空闲：7 µs") < text.index("一次 graph 启动：CPU 用时 8 µs")


def test_every_json_key_is_documented(s13, eager, graphed):
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = re.search(r"^### trace$(.*?)^### ", text, re.DOTALL | re.MULTILINE)[1]
    documented = set(re.findall(r"`([a-z0-9_]+)`", section))

    def keys(value):
        if isinstance(value, dict):
            yield from value
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from keys(inner)

    for arguments in ((eager,), (graphed,), (graphed, "--against", eager)):
        assert set(keys(json.loads(s13("trace", *arguments, "--json").out))) <= documented


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"no trace", "not a trace"),
        (bytes(range(256)), "not a trace"),
        (b'{"traceEvents": [{"ph": "X"}, {"ph"', "the trace is cut short (it ends in event 2)"),
        (b'{"traceEvents": []}', "the trace holds no events"),
        (b'{"traceEvents": [{"ph": "X"}]}', "none of its 1 events is a device's kernel or copy"),
        (b"[1, 2, 3]", "not a trace: none of the 3 values in its list is an event"),
        (b'{"histogram": {}}', "not a trace: its JSON has no traceEvents"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "the trace is cut short (its gzip ends early)"),
    ],
)
def test_bad_files_are_one_sentence(refuses, tmp_path, content, words):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    refuses(words, "trace", path)
    refuses(words, "trace", path, "--json")


def test_bad_arguments_are_one_sentence(refuses, eager, tmp_path):
    refuses("nowhere.json: no such file", "trace", "nowhere.json")
    refuses("is a directory: name a file", "trace", tmp_path)
    refuses("FILE is empty: name a file", "trace", "")
    refuses("--against is empty: name a file", "trace", eager, "--against", "")
    refuses("stream is 3: eager.json has stream 7.", "trace", eager, "--stream", 3)
    refuses("nowhere.json: no such file", "trace", eager, "--against", "nowhere.json")
    refuses("language: unknown name 'fr'", "trace", eager, "--svg", tmp_path / "x.svg", "--language", "fr")
    refuses("the following arguments are required: FILE", "trace")
    refuses("'many' is not a whole number", "trace", eager, "--stream", "many")
    assert not (tmp_path / "x.svg").exists()


def test_a_pipe_will_do(eager):
    program = f"cat {eager} | {sys.executable} -m s13lib trace /dev/stdin --json"
    done = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, check=True)
    assert json.loads(done.stdout)["device_kernels"] == 20


def test_it_needs_none_of_the_courses_packages(eager):
    program = (
        f"import sys; from s13lib.cli import main; main(['trace', {str(eager)!r}, '--json']);"
        "bad = {'torch', 'matplotlib', 'numba', 'ipywidgets'} & set(sys.modules); sys.exit(', '.join(bad) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_a_recording_says_what_it_was_recorded_on_and_when(s13):
    path = ROOT / "s13lib" / "data" / "recorded" / "softgpu-bard-stage15-graph.json.gz"
    out = " ".join(s13("trace", path).out.split())
    assert re.search(r"Where from recorded: softgpu-bard-stage15-graph, .*SoftGPU on .*, 20\d\d-\d\d-\d\d ", out)
    assert "Queue delay none: a kernel typically starts 0.637 µs before its launch call returns" in out
    data = json.loads(s13("trace", path, "--json").out)
    assert data["provenance"].endswith(data["date"])
    assert data["verdict"] == "device-bound"
