"""run.py with a fake pip: what it says, when it installs, what it passes on. Nothing here needs the network."""

from __future__ import annotations

import ast
import errno
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).resolve().parent.parent / "run.py"

FAKE_PIP = """
import pathlib, sys
with pathlib.Path("pip-calls").open("a") as calls:
    calls.write("called\\n")
print({words!r})
sys.exit({code})
"""
NO_NETWORK = (
    "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)': /simple/torch/\n"
    "ERROR: No matching distribution found for torch==2.13.0"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """run.py in a small project of its own, whose `demo` exits with the code that it is given."""
    shutil.copy(RUN, tmp_path)
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "s13lib").mkdir()
    (tmp_path / "s13lib/__main__.py").write_text("import sys; print('demo', *sys.argv[1:]); sys.exit(int(sys.argv[1]))")
    spec = importlib.util.spec_from_file_location("run_under_test", tmp_path / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "MAKE_VENV", [sys.executable, "-m", "venv", "--without-pip", str(module.VENV)])
    monkeypatch.setitem(module.TASKS, "demo", module.Task("one step", ("-m s13lib",)))
    fake_pip(module)
    return module


def fake_pip(run: ModuleType, words: str = "Installing collected packages: torch", code: int = 0) -> None:
    path = run.ROOT / "fake_pip.py"
    path.write_text(FAKE_PIP.format(words=words, code=code))
    run.PIP_INSTALL = [sys.executable, str(path)]


def pip_calls(run: ModuleType) -> int:
    calls = run.ROOT / "pip-calls"
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What stderr says, which must be one line from run.py."""
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("run.py: ")
    assert errors[0].endswith(".")
    return errors[0]


# ---- before anything is installed


def test_an_old_python_can_read_the_file() -> None:
    ast.parse(RUN.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_an_old_python_is_told(run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(run.sys, "version_info", (3, 10, 13, "final", 0))
    assert run.main(["demo"]) == 2
    assert "needs Python 3.11 or newer; this is 3.10.13" in one_sentence(capsys)


def test_an_unknown_task_lists_the_tasks(run: ModuleType, capsys) -> None:
    assert run.main(["dmeo"]) == 2
    sentence = one_sentence(capsys)
    assert "'dmeo'" in sentence
    assert all(task in sentence for task in run.TASKS)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_tasks_and_installs_nothing(run: ModuleType, capsys, arguments: list[str]) -> None:
    assert run.main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown and task.summary in shown for name, task in run.TASKS.items())
    assert not run.VENV.exists()


def test_a_missing_venv_module_is_told(run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find_spec(name))
    assert run.main(["demo", "0"]) == 2
    assert "python3-venv" in one_sentence(capsys)
    assert not run.VENV.exists()


def test_a_full_disk_is_told_before_anything_is_written(run: ModuleType, monkeypatch, capsys) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(run.shutil, "disk_usage", lambda path: usage(100e9, 98.5e9, 1.5e9))
    assert run.main(["demo", "0"]) == 2
    assert f"1.5 GB free, at least {run.NEEDED_GB} GB" in one_sentence(capsys)
    assert not run.VENV.exists()


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_is_told(run: ModuleType, monkeypatch, capsys, error: int) -> None:
    def refuse(path: Path, *rest: object) -> None:
        raise OSError(error, os.strerror(error), str(path))

    monkeypatch.setattr(run.Path, "mkdir", refuse)
    assert run.main(["demo", "0"]) == 2
    sentence = one_sentence(capsys)
    assert os.strerror(error) in sentence
    assert ".venv" in sentence


# ---- installing


def test_the_size_is_said_before_installing(run: ModuleType, capsys) -> None:
    assert run.main(["demo", "0"]) == 0
    shown = capsys.readouterr().out
    assert f"about {run.INSTALL_GB} GB" in shown
    assert ("PIP_EXTRA_INDEX_URL" in shown) is (sys.platform == "linux")


def test_a_second_run_does_not_call_pip(run: ModuleType, capsys) -> None:
    assert run.main(["demo", "0"]) == 0
    assert pip_calls(run) == 1
    capsys.readouterr()
    assert run.main(["demo", "0"]) == 0
    assert pip_calls(run) == 1
    assert capsys.readouterr() == ("", "")  # the task writes to the real stdout, not to Python's


@pytest.mark.parametrize("file", ["requirements.txt", "pyproject.toml"])
def test_changed_pins_are_installed(run: ModuleType, file: str) -> None:
    run.set_up()
    (run.ROOT / file).write_text("# changed")
    run.set_up()
    assert pip_calls(run) == 2
    run.set_up()
    assert pip_calls(run) == 2


def test_another_python_makes_a_new_environment(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run.set_up()
    (run.VENV / "of the old Python").touch()
    monkeypatch.setattr(run.sys, "version_info", (3, 99, 0, "final", 0))
    run.set_up()
    assert pip_calls(run) == 2
    assert not (run.VENV / "of the old Python").exists()


def test_an_interrupted_installation_is_redone_from_nothing(run: ModuleType, monkeypatch, capsys) -> None:
    def interrupt(command: list[str]) -> int:
        (run.VENV / "half a package").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "logged", interrupt)
        assert run.main(["demo", "0"]) == 130
    assert "interrupted" in one_sentence_after_blank(capsys)
    assert run.main(["demo", "0"]) == 0
    assert pip_calls(run) == 1
    assert not (run.VENV / "half a package").exists()


def one_sentence_after_blank(capsys: pytest.CaptureFixture[str]) -> str:
    blank, sentence = capsys.readouterr().err.splitlines()
    assert blank == ""
    return sentence


def test_a_half_made_environment_is_made_anew(run: ModuleType) -> None:
    run.PYTHON.parent.mkdir(parents=True)  # what another tool's interrupted `python -m venv .venv` may leave
    run.PYTHON.write_text("")
    run.PYTHON.chmod(0o755)
    (run.VENV / "left over").touch()
    run.set_up()
    assert run.stamp() == run.fingerprint()
    assert not (run.VENV / "left over").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (NO_NETWORK, "connect to the network"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: [Errno 13] Permission denied: 'x'", "may not be written"),
        ("ERROR: No matching distribution found for torch==2.13.0", "lacks a pinned package"),
        ("something else", "pip failed"),
    ],
)
def test_a_failing_pip_is_told_in_one_sentence(run: ModuleType, capsys, words: str, told: str) -> None:
    fake_pip(run, words=words, code=1)
    assert run.main(["demo", "0"]) == 2
    sentence = one_sentence(capsys)
    assert told in sentence
    assert str(run.LOG) in sentence
    assert words in run.LOG.read_text()
    fake_pip(run)
    assert run.main(["demo", "0"]) == 0


def test_a_failure_before_pip_changed_anything_keeps_the_environment(run: ModuleType, monkeypatch) -> None:
    run.set_up()
    (run.VENV / "installed").touch()
    (run.ROOT / "requirements.txt").write_text("# changed")
    monkeypatch.setattr(run, "reusable", lambda: run.stamp() != run.UNFINISHED)  # the fake environment has no pip
    fake_pip(run, words=NO_NETWORK, code=1)
    with pytest.raises(run.Failure):
        run.set_up()
    fake_pip(run)
    run.set_up()
    assert (run.VENV / "installed").exists()


# ---- running a task


def test_arguments_and_exit_code_pass_through(run: ModuleType, capfd) -> None:
    assert run.main(["demo", "7", "--count", "13"]) == 7
    assert "demo 7 --count 13" in capfd.readouterr().out


def test_all_steps_run_and_the_first_failure_counts(run: ModuleType, capfd) -> None:
    steps = tuple(f"-m s13lib {code}" for code in (0, 5, 3, 0))
    run.TASKS["many"] = run.Task("for this test", steps)
    assert run.main(["many", "more"]) == 5
    shown = capfd.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("demo")] == ["demo 0", "demo 5", "demo 3", "demo 0 more"]
    assert shown[-1] == "Failed: python -m s13lib 5 (exit code 5), python -m s13lib 3 (exit code 3)."


def test_the_test_task_lints_checks_the_format_and_tests(run: ModuleType) -> None:
    assert run.TASKS["test"].steps == ("-m ruff check .", "-m ruff format --check .", "-m pytest")


@pytest.mark.skipif(
    os.name == "nt", reason="a process group's SIGINT is how a terminal on Linux and macOS sends Ctrl-C"
)
@pytest.mark.parametrize(("reaction", "code"), [("sys.exit(5)", 5), ("raise", 130)])
def test_ctrl_c_belongs_to_the_task(run: ModuleType, reaction: str, code: int) -> None:
    run.set_up()
    (run.ROOT / "s13lib/__main__.py").write_text(
        "import sys, time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    {reaction}\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(run.ROOT / "run.py"), "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "run.py" not in errors


def test_the_demo_prints_the_report_and_ends_with_a_measured_comparison():
    spec = importlib.util.spec_from_file_location("the_real_run", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TASKS["demo"].steps == ("-m s13lib", "-m s13lib decode --compare")
