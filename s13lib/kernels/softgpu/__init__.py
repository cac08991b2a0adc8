"""The kernels as Numba functions. Importing this package registers them all with SoftGPU.

Rules that every one of them keeps:

* Arrays are C-contiguous; activations and cache are float32, and so is all arithmetic (beside quantised weights the
  activations of a product are rounded first, see ``weights``).
* A row's result depends neither on the batch nor on the row's place in it, bit for bit: no row ever chooses the code
  that computes another.
* Out-parameters are fully overwritten, except for rows in error. Shapes must agree as the docstrings say.
* A slot, block, token, position or context out of range touches no memory: that row is left as it was, the other rows
  are computed, and the first such error is returned as an error word.
* Nothing is allocated but small scratch, once a launch, where a docstring says so.
"""

import s13lib.kernels.softgpu.quantised  # noqa: F401 — registers their twins
from s13lib.kernels.softgpu.attention import paged_attention
from s13lib.kernels.softgpu.cache import append_kv, rope, rope_append
from s13lib.kernels.softgpu.elementwise import add, copy, embedding, scale, silu_mul
from s13lib.kernels.softgpu.fused import (
    attention_linear_add,
    rms_norm_gate_up_silu_mul,
    rms_norm_qkv,
    rms_norm_qkv_rope_append,
    rope_append_attention,
)
from s13lib.kernels.softgpu.linear import gate_up_silu_mul, linear, linear_add, linear_qkv, linear_silu_mul
from s13lib.kernels.softgpu.norm import add_rms_norm, rms_norm

__all__ = [
    "add",
    "add_rms_norm",
    "append_kv",
    "attention_linear_add",
    "copy",
    "embedding",
    "gate_up_silu_mul",
    "linear",
    "linear_add",
    "linear_qkv",
    "linear_silu_mul",
    "paged_attention",
    "rms_norm",
    "rms_norm_gate_up_silu_mul",
    "rms_norm_qkv",
    "rms_norm_qkv_rope_append",
    "rope",
    "rope_append",
    "rope_append_attention",
    "scale",
    "silu_mul",
]
