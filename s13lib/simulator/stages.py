"""Fusion stages: which operations share a kernel, and what each kernel moves and computes.

One decode step is a fixed stream of operations. Each operation reads and writes named tensors. A fusion stage is a
list of runs of that stream that become one kernel. What a kernel moves follows: it reads what it uses and did not
make, and writes what somebody outside still needs. A tensor made and used inside one kernel stays in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from s13lib.errors import look_up, require, require_whole
from s13lib.simulator.shapes import ModelShape

MOST_ROWS, MOST_TOKENS = 1_000_000, 100_000_000  # far above any engine's; larger numbers are typing errors


@dataclass(frozen=True)
class Workload:
    """What one step computes.

    Args:
        rows: rows of every matrix product: the batch in decode, the prompt's tokens in prefill.
        cached_tokens: tokens of the KV cache that attention reads, summed over sequences.
        attention_pairs: (query, key) pairs that attention computes.
        head_rows: rows for which the language-model head makes logits.
    """

    rows: int
    cached_tokens: int
    attention_pairs: int
    head_rows: int

    @classmethod
    def decode(cls, batch: int, context: int) -> Workload:
        """One token for each of ``batch`` sequences of ``context`` tokens, the new one included."""
        require_whole("batch", batch, 1, MOST_ROWS)
        require_whole("context", context, 1, MOST_TOKENS)
        return cls(batch, batch * context, batch * context, batch)

    @classmethod
    def prefill(cls, tokens: int) -> Workload:
        """One prompt of ``tokens`` tokens under a causal mask; logits for its last token alone."""
        require_whole("prefill", tokens, 1, MOST_ROWS)
        return cls(tokens, tokens, tokens * (tokens + 1) // 2, 1)


@dataclass(frozen=True)
class DTypes:
    """Bytes an element of weights, activations and KV cache. 16-bit throughout by default."""

    weight_bytes: float = 2
    activation_bytes: float = 2
    kv_bytes: float = 2

    def __post_init__(self) -> None:
        for name in ("weight_bytes", "activation_bytes", "kv_bytes"):
            require(0.01 <= getattr(self, name) <= 8, name, getattr(self, name), "from 0.01 to 8")


@dataclass(frozen=True)
class Operation:
    """One operation of the stream: the tensors that it reads and writes, its weight and its arithmetic.

    Tensors are written ``name:width``, the width being the name of a width of the model (see ``_widths``).
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    weight: Callable[[ModelShape], int] = lambda shape: 0  # elements
    flops: Callable[[ModelShape, Workload], int] = lambda shape, work: 0
    cache: str = ""  # "reads" the KV cache


def _linear(source: str, sink: str, n: str, m: str, head: bool = False) -> Operation:
    """A matrix product n → m without bias."""
    return Operation(
        (f"{source}:{n}",),
        (f"{sink}:{m}",),
        lambda s: _widths(s)[n] * _widths(s)[m],
        lambda s, w: 2 * (w.head_rows if head else w.rows) * _widths(s)[n] * _widths(s)[m],
    )


def _norm(source: str, sink: str) -> Operation:
    # The norm's own weight is left out: under 0.01 % of a layer's bytes in every model of the table.
    return Operation((f"{source}:hidden",), (f"{sink}:hidden",), flops=lambda s, w: 4 * w.rows * s.hidden)


def _add(residual: str, delta: str, sink: str) -> Operation:
    reads = (f"{residual}:hidden", f"{delta}:hidden")
    return Operation(reads, (f"{sink}:hidden",), flops=lambda s, w: w.rows * s.hidden)


# x enters a layer, x1 is the residual after attention, x2 leaves the layer.
LAYER: dict[str, Operation] = {
    "norm": _norm("x", "normed"),
    "q": _linear("normed", "q", "hidden", "q"),
    "k": _linear("normed", "k", "hidden", "kv"),
    "v": _linear("normed", "v", "hidden", "kv"),
    "rope": Operation(
        ("q:q", "k:kv"), ("q_rope:q", "k_rope:kv"), flops=lambda s, w: 6 * w.rows * (s.q_width + s.kv_width)
    ),
    "append": Operation(("k_rope:kv", "v:kv"), ("k_cache:kv", "v_cache:kv")),
    "attention": Operation(
        ("q_rope:q",), ("mixed:q",), flops=lambda s, w: 4 * w.attention_pairs * s.q_width, cache="reads"
    ),
    "o": _linear("mixed", "attended", "q", "hidden"),
    "add": _add("x", "attended", "x1"),
    "norm_2": _norm("x1", "normed_2"),
    "gate": _linear("normed_2", "gate", "hidden", "ffn"),
    "up": _linear("normed_2", "up", "hidden", "ffn"),
    "silu_mul": Operation(("gate:ffn", "up:ffn"), ("gated:ffn",), flops=lambda s, w: 4 * w.rows * s.ffn),
    "down": _linear("gated", "fed", "ffn", "hidden"),
    "add_2": _add("x1", "fed", "x2"),
}
EMBEDDING = Operation((), ("x:hidden",))
FINAL_NORM = _norm("x", "final")
LM_HEAD = _linear("final", "logits", "hidden", "vocab", head=True)

PARTS = ("embedding", "layers", "final_norm", "lm_head")

# Runs of operations that share a kernel. What is not listed is a kernel of its own. "norm_2" and "add_2" are the
# second norm and add of a layer; a run may cross into the next layer (stage 7's add+norm).
STAGES: dict[int, tuple[tuple[str, ...], ...]] = {
    15: (),
    11: (("rope", "append"), ("o", "add"), ("up", "silu_mul"), ("down", "add")),
    9: (("q", "k", "v"), ("rope", "append"), ("o", "add"), ("up", "silu_mul"), ("down", "add")),
    7: (("add", "norm"), ("q", "k", "v"), ("rope", "append", "attention"), ("gate", "up", "silu_mul")),
    5: (
        ("norm", "q", "k", "v"),
        ("rope", "append", "attention"),
        ("o", "add"),
        ("norm", "gate", "up", "silu_mul"),
        ("down", "add"),
    ),
    4: (
        ("norm", "q", "k", "v", "rope", "append"),
        ("attention", "o", "add"),
        ("norm", "gate", "up", "silu_mul"),
        ("down", "add"),
    ),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel of a step: what it fuses, what it moves and what it computes. Layers share their kernels.

    Bytes are split by what they are: weights (the same for every batch), activations (tensors between kernels, the
    appended keys and values included) and the cached keys and values that attention reads.
    """

    name: str
    operations: tuple[str, ...]
    part: str
    weight_bytes: float
    activation_bytes: float
    cache_bytes: float
    flops: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def bytes_moved(self) -> float:
        """All bytes that the kernel moves."""
        return self.weight_bytes + self.activation_bytes + self.cache_bytes


def step_kernels(
    shape: ModelShape,
    stage: int,
    work: Workload,
    dtypes: DTypes = DTypes(),
    parts: Iterable[str] = PARTS,
) -> tuple[Kernel, ...]:
    """The kernels of one step in order of launch.

    Args:
        shape: the model.
        stage: 15, 11, 9, 7, 5 or 4: kernels a layer.
        work: decode or prefill.
        dtypes: bytes an element.
        parts: which of ``PARTS`` are counted. A kernel that fuses across a border belongs to the later part: at
            stage 7 the last add rides on the final norm, and layer 0 starts with a plain norm.

    Raises:
        InputError: unknown stage or part.
    """
    stage_number = check_stage(stage)
    wanted = check_parts(parts)
    return _step_kernels(shape, stage_number, work, dtypes, wanted)


def check_stage(stage: int) -> int:
    """Return ``stage`` if it is one of ``STAGES``, else raise an ``InputError``."""
    allowed = ", ".join(str(s) for s in STAGES)
    require(stage in STAGES and not isinstance(stage, bool), "stage", stage, f"one of {allowed}")
    return stage


def check_parts(parts: Iterable[str]) -> tuple[str, ...]:
    """Return ``parts`` in the order of a step, without repeats; unknown or no parts are an ``InputError``."""
    table = {part: part for part in PARTS}
    chosen = {look_up(table, part, "parts") for part in parts}
    require(bool(chosen), "parts", (), f"at least one of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in chosen)


@lru_cache(maxsize=4096)
def _step_kernels(
    shape: ModelShape, stage: int, work: Workload, dtypes: DTypes, parts: tuple[str, ...]
) -> tuple[Kernel, ...]:
    groups = [(names, part) for names, part, _ in grouped_stream(shape.layers, stage) if part in parts]
    distinct = {
        group: Kernel(kernel_name(group[0]), *group, *_measure(shape, work, dtypes, group[0])) for group in set(groups)
    }
    return tuple(distinct[group] for group in groups)


@lru_cache(maxsize=64)
def grouped_stream(layers: int, stage: int) -> tuple[tuple[tuple[str, ...], str, int | None], ...]:
    """The step's operations grouped into kernels: (operations, part, layer) in order.

    Greedy: at each place the longest run of ``STAGES[stage]`` that fits, else the operation alone.
    """
    stream = [("embedding", "embedding", None)]
    stream += [(name, "layers", layer) for layer in range(layers) for name in LAYER]
    stream += [("final_norm", "final_norm", None), ("lm_head", "lm_head", None)]
    plain = [_plain(name) for name, _, _ in stream]
    runs = sorted(STAGES[stage], key=len, reverse=True)
    groups, at = [], 0
    while at < len(stream):
        length = next((len(run) for run in runs if tuple(plain[at : at + len(run)]) == run), 1)
        members = stream[at : at + length]
        groups.append((tuple(name for name, _, _ in members), *members[-1][1:]))
        at += length
    return tuple(groups)


def _plain(name: str) -> str:
    """The operation's kind, by which runs are matched."""
    return "norm" if name == "final_norm" else name.removesuffix("_2")


def kernel_name(operations: tuple[str, ...]) -> str:
    """What the kernel fuses, for people: ``norm+q+k+v``."""
    return "+".join(name if name == "final_norm" else _plain(name) for name in operations)


def _measure(shape: ModelShape, work: Workload, dtypes: DTypes, names: tuple[str, ...]) -> tuple:
    """(weight bytes, activation bytes, cache bytes, flops, inputs, outputs) of a kernel that fuses ``names``."""
    operations = [_operation(name) for name in names]
    made = [tensor for op in operations for tensor in op.writes]
    # "add_2, norm" of stage 7 crosses a layer: the next layer's x is this layer's x2.
    renamed = {"x:hidden": "x2:hidden"} if "x2:hidden" in made else {}
    used = [renamed.get(tensor, tensor) for op in operations for tensor in op.reads]
    inputs = tuple(dict.fromkeys(t for t in used if t not in made))
    outputs = tuple(t for t in made if _needed_later(t, names))
    widths = _widths(shape)

    def elements(tensor: str) -> int:
        name, width = tensor.split(":")
        return (work.head_rows if name in HEAD_TENSORS else work.rows) * widths[width]

    activations = sum(
        elements(t) * (dtypes.kv_bytes if "_cache" in t else dtypes.activation_bytes) for t in inputs + outputs
    )
    weights = sum(op.weight(shape) for op in operations)
    if "embedding" in names:
        weights = work.rows * shape.hidden  # one row of the table for each token
    cache = 0.0
    if any(op.cache for op in operations):
        cache = 2 * work.cached_tokens * shape.kv_width * dtypes.kv_bytes
    flops = sum(op.flops(shape, work) for op in operations)
    return weights * dtypes.weight_bytes, activations, cache, flops, inputs, outputs


HEAD_TENSORS = ("final", "logits")


def _operation(name: str) -> Operation:
    return LAYER.get(name) or {"embedding": EMBEDDING, "final_norm": FINAL_NORM, "lm_head": LM_HEAD}[name]


@cache
def _needed_later(tensor: str, names: tuple[str, ...]) -> bool:
    """Whether an operation outside the kernel reads ``tensor`` (the cache and the logits are always needed)."""
    if "_cache" in tensor or tensor in ("x:hidden", "x2:hidden", "final:hidden", "logits:vocab"):
        return True
    return any(tensor in op.reads for other, op in LAYER.items() if other not in names)


def _widths(shape: ModelShape) -> dict[str, int]:
    return {
        "hidden": shape.hidden,
        "q": shape.q_width,
        "kv": shape.kv_width,
        "ffn": shape.ffn,
        "vocab": shape.vocab,
    }
