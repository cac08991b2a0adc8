"""A headless Chromium page (Debian's: Playwright's own download is not needed), and Ctrl-C as a terminal sends it."""

import os
import shutil
import signal
import sys

import pytest

# A shell lets its background jobs ignore Ctrl-C, and processes inherit that: then no test of it could ever end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests know SoftGPU's figures. What they say of CUDA they say over a fake; tools/gpu_check.py runs the real one.
os.environ.setdefault("S13_DEVICE", "softgpu")

# Triton decides at import whether its interpreter runs a kernel, on the CPU: here it shall, wherever the tests run.
os.environ.setdefault("TRITON_INTERPRET", "1")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(autouse=True)
def gradients():
    """Exercises and tools switch PyTorch's gradients off in their own process; the next test finds them on."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(True)


@pytest.fixture(scope="session")
def chromium():
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    context = chromium.new_context(viewport={"width": 1000, "height": 800})
    yield context.new_page()
    context.close()
