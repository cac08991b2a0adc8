"""The buckets widget: its read-outs are those of ``s13lib.buckets``, and its controls follow each other."""

import pytest

from s13lib.buckets import BucketLayout, MemoryModel, Traffic, best_layout, generate, pinned_mib, preset, row_cost
from s13lib.errors import InputError
from s13lib.widgets import buckets
from s13lib.widgets.buckets import CONTROLS, buckets_widget, follow, layout_of, render

START = {control.name: control.default for control in CONTROLS}


@pytest.fixture(scope="module")
def panel():
    return buckets_widget("en")


def test_the_start_has_the_seeds_figures():
    traffic, seed = generate("chat"), preset("seed")
    best = best_layout(traffic, 256, budget=300)
    rendered = render(START, "en")
    assert f"{row_cost(seed, traffic).padding_fraction:.1%}" == "15.4%"
    assert rendered.sentence.startswith("Of the rows that your 13 sizes compute, 15.4% are padding, and ")
    assert "they pin 871 rows with private pools and 256 with a shared one" in rendered.sentence
    need = MemoryModel().shared_mib(seed)
    assert f"With one shared pool they need {need:.0f} MiB, within the budget of 300 MiB" in rendered.sentence
    share = row_cost(best, traffic).padding_fraction
    assert f"the best {len(best)} sizes leave {share:.1%} of the rows" in rendered.sentence
    assert f"15.4% → {share:.1%}" in rendered.svg
    assert f"{pinned_mib(seed, 'private'):,.0f} → {pinned_mib(best, 'private'):,.0f} MiB" in rendered.svg
    assert "871 / 256" in rendered.table_html


def test_chinese_says_the_same():
    rendered = render({**START, "pool": "private"}, "zh")
    assert rendered.sentence.startswith("你的 13 个尺寸所计算的行里，补齐占 15.4%，占时间的 ")
    assert "占住 871 行，共享一个时占住 256 行" in rendered.sentence
    assert "每张 graph 一个内存池时需要 566 MiB，超出了预算 300 MiB" in rendered.sentence
    assert "模型推算：chat" in rendered.svg
    assert "of the" not in rendered.svg + rendered.table_html


@pytest.mark.parametrize("name", list(buckets.TRAFFICS))
@pytest.mark.parametrize("pool", ["shared", "private"])
@pytest.mark.parametrize("budget", [138.0, 250.0, 777.5])
def test_the_optimum_meets_the_budget_and_no_layout_of_an_engine_within_it_is_better(name, pool, budget):
    traffic = buckets.traffic_named(name)
    best = buckets.best_for_budget(name, pool, budget)
    assert pinned_mib(best, pool) <= budget
    padding = row_cost(best, traffic).padding_rows
    for rival in buckets.PRESETS:
        if pinned_mib(preset(rival), pool) <= budget:
            assert padding <= row_cost(preset(rival), traffic).padding_rows


def test_traffics():
    assert buckets.traffic_named("chat").counts.tolist() == generate("chat").counts.tolist()
    assert buckets.traffic_named("code").largest == 9
    full = buckets.traffic_named("chat-full")
    assert isinstance(full, Traffic)
    assert full.percentile(50) == 256


def test_a_layout_without_a_top_runs_eager_above_it():
    sentence = render({**START, "sizes": "8 32"}, "en").sentence
    cost = row_cost(BucketLayout([8, 32]), generate("chat"))
    assert cost.eager_steps > 0
    assert sentence.endswith(f"{cost.eager_steps:,} of {cost.steps:,} steps are above your largest size and run eager.")
    assert "eager" not in render(START, "en").sentence


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("1, 2,4", (1, 2, 4)), ("8 4 4 16", (4, 8, 16)), ("1，2、256；3", (1, 2, 3, 256)), (" 7 ", (7,))],
)
def test_the_text_box_takes_any_order_and_separator(text, sizes):
    assert layout_of(text).sizes == sizes


@pytest.mark.parametrize("text", ["", " , ", "0", "257", "-4", "3.5", "vier", "٣", "9" * 99, "1,,x"])
def test_the_text_box_refuses_what_is_no_size(text):
    with pytest.raises(InputError, match="1 to 256"):
        layout_of(text)


def test_presets_and_the_text_box_follow_each_other(panel):
    panel.set(layout="vllm")
    assert layout_of(panel.state["sizes"]) == preset("vllm")
    assert panel.controls["sizes"].value == panel.state["sizes"]
    panel.set(sizes=panel.state["sizes"] + ", 37")
    assert panel.state["layout"] == "own"
    panel.set(sizes="64 128, 256 32 16 8 4 2 1")
    assert panel.state["layout"] == "powers-of-two"
    assert follow(START, {"layout": "own"}) == {}
    assert follow(START, {"sizes": "what"}) == {"layout": "own"}
    panel.set(**START)
    assert panel.state == START


def test_a_user_adds_a_size_and_takes_the_best(panel):
    panel.set(**START)
    panel.controls["sizes"].value = "1, 2, oops"
    assert panel.rendered.svg == ""
    assert "oops" in panel.rendered.sentence
    panel.controls["sizes"].value = START["sizes"] + ", 28"
    assert "your 14 sizes" in panel.rendered.sentence
    panel.buttons["take"].click()
    assert layout_of(panel.state["sizes"]) == buckets.best_for_budget("chat", "shared", 300.0)
    panel.set(**START)


def test_the_optima_at_all_stops_are_ready(panel):
    before = buckets.best_for_budget.cache_info().misses
    for pool in ("shared", "private"):
        for budget in buckets.BUDGETS_MIB:
            panel.set(pool=pool, budget_mib=budget)
    panel.set(**START)
    assert buckets.best_for_budget.cache_info().misses == before
