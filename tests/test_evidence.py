"""The record of the benchmark suite, the pages made from it, and what they must not hide."""

import ast
import copy
import fnmatch
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.benchmarks import harness
from tools.benchmarks.harness import Contention, Reading
from tools.evidence import page as pages
from tools.evidence.claims import CLAIMS, GROUPS, LANGUAGES, claim, of_group
from tools.evidence.optimisations import EXPLANATIONS, OPTIMISATIONS
from tools.evidence.page import first_run_paragraph, measured_paragraph, page
from tools.evidence.record import Record, RecordError, merged, shown, write

ROOT = Path(__file__).resolve().parents[1]
RUN = {
    "date": "2026-01-31",
    "seconds": 4.2,
    "quick": False,
    "others_share": 0.01,
    "machine": {"system": "Linux x86_64", "processor": "Some CPU", "processors": 2, "python": "3.11.7"},
}


def record_of(**rows):
    """A record in which ``device__wake={...}`` is the row of ``device.wake``."""
    groups = {}
    for name, row in rows.items():
        key = name.replace("__", ".")
        groups.setdefault(key.partition(".")[0], {"run": copy.deepcopy(RUN), "rows": {}})["rows"][key] = row
    return {"groups": groups}


# ---- claims


def test_every_group_has_a_benchmark_and_every_claim_both_languages():
    benchmarks = {path.stem for path in (ROOT / "tools" / "benchmarks").glob("*.py")} - {"harness"}
    assert benchmarks == set(GROUPS)
    for each in CLAIMS.values():
        assert each.group in GROUPS
        assert each.text.en != each.text.zh
        assert re.search(r"[\u4e00-\u9fff]", each.text.zh), each.key
        assert not re.search(r"[\u4e00-\u9fff]", each.text.en), each.key


def test_no_two_claims_share_a_text_in_a_group():
    for group in GROUPS:
        texts = [each.text for each in of_group(group)]
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("unit", "aims", "ours", "peer", "ratio", "met"),
    [
        ("µs", {}, 10, 30, 3.0, None),
        ("µs", {"ratio_at_least": 3.0}, 10, 30, 3.0, True),
        ("µs", {"ratio_at_least": 3.1}, 10, 30, 3.0, False),
        ("tokens/s", {"ratio_at_least": 0.8}, 70, 100, 0.7, False),
        ("GB/s", {"ratio_at_least": 0.8}, 80, 100, 0.8, True),
        ("s", {"at_most": 0.2}, 0.2, 1.0, 5.0, True),
        ("s", {"at_most": 0.2}, 0.21, 1.0, 100 / 21, False),
    ],
)
def test_ratio_says_how_many_times_better_and_aims_are_judged(unit, aims, ours, peer, ratio, met):
    each = claim("device.x", "x", "某", unit, **aims)
    assert each.ratio(ours, peer) == pytest.approx(ratio)
    assert each.met(ours, peer) is met


def test_a_ratio_without_a_peer_does_not_meet_its_aim():
    assert claim("device.x", "x", "某", "µs", ratio_at_least=1.0).met(1.0, None) is False


# ---- the record


def test_the_committed_record_is_whole():
    record = Record.read()
    assert record.measured(), "docs/evidence.json holds no figures"
    unexplained = [
        each.claim.key for each in record.fell_short() if pages.reason(record, each, "en") == pages.UNEXPLAINED.en
    ]
    assert unexplained == [], "a missed aim needs a measurement that explains it, in tools/evidence/optimisations.py"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.clear(), "the record: 'groups' must be there"),
        (lambda d: d["groups"].update(nonsense={}), "no group 'nonsense'"),
        (lambda d: d["groups"]["device"]["run"].pop("date"), "device: run: 'date' must be there"),
        (lambda d: d["groups"]["device"]["run"].update(mood="good"), r"device: run: does not know \['mood'\]"),
        (lambda d: d["groups"]["device"]["run"]["machine"].pop("processor"), "device: machine: 'processor' must"),
        (lambda d: d["groups"]["device"]["rows"].update({"device.nonsense": {"ours": 1.0}}), "is no claim"),
        (lambda d: d["groups"]["device"]["rows"].update({"decode.padded": {"ours": 1.0}}), "is no claim"),
        (lambda d: d["groups"]["device"]["rows"]["device.wake"].clear(), "device.wake: must have either"),
        (
            lambda d: d["groups"]["device"]["rows"]["device.wake"].update(missing="both"),
            "device.wake: must have either",
        ),
        (lambda d: d["groups"]["device"]["rows"]["device.wake"].update(ours=float("nan")), "device.wake: ours is nan"),
        (lambda d: d["groups"]["device"]["rows"]["device.wake"].update(ours=True), "device.wake: ours is True"),
        (lambda d: d["groups"]["device"]["rows"]["device.wake"].update(typo=1.0), "device.wake: typo is 1.0"),
    ],
)
def test_a_record_that_is_not_as_it_must_be_is_refused(change, message, tmp_path):
    data = record_of(device__wake={"ours": 50.0})
    Record(data)
    change(data)
    with pytest.raises(RecordError, match=message):
        Record(data)
    with pytest.raises(RecordError):
        write(tmp_path / "evidence.json", data)
    assert not (tmp_path / "evidence.json").exists()


def test_measuring_one_group_keeps_the_others(tmp_path):
    path = tmp_path / "evidence.json"
    write(path, record_of(device__wake={"ours": 50.0}, decode__padded={"ours": 1.0}))
    new = record_of(device__wake={"ours": 60.0})["groups"]
    write(path, merged(path, new))
    record = Record.read(path)
    assert (record.figures["device.wake"].ours, record.figures["decode.padded"].ours) == (60.0, 1.0)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234.5, "µs", "1,234 µs"),
        (12.34, "µs", "12.3 µs"),
        (0.0365, "s", "36.5 ms"),
        (8, "", "8"),
        (0.18, "%", "0.18 %"),
    ],
)
def test_figures_are_shown_with_three_digits(value, unit, text):
    assert shown(value, unit) == text


# ---- pages


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_names_every_claim_that_has_no_figures(language):
    data = record_of(device__wake={"ours": 50.0}, device__idle={"missing": "the clock stood still"})
    text = page(Record(data), language)
    for group in GROUPS:
        if group != "device" and list(of_group(group)):
            assert f"`{group}.*` ({len(list(of_group(group)))})" in text
    for each in of_group("device"):
        assert (f"`{each.key}`" in text) is (each.key != "device.wake")
    assert "the clock stood still" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_shows_every_claim_and_every_aim(language):
    lines = page(Record({"groups": {}}), language).splitlines()
    for each in CLAIMS.values():
        (line,) = [line for line in lines if line.startswith(f"| {each.text(language)} |")]
        assert each.aim in line


@pytest.mark.parametrize(("language", "word"), [("en", "**missed**"), ("zh", "**未达到**")])
def test_a_missed_aim_is_marked_and_explained_or_said_to_be_unexplained(monkeypatch, language, word):
    data = record_of(llama_cpp__q8_0__rate={"ours": 70.0, "peer": 100.0}, device__wake={"ours": 51.0})
    monkeypatch.setattr(pages, "EXPLANATIONS", {})
    text = page(Record(data), language)
    assert text.count(word) == 1
    assert pages.UNEXPLAINED(language) in text
    data["groups"]["llama_cpp"]["run"]["others_share"] = 0.4
    assert "40%" in page(Record(data), language).partition(pages.TITLES["short"](language))[2]
    reason = pages.Words("since waking takes {device.wake:ours}.", "因为唤醒要 {device.wake:ours}。")
    monkeypatch.setattr(pages, "EXPLANATIONS", {"llama_cpp.*.rate": reason})
    text = page(Record(data), language)
    assert reason(language).replace("{device.wake:ours}", "51 µs") in text
    assert pages.UNEXPLAINED(language) not in text


@pytest.mark.parametrize(
    ("share", "en", "zh"),
    [(0.01, "1%: quiet", "1%，安静"), (0.4, "40%: **contended**", "40%，**有争用**"), (None, "not known", "不详")],
)
def test_a_page_says_how_contended_the_machine_was(share, en, zh):
    data = record_of(device__wake={"ours": 50.0})
    data["groups"]["device"]["run"]["others_share"] = share
    for language, words in (("en", en), ("zh", zh)):
        (line,) = [
            line for line in page(Record(data), language).splitlines() if "`python3 run.py bench device` |" in line
        ]
        assert f"| {words} |" in line
        assert "2026-01-31" in line


def test_a_quick_run_says_so():
    data = record_of(device__wake={"ours": 50.0})
    data["groups"]["device"]["run"]["quick"] = True
    assert "few repeats" in page(Record(data), "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_changed_figure_changes_the_page_and_the_readmes_paragraph(language):
    rows = {
        "decode__bard__stage_15_eager": {"ours": 1000.0, "peer": 8000.0},
        "decode__bard__stage_4_graph": {"ours": 200.0, "peer": 8000.0},
        "decode__bard__both": {"ours": 200.0, "peer": 1000.0},
    }
    before = Record(record_of(**rows))
    rows["decode__bard__both"] = {"ours": 200.0, "peer": 1004.0}
    after = Record(record_of(**rows))
    assert "5.00×" in measured_paragraph(before, language)
    assert "5.02×" in measured_paragraph(after, language)
    assert "llama.cpp" not in measured_paragraph(after, language)  # was not measured
    assert page(before, language) != page(after, language)


@pytest.mark.parametrize(
    ("language", "minutes"), [("en", "about 3 min, measured on 2 cores"), ("zh", "约 3 分钟，2 核上实测")]
)
def test_a_readme_says_how_long_the_first_commands_take_only_where_it_was_measured(language, minutes):
    assert "{" not in first_run_paragraph(Record({"groups": {}}), language)
    assert minutes not in first_run_paragraph(Record({"groups": {}}), language)
    text = first_run_paragraph(
        Record(record_of(clone__demo={"ours": 170.0}, clone__test={"missing": "not now"})), language
    )
    assert text.count(minutes) == 1


def test_the_check_names_the_pages_that_a_changed_record_makes_stale(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "tools" / "build_docs.py")
    build_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_docs)
    rows = {name.replace(".", "__"): {"ours": 123.0, "peer": 456.0} for name in CLAIMS if name.startswith("decode.")}
    changed = Record(record_of(**rows))
    monkeypatch.setattr(build_docs.Record, "read", classmethod(lambda cls: changed))
    assert build_docs.main(["--check"]) == 1
    stale = {
        f"stale: {Path(name)}" for name in ("README.md", "README.zh.md", "docs/evidence.md", "docs/evidence.zh.md")
    }
    assert set(capsys.readouterr().out.splitlines()) == stale


@pytest.mark.parametrize("each", OPTIMISATIONS, ids=lambda each: each.name.en)
def test_an_optimisation_names_tests_that_exist_and_figures_that_are_claimed(each):
    assert each.tests
    for test in each.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)], test
    for words in (each.loses, each.trap):
        for text in words:
            Record({"groups": {}}).fill(text)  # raises for a key that is no claim
        assert re.findall(r"\{[^}]*\}", words.en) == re.findall(r"\{[^}]*\}", words.zh)


def test_explanations_belong_to_claims_with_an_aim():
    for pattern, words in EXPLANATIONS.items():
        assert any(fnmatch.fnmatchcase(each.key, pattern) and each.aim for each in CLAIMS.values()), pattern
        for text in words:
            Record({"groups": {}}).fill(text)


# ---- measuring


def test_the_quietest_repeat_counts_and_the_spread_is_the_medians():
    reading = Reading.quietest([12.0, 10.0, 11.0])
    assert (reading.value, reading.spread) == (10.0, pytest.approx(0.1))
    assert Reading.quietest([4.0]) == Reading(4.0, None)
    assert Reading(0.5, 0.1).rate(10) == Reading(20.0, 0.1)
    assert Reading(0.5, 0.1).times(1000) == Reading(500.0, 0.1)


def test_contention_is_what_others_held(monkeypatch):
    machine, own = iter([(100.0, 200.0), (106.0, 210.0)]), iter([50.0, 52.0])
    monkeypatch.setattr(harness, "_busy_and_all", lambda: next(machine))
    monkeypatch.setattr(harness, "_own_seconds", lambda: next(own))
    with Contention() as others:
        pass
    assert others.share == pytest.approx(0.4)  # 6 s busy of 10 s, 2 of them our own
    monkeypatch.setattr(harness, "_busy_and_all", lambda: None)
    monkeypatch.setattr(harness, "_own_seconds", lambda: 0.0)
    with Contention() as others:
        pass
    assert others.share is None


def bench(*arguments):
    return subprocess.run([sys.executable, "tools/bench.py", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_an_unknown_group_is_one_sentence():
    done = bench("devices")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no benchmark group 'devices': choose from foundation, device,")


def test_a_run_writes_a_record_with_all_figures_of_the_group(tmp_path):
    pytest.importorskip("torch")
    done = bench("foundation", "--quick", "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    record = Record(json.loads((tmp_path / "figures.json").read_text(encoding="utf-8")))
    assert all(each.ours > 0 for each in record.of_group("foundation"))
    assert record.runs["foundation"].quick is True
    assert "Simulator, optimiser, command line" in done.stdout


def test_a_benchmark_that_fails_is_told_and_its_claims_say_so(monkeypatch, capsys, tmp_path):
    spec = importlib.util.spec_from_file_location("bench", ROOT / "tools" / "bench.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    monkeypatch.setattr(bench.subprocess, "run", lambda *args, **options: None)  # the worker writes nothing
    path = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["bench.py", "foundation", "--json", str(path)])
    assert bench.main() == 1
    assert capsys.readouterr().err.startswith("error: the benchmark failed: foundation ")
    figures = Record(json.loads(path.read_text(encoding="utf-8"))).of_group("foundation")
    assert {each.missing for each in figures} == {"the benchmark failed"}


def test_a_process_is_timed_and_says_its_own_peak():
    pytest.importorskip("torch")
    from tools.benchmarks.waiting import timed

    small, large = timed("pass"), timed("x = bytearray(200 * 2**20)")
    assert 0 <= small[0] < large[0]
    if sys.platform == "linux":
        assert large[1] - small[1] == pytest.approx(200, abs=5)
