"""The simulator shows what the library computes, starts as the lesson's does, and ticks its two tasks off."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from s13lib.errors import InputError
from s13lib.figures import svg
from s13lib.figures.step import waits
from s13lib.simulator import GPUS, MODELS, PRESETS, STAGES, LaunchCosts, Setup, crossover, simulate
from s13lib.widgets import simulator_widget
from s13lib.widgets.simulator import CONTROLS, START, TASKS, render, setup_of

NS = "{http://www.w3.org/2000/svg}"


def texts(picture):
    return [t.text for t in ET.fromstring(picture).iter(f"{NS}text")]


def spans(picture, fill):
    """Hover titles of the timeline's boxes in one colour (the bars below have no arrow in theirs)."""
    titles = (r.findtext(f"{NS}title") for r in ET.fromstring(picture).iter(f"{NS}rect") if r.get("fill") == fill)
    return [t for t in titles if t and "→" in t]


def bars(picture):
    """Label → (drawn width, hover) of the bars that say where the time goes."""
    found = {}
    for rect in ET.fromstring(picture).iter(f"{NS}rect"):
        title = rect.findtext(f"{NS}title")
        if title and rect.get("height") == "16":
            label, shown = title.split(": ")
            found[label] = (float(rect.get("width")), shown)
    return found


def test_starts_with_the_numbers_of_the_seed():
    panel = simulator_widget("en")
    assert panel.state == START
    assert setup_of(panel.state) == replace(PRESETS["seed"], costs=LaunchCosts(6.0))
    shown = texts(panel.rendered.svg)
    for name, value in (
        ("kernels a step", "288"),
        ("time of a step", "1.73 ms"),
        ("bottleneck", "CPU launches"),
        ("speed-up", "1.00×"),
    ):
        assert shown[shown.index(name) + 1] == value
    assert "the first 18 of 288 kernels are drawn" in panel.rendered.svg
    drawn = bars(panel.rendered.svg)
    assert drawn["CPU launches"][1] == "1.73 ms"
    assert drawn["GPU kernels"][1] == "0.89 ms"
    assert drawn["GPU utilisation"][1] == "52%"
    assert drawn["GPU kernels"][0] / drawn["CPU launches"][0] == pytest.approx(892.8 / 1728, abs=0.001)
    assert len(spans(panel.rendered.svg, svg.BLUE)) == 18
    assert len(spans(panel.rendered.svg, svg.ORANGE)) == 18
    assert "288 launches take 1.73 ms, the 288 kernels only 0.89 ms, so the GPU is busy 52%" in panel.rendered.sentence


STATES = [
    {},
    {"layers": 1},
    {"layers": 80, "stage": 15},
    {"launch_us": 0.1},
    {"launch_us": 100.0},
    {"batch": 29},
    {"batch": 30},
    {"batch": 1024},
    {"stage": 4, "fusion": True},
    {"graph": True},
    {"stage": 4, "fusion": True, "graph": True},
    {"model": "smollm2-360m", "context": 1},
    {"model": "smollm2-360m", "context": 131072, "batch": 128},
    {"model": "llama-3-8b", "gpu": "l4", "graph": True, "stage": 7, "fusion": True},
    {"model": "bard", "gpu": "b200"},
]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("changes", STATES, ids=str)
def test_read_outs_and_picture_are_the_simulators(language, changes):
    state = {**START, **changes}
    seed = state["model"] == "seed"
    shape = PRESETS["seed"].shape if seed else MODELS[state["model"]]
    setup = Setup(
        shape=replace(shape, layers=state["layers"]),
        device=PRESETS["seed"].device if seed else GPUS[state["gpu"]],
        batch=state["batch"],
        context=512 if seed else state["context"],
        stage=state["stage"],
        base_stage=9,
        graph=state["graph"],
        parts=("layers",),
        costs=LaunchCosts(launch_us=state["launch_us"]),
    )
    report = simulate(setup)
    shown = render(state, language)
    words = texts(shown.svg)
    bound = {"en": {"host": "CPU launches", "device": "GPU kernels"}, "zh": {"host": "CPU 启动", "device": "GPU 执行"}}
    assert words[1:8:2] == [
        f"{report.kernels_per_step:,}",
        f"{report.step_us / 1000:.2f} ms",
        bound[language][report.bottleneck],
        f"{report.speedup:.2f}×",
    ]
    drawn = list(bars(shown.svg).values())
    assert [text for _, text in drawn] == [
        f"{report.host_us / 1000:.2f} ms",
        f"{report.device_us / 1000:.2f} ms",
        f"{report.utilization:.0%}",
    ]
    longer = max(report.host_us, report.device_us)
    full = max(width for width, _ in drawn[:2])
    assert drawn[0][0] == pytest.approx(max(full * report.host_us / longer, 0.5), abs=0.02)
    assert drawn[1][0] == pytest.approx(max(full * report.device_us / longer, 0.5), abs=0.02)
    assert drawn[2][0] == pytest.approx(full * report.utilization, abs=0.02)
    first = report.timeline.first(18)
    assert [t.split(":")[0] for t in spans(shown.svg, svg.BLUE)] == [s.name for s in first.host]
    assert [t.split(":")[0] for t in spans(shown.svg, svg.ORANGE)] == [s.name for s in first.device]
    assert len(first.device) == min(18, report.kernels_per_step)
    for number in (f"{report.step_us / 1000:.2f} ms", f"{report.utilization:.0%}", f"{report.speedup:.2f}×"):
        assert number in shown.sentence
        assert f">{number}</td>" in shown.table_html
    if not seed:
        assert f">{report.bandwidth_share:.1%}</td>" in shown.table_html


def test_waits_after_the_first_kernel_are_the_timelines_gaps():
    for setup in (
        PRESETS["seed"],
        replace(PRESETS["seed"], batch=128),
        replace(PRESETS["smollm2-360m-h100"], batch=128),
    ):
        report = simulate(setup)
        gaps = [g.duration_us for g in report.timeline.gaps[1:] if g.duration_us > 1e-6]
        count, total = waits(report)
        assert count == len(gaps)
        assert total == pytest.approx(sum(gaps))
    assert waits(simulate(PRESETS["seed"]))[0] == 287
    assert waits(simulate(replace(PRESETS["seed"], batch=128)))[0] == 0


MOVED = [
    ("layers", "controls", 48),
    ("layers", "boxes", 7),
    ("launch_us", "boxes", 5.5),
    ("batch", "boxes", 30),
    ("context", "boxes", 3000),
    *(("stage", "controls", stage) for stage in STAGES if stage != 9),
    *(("model", "controls", name) for name in MODELS),
    *(("gpu", "controls", name) for name in GPUS if name != "h100"),
    ("fusion", "controls", True),
    ("graph", "controls", True),
]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("name", "part", "value"), MOVED)
def test_every_control_moves_the_picture_to_its_state(language, name, part, value):
    panel = simulator_widget(language)
    if name in ("context", "gpu"):
        panel.set(model="smollm2-360m")
    getattr(panel, part)[name].value = value
    assert panel.state[name] == value
    expected = render(panel.state, language)
    assert panel.rendered == expected
    assert panel.picture.value == expected.svg
    assert panel.numbers.value == expected.table_html


def test_fusion_switch_and_stage_agree_and_a_model_brings_its_layers():
    panel = simulator_widget("en")
    panel.controls["fusion"].value = True
    assert panel.state["stage"] == panel.controls["stage"].value == 4
    panel.controls["stage"].value = 7
    assert panel.state["fusion"] is True
    panel.controls["stage"].value = 15
    assert panel.state["fusion"] is panel.controls["fusion"].value is False
    panel.controls["stage"].value = 5
    panel.controls["fusion"].value = False
    assert panel.state["stage"] == 9
    panel.controls["model"].value = "smollm2-135m"
    assert panel.state["layers"] == panel.boxes["layers"].value == 30
    panel.set(model="llama-3.2-1b", layers=3)
    assert panel.state["layers"] == 3
    panel.controls["model"].value = "seed"
    assert panel.state["layers"] == 32


def test_the_seeds_law_knows_no_gpu_and_no_context():
    panel = simulator_widget("en")
    assert panel.controls["gpu"].disabled
    assert panel.controls["context"].disabled
    assert panel.boxes["context"].disabled
    panel.set(model="bard")
    assert not panel.controls["gpu"].disabled
    assert not panel.boxes["context"].disabled


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 0},
        {"layers": 81},
        {"launch_us": 0.0},
        {"batch": 0},
        {"batch": 1.5},
        {"context": 0},
        {"stage": 10},
        {"stage": True},
        {"model": "gpt-2"},
        {"gpu": "H100"},
        {"graph": "yes"},
        {"prefill": 3},
    ],
)
def test_bad_states_are_refused(changes):
    panel = simulator_widget("en")
    with pytest.raises(InputError, match=next(iter(changes))):
        panel.set(**changes)
    assert panel.state == START


def marks(panel):
    return [panel.note.value.count("☑"), panel.note.value.count("☐")]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_find_the_flip(language):
    panel = simulator_widget(language)
    assert marks(panel) == [0, 2]
    panel.controls["fusion"].value = True
    assert marks(panel) == [0, 2]
    assert "0.77 ms" in panel.note.value  # 128 launches × 6 µs: still the CPU
    panel.controls["graph"].value = True
    assert marks(panel) == [1, 1]
    fused = simulate(replace(PRESETS["seed"], stage=4))
    both = simulate(replace(PRESETS["seed"], stage=4, graph=True))
    assert (fused.bottleneck, both.bottleneck) == ("host", "device")
    assert f"{fused.speedup:.1f}×" in panel.note.value
    assert f"{both.speedup:.1f}×" in panel.note.value
    panel.controls["graph"].value = False  # what was found stays found
    assert marks(panel) == [1, 1]


def test_the_flip_is_not_found_without_looking_at_fusion_alone_or_at_another_batch():
    panel = simulator_widget("en")
    panel.set(stage=4, graph=True)
    assert marks(panel) == [0, 2]
    panel.set(graph=False, batch=2)
    panel.set(graph=True)
    assert marks(panel) == [0, 2]
    panel.set(graph=False, batch=1)
    panel.set(graph=True)
    assert marks(panel) == [1, 1]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_close_the_gaps_with_batch_alone(language):
    panel = simulator_widget(language)
    least = crossover(PRESETS["seed"])
    assert least == 30
    panel.boxes["batch"].value = least - 1
    assert marks(panel) == [0, 2]
    panel.boxes["batch"].value = 128
    assert marks(panel) == [1, 1]
    assert "4.55 ms" in panel.note.value
    assert f" {least}" in panel.note.value


def test_gaps_closed_by_a_switch_do_not_count():
    panel = simulator_widget("en")
    panel.set(graph=True, batch=128)
    assert marks(panel) == [0, 2]
    panel.set(graph=False, stage=4)
    assert marks(panel) == [0, 2]


def test_hints_where_the_settings_stand_in_the_way():
    panel = simulator_widget("en")
    panel.set(model="llama-3-8b")
    assert panel.note.value.count("the GPU is the bottleneck from the start") == 2
    panel.set(batch=128)
    assert marks(panel) == [0, 2]
    panel.set(model="bard", launch_us=100.0, context=1, batch=1)
    assert "no batch up to 4,096" in panel.note.value


def test_short_waits_that_stay_are_said():
    panel = simulator_widget("en")
    panel.set(model="smollm2-360m", batch=128)
    count, _ = waits(simulate(setup_of(panel.state)))
    assert count > 0
    assert f"{count} short waits stay" in panel.note.value


def test_start_again_forgets_everything():
    panel = simulator_widget("en")
    panel.set(model="llama-3-8b", batch=3, graph=True)
    panel.set(model="seed", batch=128, graph=False)
    assert marks(panel) == [1, 1]
    panel.buttons["again"].click()
    assert panel.state == START
    assert marks(panel) == [0, 2]


def test_both_languages_have_every_text():
    for task in TASKS:
        assert set(task.ask) == set(task.found) == {"en", "zh"}
    for control in CONTROLS:
        assert control.en
        assert control.zh
