"""Every kernel of the decoder: in plain torch (``reference``, the truth), for SoftGPU, and for CUDA (``cuda``).

All have the same names and the same arguments in the same order, and write into out-parameters, which follow the
tensors that they are made from. ``cuda`` holds those of stages 7 and 5. Importing this package is cheap: it imports
none of them; ``load`` does. ``bounds`` says how far a float32 kernel may be from the float64 reference. ``quantised``
holds the formats of weights in less than 32 bits.
"""

UNFUSED = (
    "copy",
    "scale",
    "embedding",
    "rms_norm",
    "linear",
    "rope",
    "append_kv",
    "paged_attention",
    "add",
    "silu_mul",
)
"""One operation each: fusion stage 15 is made of these."""

FUSED = (
    "rope_append",
    "linear_add",
    "linear_silu_mul",
    "linear_qkv",
    "add_rms_norm",
    "rope_append_attention",
    "gate_up_silu_mul",
    "rms_norm_qkv",
    "rms_norm_gate_up_silu_mul",
    "rms_norm_qkv_rope_append",
    "attention_linear_add",
)
"""Several operations in one launch; the name says which, in order."""

NAMES = UNFUSED + FUSED

MATRIX_KERNELS = (
    "embedding",
    "linear",
    "linear_add",
    "linear_silu_mul",
    "linear_qkv",
    "gate_up_silu_mul",
    "rms_norm_qkv",
    "rms_norm_gate_up_silu_mul",
    "rms_norm_qkv_rope_append",
    "attention_linear_add",
)
"""Those whose ``weight`` is a matrix: on SoftGPU each exists for every format of ``quantised.FORMATS`` as well."""


def in_format(name: str, weight_format: str) -> str:
    """The name of kernel ``name`` for weights in ``weight_format``: its own for "f32" or if it reads no matrix."""
    return name if weight_format == "f32" or name not in MATRIX_KERNELS else f"{name}_{weight_format}"


KERNEL_FOR = {
    ("embedding",): "embedding",
    **dict.fromkeys([("norm",), ("norm_2",), ("final_norm",)], "rms_norm"),
    **dict.fromkeys([("q",), ("k",), ("v",), ("o",), ("gate",), ("up",), ("down",), ("lm_head",)], "linear"),
    ("rope",): "rope",
    ("append",): "append_kv",
    ("attention",): "paged_attention",
    **dict.fromkeys([("add",), ("add_2",)], "add"),
    ("silu_mul",): "silu_mul",
    ("rope", "append"): "rope_append",
    **dict.fromkeys([("o", "add"), ("down", "add_2")], "linear_add"),
    ("up", "silu_mul"): "linear_silu_mul",
    ("q", "k", "v"): "linear_qkv",
    **dict.fromkeys([("add", "norm_2"), ("add_2", "norm"), ("add_2", "final_norm")], "add_rms_norm"),
    ("rope", "append", "attention"): "rope_append_attention",
    ("gate", "up", "silu_mul"): "gate_up_silu_mul",
    ("norm", "q", "k", "v"): "rms_norm_qkv",
    ("norm_2", "gate", "up", "silu_mul"): "rms_norm_gate_up_silu_mul",
    ("norm", "q", "k", "v", "rope", "append"): "rms_norm_qkv_rope_append",
    ("attention", "o", "add"): "attention_linear_add",
}
"""Which kernel runs a run of the simulator's operations (``s13lib.simulator.stages``)."""


def load(kind: str) -> None:
    """Import the kernels of a kind of device, "softgpu" or "cuda", so that ``device.kernels`` knows them."""
    if kind == "cuda":
        from s13lib.device import cuda
        from s13lib.kernels.cuda import KERNELS

        cuda.REGISTRY.update(KERNELS)
    else:
        import s13lib.kernels.softgpu  # noqa: F401 — registers them
