"""Random arguments for every kernel, made to catch what goes wrong: odd sizes, scattered blocks, NaN wherever nothing
may be read, and NaN in every output, so that a number that was not written shows.
"""

import inspect
from dataclasses import dataclass

import pytest
import torch

from s13lib.kernels import reference, softgpu

torch.set_num_threads(1)  # on tensors this small a second thread only waits

BY_ROW = {
    *("x", "y", "q", "k", "v", "gate", "up", "residual", "delta", "input_ids", "positions", "slot_mapping"),
    *("block_tables", "context_lens", "out", "out_q", "out_k", "out_v", "out_residual"),
}
"""Parameters whose first axis is the batch."""

NOT_A_BLOCK = -7
"""Stands in a block table wherever the context does not reach: reading it would be reported."""


@dataclass
class Case:
    """A kernel's name and its arguments by name, in order; tensors are float32 or integer."""

    name: str
    arguments: dict

    @property
    def outputs(self) -> dict:
        """The tensors that the kernel writes."""
        return {p: t for p, t in self.arguments.items() if p.startswith("out") or p.endswith("cache")}

    @property
    def slots(self) -> list[int]:
        """The slots that are written, if this kernel writes the cache."""
        mapping = self.arguments.get("slot_mapping")
        return [] if mapping is None else [s for s in mapping.tolist() if s >= 0]

    def copy(self, **changes) -> "Case":
        """The same with its own tensors, and some arguments replaced."""
        own = {p: t.clone() if isinstance(t, torch.Tensor) else t for p, t in (self.arguments | changes).items()}
        return Case(self.name, own)

    def rows(self, index) -> "Case":
        """The same for some rows of the batch, in the given order."""
        return self.copy(**{p: t[index] for p, t in self.arguments.items() if p in BY_ROW})

    def run(self) -> int:
        """Run the compiled kernel on these very tensors; return the error word."""
        arguments = (t.numpy() if isinstance(t, torch.Tensor) else t for t in self.arguments.values())
        return getattr(softgpu, self.name).function(*arguments) or 0

    def reference(self) -> "Case":
        """The same after the reference kernel has run, in float64."""
        wide = self.copy()
        for p, t in wide.arguments.items():
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                wide.arguments[p] = t.double()
        getattr(reference, self.name)(*wide.arguments.values())
        return wide


def bits(tensor: torch.Tensor) -> bytes:
    """What is compared when bit for bit is meant: NaN equals itself, and 0 differs from −0."""
    return tensor.contiguous().numpy().tobytes()


def make_case(name: str, seed: int = 0, rows: int | None = None, contexts: list[int] | None = None, **sizes) -> Case:
    """Arguments for kernel ``name``. Sizes that are not given (heads, kv_heads, head_dim, hidden, width, block_size,
    vocabulary) are drawn from odd ones; contexts, one a row, from 1 to 300.
    """
    random = torch.Generator().manual_seed(seed * 1000 + len(name))

    def draw(choices):
        return choices[torch.randint(len(choices), (), generator=random)]

    def normal(*shape):
        return torch.randn(shape, generator=random)

    rows = rows or draw([1, 2, 3, 7, 13, 70])
    kv_heads = sizes.get("kv_heads") or draw([1, 2, 3])
    heads = sizes.get("heads") or kv_heads * draw([1, 3, 4])
    head_dim = sizes.get("head_dim") or draw([2, 6, 10, 16, 34, 64])
    hidden = sizes.get("hidden") or draw([1, 5, 31, 64, 77, 130])
    width = sizes.get("width") or draw([1, 9, 40, 101, 195])
    block_size = sizes.get("block_size") or draw([1, 4, 7, 16])
    vocabulary = sizes.get("vocabulary") or 19
    contexts = torch.randint(1, 301, (rows,), generator=random).tolist() if contexts is None else contexts

    max_blocks = -(-max(*contexts, 1) // block_size) + 1
    used_blocks = [-(-c // block_size) for c in contexts]
    blocks = sum(used_blocks) + 3
    free = torch.randperm(blocks, generator=random).to(torch.int32).split([*used_blocks, 3])
    block_tables = torch.full((rows, max_blocks), NOT_A_BLOCK, dtype=torch.int32)
    caches = torch.full((2, blocks, block_size, kv_heads, head_dim), torch.nan)
    slots = []
    writes_cache = "slot_mapping" in inspect.signature(getattr(reference, name)).parameters
    for r, context in enumerate(contexts):
        block_tables[r, : used_blocks[r]] = free[r]
        row_slots = [int(free[r][t // block_size]) * block_size + t % block_size for t in range(context)]
        slots.append(row_slots[-1] if context else -1)
        for slot in row_slots[: context - writes_cache]:  # the last token's slot is the kernel's to fill
            caches[:, slot // block_size, slot % block_size] = normal(2, kv_heads, head_dim)
    cos, sin = reference.rope_tables(1e4, head_dim, max(*contexts, 1))

    q_width, kv_width, in_flat = heads * head_dim, kv_heads * head_dim, name in ("copy", "scale")
    qkv_width = q_width + 2 * kv_width
    weights = {
        "embedding": (vocabulary, hidden),
        "rms_norm": (hidden,),
        "add_rms_norm": (hidden,),
        "linear": (width, hidden),
        "linear_add": (width, hidden),
        "linear_silu_mul": (width, hidden),
        "linear_qkv": (qkv_width, hidden),
        "rms_norm_qkv": (qkv_width, hidden),
        "rms_norm_qkv_rope_append": (qkv_width, hidden),
        "gate_up_silu_mul": (2 * width, hidden),
        "rms_norm_gate_up_silu_mul": (2 * width, hidden),
        "attention_linear_add": (width, q_width),
    }
    out_width = {"rope_append_attention": q_width, "paged_attention": q_width}.get(name, width)
    if name in ("embedding", "rms_norm", "add_rms_norm", "add"):
        out_width = hidden
    known = {
        "x": normal(rows) if in_flat else normal(rows, hidden),
        "y": normal(rows, hidden),
        "q": normal(rows, q_width),
        "k": normal(rows, kv_width),
        "v": normal(rows, kv_width),
        "gate": 3 * normal(rows, width),
        "up": normal(rows, width),
        "residual": normal(rows, out_width),
        "delta": normal(rows, hidden),
        "weight": normal(*weights.get(name, (1,))),
        "norm_weight": normal(hidden),
        "factor": 0.7,
        "eps": 1e-5,
        "scale": head_dim**-0.5,
        "input_ids": torch.randint(vocabulary, (rows,), generator=random),
        "cos": cos,
        "sin": sin,
        "positions": torch.tensor([max(c - 1, 0) for c in contexts]),
        "slot_mapping": torch.tensor(slots),
        "block_tables": block_tables,
        "context_lens": torch.tensor(contexts, dtype=torch.int32),
        "k_cache": caches[0].clone(),
        "v_cache": caches[1].clone(),
        "out": torch.full((rows,) if in_flat else (rows, out_width), torch.nan),
        "out_residual": torch.full((rows, hidden), torch.nan),
        "out_q": torch.full((rows, q_width), torch.nan),
        "out_k": torch.full((rows, kv_width), torch.nan),
        "out_v": torch.full((rows, kv_width), torch.nan),
    }
    return Case(name, {p: known[p] for p in inspect.signature(getattr(reference, name)).parameters})


@pytest.fixture(name="make_case")
def make_case_fixture():
    return make_case


@pytest.fixture(name="bits")
def bits_fixture():
    return bits
