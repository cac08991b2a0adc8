"""The ledger's numbers are the simulator's, and its picture groups operations as the stage does."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from s13lib.commands.fusion import stage_rows
from s13lib.errors import InputError
from s13lib.figures.ledger import kilobytes, ledger, ledger_sentence, ledger_svg, ledger_table, saved_share
from s13lib.simulator import MODELS, PRESETS, STAGES
from s13lib.simulator.stages import LAYER

NS = "{http://www.w3.org/2000/svg}"
SMOL = PRESETS["smollm2-360m-h100"]
LLAMA = replace(PRESETS["llama-3-8b-h200"], context=1024, parts=("layers",))


@pytest.mark.parametrize("setup", [SMOL, LLAMA, replace(SMOL, batch=64, context=7)])
def test_rows_are_those_of_s13_fusion(setup):
    for theirs in stage_rows(setup):
        ours = ledger(setup)[theirs["stage"]]
        assert [k.name for k in ours.kernels] == theirs["kernels"]
        assert len(ours.kernels) == theirs["kernels_per_layer"] == ours.stage
        assert ours.kernels_per_step == theirs["kernels_per_step"]
        assert len(ours.intermediates) == theirs["intermediates_per_layer"]
        for name in ("weight_bytes", "cache_bytes", "activation_bytes"):
            assert getattr(ours, name) == theirs[name]
        assert ours.step_us == pytest.approx(theirs["step_ms"] * 1000)
        assert ours.graph_step_us == pytest.approx(theirs["graph_step_ms"] * 1000)


def test_the_known_figures_of_llama_3_8b():
    rows = ledger(LLAMA)
    assert [round(r.activation_bytes / 1000) for r in rows.values()] == [377, 283, 266, 201, 152, 127]
    assert round(rows[4].weight_bytes / 1e6, 1) == 436.2
    assert f"{saved_share(LLAMA, 4):.2%}" == "0.06%"
    assert saved_share(LLAMA, 15) == 0


def test_the_stage_of_the_setup_does_not_change_the_ledger():
    assert ledger(replace(SMOL, stage=4, graph=True)) == ledger(SMOL)


def drawn(picture):
    """(kernel hover titles, result hover titles → class, widths of the bytes bars) of a picture."""
    root = ET.fromstring(picture)
    found = {"kernel": [], "moved": []}
    results = {}
    for rect in root.iter(f"{NS}rect"):
        kind = rect.get("class", "")
        if kind in found:
            found[kind].append((rect.findtext(f"{NS}title"), float(rect.get("y")), float(rect.get("height")), rect))
        elif kind.startswith("result"):
            results[rect.findtext(f"{NS}title").split(":")[0]] = kind.split()[1]
    return found["kernel"], results, found["moved"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_picture_groups_operations_and_marks_what_goes_through_memory(stage, language):
    setup = replace(SMOL, stage=stage)
    row = ledger(setup)[stage]
    kernels, results, moved = drawn(ledger_svg(setup, language))
    assert [title.split(": ")[1].split(",")[0] for title, *_ in kernels] == [k.name for k in row.kernels]
    assert [title.rsplit(", ", 1)[1] for title, *_ in kernels] == [kilobytes(k.activation_bytes) for k in row.kernels]
    for (_, y, height, _), kernel in zip(kernels, row.kernels, strict=True):
        assert height == 22 * len(kernel.operations) - 4
        assert y >= 26
    for (_, y, height, _), (_, below, *_) in pairwise(kernels):
        assert below == y + height + 4  # one under the other, none hides another
    assert sorted(name for name, state in results.items() if state == "memory") == sorted(row.intermediates)
    assert [name for name, state in results.items() if state == "cache"] == ["k_cache", "v_cache"]
    assert len(results) == sum(len(op.writes) for op in LAYER.values())
    widths = [float(rect.get("width")) for *_, rect in moved]
    share = [k.activation_bytes for k in row.kernels]
    assert [w / widths[0] for w in widths] == pytest.approx([b / share[0] for b in share], rel=0.01)


def test_an_operation_keeps_its_row_from_stage_to_stage():
    def row_of(stage):
        places, row = {}, ledger(SMOL)[stage]
        for (_, y, _, _), kernel in zip(drawn(ledger_svg(replace(SMOL, stage=stage)))[0], row.kernels, strict=True):
            places.update({name: y + 22 * at for at, name in enumerate(kernel.operations)})
        return places

    plain = row_of(15)
    for stage in STAGES:
        here = row_of(stage)
        if stage == 7:
            assert here.pop("add_2") == 26  # the add of the layer below, above this layer's first operation
        assert {name: plain[name] for name in here} == here


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("stage", STAGES)
def test_sentence_and_table_hold_the_numbers(language, stage):
    setup = replace(LLAMA, stage=stage)
    row = ledger(setup)[stage]
    sentence = ledger_sentence(setup, language)
    for number in (f"{row.kernels_per_step}", f"{len(row.intermediates)}", kilobytes(row.activation_bytes)):
        assert number in sentence
    if stage != 15:
        assert f"{saved_share(setup, stage):.2%}" in sentence
    root = ET.fromstring(ledger_table(setup, language))
    rows = [[cell.text for cell in line] for line in root.findall("tbody/tr")]
    assert len(rows) == len(STAGES)
    assert [line[0] for line in rows] == [f"▶ {s}" if s == stage else str(s) for s in STAGES]
    mine = rows[list(STAGES).index(stage)]
    assert mine[1:4] == [f"{row.kernels_per_step:,}", str(len(row.intermediates)), kilobytes(row.activation_bytes)]
    assert mine[5:] == [f"{row.step_us / 1000:.2f} ms", f"{row.graph_step_us / 1000:.2f} ms"]


def test_the_gain_is_traffic_only_where_it_is_large():
    large = replace(SMOL, shape=MODELS["bard"], batch=512, context=1, stage=4)
    assert saved_share(large, 4) > 0.05
    assert "memory traffic" in ledger_sentence(large)
    assert "memory traffic" not in ledger_sentence(replace(LLAMA, stage=4))
    assert "显存读写" in ledger_sentence(large, "zh")


def test_bad_pictures_are_refused():
    with pytest.raises(InputError, match="width"):
        ledger_svg(SMOL, width=300)
    with pytest.raises(InputError, match="language"):
        ledger_svg(SMOL, "fr")
