"""Linear layers, y = x·Wᵀ, alone and with what may ride on them. Weights are (out, in), as in torch.

The loop over outputs is the outer one, so that a batch reads the weights from memory once, and one row of weights meets
the batch in cache. Each (row, output) is one dot product, whatever the batch.
"""

import numpy as np

from s13lib.device.kernel import kernel
from s13lib.device.types import F32
from s13lib.kernels.softgpu.arithmetic import device_function
from s13lib.kernels.softgpu.elementwise import multiply_by_silu
from s13lib.kernels.softgpu.weights import dot_with, operand


@device_function
def project(x, weight, first, out):
    """out[r, o] = x[r] · weight[first + o]: ``out``'s width says how many rows of ``weight`` are meant.

    Here and in ``project_add`` x is an ``operand``.
    """
    for o in range(out.shape[1]):
        weight_row = weight[first + o]
        for r in range(out.shape[0]):
            out[r, o] = dot_with(weight_row, x, r)


@device_function
def project_add(x, weight, residual, out):
    """out[r, o] = residual[r, o] + x[r] · weight[o]."""
    for o in range(out.shape[1]):
        weight_row = weight[o]
        for r in range(out.shape[0]):
            out[r, o] = residual[r, o] + dot_with(weight_row, x, r)


@device_function
def project_qkv(x, weight, out_q, out_k, out_v):
    """Packed rows of ``weight``: first all of q, then k, then v, each as wide as its output (vllm#13686)."""
    x = operand(x, weight)
    project(x, weight, 0, out_q)
    project(x, weight, out_q.shape[1], out_k)
    project(x, weight, out_q.shape[1] + out_k.shape[1], out_v)


@device_function
def project_gate_up_silu_mul(x, weight, out):
    """out = silu(x·gateᵀ)·(x·upᵀ); scratch for the gate's result."""
    x = operand(x, weight)
    gate = np.empty(out.shape, np.float32)
    project(x, weight, 0, gate)
    project(x, weight, out.shape[1], out)
    multiply_by_silu(gate, out)


@kernel(
    out=("out",),
    shapes="x[rows, n] weight[m, n] out[rows, m]",
)
def linear(x: F32[2], weight: F32[2], out: F32[2]):
    """out = x·weightᵀ: x (rows, in), weight (out, in), out (rows, out)."""
    project(operand(x, weight), weight, 0, out)


@kernel(
    out=("out",),
    shapes="x[rows, n] weight[m, n] residual[rows, m] out[rows, m]",
)
def linear_add(x: F32[2], weight: F32[2], residual: F32[2], out: F32[2]):
    """out = residual + x·weightᵀ (the o and down projections). ``out`` may be ``residual``, not ``x``."""
    project_add(operand(x, weight), weight, residual, out)


@kernel(
    out=("out",),
    shapes="x[rows, n] weight[m, n] gate[rows, m] out[rows, m]",
)
def linear_silu_mul(x: F32[2], weight: F32[2], gate: F32[2], out: F32[2]):
    """out = silu(gate)·(x·weightᵀ): the up projection with SwiGLU's middle; gate, out (rows, out), not the same."""
    project(operand(x, weight), weight, 0, out)
    multiply_by_silu(gate, out)


@kernel(
    out=("out_q", "out_k", "out_v"),
    shapes="x[rows, n] weight[q + 2*kv, n] out_q[rows, q] out_k[rows, kv] out_v[rows, kv]",
)
def linear_qkv(x: F32[2], weight: F32[2], out_q: F32[2], out_k: F32[2], out_v: F32[2]):
    """q, k and v from one packed weight ((heads + 2·kv_heads)·head_dim, in), rows in that order.

    out_q (rows, heads·head_dim), out_k and out_v (rows, kv_heads·head_dim): under GQA not three equal parts.
    """
    project_qkv(x, weight, out_q, out_k, out_v)


@kernel(
    out=("out",),
    shapes="x[rows, n] weight[2*width, n] out[rows, width]",
)
def gate_up_silu_mul(x: F32[2], weight: F32[2], out: F32[2]):
    """out = silu(x·gateᵀ)·(x·upᵀ): weight (2·width, in), the gate's rows first; out (rows, width).

    Scratch: rows·width floats.
    """
    project_gate_up_silu_mul(x, weight, out)
