"""The kernels of fusion stages 7 and 5 in Triton, for CUDA. They need the package ``triton`` (Linux).

``KERNELS[name]`` is a ``CudaKernel`` with the parameters of the SoftGPU kernel of that name::

    flag = torch.zeros(1, dtype=torch.int64, device="cuda")
    bound = KERNELS["linear"].bind(flag, x, weight, out)     # checks, chooses the form, compiles
    bound.launch()                                           # as often as one likes; launch(stream) elsewhere
    if (word := int(flag)): raise DeviceError(describe_error(word))

Rules that every one of them keeps:

* Floating tensors are float32, float16 or bfloat16, each as it likes; every sum is float32. Tensor cores and the cache
  take the weights' type: there activations, rotated keys and softmax weights are rounded to it.
* A row's result depends on the form that ran (``forms``), and on nothing else of the batch. No float is added
  atomically: the same launch gives the same bits.
* A slot, block, token, position or context out of range touches no memory: that row is left as it was, the others are
  computed, and the error's word is written to the flag, unless one is there already.
* Nothing is allocated at a launch. Launches share scratch memory, so they belong on one stream.
"""

from __future__ import annotations

from s13lib.errors import InputError

try:
    import triton  # noqa: F401
except ImportError:
    raise InputError("the CUDA kernels need the package triton, which is not installed (it is for Linux).") from None

from s13lib.kernels.cuda import attention, elementwise, linear, norm  # noqa: F401 — they register the kernels
from s13lib.kernels.cuda.kernel import INTERPRETED, KERNELS, BoundLaunch, CudaKernel, Plan

__all__ = ["INTERPRETED", "KERNELS", "BoundLaunch", "CudaKernel", "Plan"]
