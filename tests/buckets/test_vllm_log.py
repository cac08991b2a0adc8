"""vLLM logs: prefixes, intervals, modes."""

import pytest

from s13lib.buckets import read_traffic
from s13lib.errors import InputError

PREFIX = "\x1b[0;36m(EngineCore_DP0 pid=77)\x1b[0;0m INFO 12-01 10:00:05 [cuda_graph.py:117] "
HEADER = "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |"
RULE = "|-----------------|---------------|--------------|--------------|-------|"


def log(*tables: list[tuple], prefix: str = PREFIX, between: str = "INFO: 200 OK") -> str:
    lines = ["INFO 12-01 09:59:59 [api_server.py:1] vLLM API server", "INFO | other | bars | are | in | logs | too"]
    for rows in tables:
        lines += [prefix + text for text in ("**CUDAGraph Stats:**", "", HEADER, RULE)]
        for row in rows:
            lines.append(prefix + "| " + " | ".join(str(cell).ljust(13) for cell in row) + " |")
        lines += [prefix, between]
    return "\n".join(lines)


FIRST = [(3, 4, 1, "FULL", 117), (4, 4, 0, "FULL", 20), (900, 900, 0, "NONE", 7), (5, 8, 3, "PIECEWISE", 1)]
SECOND = [(3, 4, 1, "FULL", 3), (0, 1, 1, "FULL", 50), (8, 8, 0, "FULL", 10)]


@pytest.fixture
def read(tmp_path):
    def read(text: str, **options: object):
        path = tmp_path / "server.log"
        path.write_bytes(text.encode(errors="surrogateescape"))
        return read_traffic(path, **options)

    return read


@pytest.mark.parametrize("prefix", ["", PREFIX, "2025-12-01 10:00:05 | INFO | vllm | engine | 12 | - | "])
def test_intervals_are_summed_behind_any_prefix(read, prefix):
    traffic = read(log(FIRST, SECOND, prefix=prefix))
    assert traffic.counts.tolist() == [0, 0, 0, 120, 20, 0, 0, 0, 10]
    assert traffic.origin == "recorded: server.log, vLLM rows of mode FULL"
    early, late = traffic.split()
    assert (early.steps, late.steps) == (137, 13)


def test_modes_are_chosen_explicitly(read):
    text = log(FIRST, SECOND)
    assert read(text, modes=("full", "PIECEWISE")).counts[5] == 1
    assert read(text, modes=["NONE"]).largest == 900
    assert read(text.replace("FULL", "CUDAGraphMode.FULL")).steps == 150


def test_a_line_of_another_process_inside_a_table(read):
    lines = log(FIRST, SECOND).split("\n")
    at = next(i for i, line in enumerate(lines) if " 117 " in line)
    assert read("\n".join([*lines[:at], "INFO: GET /health | 200", *lines[at:]])).steps == 150


def test_a_table_whose_head_was_cut_off_is_left_out(read):
    lines = log(FIRST, SECOND).split("\n")
    at = next(i for i, line in enumerate(lines) if " 117 " in line)
    assert read("\n".join(lines[at:])).counts.tolist() == [0, 0, 0, 3, 0, 0, 0, 0, 10]


@pytest.mark.parametrize(
    "before",
    [
        '{"level": "info", "message": "starting"}',
        '{"level": "info"',
        "{'model': 'x', 'port': 8000}",
        "{" * 3000,
        '{"a": 1, "a": 1}\n{"b": 1}',
        "{\udcff}",
    ],
)
def test_a_log_may_start_with_a_brace(read, before):
    assert read(before + "\n" + log(FIRST, SECOND)).steps == 150
    with pytest.raises(InputError, match=r"server\.log: (not valid JSON|line 1 is not text|the key 'a' is repeated)"):
        read(before + "\n no table\n")


def test_bytes_that_are_not_text_do_not_reject_a_log(read):
    lines = log(FIRST, SECOND).split("\n")
    at = next(i for i, line in enumerate(lines) if " 117 " in line)
    for rubbish in ("\udcff", "caf\udce9 | x", "\0\0"):
        for place in (0, at, len(lines)):
            assert read("\n".join([*lines[:place], rubbish, *lines[place:]])).steps == 150
    with pytest.raises(InputError, match=r"line 7: Count is '�17': must be a whole number"):
        read(log(FIRST).replace(" 117 ", " \udcff17 "))


def test_many_intervals_are_kept_as_256_stretches(read):
    traffic = read(log(*[[(1, 1, 0, "FULL", 1)]] * 300, *[[(2, 2, 0, "FULL", 1)]] * 300, prefix=""))
    assert traffic.counts.tolist() == [0, 300, 300]
    assert len(traffic.parts) == 256
    early, late = traffic.split()
    assert (early.counts.tolist(), late.counts.tolist()) == ([0, 300], [0, 0, 300])


@pytest.mark.parametrize(
    "head", ["| Unpadded Tokens | Runtime Mode | Count", "| Count | Unpadded Tokens | Runtime Mode |"]
)
def test_a_header_without_its_columns_is_no_table(read, head):
    with pytest.raises(InputError, match=r"not a request CSV"):
        read(f"{head}\n| 3 | FULL | 7 |\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "INFO starting\nINFO done\n",
            r"not a request CSV .* or a vLLM log with --cudagraph-metrics tables; it starts",
        ),
        (log(FIRST[2:]), r"no row of runtime mode FULL; those present are NONE, PIECEWISE\.$"),
        (log([]), r"no row of runtime mode FULL; its tables are empty\.$"),
        (log([(3, 4, 1, "FULL", "many")]), r"line 7: Count is 'many': must be a whole number"),
        (log([(3, 4, 1, "FULL", -2)]), r"line 7: Count is '-2': must be a whole number"),
        (log([("nan", 4, 1, "FULL", 2)]), r"line 7: Unpadded Tokens is 'nan': must be a whole number"),
        (log([(9999, 9999, 0, "FULL", 2)]), r"line 7: Unpadded Tokens is 9999: must be a whole number, 0 to 8192\.$"),
        (log([(3, 4, 1, "FULL", "9" * 5000)]), r"line 7: Count is '9+…9+': must be a whole number, 0 to 10\^12\.$"),
        (log([(3, 4, 1, "FULL", 10**12), (4, 4, 0, "FULL", 10**11)]), r"number of steps is 1100000000000: must be"),
        (
            log([(3, 4, 1, f"MODE{i}", 1) for i in range(999)]),
            r"no row of runtime mode FULL; those present are MODE0, ",
        ),
        (log([(3, 4, 1, "FULL", 0)]), r"the traffic is empty, not one decode step ran\.$"),
    ],
)
def test_bad_logs_are_told_in_one_sentence(read, text, message):
    with pytest.raises(InputError, match=rf"server\.log.*{message}") as error:
        read(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
