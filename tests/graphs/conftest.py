"""The device that the graph tests share."""

import pytest

from s13lib.device import SoftGPU, best_device
from tests.device.fake_cuda import cuda_device, fake  # noqa: F401 — fixtures


@pytest.fixture(scope="session")
def device() -> SoftGPU:
    return best_device()
