"""The corruption lab: what it shows is what the run recorded, the right designs are silent, and both bugs are seen."""

import pytest

from s13lib.graphs.audit import Violation
from s13lib.widgets.corruption import (
    ALL,
    WORDS,
    controls,
    corruption_widget,
    follow,
    marks_of,
    next_alarm,
    render,
    run_lab,
    streams_of,
    verdict,
)

BUGS, RIGHT = ("naive", "stale"), ("scratch", "skip")


@pytest.fixture(scope="module")
def lab():
    return run_lab()


def test_both_bugs_hurt_a_text_and_the_right_designs_none(lab):
    for policy in RIGHT:
        assert lab.made[policy] == lab.alone
        assert not any(r.violations or r.rows_differing for r in lab.results[policy].steps)
    for policy in BUGS:
        assert lab.made[policy] != lab.alone
        assert any(r.violations for r in lab.results[policy].steps)
    assert len({tuple(r.n for r in result.steps) for result in lab.results.values()}) == 1  # one schedule for all
    assert all(len(text) == len(alone) for text, alone in zip(lab.made["naive"], lab.alone, strict=True))


def test_the_bugs_show_at_some_batch_sizes_only(lab):
    for policy in BUGS:
        alarmed = {r.n for r in lab.results[policy].steps if r.violations}
        assert alarmed
        assert alarmed.isdisjoint({1, 2, 4, 8})  # a captured size needs no padding row


@pytest.mark.parametrize("policy", [*BUGS, *RIGHT])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_step_can_be_shown(lab, policy, language):
    for step in range(1, lab.steps + 1, 7):
        record = lab.results[policy].steps[step - 1]
        shown = render({"policy": policy, "n": ALL, "step": step}, language)
        assert shown.svg.startswith("<svg")
        assert shown.svg.count('class="block') == 26
        assert shown.svg.count('class="step"') == lab.steps
        assert shown.svg.count('class="struck"') == len({v.slot for v in record.violations})
        for row in record.detail.rows:
            assert f"{row.difference:.3g}" in shown.table_html
            assert row.request in shown.table_html


def test_the_sentence_at_the_first_alarm(lab):
    step = next_alarm(lab.results["naive"].steps, 0)
    record = lab.results["naive"].steps[step - 1]
    violation = record.violations[0]
    assert (violation.slot, violation.block) == (0, 0)  # zeros point at the first slot of the first block
    state = {"policy": "naive", "n": ALL, "step": step}
    assert render(state, "en").sentence == (
        f"Policy naive, step {step} of {lab.steps}: running requests: 3, in bucket 4, so 1 padding row. "
        f"The audit raises an alarm: padding row 3 writes to slot 0 of block 0, which belongs to {violation.owner}. "
        f"Rows with other logits than alone: 1 of 3, by up to {record.largest_difference:.2g}."
    )
    assert render(state, "zh").sentence == (
        f"策略 naive，共 {lab.steps} 步中的第 {step} 步：3 个请求，放进桶 4，补齐 1 行。审计报警：补齐的第 3 行写进了 "
        f"block 0 的 slot 0，而它属于 {violation.owner}。"
        f"3 行中有 1 行的 logits 与单独运行时不同，最大差别 {record.largest_difference:.2g}。"
    )
    quiet = render({**state, "policy": "scratch"}, "en").sentence
    assert quiet.endswith(
        "so 1 padding row. The audit is content: every row writes where it may. "
        "Every row's logits are bit for bit what it gets alone."
    )


def test_more_than_one_violation_and_a_real_row():
    hits = [Violation(3, 5, 0, "request 1", True, "stale"), Violation(2, 9, 0, "request 1", False, "stale")]
    assert verdict(WORDS["en"], hits) == (
        "The audit raises an alarm: padding row 3 writes to slot 5 of block 0, which belongs to request 1 "
        "(and 1 more in this step)."
    )
    assert verdict(WORDS["en"], hits[1:]) == (
        "The audit raises an alarm: row 2 writes to slot 9 of block 0, which belongs to request 1."
    )
    assert verdict(WORDS["zh"], hits[1:]) == "审计报警：第 2 行写进了 block 0 的 slot 9，而它属于 request 1。"


@pytest.mark.parametrize("policy", BUGS)
def test_a_hurt_text_is_shown_with_the_character_where_it_parts(lab, policy):
    hurt = next(i for i, (a, b) in enumerate(zip(lab.made[policy], lab.alone, strict=True)) if a != b)
    name = f"request {hurt}"
    last = max(at for at, r in enumerate(lab.results[policy].steps) if name in {row.request for row in r.detail.rows})
    stream = next(s for s in streams_of(lab, policy, last) if s.name == name)
    assert stream.said == lab.made[policy][hurt]
    assert stream.alone == lab.alone[hurt]
    assert stream.said[: stream.parts_at] == stream.alone[: stream.parts_at]
    shown = render({"policy": policy, "n": ALL, "step": last + 1}, "en")
    assert f"{name}: another text from character {stream.parts_at + 1} on" in shown.svg
    assert f"differs from character {stream.parts_at + 1}" in shown.table_html


def test_at_the_first_step_texts_are_short_and_no_request_from_the_future_is_shown(lab):
    streams = streams_of(lab, "naive", 0)
    assert [s.name for s in streams] == [row.request for row in lab.results["naive"].steps[0].detail.rows]
    assert all(len(s.said) == 2 for s in streams)  # one token from the prefill, one from the first decode step


def test_the_filter_lets_the_slider_halt_at_steps_of_its_size_only(lab):
    steps = lab.results["naive"].steps
    fits = [at for at, r in enumerate(steps, start=1) if r.n == 5]
    state = {"policy": "naive", "n": 5, "step": fits[0]}
    assert follow(state, {"step": fits[0] + 1}) == {"step": fits[1]}
    assert follow({**state, "step": fits[-1]}, {"step": fits[-1] - 1}) == {"step": fits[-2]}
    assert follow(state, {"step": lab.steps}) == {"step": fits[-1]}
    assert follow({**state, "step": fits[0]}, {"step": 1}) == {"step": fits[0]}
    assert follow({**state, "n": ALL}, {"step": 1}) == {}
    nearest = follow({"policy": "naive", "n": ALL, "step": 1}, {"n": 5})["step"]
    assert nearest == min(fits, key=lambda at: abs(at - 1))
    _, chosen = marks_of(lab.results["naive"], 5)
    assert [at + 1 for at in chosen] == fits
    assert marks_of(lab.results["naive"], ALL)[1] is None


def test_next_alarm_goes_round_and_stays_where_there_is_none(lab):
    steps = lab.results["stale"].steps
    alarms = [at for at, r in enumerate(steps, start=1) if r.violations]
    assert next_alarm(steps, 0) == alarms[0]
    assert next_alarm(steps, alarms[0]) == alarms[1]
    assert next_alarm(steps, alarms[-1]) == alarms[0]
    assert next_alarm(steps, 0, n=8) == 1
    assert next_alarm(lab.results["scratch"].steps, 30) == 30


def test_the_panel_moves(lab):
    panel = corruption_widget("en")
    assert panel.state == {c.name: c.default for c in controls(lab)}
    assert "The audit raises an alarm" in panel.rendered.sentence
    panel.controls["policy"].value = "skip"
    assert "The audit is content" in panel.rendered.sentence
    panel.set(policy="stale", step=1)
    panel.buttons["alarm"].click()
    assert panel.state["step"] == next_alarm(lab.results["stale"].steps, 1)
    panel.controls["n"].value = 8
    assert lab.results["stale"].steps[panel.state["step"] - 1].n == 8
    assert "running requests: 8, in bucket 8, no padding row" in panel.rendered.sentence
    assert "image/svg+xml" in panel._repr_mimebundle_()
