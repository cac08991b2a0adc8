"""What a compiler for an H100 or H200 makes of the kernels. Nothing of it has run; that it compiles, it shows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the package triton is not installed (it is for Linux)")

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHARED_LIMIT = 227 * 1024
"""Bytes of shared memory that a block may use at compute capability 9.0 (CUDA C++ Programming Guide)."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), "PYTHONPATH": str(ROOT)}
    script = str(HERE / "compile_for_hopper.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles_in_every_form_for_every_type_of_weight(compiled):
    from s13lib.kernels.cuda import KERNELS

    cases = {row["case"] for row in compiled}
    assert len(cases) == 6
    assert {(row["case"], row["kernel"]) for row in compiled} == {(case, name) for case in cases for name in KERNELS}


def test_a_profiler_sees_the_kernels_names(compiled):
    for row in compiled:
        assert row["compiled_name"].startswith(row["kernel"]), row
        if row["compiled_name"] != row["kernel"]:
            assert row["compiled_name"].removeprefix(row["kernel"]) in ("_gemv", "_dot"), row


def test_shared_memory_and_registers_suffice(compiled):
    assert [row for row in compiled if row["shared_bytes"] > SHARED_LIMIT] == []
    assert [row for row in compiled if row["stack_bytes"] > 0] == []


def test_the_forms_are_what_they_are_called(compiled):
    """Weights come 16 bytes a thread; tensor cores in the dot form, and nowhere in the GEMV form."""
    linears = [row for row in compiled if row["compiled_name"].endswith(("_gemv", "_dot"))]
    assert {row["compiled_name"].rpartition("_")[2] for row in linears} == {"gemv", "dot"}
    for row in linears:
        assert row["weights_in_16_bytes"], row
        if "float32" not in row["case"]:
            assert row["tensor_cores"] == row["compiled_name"].endswith("_dot"), row


def test_no_float_is_added_atomically(compiled):
    assert [row for row in compiled if row["float_atomics"]] == []
