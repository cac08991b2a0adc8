"""What commands write: files whole or not at all, devices and links left what they are, JSON in plain ASCII."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEED = ("simulate", "--preset", "seed")


def process(*arguments, **options):
    command = [sys.executable, "-m", "s13lib", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, **options)


@pytest.mark.skipif(os.name != "posix", reason="devices and links as on POSIX")
def test_a_device_is_written_to_and_stays_a_device(tmp_path, s13):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE, text=True)
    assert s13(*SEED, "--svg", fifo).code == 0
    assert reader.communicate(timeout=20)[0].startswith("<svg")
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="devices and links as on POSIX")
def test_a_link_is_followed(tmp_path, s13):
    real, link = tmp_path / "real.svg", tmp_path / "link.svg"
    real.write_text("old")
    link.symlink_to(real)
    assert s13(*SEED, "--svg", link).code == 0
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8").startswith("<svg")


def test_two_outputs_need_two_names(refuses, tmp_path):
    same = tmp_path / "same"
    refuses("--chrome-trace and --svg: name two different files", *SEED, "--chrome-trace", same, "--svg", same)
    refuses("--svg is empty: name a file", *SEED, "--svg", "")
    refuses("cannot be written", *SEED, "--svg", tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_when_the_other_cannot_be_written(refuses, tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text("before")
    refuses("--svg", *SEED, "--chrome-trace", kept, "--svg", tmp_path / "missing" / "x.svg")
    assert kept.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.json"]


def test_json_is_ascii_on_any_console():
    for encoding in ("ascii", "cp1252", "utf-8"):
        result = process(*SEED, "--json", env={**os.environ, "PYTHONIOENCODING": encoding})
        assert result.stdout.isascii()
        assert "µs" in json.loads(result.stdout)["constants"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_behind_standard_output_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "s13lib", *SEED],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert result.returncode == 2
    assert result.stderr == "error: standard output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("is not a whole number (of at most 18 digits)", ("simulate", "--batch", "1" * 400)),
        ("'1_000' is not a whole number", ("simulate", "--batch", "1_000")),
        ("'٣' is not a whole number", ("simulate", "--batch", "٣")),
        ("'1e400' is not a finite number", ("simulate", "--launch-us", "1e400")),
        ("batch is 999999999: must be a whole number from 1 to 1,000,000", ("simulate", "--batch", "999999999")),
        ("batch is 9999999: must be", ("sweep", "--batches", "9999999")),
        ("model layers is 1000000000: must be a whole number from 1 to 1,000", ("simulate", "--layers", "1000000000")),
        ("launch_us is 1e+308: must be from 0 to 1,000,000", ("sweep", "--launch-us", "1e308", "--json")),
        ("prefill is 0: must be", ("simulate", "--prefill", "0")),
        ("--prefill and --batch: a prefill has neither", ("simulate", "--prefill", "8", "--batch", "2")),
        ("max_batch is 1000000000: must be", ("buckets", "--max-batch", "1000000000")),
        ("multiple_of is 1000000000: must be", ("buckets", "--multiple-of", "1000000000")),
        ("graph_mib is 1e+308", ("buckets", "--graph-mib", "1e308", "--json")),
        ("must be ('layers',) with the seed's law", ("simulate", "--preset", "seed", "--parts", "embedding")),
        ("--language: unknown name 'fr'", ("simulate", "--language", "fr")),
    ],
)
def test_numbers_that_no_machine_has(refuses, words, arguments):
    refuses(words, *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "is not JSON"),
        ("{" + " " * 200_000 + "}", "is longer than 100,000 characters"),
        ('{"gpu": {"name": "x", "bandwidth_tb_s": 1, "peak_tflop_s": 1}, "gpu": {}}', "'gpu' is given twice"),
        ('{"gpu": {"name": "x", "bandwidth_tb_s": Infinity, "peak_tflop_s": 1}}', "gpu bandwidth_tb_s is inf: must be"),
        ('{"gpu": {"name": "x", "bandwidth_tb_s": 1e-320, "peak_tflop_s": 1}}', "must be from 0.000001 to 1,000,000"),
        ('{"gpu": {"name": "\\ud800", "bandwidth_tb_s": 1, "peak_tflop_s": 1}}', "must be printable text"),
        ('{"gpu": {"name": "x", "bandwidth_tb_s": 1' + "0" * 400 + ', "peak_tflop_s": 1}}', "gpu bandwidth_tb_s is"),
        ('{"model": {"layers": 3.0}}', "layers is 3.0: must be a whole number"),
    ],
)
def test_hostile_config(refuses, text, words, tmp_path):
    config = tmp_path / "c.json"
    config.write_text(text)
    refuses(words, "simulate", "--config", config)


def test_config_and_name_exclude_each_other(refuses, tmp_path):
    config = tmp_path / "c.json"
    config.write_text('\ufeff{"gpu": {"name": "x", "bandwidth_tb_s": 1, "peak_tflop_s": 1}}', encoding="utf-8")
    refuses("--gpu and --config: both name a gpu", "simulate", "--config", config, "--gpu", "h100")
