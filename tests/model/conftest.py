"""The device that the model's tests share."""

import pytest

from s13lib.device import SoftGPU, best_device


@pytest.fixture(scope="session")
def device() -> SoftGPU:
    return best_device()
