"""One layer of the decoder at each fusion stage, as kernel launches.

Each function launches one layer. ``k.<kernel>(...)`` launches a kernel; ``m`` is what all layers share, ``w`` the
layer's weights, ``k_cache`` and ``v_cache`` its cache, ``b`` the step's buffers. The residual stream is ``b.x``, which
the adds update in place. Lines that differ from the stage before are marked with ``<-``.

Stages are named by kernels a layer, as in ``s13lib.simulator.stages``; a test holds the two tables together.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from s13lib.device import Device
from s13lib.device.protocol import BoundLaunch
from s13lib.errors import require
from s13lib.kernels import in_format

Stage = int | str
TORCH = "torch"
"""The stage that is made of PyTorch's own operators, see ``s13lib.model.torch_stage``."""


def layer_15(k, m, w, k_cache, v_cache, b, first: bool) -> None:
    """Nothing is fused."""
    k.rms_norm(b.x, w.norm, m.eps, b.normed)
    k.linear(b.normed, w.q, b.q)
    k.linear(b.normed, w.k, b.k)
    k.linear(b.normed, w.v, b.v)
    k.rope(b.q, b.k, m.cos, m.sin, m.positions, b.q_rope, b.k_rope)
    k.append_kv(b.k_rope, b.v, m.slot_mapping, k_cache, v_cache)
    k.paged_attention(b.q_rope, m.block_tables, m.context_lens, m.scale, k_cache, v_cache, b.mixed)
    k.linear(b.mixed, w.o, b.delta)
    k.add(b.x, b.delta, b.x)
    k.rms_norm(b.x, w.norm_2, m.eps, b.normed)
    k.linear(b.normed, w.gate, b.gate)
    k.linear(b.normed, w.up, b.up)
    k.silu_mul(b.gate, b.up, b.gated)
    k.linear(b.gated, w.down, b.delta)
    k.add(b.x, b.delta, b.x)


def layer_11(k, m, w, k_cache, v_cache, b, first: bool) -> None:
    """The append rides on RoPE, the adds on o and down, SiLU·mul on up."""
    k.rms_norm(b.x, w.norm, m.eps, b.normed)
    k.linear(b.normed, w.q, b.q)
    k.linear(b.normed, w.k, b.k)
    k.linear(b.normed, w.v, b.v)
    k.rope_append(b.q, b.k, b.v, m.cos, m.sin, m.positions, m.slot_mapping, k_cache, v_cache, b.q_rope)  # <-
    k.paged_attention(b.q_rope, m.block_tables, m.context_lens, m.scale, k_cache, v_cache, b.mixed)
    k.linear_add(b.mixed, w.o, b.x, b.x)  # <-
    k.rms_norm(b.x, w.norm_2, m.eps, b.normed)
    k.linear(b.normed, w.gate, b.gate)
    k.linear_silu_mul(b.normed, w.up, b.gate, b.gated)  # <-
    k.linear_add(b.gated, w.down, b.x, b.x)  # <-


def layer_9(k, m, w, k_cache, v_cache, b, first: bool) -> None:
    """And q, k, v are one packed matrix product."""
    k.rms_norm(b.x, w.norm, m.eps, b.normed)
    k.linear_qkv(b.normed, w.qkv, b.q, b.k, b.v)  # <-
    k.rope_append(b.q, b.k, b.v, m.cos, m.sin, m.positions, m.slot_mapping, k_cache, v_cache, b.q_rope)
    k.paged_attention(b.q_rope, m.block_tables, m.context_lens, m.scale, k_cache, v_cache, b.mixed)
    k.linear_add(b.mixed, w.o, b.x, b.x)
    k.rms_norm(b.x, w.norm_2, m.eps, b.normed)
    k.linear(b.normed, w.gate, b.gate)
    k.linear_silu_mul(b.normed, w.up, b.gate, b.gated)
    k.linear_add(b.gated, w.down, b.x, b.x)


def layer_7(k, m, w, k_cache, v_cache, b, first: bool) -> None:
    """The lesson's four fusions: add + norm, packed QKV, RoPE into attention, gate · up in one pass.

    The add before a layer's first norm is the previous layer's last: layer 0 has none, and the last one rides on the
    final norm.
    """
    if first:
        k.rms_norm(b.x, w.norm, m.eps, b.normed)
    else:
        k.add_rms_norm(b.x, b.delta, w.norm, m.eps, b.x, b.normed)  # <-
    k.linear_qkv(b.normed, w.qkv, b.q, b.k, b.v)
    k.rope_append_attention(  # <-
        b.q, b.k, b.v, m.cos, m.sin, m.positions, m.slot_mapping, m.block_tables, m.context_lens, m.scale,
        k_cache, v_cache, b.mixed,
    )  # fmt: skip
    k.linear(b.mixed, w.o, b.delta)  # <-
    k.add_rms_norm(b.x, b.delta, w.norm_2, m.eps, b.x, b.normed)  # <-
    k.gate_up_silu_mul(b.normed, w.gate_up, b.gated)  # <-
    k.linear(b.gated, w.down, b.delta)  # <-


def layer_5(k, m, w, k_cache, v_cache, b, first: bool) -> None:
    """Norms are prologues of the products that read them, adds are epilogues of o and down."""
    k.rms_norm_qkv(b.x, w.norm, m.eps, w.qkv, b.q, b.k, b.v)  # <-
    k.rope_append_attention(
        b.q, b.k, b.v, m.cos, m.sin, m.positions, m.slot_mapping, m.block_tables, m.context_lens, m.scale,
        k_cache, v_cache, b.mixed,
    )  # fmt: skip
    k.linear_add(b.mixed, w.o, b.x, b.x)  # <-
    k.rms_norm_gate_up_silu_mul(b.x, w.norm_2, m.eps, w.gate_up, b.gated)  # <-
    k.linear_add(b.gated, w.down, b.x, b.x)  # <-


def layer_4(k, m, w, k_cache, v_cache, b, first: bool) -> None:
    """One kernel for each all-to-all dependency: x → q, k, v; attention → o; x → gate, up; activation → down."""
    k.rms_norm_qkv_rope_append(  # <-
        b.x, w.norm, m.eps, w.qkv, m.cos, m.sin, m.positions, m.slot_mapping, k_cache, v_cache, b.q_rope
    )
    k.attention_linear_add(  # <-
        b.q_rope, m.block_tables, m.context_lens, m.scale, k_cache, v_cache, w.o, b.x, b.x
    )
    k.rms_norm_gate_up_silu_mul(b.x, w.norm_2, m.eps, w.gate_up, b.gated)
    k.linear_add(b.gated, w.down, b.x, b.x)


LAYERS: dict[int, Callable[..., None]] = {
    15: layer_15,
    11: layer_11,
    9: layer_9,
    7: layer_7,
    5: layer_5,
    4: layer_4,
}


STAGES: dict[str, tuple[Stage, ...]] = {"softgpu": tuple(LAYERS), "cuda": (TORCH, 7, 5)}
"""The stages of each kind of device, the least fused first."""


def stages_of(device: Device) -> tuple[Stage, ...]:
    """The fusion stages that ``device`` has, the least fused first."""
    return STAGES[device.kind]


def check_stage(stage: Stage, device: Device) -> None:
    """An ``InputError`` unless ``device`` has that stage."""

    def words(kind: str) -> str:
        return f"{', '.join(map(str, STAGES[kind]))} on {'CUDA' if kind == 'cuda' else 'SoftGPU'}"

    elsewhere = [
        f"{words(kind)} (S13_DEVICE={kind})" for kind in STAGES if kind != device.kind and stage in STAGES[kind]
    ]
    require(stage in stages_of(device), "stage", stage, "; ".join([f"one of {words(device.kind)}", *elsewhere]))


def final_norm(k, m, norm, b, stage: int) -> None:
    """The norm before the language-model head; at stage 7 it carries the last layer's add."""
    if stage == 7:
        k.add_rms_norm(b.x, b.delta, norm, m.eps, b.x, b.normed)
    else:
        k.rms_norm(b.x, norm, m.eps, b.normed)


def kernels_of(stage: int, layer_format: str = "f32", head_format: str = "f32") -> list[str]:
    """The names of the kernels that a step at ``stage`` launches, each once: to compile them beforehand."""
    names: list[str] = []
    recorder, anything = _Recorder(names), _Anything()
    for first in (True, False):
        LAYERS[stage](recorder, anything, anything, anything, anything, anything, first)
    final_norm(recorder, anything, anything, anything, stage)
    names = [in_format(name, layer_format) for name in names]
    return list(dict.fromkeys([in_format(name, head_format) for name in ("embedding", "linear")] + names))


class Binder:
    """In the place of ``k``: binds each launch, to be submitted again and again, and submits none."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.launches: list[BoundLaunch] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.launches.append(self._device.bind(name, *arguments))


class _Recorder:
    """In the place of ``k``: notes the names."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Callable:
        return lambda *arguments: self._names.append(name)


class _Anything:
    """In the place of every other argument: has any attribute."""

    def __getattr__(self, name: str) -> None:
        return None


def shared(config, cos, sin, inputs) -> SimpleNamespace:
    """What all layers read: ``m`` of the functions above."""
    return SimpleNamespace(
        eps=config.norm_eps,
        scale=config.head_dim**-0.5,
        cos=cos,
        sin=sin,
        positions=inputs.positions,
        slot_mapping=inputs.slot_mapping,
        block_tables=inputs.block_tables,
        context_lens=inputs.context_lens,
    )
