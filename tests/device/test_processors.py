"""Counting processors as the process may use them."""

from __future__ import annotations

import math
import os

import pytest

from s13lib.device import SoftGPU, processors


def control_group(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, math.inf),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 0.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            3.0,
        ),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, math.inf),
        (
            {
                "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
    ],
)
def test_container_quotas(tmp_path, files, expected):
    assert processors.quota(control_group(tmp_path, files)) == expected


@pytest.mark.parametrize(("quota", "expected"), [("50000", 1), ("150000", 1), ("250000", 2), ("max", 4)])
def test_usable_processors_never_fall_below_one(tmp_path, monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    root = control_group(tmp_path, {"sys/fs/cgroup/cpu.max": f"{quota} 100000"})
    assert processors.usable_processors(root) == expected


def test_this_machine_has_at_least_one():
    assert 1 <= processors.usable_processors() <= os.cpu_count()


@pytest.mark.parametrize(
    ("count", "share", "text"),
    [(1, 1.0, "times mean nothing"), (2, 1.0, "not contended"), (8, 0.42, "contended (a busy thread got 42% of one)")],
)
def test_the_banner_says_what_times_are_worth(monkeypatch, count, share, text):
    monkeypatch.setattr("s13lib.device.softgpu.usable_processors", lambda: count)
    monkeypatch.setattr(processors, "processor_share", lambda threads: share)
    device = SoftGPU()
    banner = device.banner()
    assert text in banner
    assert banner.startswith("SoftGPU on ")
    assert f"{count} usable processor" in banner
    assert "\n" not in banner
    device.close()


def test_a_share_is_a_share():
    assert 0.0 < processors.processor_share(2, seconds=0.005) <= 1.1


def test_one_processor_is_still_correct(kernels):
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        device = SoftGPU()
        assert device.processors == 1
        x = device.tensor([1.0])
        double = device.launcher(kernels.scale)
        for _ in range(3000):
            double(x, x, -1.0)
        device.synchronize()
        with device.graph() as graph:
            double(x, x, 2.0)
        for _ in range(10):
            graph.replay()
            device.synchronize()
        assert x.item() == 1024.0
        device.close()
    finally:
        os.sched_setaffinity(0, allowed)
