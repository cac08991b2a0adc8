"""Grading on a Dask cluster: two worker processes, one of which is killed while it grades."""

import csv
import os
import signal
import threading
import time

import pytest

from s13lib.cli import main
from tests.grading.conftest import notebook

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.usefixtures("needs_sandbox")

RIGHT = """import time
def step_us(launch_us, kernel_us):
    time.sleep(0.1)
    host = device = 0.0
    for launch, kernel in zip(launch_us, kernel_us):
        host += launch
        device = max(host, device) + kernel
    return device
"""


@pytest.fixture(scope="module")
def cluster():
    """A local cluster of two worker processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options, silence_logs="CRITICAL") as made:
        yield made


def grade(tmp_path, address, raws):
    for name, raw in raws.items():
        (tmp_path / f"{name}.ipynb").write_bytes(raw)
    out = tmp_path / "grades.csv"
    code = main(["grade", str(tmp_path), "--out", str(out), "--scheduler", address])
    with out.open(encoding="utf-8") as file:
        return code, {row["learner"]: (row["status"], row["5a"]) for row in csv.DictReader(file)}


def test_a_worker_that_is_killed_costs_nobody_a_grade(cluster, tmp_path):
    raws = {f"right-{n}": notebook(RIGHT + f"# {n}") for n in range(5)}
    raws |= {"wrong": notebook("def step_us(a, b):\n    return 1.0"), "dies": notebook("import os\nos._exit(1)")}
    raws |= {"exits": notebook("import os\ndef step_us(a, b):\n    os._exit(1)")}
    journal = tmp_path / "grades.csv.journal"
    victim = []

    def kill_one() -> None:
        while not journal.exists() or journal.read_text().count("\n") < 2:
            time.sleep(0.05)
        victim.append(next(iter(cluster.workers.values())).pid)
        os.kill(victim[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    code, rows = grade(tmp_path, cluster.scheduler_address, raws)
    killer.join(timeout=10)
    assert victim
    assert code == 0
    assert rows == {
        **{f"right-{n}": ("graded", "3") for n in range(5)},
        "wrong": ("graded", "0"),
        "dies": ("graded", "0"),
        "exits": ("graded", "0"),
    }


def test_no_cluster_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("s13lib.grading.executor.CONNECT_SECONDS", 1)
    (tmp_path / "a.ipynb").write_bytes(notebook(RIGHT))
    assert main(["grade", str(tmp_path), "--out", str(tmp_path / "g.csv"), "--scheduler", "tcp://127.0.0.1:9"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: --scheduler 'tcp://127.0.0.1:9': no cluster with workers answers there: ")
    assert err.count("\n") == 1
