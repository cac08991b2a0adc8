"""What the repository promises about itself: pins, environments, who imports whom, and what an import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler import MatchSpec

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "s13lib"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirement_lines() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pins() -> dict[str, str]:
    pinned = (Requirement(line) for line in requirement_lines())
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in pinned}


# ---- pins and environments


def test_every_requirement_is_an_exact_pin_and_named_once() -> None:
    for line in requirement_lines():
        pin = r"[A-Za-z0-9._-]+==[0-9]+(\.[0-9]+)*(\.post[0-9]+)?"
        assert re.fullmatch(pin + r"(; sys_platform == \"linux\")?", line), line
    assert len(pins()) == len(requirement_lines())


def test_torch_is_pinned_first() -> None:
    assert requirement_lines()[0].startswith("torch==")


def test_the_base_package_needs_numpy_alone() -> None:
    assert [Requirement(text).name for text in PROJECT["dependencies"]] == ["numpy"]


@pytest.mark.parametrize("extra", ["base", *PROJECT["optional-dependencies"]])
def test_ranges_admit_the_pins(extra: str) -> None:
    texts = PROJECT["dependencies"] if extra == "base" else PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, texts):
        pin = pins().get(canonicalize_name(requirement.name))
        if extra != "real-model":  # installed only on request, so its packages need no pin
            assert pin is not None, f"{requirement.name} has no pin in requirements.txt"
        assert pin is None or requirement.specifier.contains(pin), f"{requirement} does not admit {pin}"


def test_environment_yml_goes_through_the_pins() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment == {
        "name": "s13",
        "channels": ["conda-forge"],
        "dependencies": ["python=3.11", "pip", {"pip": ["-r requirements.txt", "-e ."]}],
    }
    specs = [MatchSpec(text, strict=True) for text in environment["dependencies"] if isinstance(text, str)]
    assert [spec.name.normalized for spec in specs] == ["python", "pip"]
    assert Requirement("python" + PROJECT["requires-python"]).specifier.contains("3.11")


# ---- the house: imports only go down


class Place(NamedTuple):
    """One row of the house: the packages and modules of s13lib that it may import, and from outside what."""

    may_import: tuple[str, ...]
    outside: tuple[str, ...] | None = None  # None: anything; (): the standard library alone


SHARED = ("errors", "progress")  # small modules on the ground floor, for all
HOUSE = {
    "errors": Place((), outside=()),
    "progress": Place((), outside=("IPython",)),  # only inside a notebook, where it is there
    "data": Place((), outside=()),
    "simulator": Place((), outside=()),
    "buckets": Place(("simulator",), outside=("numpy",)),
    "figures": Place(("simulator",), outside=()),
    "traces": Place(("simulator",), outside=("numpy",)),
    "device": Place(("simulator.timeline", "traces")),
    "kernels": Place(("device",)),
    "model": Place(("kernels", "device", "simulator.scheduler", "data")),
    "graphs": Place(("model", "kernels", "device", "buckets.layout", "simulator.scheduler")),
}
# The upper floors may import whatever lies below them.
for floor in ("profiling", "widgets", "grading", "commands", "cli", "__main__"):
    HOUSE[floor] = Place(tuple(HOUSE))
HOUSE["__init__"] = Place((), outside=())


def imported_modules(source: str, package: str) -> Iterator[str]:
    """Dotted names of all that ``source``, a module in ``package``, imports: in functions and for type checking too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            # `from s13lib import buckets` names a module only in its last part
            yield from (f"{origin}.{alias.name}" for alias in node.names) if origin == "s13lib" else (origin,)


def violations(source: str, module: str) -> list[str]:
    """Imports that ``source`` may not make as ``module``, which is dotted and starts with "s13lib."."""
    place = module.split(".")[1]
    if place not in HOUSE:
        return [f"{module}: no such place in the house; add a row to HOUSE"]
    own = HOUSE[place]
    allowed = (place, *SHARED, *own.may_import)
    found = []
    for name in imported_modules(source, package=module.rpartition(".")[0]):
        root, _, inside = name.partition(".")
        if root == "s13lib":
            # a bare `import s13lib`, and the version, are free to all
            good = inside in ("", "__version__") or any(f"{inside}.".startswith(f"{prefix}.") for prefix in allowed)
        else:
            good = own.outside is None or root in sys.stdlib_module_names or root in own.outside
        if not good:
            found.append(f"{module} may not import {name}")
    return found


def test_imports_only_go_down_the_house() -> None:
    found = []
    for path in sorted(LIBRARY.rglob("*.py")):
        # a package's own __init__ keeps that name, so that its parent is its package
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found += violations(path.read_text(encoding="utf-8"), module)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "good"),
    [
        ("s13lib.simulator.step", "from s13lib.simulator.timeline import Timeline", True),
        ("s13lib.simulator.step", "from .timeline import Timeline", True),
        ("s13lib.simulator.step", "from ..buckets import BucketLayout", False),
        ("s13lib.simulator.step", "from s13lib import buckets", False),
        ("s13lib.simulator.step", "from s13lib.errors import InputError", True),
        ("s13lib.simulator.step", "import numpy", False),
        ("s13lib.simulator.__init__", "from . import timeline", True),
        ("s13lib.buckets.layout", "import numpy as np", True),
        ("s13lib.buckets.layout", "import torch", False),
        ("s13lib.buckets.layout", "def f():\n    import s13lib.model.decoder", False),
        ("s13lib.device.api", "from s13lib.simulator.timeline import Timeline", True),
        ("s13lib.device.api", "from s13lib.simulator.scheduler import Scheduler", False),
        ("s13lib.device.cuda_record", "from s13lib.traces import read_trace", True),
        ("s13lib.device.cuda_record", "from s13lib.profiling import TraceReport", False),
        ("s13lib.kernels.cuda", "import torch", True),
        ("s13lib.kernels.cuda", "if TYPE_CHECKING:\n    from s13lib.model import Decoder", False),
        ("s13lib.graphs.runner", "from s13lib.buckets.layout import BucketLayout", True),
        ("s13lib.graphs.runner", "from s13lib.buckets.optimise import best_layout", False),
        ("s13lib.widgets.sliders", "from s13lib.figures import timeline_svg", True),
        ("s13lib.widgets.sliders", "from s13lib import grading", False),
        ("s13lib.cli", "from s13lib import __version__, buckets, grading", True),
        ("s13lib.surprise", "", False),
    ],
)
def test_the_house_check_itself(module: str, source: str, good: bool) -> None:
    assert (violations(source, module) == []) is good


# ---- imports are light


@pytest.mark.parametrize("module", ["s13lib", "s13lib.simulator", "s13lib.buckets"])
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*{{'torch', 'matplotlib', 'numba', 'ipywidgets'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# ---- nothing here knows where it was written


def test_no_file_names_the_folders_it_was_written_in() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout, so it is not known which files belong to the project")
    # Put together here, so that this file does not match.
    absolute = re.compile(rb"(?<![\w.~}>*-])/(?:" + rb"wor" + rb"k|" + rb"far" + rb"m)/")
    files = [ROOT / name.decode() for name in listing.stdout.split(b"\0") if name]
    found = [str(path.relative_to(ROOT)) for path in files if path.is_file() and absolute.search(path.read_bytes())]
    assert found == []
