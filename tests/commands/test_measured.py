"""decode, padding and generate from the command line: keys, values that do not depend on time, and bad input."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("scratch", "skip", "stale", "naive")


def test_decode_eager(s13):
    data = json.loads(s13("decode", "--stage", 15, "--repeats", 3, "--json").out)
    assert (data["path"], data["bucket"], data["padding"]) == ("eager", None, None)
    assert data["launches"] == data["kernels"] == 15 * 32 + 3
    assert 0 < data["host_us"] <= data["step_us"] <= data["median_step_us"]
    assert 0 < data["device_busy_share"] <= 1
    assert data["violations"] is None


def test_decode_as_a_graph_pads_to_the_next_size(s13):
    data = json.loads(s13("decode", "--stage", 4, "--graph", "--batch", 3, "--audit", "--repeats", 3, "--json").out)
    assert (data["path"], data["bucket"], data["padding"]) == ("graph", 4, "scratch")
    assert (data["launches"], data["kernels"]) == (1, 4 * 32 + 3)
    assert data["violations"] == []
    out = s13("decode", "--stage", 4, "--graph", "--batch", 3, "--repeats", 3).out
    assert "one replay, padded to 4 rows (scratch)" in out
    assert "131 (4 a layer), 1 submissions by the host" in out


def test_decode_above_the_largest_size_is_eager(s13):
    data = json.loads(
        s13("decode", "--graph", "--batch", 257, "--context", 2, "--stage", 4, "--repeats", 1, "--json").out
    )
    assert (data["path"], data["bucket"]) == ("eager", None)


def test_the_audit_names_the_row_that_strays(s13):
    arguments = ("decode", "--graph", "--batch", 3, "--padding", "naive", "--audit", "--repeats", 1)
    violation = "padding row 3 (naive) writes to slot 0 of block 0, which belongs to request 0"
    assert json.loads(s13(*arguments, "--json").out)["violations"] == [violation]
    assert violation in s13(*arguments).out


def test_the_padding_table(s13):
    arguments = ("padding", "--requests", 24)
    data = json.loads(s13(*arguments, "--json").out)["policies"]
    assert tuple(data) == POLICIES
    for right in ("scratch", "skip"):
        assert data[right]["alarms"] == data[right]["steps_differing"] == data[right]["corrupted_slots"] == 0
    for wrong in ("stale", "naive"):
        assert data[wrong]["alarms"] > 0
        assert data[wrong]["corrupted_slots"] > 0
        assert f"({wrong}) writes to slot" in data[wrong]["first_alarm"]
    assert data["scratch"]["texts"] == data["skip"]["texts"]
    for row in data["naive"]["by_batch"]:  # only where rows are padded; what is corrupted stays so at other sizes
        assert (row["alarms"] > 0) == (row["n"] not in (1, 2, 4, 8, 16))
    out = s13(*arguments).out
    assert re.search(r"^ ?n +bucket +scratch +skip +stale +naive$", out, re.M)
    assert "scratch: no alarm; every row is bit for bit what it is alone." in out


def test_generate_continues_the_prompt_and_is_seeded(s13):
    arguments = ("generate", "--prompt", "JULIET.\n", "--tokens", 30, "--seed", 3)
    first = json.loads(s13(*arguments, "--json").out)
    assert len(first["tokens"]) == 30
    assert len(first["text"]) == 30
    assert json.loads(s13(*arguments, "--json").out)["text"] == first["text"]
    assert json.loads(s13(*arguments, "--stage", 15, "--json").out)["text"] == first["text"]
    out = s13(*arguments).out
    assert out.startswith("JULIET.\n" + first["text"])
    assert "Measured: bard, 4 kernels a layer, weights in f32, eager, on SoftGPU" in out


def test_generate_with_quantised_weights(s13):
    out = s13("generate", "--prompt", "JULIET.\n", "--tokens", 20, "--temperature", 0, "--weight-format", "q8_0").out
    assert out.startswith("JULIET.\nWhat shall I see the")
    assert "weights in q8_0, eager" in out


def test_every_json_key_is_documented(s13):
    documented = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from [key] if key not in POLICIES else []
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    commands = (
        ("decode", "--repeats", 1),
        ("decode", "--compare", "--repeats", 1),
        ("profile", "--repeats", 1),
        ("padding", "--requests", 3),
        ("generate", "--tokens", 2),
    )
    for command in commands:
        assert not set(keys(json.loads(s13(*command, "--json").out))) - documented, command


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("model: unknown name 'brad'; did you mean bard?", ("decode", "--model", "brad")),
        ("stage is 3: must be one of 15, 11, 9, 7, 5, 4", ("decode", "--stage", "3")),
        ("--batch is 0: must be a whole number from 1 to 1,024", ("decode", "--batch", "0")),
        ("--context is 9999: must be at most", ("decode", "--context", "9999")),
        ("padding: unknown name 'sratch'; did you mean scratch?", ("decode", "--graph", "--padding", "sratch")),
        ("--repeats is 0", ("decode", "--repeats", "0")),
        ("--policy: unknown name 'nave'; did you mean naive or stale?", ("padding", "--policy", "nave")),
        ("--requests is 0: must be 1 to 1000", ("padding", "--requests", "0")),
        ("weight_format is 'int8': must be one of f32, q8_0, q4_0", ("generate", "--weight-format", "int8")),
        ("model: unknown name 'gpt'", ("generate", "--model", "gpt")),
        ("is not in the model's vocabulary", ("generate", "--prompt", "日")),
        ("must be at least one token", ("generate", "--prompt", "")),
        ("tokens is 0", ("generate", "--tokens", "0")),
        ("temperature is -1.0", ("generate", "--temperature", "-1")),
        ("exceeds the model's", ("generate", "--tokens", "100000")),
    ],
)
def test_bad_input(refuses, words, arguments):
    refuses(words, *arguments)


def test_decode_compare(s13):
    rows = json.loads(s13("decode", "--compare", "--repeats", 3, "--json").out)["rows"]
    assert [(r["stage"], r["path"], r["launches"], r["kernels"]) for r in rows] == [
        (15, "eager", 483, 483), (15, "graph", 1, 483), (4, "eager", 131, 131), (4, "graph", 1, 131)
    ]  # fmt: skip
    assert rows[0]["speedup"] == 1.0
    assert rows[3]["speedup"] == pytest.approx(rows[0]["step_us"] / rows[3]["step_us"])


def test_profile_prints_the_measured_read_outs_and_writes_files(s13, tmp_path):
    trace, picture = tmp_path / "a.json", tmp_path / "a.svg"
    arguments = ("profile", "--repeats", 3, "--operators")
    data = json.loads(s13(*arguments, "--chrome-trace", trace, "--svg", picture, "--json").out)
    assert data["launches"] == data["kernels"] == 11 * 32 + 3
    assert data["host_us"] > 0
    assert data["bottleneck"] in ("host", "device")
    assert data["utilization"] == pytest.approx(data["device_us"] / data["step_us"])
    assert len(data["largest_gaps"]) == 5
    assert data["torch_operators"] > 1400
    assert "355 by the host, 355 kernels" in s13(*arguments).out
    assert len(picture.read_text(encoding="utf-8")) > 1000
    read = json.loads(s13("trace", trace, "--json").out)
    assert read["device_kernels"] == 355
    assert read["device_busy_us"] == pytest.approx(data["device_us"])
    assert read["idle_us"] == pytest.approx(data["gap_us"], abs=5)  # gaps of less than 0.01 µs do not count there
    assert read["step_us"] == pytest.approx(data["step_us"])
    opposite = {"host": "device-bound", "device": "launch-bound"}[data["bottleneck"]]
    assert read["verdict"] != opposite
    assert data["median_step_us"] >= data["unrecorded_step_us"]
    assert "contended" in data["device"] or "times mean nothing" in data["device"]
    graph = json.loads(s13("profile", "--repeats", 2, "--graph", "--json").out)
    assert (graph["launches"], graph["kernels"], graph["torch_operators"]) == (1, 355, None)


def test_calibrate_then_predict(s13, tmp_path, monkeypatch, refuses):
    monkeypatch.setenv("S13_CONFIG_DIR", str(tmp_path))
    refuses("no calibration is stored on this machine yet: run s13 calibrate first", "predict")
    out = s13("calibrate", "--name", "test", "--repeats", 2, "--seconds", 0).out
    assert "Stored as 'test'" in out
    assert re.search(r"^Launch +\d+\.\d\d µs \+ \d+\.\d\d µs an argument", out, re.M)
    arguments = (
        "predict",
        "--calibration",
        "test",
        "--batches",
        "1",
        "--stages",
        "15,4",
        "--repeats",
        2,
        "--seconds",
        0,
    )
    data = json.loads(s13(*arguments, "--json").out)
    assert [(c["batch"], c["stage"], c["path"]) for c in data["cells"]] == [
        (1, 15, "eager"), (1, 15, "graph"), (1, 4, "eager"), (1, 4, "graph")
    ]  # fmt: skip
    assert data["speed_drift"] > 0
    assert data["other_device"] is False
    low, high = data["cells"][0]["interval_low_us"], data["cells"][0]["interval_high_us"]
    assert low <= data["cells"][0]["predicted_us"] <= high
    documented = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))
    calibration = json.loads(s13("calibrate", "--name", "test", "--repeats", 2, "--seconds", 0, "--json").out)
    assert not (set(data) | set(data["cells"][0]) | set(calibration)) - documented
    refuses("calibration: unknown name 'tset'", "predict", "--calibration", "tset")
    refuses("--batches is 0", "predict", "--calibration", "test", "--batches", "0")
    refuses("--repeats is 1: must be 2 to 1000", "calibrate", "--repeats", "1")


def test_the_exported_profile_is_the_measured_timeline(s13, tmp_path, monkeypatch):
    from s13lib.commands import profile
    from s13lib.profiling import read_trace

    kept = []

    def measure_steps(*arguments, **options):
        kept.append(profile_steps(*arguments, **options))
        return kept[0]

    profile_steps = profile.measure_steps
    monkeypatch.setattr(profile, "measure_steps", measure_steps)
    s13("profile", "--stage", 4, "--graph", "--repeats", 2, "--chrome-trace", tmp_path / "q.json")
    read, timeline = read_trace(tmp_path / "q.json").timeline, kept[0]["step"].timeline
    assert (read.host, read.device, read.source) == (timeline.host, timeline.device, "measured")
    assert re.match(re.escape(timeline.provenance) + r", 20\d\d-\d\d-\d\d[,:] ", read.provenance)


def test_what_the_host_did_in_a_gap_is_named():
    from s13lib.commands.profile import host_work
    from s13lib.simulator import Span
    from s13lib.simulator.timeline import Gap

    host = tuple(Span(name, 10.0 * i, 8.0, i) for i, name in enumerate("abcd"))
    for gap, words in (
        ((1, 6), "launching a"),
        ((8.5, 1), "between launches"),
        ((5, 4.5), "launching a"),
        ((5, 30), "4 launches, from a to d"),
        ((39, 5), "nothing left to launch: waiting for the device"),
    ):
        assert host_work(host, Gap(*gap, "k")) == words
    replay = (Span("graph replay (3 nodes)", 0, 9, 0, "graph"),)
    assert host_work(replay, Gap(0, 12, "k")) == "replaying the graph"
    assert host_work(replay, Gap(12, 1, "k")) == "nothing left to launch: waiting for the device"


def known_cells():
    from s13lib.profiling.calibrate import Cell, OrderCheck
    from s13lib.profiling.calibration import Prediction
    from s13lib.profiling.measure import MeasuredStep
    from s13lib.simulator import Span, Timeline

    timeline = Timeline((Span("l", 0, 90, 0),), (Span("k", 0, 50, 0),), "measured", "made up")
    cell = Cell(1, 15, False, MeasuredStep(100, 90, 150, timeline), Prediction(110, 95, 50))
    return [cell], OrderCheck(100, 101, 70)


def test_what_predict_and_calibrate_say_about_the_machine():
    from dataclasses import replace

    from s13lib.commands import calibrate, predict
    from tests.profiling.test_calibration import KNOWN

    cells, order = known_cells()
    quiet = predict.Now("SoftGPU on X, 2 usable processors, not contended", False, False, 1.05)
    sentences = {
        "intervals are widened": replace(quiet, contended=True),
        "its reference step takes 1.50 times as long now": replace(quiet, drift=1.5),
        "The calibration is another device's": replace(quiet, other_device=True),
        "With one processor host and device take turns": replace(quiet, device="X, 1 usable processor: results"),
    }
    for words, now in sentences.items():
        assert words in predict.as_text(KNOWN, cells, order, now)
        assert words not in predict.as_text(KNOWN, cells, order, quiet)
    assert re.search(r"110 +99–121 +\+10\.0%", predict.as_text(KNOWN, cells, order, quiet))
    wide = replace(quiet, contended=True)
    assert re.search(r"110 +55–165 +\+10\.0%", predict.as_text(KNOWN, cells, order, wide))
    cell = predict.as_json(KNOWN, cells, order, wide)["cells"][0]
    assert (cell["interval_low_us"], cell["interval_high_us"]) == (pytest.approx(55), pytest.approx(165))

    assert "contended" not in calibrate.as_text(KNOWN)
    assert "calibrate again when it is quiet" in calibrate.as_text(replace(KNOWN, contended=True))
    alone = calibrate.as_text(replace(KNOWN, contended=True, device="SoftGPU on X, 1 usable processor: results"))
    assert "calibrating again will not help: give this process two" in alone
    assert "when it is quiet" not in alone


def test_calibrate_knows_before_it_measures_that_it_cannot_store(refuses, tmp_path, monkeypatch):
    from s13lib.commands import calibrate

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("S13_CONFIG_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(calibrate, "calibrate", lambda *arguments, **options: pytest.fail("measured"))
    refuses("cannot be written", "calibrate", "--repeats", 2, "--seconds", 0)


def test_a_picture_cannot_be_a_folder(refuses, tmp_path):
    refuses(" is a folder: name a file.\n", "profile", "--repeats", 1, "--svg", tmp_path)
