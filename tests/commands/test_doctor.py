"""``s13 doctor`` finds each fault that it claims to find, and says what to do about it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from s13lib.commands import doctor
from s13lib.commands.doctor import Finding, admits, as_text, cannot_write, examine, package_finding

ROOT = Path(__file__).resolve().parents[2]


def by_check(findings):
    return {finding.check: finding for finding in findings}


@pytest.fixture(scope="module")
def healthy():
    pytest.importorskip("numba")
    return by_check(examine())


def test_this_environment_has_what_the_course_needs(healthy):
    for check in ("Python", "s13lib", "packages, base", "packages, course", "notebooks", "device", "model bard"):
        assert healthy[check].status == "ok", healthy[check]
    assert "a launch and a replay gave the right answer" in healthy["device"].value
    assert re.search(r"\d+ usable of \d+", healthy["processors"].value)
    assert re.search(r"a busy thread gets \d+% of a processor", healthy["contention"].value)
    assert {"kernel cache", "calibration", "browser", "browser tests", "CUDA"} <= set(healthy)


def test_whatever_is_wrong_comes_with_advice(healthy):
    for finding in healthy.values():
        assert finding.status in doctor.MARKS
        assert finding.status == "ok" or finding.advice, finding


def test_the_text_and_the_json_say_the_same(s13, monkeypatch):
    found = [Finding("a", "ok", "fine"), Finding("bb", "note", "odd", "look"), Finding("c", "fault", "broken", "mend")]
    monkeypatch.setattr(doctor, "examine", lambda: found)
    code, out, err = s13("doctor")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "ok     a   fine",
        "note   bb  odd",
        "           -> look.",
        "FAULT  c   broken",
        "           -> mend.",
        "",
        "To repair: c.",
    ]
    code, out, _ = s13("doctor", "--json")
    assert code == 1
    assert json.loads(out) == {
        "faults": 1,
        "notes": 1,
        "findings": [
            {"check": "a", "status": "ok", "value": "fine", "advice": ""},
            {"check": "bb", "status": "note", "value": "odd", "advice": "look"},
            {"check": "c", "status": "fault", "value": "broken", "advice": "mend"},
        ],
    }
    monkeypatch.setattr(doctor, "examine", lambda: found[:2])
    assert s13("doctor").code == 0
    assert as_text(found[:2]).endswith("\nNothing to repair.")


def test_every_json_key_and_check_is_documented():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for key in ("faults", "notes", "findings", "check", "status", "value", "advice"):
        assert f"`{key}`" in text


# ---- each fault


@pytest.mark.parametrize(
    ("specifier", "version", "good"),
    [
        (">=2.9,<3", "2.13.0+cpu", True),
        ("<3,>=2.9", "2.8.1", False),
        ("<3,>=2.9", "3.0", False),
        (">=2.9", "2.9", True),
        (">=2.9", "2.9.0", True),
        (">=2.9.0", "2.9", True),
        ("==0.17.5", "0.17.5", True),
        ("==0.17.5", "0.17.50", False),
        (">=6.150", "6.99", False),
        ("", "1.0", True),
    ],
)
def test_versions_are_compared_as_numbers(specifier, version, good):
    assert admits(specifier, version) is good


def test_missing_and_old_packages_are_told():
    finding = package_finding("course", ["numpy>=2.0", "surely-not-there>=1", "pytest>=10000"])
    assert finding.status == "fault"
    assert re.fullmatch(r"surely-not-there is missing, pytest [\d.]+ is not >=10000", finding.value)
    assert "run.py demo" in finding.advice
    finding = package_finding("real-model", ["surely-not-there>=1"])
    assert finding.status == "note"
    assert "SmolLM2" in finding.advice
    assert "'.[real-model]'" in finding.advice


def test_an_old_python_is_a_fault(monkeypatch):
    monkeypatch.setattr(doctor, "MINIMUM_PYTHON", (99, 0))
    assert doctor.check_python()[0].status == "fault"


@pytest.mark.parametrize(
    ("command", "status"),
    [("python", "ok"), (sys.executable, "ok"), (str(Path(sys.executable).with_name("python")), "ok")],
)
def test_a_kernel_of_this_environment_is_right(monkeypatch, command, status):
    kernel_is(monkeypatch, command)
    assert doctor.check_notebooks()[0].status == status


def test_a_kernel_of_another_python_is_a_fault(monkeypatch, tmp_path):
    kernel_is(monkeypatch, str(tmp_path / "python"))
    (finding,) = doctor.check_notebooks()
    assert finding.status == "fault"
    assert str(tmp_path) in finding.value
    assert "ipykernel install" in finding.advice


def kernel_is(monkeypatch, command):
    kernelspec = pytest.importorskip("jupyter_client.kernelspec")
    spec = kernelspec.KernelSpec(argv=[command, "-m", "ipykernel_launcher"])
    monkeypatch.setattr(kernelspec.KernelSpecManager, "get_kernel_spec", lambda self, name: spec)


def test_no_kernel_is_a_fault(monkeypatch):
    kernelspec = pytest.importorskip("jupyter_client.kernelspec")

    def none(self, name):
        raise kernelspec.NoSuchKernel(name)

    monkeypatch.setattr(kernelspec.KernelSpecManager, "get_kernel_spec", none)
    assert doctor.check_notebooks()[0].status == "fault"


def test_a_wrong_s13_device_is_a_fault(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setenv("S13_DEVICE", "softgqu")
    (finding,) = doctor.check_device()
    assert finding.status == "fault"
    assert "softgqu" in finding.value
    assert "S13_DEVICE" in finding.advice


def test_a_gpu_that_is_not_used_is_a_note_that_says_why(monkeypatch):
    torch, cuda = pytest.importorskip("torch"), pytest.importorskip("s13lib.device.cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA X")
    monkeypatch.setattr(cuda, "kernels_problem", lambda: None)
    assert doctor.cuda_finding("cuda").status == "ok"
    unused = doctor.cuda_finding("softgpu")
    assert (unused.status, unused.value) == ("note", "NVIDIA X, seen by torch and not used: S13_DEVICE")
    assert unused.advice == "unset S13_DEVICE to use it"
    monkeypatch.setattr(cuda, "kernels_problem", lambda: "the package triton is missing")
    unused = doctor.cuda_finding("softgpu")
    assert unused.value == "NVIDIA X, seen by torch and not used: the package triton is missing"
    assert "pip install '.[cuda]'" in unused.advice


def test_one_processor_and_contention_are_notes(monkeypatch):
    processors = pytest.importorskip("s13lib.device.processors")
    monkeypatch.setattr(processors, "usable_processors", lambda: 1)
    monkeypatch.setattr(processors, "processor_share", lambda threads, seconds: 0.45)
    found = by_check(doctor.check_processors())
    assert found["processors"].status == "note"
    assert found["processors"].value.startswith("1 usable of ")
    assert found["contention"].status == "note"
    assert found["contention"].value == "a busy thread gets 45% of a processor"
    monkeypatch.setattr(processors, "usable_processors", lambda: 2)
    monkeypatch.setattr(processors, "processor_share", lambda threads, seconds: 0.99)
    assert [finding.status for finding in doctor.check_processors()] == ["ok", "ok"]


def test_a_container_quota_is_told(monkeypatch):
    processors = pytest.importorskip("s13lib.device.processors")
    monkeypatch.setattr(processors, "quota", lambda root=None: 0.5)
    assert "(the container's quota is 0.5)" in by_check(doctor.check_processors())["processors"].value


def test_a_cache_that_cannot_be_written_is_a_fault(monkeypatch, tmp_path):
    cache = pytest.importorskip("s13lib.device.cache")
    missing = tmp_path / "gone"
    assert cannot_write(missing) == os.strerror(2)
    assert cannot_write(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(cache, "cache_folder", lambda: missing)
    found = by_check(doctor.check_caches())
    assert found["kernel cache"].status == "fault"
    assert "S13_CACHE_DIR" in found["kernel cache"].advice


def test_an_empty_cache_and_a_full_disk_are_notes(monkeypatch, tmp_path):
    cache = pytest.importorskip("s13lib.device.cache")
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    assert by_check(doctor.check_caches())["kernel cache"].status == "note"
    (tmp_path / "scale.nbc").write_bytes(b"x" * 2**20)
    found = by_check(doctor.check_caches())["kernel cache"]
    assert found.value == f"{tmp_path}, 1 compiled forms, 1.0 MiB"
    monkeypatch.setattr(doctor, "ENOUGH_DISK_GB", 1e9)
    found = by_check(doctor.check_caches())["kernel cache"]
    assert found.status == "note"
    assert "GB are free" in found.value


def test_no_browser_is_a_note_with_a_way_round(monkeypatch):
    def none():
        raise doctor.webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(doctor.webbrowser, "get", none)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = by_check(doctor.check_browser())
    assert found["browser"].status == "note"
    assert "--no-browser" in found["browser"].advice
    assert found["browser tests"].value == "no Chromium on PATH"


def test_a_check_that_breaks_is_a_fault_and_not_the_end(monkeypatch):
    def broken():
        raise RuntimeError("no such luck")

    monkeypatch.setattr(doctor, "CHECKS", {"first": broken, "second": lambda: [Finding("second", "ok", "fine")]})
    first, second = examine()
    assert first.status == "fault"
    assert "RuntimeError: no such luck" in first.value
    assert second.status == "ok"


def test_without_the_courses_packages_it_says_so_and_does_not_break():
    hide = (
        "import sys\n"
        "for name in ('torch', 'numba', 'llvmlite', 'safetensors', 'jupyterlab'):\n"
        "    sys.modules[name] = None  # not to be had\n"
        "from s13lib.cli import main\n"
        "sys.exit(main(['doctor', '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", hide], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 1
    found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["device"]["status"] == "fault"
    assert "run.py demo" in found["device"]["advice"]
    assert found["processors"]["value"] == "not checked: torch is missing"
    assert found["browser tests"]["status"] == "ok"
