"""Exercise 2: the residual add and the RMSNorm behind it: one function, in the block, counted, in place, as a kernel.

Here ``x`` is what attention or the FFN gave, and ``residual`` the stream that it is added to.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from s13lib.device import F32, Kernel, SoftGPU, best_device
from s13lib.errors import InputError
from s13lib.grading.guard import time_limit
from s13lib.grading.part import Part, Refused, Text
from s13lib.kernels import reference as kernels
from s13lib.kernels.textbook import Block, DecoderConfig, RMSNorm, rope_tables
from s13lib.profiling.intermediates import record_operations

LIBRARY = (
    "s13lib.kernels.textbook:RMSNorm",
    "s13lib.kernels.reference:rms_norm",
    "s13lib.kernels.reference:add_rms_norm",
)


def textbook_norm(weight: Tensor, eps: float) -> RMSNorm:
    """The textbook's RMSNorm with these weights."""
    norm = RMSNorm(weight.shape[0], eps).requires_grad_(False)
    norm.weight.data = weight
    return norm


# ---- 2a: one function


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Reference: the textbook's add, then its RMSNorm: (normed, new residual), both like ``x`` [..., h]."""
    total = x + residual
    return textbook_norm(weight, eps)(total), total


def make_pairs(rng: np.random.Generator) -> list[tuple]:
    """The example of the notebook, then shapes [h], [b, h] and [b, t, h]; one row of zeros."""
    example = ([1.0, 2.0], [2.0, 2.0], [1.0, 1.0])
    cases = [(*map(torch.tensor, example), 0.0)]
    for shape in ((3,), (2, 4), (2, 3, 16), (5, 64)):
        x, residual, weight = (_normal(rng, size, digits=2) for size in (shape, shape, shape[-1:]))
        cases.append((x, residual, weight, round(float(rng.uniform(0.05, 0.5)), 3)))
    cases[-1][0][0] = cases[-1][1][0] = 0.0
    return cases


def _normal(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, digits: int = 7
) -> Tensor:
    return torch.from_numpy(rng.normal(size=shape).round(digits).astype(np.float32)).to(dtype)


NORMED, NEW_RESIDUAL = Text("normed", "归一化后的张量"), Text("new residual", "新的残差")


def view_pair(inputs: tuple, value: object) -> dict[str, object]:
    """The two results by name."""
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise Refused(
            "Return two tensors: the normed one and the new residual.", "要返回两个张量：归一化后的，和新的残差。"
        )
    return dict(zip((NORMED, NEW_RESIDUAL), value, strict=True))


# ---- 2b: in the textbook's blocks


def fused_layers(
    blocks: list[Block],
    norm: RMSNorm,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    cache: list | None,
    add_rms_norm: Callable,
) -> Tensor:
    """Reference: each half of a layer hands its result to the fused norm of the half behind it."""
    halves, norms = [], []
    for number, block in enumerate(blocks):
        halves += [lambda y, b=block, n=number: b.self_attn(y, cos, sin, cache, n), block.mlp]
        norms += [block.input_layernorm, block.post_attention_layernorm]
    normed, residual = norms[0](x), x
    for half, behind in zip(halves, [*norms[1:], norm], strict=True):
        normed, residual = add_rms_norm(half(normed), residual, behind.weight, behind.eps)
    return normed


def make_stacks(rng: np.random.Generator) -> list[tuple]:
    """One to three layers; without a cache, with an empty one (past 0), and with tokens in it."""
    rows = [(1, 1, 1, None), (2, 1, 2, None), (2, 2, 3, 0), (3, 1, 1, 4), (3, 2, 1, 3)]
    return [
        (layers, int(rng.integers(2**31)), _normal(rng, (batch, tokens, 16)), past)
        for layers, batch, tokens, past in rows
    ]


def stack_of(layers: int, weights_seed: int, x: Tensor, past: int | None) -> tuple:
    """What the answer gets: blocks with random weights, and a fused norm, which counts its calls in ``.calls``."""
    config = DecoderConfig(layers, 16, 24, 2, 1, 8, 1, 1e4, 1e-5, True, 64)
    blocks, norm = make_blocks(config, weights_seed)
    draw = torch.Generator().manual_seed(weights_seed + 1)
    cache = None
    if past is not None:
        cache = [tuple(torch.randn(x.shape[0], 1, past, 8, generator=draw) for _ in "kv") for _ in blocks]
    start = past or 0
    cos, sin = rope_tables(torch.arange(start, start + x.shape[1]), 8, 1e4, x.dtype)

    def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        add_rms_norm.calls += 1
        normed, total = torch.empty_like(x), torch.empty_like(x)
        kernels.add_rms_norm(residual, x, weight, eps, total, normed)
        return normed, total

    add_rms_norm.calls = 0
    return blocks, norm, x, cos, sin, cache, add_rms_norm


def drive_stack(answer: Callable, layers: int, weights_seed: int, x: Tensor, past: int | None) -> dict[str, object]:
    """Run the answer on such blocks."""
    arguments = stack_of(layers, weights_seed, x, past)
    *_, cache, add_rms_norm = arguments
    with torch.no_grad():
        hidden = answer(*arguments)
    keys = cache and [pair[0] for pair in cache]
    return {"output": hidden, "keys": keys, "calls": add_rms_norm.calls}


def view_stack(inputs: tuple, value: dict) -> dict[Text, object]:
    """The same, in words."""
    return {
        Text("output", "输出"): value["output"],
        Text("keys in the cache", "缓存里的 key"): value["keys"],
        Text("calls of add_rms_norm", "add_rms_norm 的调用次数"): value["calls"],
    }


def make_blocks(config: DecoderConfig, seed: int) -> tuple[list[Block], RMSNorm]:
    """Blocks and a final norm with random weights, and with an eps for each norm, so that none is taken for another."""
    draw = torch.Generator().manual_seed(seed)
    blocks = [Block(config).requires_grad_(False) for _ in range(config.layers)]
    norm = RMSNorm(config.hidden, config.norm_eps).requires_grad_(False)
    for module in (*blocks, norm):
        for weight in module.parameters():
            weight.normal_(0, 0.4, generator=draw)
        for each in module.modules():
            if isinstance(each, RMSNorm):
                each.weight += 1
                each.eps = float(torch.rand(1, generator=draw)) / 10
    return blocks, norm


def tried_stack(inputs: tuple) -> Text:
    """Say how many layers, which shape, and what is in the cache."""
    layers, _, x, past = inputs
    shape = list(x.shape)
    return Text(
        f"{layers} layer{'s'[: layers > 1]}, x {shape}, " + ("no cache" if past is None else f"{past} tokens cached"),
        f"{layers} 层，x {shape}，" + ("没有缓存" if past is None else f"缓存里有 {past} 个 token"),
    )


# ---- 2c: count


def intermediates(record: dict[str, list]) -> tuple[int, int]:
    """Reference: memory that was filled, and was neither there before nor is a result: (how many, bytes)."""
    filled = {memory for _, memory, _ in record["steps"]}
    between = filled - set(record["inputs"]) - set(record["outputs"])
    size_of = {memory: size for _, memory, size in record["steps"]}
    return len(between), sum(size_of[memory] for memory in between)


def make_records(rng: np.random.Generator) -> list[tuple]:
    """Small records written by hand, then records of real code: the pair in fp32 and bf16, PyTorch's norm, layers."""
    a, b, c = (int(n) * 4 for n in rng.choice(range(2, 200), 3, replace=False))
    by_hand = [
        ([0, 1], [("add", 2, a), ("mul", 3, a)], [3]),
        ([0], [("exp", 1, a), ("select", 1, a), ("add_", 1, a), ("sum", 2, b), ("mul", 3, c)], [3]),
        ([0, 1], [("view", 0, a), ("add_", 0, a), ("pow", 2, b), ("mean", 3, c), ("mul_", 1, a)], [1]),
        ([0], [("unsqueeze", 0, a), ("exp", 1, a), ("slice", 1, a)], [1, 0]),
        (
            [0],
            [("exp", 1, a), ("reshape", 1, a), ("t", 1, a), ("reshape", 2, b), ("permute", 2, b), ("sum", 3, c)],
            [3],
        ),
    ]
    records = [dict(zip(("inputs", "steps", "outputs"), parts, strict=True)) for parts in by_hand]
    for dtype, fused in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        shape = tuple(int(n) for n in rng.integers(2, 9, 2))
        x, residual, weight = (_normal(rng, size, dtype) for size in (shape, shape, shape[1:]))
        norm = textbook_norm(weight, 1e-5)
        pair = _with_torchs_norm if fused else _with_textbook_norm
        records.append(record_operations(pair, x, residual, norm))
    layers = int(rng.integers(1, 4))
    blocks, norm = make_blocks(DecoderConfig(layers, 16, 24, 2, 1, 8, 1, 1e4, 1e-5, True, 64), int(rng.integers(2**31)))
    cos, sin = rope_tables(torch.arange(2), 8, 1e4, torch.float32)
    records.append(record_operations(_plain_layers, blocks, norm, _normal(rng, (1, 2, 16)), cos, sin))
    return [(record,) for record in records]


def _with_textbook_norm(x, residual, norm):
    total = x + residual
    return norm(total), total


def _with_torchs_norm(x, residual, norm):
    total = x + residual
    return rms_norm(total, norm.weight.shape, norm.weight, norm.eps), total


def _plain_layers(blocks, norm, x, cos, sin):
    for number, block in enumerate(blocks):
        x = block(x, cos, sin, None, number)
    return norm(x)


HOW_MANY, BYTES = Text("intermediates", "中间张量的个数"), Text("their bytes", "它们的字节数")


def view_count(inputs: tuple, value: object) -> dict[str, object]:
    """The two numbers by name."""
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise Refused("Return two numbers: how many, and their bytes.", "要返回两个数：有几个，以及它们的字节数。")
    return dict(zip((HOW_MANY, BYTES), value, strict=True))


def tried_record(inputs: tuple) -> Text:
    """A short record in full, else its size and its operations."""
    (record,) = inputs
    steps = record["steps"]
    if len(steps) <= 6:
        return Text(f"intermediates({record})", f"intermediates({record})")
    names = ", ".join(name for name, _, _ in steps[:9])
    return Text(
        f"a record of {len(steps)} steps, outputs {record['outputs']}: {names}{', …'[: 3 * (len(steps) > 9)]}",
        f"有 {len(steps)} 步的记录，outputs 为 {record['outputs']}：{names}{'，…' if len(steps) > 9 else ''}",
    )


# ---- 2d: in place and in bf16

SIDE_BY_SIDE, STACKED = "side by side", "stacked"
TIE = 1e-6  # a value so near to the middle between two bf16 numbers (relative) may round either way


def fused_add_rms_norm_(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    """Reference: the textbook's add and RMSNorm, with its roundings; the results copied into the arguments."""
    total = x + residual
    x.copy_(textbook_norm(weight, eps)(total))
    residual.copy_(total)


def make_memories(rng: np.random.Generator) -> list[tuple]:
    """A small one in fp32, then both layouts in both types, drawn until they are telling."""
    rows = [
        (torch.float32, STACKED, 1, 2),
        (torch.float32, SIDE_BY_SIDE, 3, 16),
        (torch.bfloat16, STACKED, 4, 64),
        (torch.bfloat16, SIDE_BY_SIDE, 6, 32),
        (torch.bfloat16, SIDE_BY_SIDE, 3, 96),
    ]
    return [_memory(rng, *row) for row in rows]


def _memory(rng: np.random.Generator, dtype: torch.dtype, layout: str, rows: int, hidden: int) -> tuple:
    while True:
        memory = _normal(rng, (2, rows, hidden) if layout == STACKED else (rows, 2 * hidden), dtype)
        weight, eps = _normal(rng, (hidden,), dtype), round(float(rng.uniform(0.01, 0.2)), 3)
        if dtype == torch.float32 or _telling(torch.add(*parts_of(memory, layout)), eps):
            return memory, layout, weight, eps


def _telling(total: Tensor, eps: float) -> bool:
    """Whether every right answer rounds alike (no tie), and a row shows whether its mean was rounded to 16 bits."""
    factor = torch.rsqrt(total.double().pow(2).mean(-1, keepdim=True) + eps)
    below, above = ((total * factor * (1 + sign * TIE)).to(total.dtype) for sign in (-1, 1))
    factor_of_rounded = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + eps)
    return torch.equal(below, above) and not torch.equal(factor_of_rounded, factor.to(total.dtype))


def parts_of(memory: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """x and residual as views of one memory: its two rows of pages, or its left and right columns."""
    return tuple(memory.unbind(0)) if layout == STACKED else memory.chunk(2, dim=-1)


def drive_in_place(answer: Callable, memory: Tensor, layout: str, weight: Tensor, eps: float) -> dict[str, Tensor]:
    """Give the answer two views, and read the memory afterwards: what it returns does not matter."""
    answer(*parts_of(memory, layout), weight, eps)
    x, residual = parts_of(memory, layout)
    return {"residual": residual, "x": x}


def tried_memory(inputs: tuple) -> Text:
    """Say the type and the layout."""
    memory, layout, _, eps = inputs
    shape = list(parts_of(memory, layout)[0].shape)
    dtype = str(memory.dtype).removeprefix("torch.")
    return Text(
        f"x and residual {shape}, {dtype}, {layout} in one memory, eps={eps}",
        f"x 和 residual {shape}，{dtype}，在同一块内存里{'上下叠放' if layout == STACKED else '左右并排'}，eps={eps}",
    )


# ---- 2e: a kernel

ON_PYTHON, ON_DEVICE = "plain Python", "SoftGPU"
PYTHON_SECONDS = 3.0
COMPILER_SECONDS = 60.0  # much of NumPy, on a busy machine


def fused_add_rms_norm_kernel(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """Reference, by whole arrays: the first ``rows`` rows in place."""
    total = residual[:rows] + x[:rows]
    mean_square = (total * total).sum(axis=1) / x.shape[1]
    residual[:rows] = total
    x[:rows] = total / np.sqrt(mean_square + eps).reshape((rows, 1)) * weight


def make_rows(rng: np.random.Generator) -> list[tuple]:
    """Each shape in plain Python first, and only then on the device; with padding rows behind the real ones."""
    cases = []
    for total, hidden, rows in ((1, 2, 1), (3, 4, 2), (4, 7, 4), (4, 16, 3), (2, 5, 0)):
        arrays = [rng.normal(size=size).astype(np.float32) for size in ((total, hidden), (total, hidden), hidden)]
        cases.append((*arrays, round(float(rng.uniform(0.05, 0.5)), 3), rows))
    return [(where, *case) for where in (ON_PYTHON, ON_DEVICE) for case in cases]


def drive_kernel(
    answer: Callable, where: str, x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float, rows: int
) -> dict[str, object] | str:
    """Run the answer as the Python function that it is, where a loop without end can be stopped; then compiled.

    Returns a sentence when it does not compile.
    """
    answer = undecorated(answer)
    arrays = {"x": x.copy(), "residual": residual.copy()}
    with time_limit(PYTHON_SECONDS):
        answer(*arrays.values(), weight if where == ON_PYTHON else weight.copy(), eps, rows)
    if where == ON_DEVICE:
        device = softgpu()
        try:
            launch = device.launcher(kernel_of(answer))
        except InputError as error:
            return told(error)
        arrays = {name: device.tensor(array) for name, array in (("x", x), ("residual", residual))}
        launch(*arrays.values(), device.tensor(weight), eps, rows)
        device.synchronize()
    return {"residual": arrays["residual"], "x": arrays["x"]}


def undecorated(answer: Callable) -> Callable:
    """The function behind ``@device.kernel`` or ``@njit``, should a learner have written one."""
    for name in ("kernel", "python_function", "py_func"):
        answer = getattr(answer, name, answer)
    return answer


def softgpu() -> SoftGPU:
    """The course's device, or where that is another one, a SoftGPU beside it."""
    device = best_device(default="softgpu")
    return device if isinstance(device, SoftGPU) else _softgpu_beside()


_softgpu_beside = lru_cache(maxsize=1)(SoftGPU)


@lru_cache(maxsize=8)
def kernel_of(function: Callable) -> Kernel:
    """A learner's kernel, compiled once. It writes into its first two parameters, whatever it calls them."""
    return Kernel(function, tuple(inspect.signature(function).parameters)[:2], checked=True)


def told(error: InputError) -> str:
    """What the compiler says, in one line: its first complaint, and the line of code that it points at."""
    lines = [re.sub(r" from '[^']*'", "", line.strip()) for line in str(error).splitlines()]
    complaint = next((line for line in lines[1:] if line.startswith("No implementation")), lines[0])
    pointed = [before for before, line in pairwise(lines) if line == "^"]
    at = f" at `{pointed[-1]}`" if pointed else ""
    return f"{complaint.partition(': ')[2] if complaint is lines[0] else complaint}".rstrip(".:") + at


def view_rows(inputs: tuple, value: object) -> object:
    """Compare the arrays; say why it does not compile."""
    if isinstance(value, str):
        raise Refused(
            f"It runs in plain Python but does not compile: {value}. Use numbers, indices, loops and np.sqrt alone.",
            f"纯 Python 能运行，但编译不了：{value}。只用数、下标、循环和 np.sqrt 来写。",
        )
    return value


def tried_rows(inputs: tuple) -> Text:
    """Say where, the shape and the rows."""
    where, x, _, _, eps, rows = inputs
    shape = list(x.shape)
    return Text(
        f"{'on SoftGPU' if where == ON_DEVICE else 'in plain Python'}: x and residual {shape}, eps={eps}, rows={rows}",
        f"{'在 SoftGPU 上' if where == ON_DEVICE else '用纯 Python'}：x 和 residual {shape}，eps={eps}，rows={rows}",
    )


PARTS = {
    "2a": Part(fused_add_rms_norm, make_pairs, view=view_pair, forbidden=LIBRARY, tolerance=1e-5),
    "2b": Part(
        fused_layers, make_stacks, drive=drive_stack, view=view_stack, tried=tried_stack, tolerance=1e-4,
        shown_inputs=lambda inputs: stack_of(*inputs),
    ),
    "2c": Part(intermediates, make_records, view=view_count, tried=tried_record),
    "2d": Part(
        fused_add_rms_norm_, make_memories, drive=drive_in_place, tried=tried_memory, forbidden=LIBRARY,
        writes=("memory",), shown_inputs=lambda inputs: (*parts_of(*inputs[:2]), *inputs[2:]),
    ),
    "2e": Part(
        fused_add_rms_norm_kernel, make_rows, drive=drive_kernel, view=view_rows, tried=tried_rows, forbidden=LIBRARY,
        writes=("x", "residual"), tolerance=1e-5, seconds=COMPILER_SECONDS, warm_up=softgpu,
        shown_inputs=lambda inputs: inputs[1:],
    ),
}  # fmt: skip
