"""RMSNorm, alone and behind a residual add (Zhang & Sennrich 2019, arXiv:1910.07467)."""

import numpy as np

from s13lib.device.kernel import kernel
from s13lib.device.types import F32
from s13lib.kernels.softgpu.arithmetic import device_function, dot, exact_device_function


@exact_device_function
def normalised(x, inverse, weight):
    """x·inverse·weight in this order: else the loop's code with vectors and that without would each choose its own."""
    return x * inverse * weight


@device_function
def rms_norm_row(x, weight, eps, out):
    """out[i] = x[i] / sqrt(mean(x²) + eps) · weight[i] for one row."""
    mean_square = dot(x, x) / np.float32(x.shape[0])
    inverse = np.float32(1) / np.sqrt(mean_square + np.float32(eps))
    for i in range(x.shape[0]):
        out[i] = normalised(x[i], inverse, weight[i])


@device_function
def rms_norm_rows(x, weight, eps, out):
    """The body of ``rms_norm``, for the kernels that fuse it."""
    for r in range(x.shape[0]):
        rms_norm_row(x[r], weight, eps, out[r])


@kernel(
    out=("out",),
    shapes="x[rows, hidden] weight[hidden] out[rows, hidden]",
)
def rms_norm(x: F32[2], weight: F32[1], eps: float, out: F32[2]):
    """out[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight: x, out (rows, hidden), weight (hidden,). ``out`` may be ``x``.

    If ``x`` is the residual, ``out`` must be another tensor, or the residual is lost (nano-vllm#170).
    """
    rms_norm_rows(x, weight, eps, out)


@kernel(
    out=("out_residual", "out"),
    shapes=("residual[rows, hidden] delta[rows, hidden] weight[hidden] out_residual[rows, hidden] out[rows, hidden]"),
)
def add_rms_norm(residual: F32[2], delta: F32[2], weight: F32[1], eps: float, out_residual: F32[2], out: F32[2]):
    """out_residual = residual + delta; out = rms_norm(out_residual). All (rows, hidden), weight (hidden,).

    ``out_residual`` may be ``residual``, and ``out`` may be ``delta``. ``out`` must not be ``out_residual``: the sum is
    what the next layer adds to, and the norm would overwrite it (nano-vllm#170).
    """
    for r in range(residual.shape[0]):
        for i in range(residual.shape[1]):
            out_residual[r, i] = residual[r, i] + delta[r, i]
        rms_norm_row(out_residual[r], weight, eps, out[r])
