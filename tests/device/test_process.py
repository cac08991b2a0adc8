"""What only shows in a process of its own: signals, exits, forks, the cache on disk, idle cost."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from s13lib.device import SoftGPU

BUSY = """
device = SoftGPU()
door = device.zeros(1, torch.int64)
device.launcher(KERNELS["hold"])(door)
"""


@pytest.mark.parametrize("wait", ["device.synchronize()", "fill()"])
def test_ctrl_c_ends_a_wait_and_the_device_works_on(python, wait):
    process = python(
        BUSY
        + f"""
copy = device.launcher(KERNELS["copy"])
x, y = device.tensor([1.0]), device.zeros(1)
def fill():
    for _ in range(2000): copy(x, y)
print("waiting")
try: {wait}
except KeyboardInterrupt: print("interrupted")
door.fill_(1)
copy(x, y)
device.synchronize()
print(int(y.item()))
"""
    )
    process.wait_for("waiting")
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    assert process.finish() == (0, ["waiting", "interrupted", "1"], "")


def test_ctrl_c_amid_launches_never_loses_what_they_point_at(python):
    process = python("""
device = SoftGPU()
copy = device.launcher(KERNELS["copy"])
y = device.zeros(1)
copy(y, y)
device.synchronize()
caught = 0
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
for attempt in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 + 1e-6 * attempt)
        for _ in range(1000): copy(device.empty(1), y)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt: caught += 1
device.synchronize()
print(caught > 100)
""")
    code, out, _ = process.finish()  # Python swallows and prints an interrupt inside a finaliser
    assert (code, out) == (0, ["True"])


EXITS = {
    "launches": "for _ in range(900): copy(x, x)",
    "replays": "with device.graph() as graph: [copy(x, x) for _ in range(9)]\nfor _ in range(500): graph.replay()",
    "sys.exit": "sys.exit(0)",
    "close": "device.close()",
    "collected": "del device, copy, door, x",
    "open capture": "device.graph().__enter__()",
    "open recording": "device.record().__enter__(); copy(x, x)",
    "no hold": "door.fill_(1)\nwith device.graph() as graph: [copy(x, x) for _ in range(9)]\n"
    "for _ in range(20_000): graph.replay()",
}


def test_an_exit_while_busy_is_clean(python):
    """The kernel in front never ends by itself, so that packets are certainly queued when the process ends."""
    head = BUSY + "copy, x = device.launcher(KERNELS['copy']), device.zeros(1000)\ntime.sleep(0.05)\n"
    children = {name: python(head + program) for name, program in EXITS.items()}  # all at once: each waits a second
    assert {name: child.finish() for name, child in children.items()} == dict.fromkeys(EXITS, (0, [], ""))


def test_an_exit_after_an_uncaught_error_shows_only_that(python):
    code, out, err = python(BUSY + "raise RuntimeError('mine')").finish()
    assert (code, out) == (1, [])
    assert err.strip().endswith("RuntimeError: mine")
    assert err.count("Traceback") == 1


def test_a_forked_child_is_refused_with_a_sentence_and_can_make_its_own_device(python):
    process = python("""
device = best_device()
copy = device.launcher(KERNELS["copy"])
x, y = device.tensor([1.0]), device.zeros(1)
copy(x, y)
bound = device.bind(KERNELS["copy"], x, y)
child = os.fork()
if child == 0:
    refused = 0
    for use in (lambda: copy(x, y), bound.launch, device.synchronize, lambda: device.record().__enter__()):
        try: use()
        except Exception as error: refused += type(error).__name__ == "InputError" and "os.fork()" in str(error)
    own = best_device()
    z = own.zeros(1)
    own.launcher(KERNELS["scale"])(own.tensor([1.0]), z, 5.0)
    own.synchronize()
    print("child", refused, own is not device, z.item())
    sys.exit(7)
_, status = os.waitpid(child, 0)
device.synchronize()
print("parent", os.waitstatus_to_exitcode(status), y.item())
""")
    code, out, err = process.finish()
    assert (code, err) == (0, "")
    assert out == ["child", "4", "True", "5.0", "parent", "7", "1.0"]


def test_the_second_process_loads_what_the_first_compiled(fresh_python, tmp_path):
    program = """
device = SoftGPU()
x = device.tensor([1.0])
@device.kernel
def mine(x: F32[1]):
    x[0] = x[0] + 1.0
device.launcher(KERNELS["copy"])(x, x)
mine(x)
device.synchronize()
print(cache.statistics["compiled"], cache.statistics["loaded"], x.item())
"""
    results = []
    for _ in range(2):
        code, out, err = fresh_python(program, S13_CACHE_DIR=str(tmp_path / "cache"))
        assert (code, err) == (0, "")
        results.append((int(out[0]), int(out[1]), out[2]))
    (compiled, loaded, value), again = results
    assert compiled >= 4
    assert (loaded, value) == (0, "2.0")
    assert again[0] == 0
    assert again[1] >= 4
    assert again[2] == "2.0"


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(fresh_python, tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    program = """
import tempfile; tempfile.tempdir = os.environ["S13_CACHE_DIR"]
device = SoftGPU()
x = device.tensor([1.0])
device.launcher(KERNELS["scale"])(x, x, 2.0)
device.synchronize()
print(x.item())
"""
    assert fresh_python(program, S13_CACHE_DIR=str(blocked)) == (0, ["2.0"], "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("softgpu", "SoftGPU"),
        ("auto", "CudaDevice" if torch.cuda.is_available() else "SoftGPU"),
        pytest.param(
            "cuda",
            f"S13_DEVICE is 'cuda', and torch {torch.__version__} sees no CUDA GPU here: "
            "unset it or set it to softgpu.",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
        ),
        ("sofgpu", "S13_DEVICE: unknown name 'sofgpu'; did you mean softgpu?"),
    ],
)
def test_the_environment_chooses_the_device(python, value, expected):
    program = """
try: print(type(best_device()).__name__, end="")
except ValueError as error: print(error, end="")
"""
    assert python(program, S13_DEVICE=value).finish() == (0, expected.split(), "")


def test_an_idle_device_costs_next_to_nothing(python):
    process = python("""
devices = [SoftGPU() for _ in range(4)]
for device in devices: device.synchronize()
time.sleep(0.1)
before = time.process_time()
time.sleep(1.0)
print(time.process_time() - before < 0.1)
""")
    assert process.finish() == (0, ["True"], "")


def test_importing_the_package_starts_no_thread(python):
    assert python("print(threading.active_count())").finish() == (0, ["1"], "")


def test_making_a_device_sets_torch_to_one_thread():
    import torch

    torch.set_num_threads(2)
    SoftGPU().close()
    assert torch.get_num_threads() == 1
