"""Check this machine: what is installed, which device, whether its times can be trusted, and what to do about a fault.

A fault keeps something from working; a note says what to bear in mind. The exit code is 1 when there is a fault.

example:
  s13 doctor
  s13 doctor --json
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from s13lib import __version__
from s13lib.commands.output import print_json

Status = Literal["ok", "note", "fault"]
MARKS = {"ok": "ok", "note": "note", "fault": "FAULT"}
MINIMUM_PYTHON = (3, 11)
SET_UP = "`python3 run.py demo` in the project's folder, or `pip install '.[course]'`"
# Extras whose absence is a fault, and what the others are for.
REQUIRED_EXTRAS = ("", "course")
OPTIONAL_EXTRAS = {
    "cuda": "kernels on an NVIDIA GPU",
    "real-model": "SmolLM2",
    "classroom": "grading on a cluster",
    "dev": "tests and building",
}
ENOUGH_DISK_GB = 0.5
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was checked, how it stands, what was found, and what to do about it."""

    check: str
    status: Status
    value: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    findings = examine()
    faults = sum(finding.status == "fault" for finding in findings)
    if arguments.json:
        notes = sum(finding.status == "note" for finding in findings)
        print_json({"faults": faults, "notes": notes, "findings": [asdict(finding) for finding in findings]})
    else:
        print(as_text(findings))
    return 1 if faults else 0


def examine() -> list[Finding]:
    """All findings, in the order in which one thing needs the one before. A check that fails is a fault itself."""
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            findings += check()
        except ModuleNotFoundError as error:
            findings.append(Finding(name, "note", f"not checked: {error.name} is missing", SET_UP))
        except Exception as error:
            what = f"the check ended with {type(error).__name__}: {error}"
            findings.append(Finding(name, "fault", what, f"repair the lines above first; if they are ok: {SET_UP}"))
    return findings


def as_text(findings: list[Finding]) -> str:
    """The report for people."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{MARKS[finding.status]:<5}  {finding.check:<{width}}  {finding.value}")
        if finding.advice:
            lines.append(f"{'':<5}  {'':<{width}}  -> {finding.advice}.")
    faults = [finding.check for finding in findings if finding.status == "fault"]
    verdict = f"To repair: {', '.join(faults)}." if faults else "Nothing to repair."
    return "\n".join([*lines, "", verdict])


# ---- what is installed


def check_python() -> list[Finding]:
    """Python's version, its place and the system."""
    value = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    if sys.version_info < MINIMUM_PYTHON:
        return [Finding("Python", "fault", value, "install Python 3.11 or newer, and run run.py with it")]
    return [Finding("Python", "ok", value)]


def check_packages() -> list[Finding]:
    """The library, and the packages of each extra against the versions that it needs."""
    place = Path(__file__).resolve().parents[1]
    try:
        requirements = metadata.requires("s13lib") or []
    except metadata.PackageNotFoundError:
        value = f"{__version__}, used from {place}, not installed"
        return [Finding("s13lib", "note", value, f"for the course: {SET_UP}")]
    findings = [Finding("s13lib", "ok", f"{__version__}, from {place}")]
    by_extra: dict[str, list[str]] = {}
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        extra = re.search(r"extra == [\"']([\w-]+)[\"']", marker)
        by_extra.setdefault(extra[1] if extra else "", []).append(text.strip())
    for extra, texts in by_extra.items():
        findings.append(package_finding(extra, texts))
    return findings


def package_finding(extra: str, requirements: list[str]) -> Finding:
    """How the packages of one extra stand."""
    found, wrong = [], []
    for text in requirements:
        name = re.match(r"[\w.-]+", text)[0]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        found.append(f"{name} {version}")
        if not admits(text[len(name) :], version):
            wrong.append(f"{name} {version} is not {text[len(name) :].strip()}")
    check = f"packages, {extra or 'base'}"
    if not wrong:
        return Finding(check, "ok", ", ".join(found))
    if extra in REQUIRED_EXTRAS:
        return Finding(check, "fault", ", ".join(wrong), SET_UP)
    purpose = OPTIONAL_EXTRAS.get(extra, "something optional")
    return Finding(check, "note", ", ".join(wrong), f"needed for {purpose} alone: `pip install '.[{extra}]'`")


def admits(specifier: str, version: str) -> bool:
    """Whether ``>=2.9,<3`` admits ``2.13.0+cpu``: the comparisons that pyproject.toml uses, on release numbers."""

    def release(text: str) -> tuple[int, ...]:
        numbers = [int(part) for part in re.match(r"[0-9.]+", text)[0].strip(".").split(".")]
        while numbers and numbers[-1] == 0:
            numbers.pop()
        return tuple(numbers)

    have = release(version)
    compare: dict[str, Callable[[tuple[int, ...]], bool]] = {
        ">=": lambda bound: have >= bound,
        "<=": lambda bound: have <= bound,
        "==": lambda bound: have == bound,
        "<": lambda bound: have < bound,
        ">": lambda bound: have > bound,
    }
    return all(compare[sign](release(bound)) for sign, bound in re.findall(r"(>=|<=|==|<|>)\s*([\w.]+)", specifier))


def check_notebooks() -> list[Finding]:
    """Whether a notebook's kernel is this Python, and so finds this library."""
    if missing := [name for name in ("jupyterlab", "ipykernel") if importlib.util.find_spec(name) is None]:
        return [Finding("notebooks", "fault", f"{' and '.join(missing)} missing", SET_UP)]
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        advice = "`python -m ipykernel install --sys-prefix` in this environment"
        return [Finding("notebooks", "fault", "Jupyter has no kernel named python3", advice)]
    # A bare "python" means: the Python that runs Jupyter.
    own = command == Path(command).name or same_environment(command, sys.executable)
    if not own:
        advice = "`python -m ipykernel install --sys-prefix` in this environment, or choose its kernel in the notebook"
        return [Finding("notebooks", "fault", f"the kernel python3 runs another Python, {command}", advice)]
    return [Finding("notebooks", "ok", f"JupyterLab {metadata.version('jupyterlab')}, its kernel is this Python")]


def same_environment(one: str, other: str) -> bool:
    """Whether two interpreters lie in one folder: there ``python`` and ``python3`` are the same environment."""
    return Path(one).parent.resolve() == Path(other).parent.resolve()


# ---- the device, and how far its times can be trusted


def check_device() -> list[Finding]:
    """Which device the lessons get, and whether a kernel on it gives the right answer."""
    chosen = os.environ.get("S13_DEVICE")
    if importlib.util.find_spec("torch") is None:
        return [Finding("device", "fault", "unknown: torch is missing", SET_UP)]
    from s13lib import kernels
    from s13lib.device import best_device
    from s13lib.errors import InputError

    try:
        device = best_device()
        kernels.load(device.kind)
    except InputError as error:
        return [Finding("device", "fault", str(error), "unset S13_DEVICE, or set it to softgpu")]
    except ModuleNotFoundError as error:
        return [Finding("device", "fault", f"SoftGPU cannot be made: {error.name} is missing", SET_UP)]
    source, once, twice = device.tensor([1.0, 2.0, 3.0]), device.empty(3), device.empty(3)
    with device.warm_up():
        device.kernels.scale(source, once, 2.0)
    with device.graph() as graph:
        device.kernels.scale(once, twice, 2.0)
    graph.replay()
    device.synchronize()
    if (got := once.tolist() + twice.tolist()) != [2.0, 4.0, 6.0, 4.0, 8.0, 12.0]:
        advice = "empty the kernel cache (its folder is below) and try again"
        value = f"{device.description}: [1, 2, 3] doubled once and twice gave {got}"
        return [Finding("device", "fault", value, advice)]
    by = f" (S13_DEVICE={chosen})" if chosen else ""
    value = f"{device.description}{by}: a launch and a replay gave the right answer"
    return [Finding("device", "ok", value), cuda_finding(device.kind)]


def cuda_finding(used: str) -> Finding:
    """Whether there is a GPU, and if the lessons do not use it, why."""
    import torch

    from s13lib.device.cuda import kernels_problem

    if not torch.cuda.is_available():
        return Finding("CUDA", "ok", f"none seen by torch {torch.__version__}; the lessons do not need one")
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    if used == "cuda":
        return Finding("CUDA", "ok", f"{names}; `python tools/gpu_check.py` checks and measures the library there")
    advice = (
        "`pip install '.[cuda]'` in the project's folder brings Triton"
        if kernels_problem()
        else "unset S13_DEVICE to use it"
    )
    return Finding("CUDA", "note", f"{names}, seen by torch and not used: {kernels_problem() or 'S13_DEVICE'}", advice)


def check_processors() -> list[Finding]:
    """How many processors this process may use, and whether other work holds them."""
    from s13lib.device.processors import CONTENDED_BELOW, processor_name, processor_share, quota, usable_processors

    usable, installed, limit = usable_processors(), os.cpu_count() or 1, quota()
    value = f"{usable} usable of {installed}, {processor_name()}"
    if limit < installed:
        value += f" (the container's quota is {limit:g})"
    advice = "give this process two: lessons still run, but host and device take turns and times mean nothing"
    findings = [Finding("processors", "note", value, advice) if usable == 1 else Finding("processors", "ok", value)]
    # Half a second in small parts: a disturbance comes and goes.
    share = sorted(processor_share(min(2, usable), seconds=0.05) for _ in range(9))[4]
    value = f"a busy thread gets {share:.0%} of a processor"
    if share < CONTENDED_BELOW:
        advice = "close other programs before you measure: times may be off by 2x and more"
        return [*findings, Finding("contention", "note", value, advice)]
    return [*findings, Finding("contention", "ok", value)]


# ---- files


def check_caches() -> list[Finding]:
    """The folders for compiled kernels and for calibrations: whether they can be written, and what lies there."""
    from s13lib.device.cache import cache_folder
    from s13lib.profiling.calibration import config_folder, load_calibrations

    folder = cache_folder()
    files = list(folder.glob("*.nbc"))
    size_mib = sum(file.stat().st_size for file in files) / 2**20
    value = f"{folder}, {len(files)} compiled forms, {size_mib:.1f} MiB"
    if (problem := cannot_write(folder)) is not None:
        advice = "set S13_CACHE_DIR to a folder that you may write: until then kernels are compiled at every start"
        findings = [Finding("kernel cache", "fault", f"{folder}: {problem}", advice)]
    elif (free_gb := shutil.disk_usage(folder).free / 1e9) < ENOUGH_DISK_GB:
        advice = "free some space, or set S13_CACHE_DIR to another disk"
        findings = [Finding("kernel cache", "note", f"{value}; {free_gb:.1f} GB are free", advice)]
    elif not files:
        advice = "the first lesson compiles what it needs, once, for some seconds"
        findings = [Finding("kernel cache", "note", f"{folder}, empty", advice)]
    else:
        findings = [Finding("kernel cache", "ok", value)]
    calibrations = load_calibrations()
    if not calibrations:
        advice = "`s13 calibrate` measures it, for predictions of this machine's steps"
        return [*findings, Finding("calibration", "ok", f"none yet in {config_folder()}", advice)]
    told = ", ".join(f"{name} of {calibration.date}" for name, calibration in calibrations.items())
    return [*findings, Finding("calibration", "ok", f"{told}, in {config_folder()}")]


def cannot_write(folder: Path) -> str | None:
    """Why no file can be made in ``folder``; None if one can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".s13-doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def check_models() -> list[Finding]:
    """The model that the library ships, and the optional one."""
    from s13lib.model.checkpoints import load_checkpoint

    config = load_checkpoint("bard").config
    findings = [Finding("model bard", "ok", f"{config.layers} layers × hidden {config.hidden}, reads well")]
    root = Path(__file__).resolve().parents[2]
    if any((root / "models").glob("SmolLM2*.gguf")):
        return [*findings, Finding("model smollm2", "ok", "fetched")]
    if not (root / "run.py").exists():  # the library without the course
        return findings
    advice = "`python3 run.py smollm` fetches it, for those who want a real model"
    return [*findings, Finding("model smollm2", "ok", "not fetched; no lesson needs it", advice)]


def check_browser() -> list[Finding]:
    """What would show JupyterLab, and what the browser tests use."""
    try:
        browser = webbrowser.get()
        # A text browser cannot run JupyterLab.
        name = getattr(browser, "name", "") or "the system's own"
        usable = name not in ("www-browser", "w3m", "lynx", "links", "elinks")
    except webbrowser.Error:
        name, usable = "none", False
    if usable:
        findings = [Finding("browser", "ok", name)]
    else:
        advice = (
            "`python3 run.py lab --no-browser`, and open the printed address in a browser of any machine that reaches "
            "this one (over SSH: `ssh -L 8888:localhost:8888`)"
        )
        findings = [Finding("browser", "note", f"{name} that JupyterLab could open here", advice)]
    chromium = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if chromium is None:
        advice = "install Chromium if you want to run them; they are skipped otherwise"
        return [*findings, Finding("browser tests", "ok", "no Chromium on PATH", advice)]
    return [*findings, Finding("browser tests", "ok", chromium)]


CHECKS: dict[str, Callable[[], list[Finding]]] = {
    "Python": check_python,
    "packages": check_packages,
    "notebooks": check_notebooks,
    "device": check_device,
    "processors": check_processors,
    "caches": check_caches,
    "models": check_models,
    "browser": check_browser,
}
