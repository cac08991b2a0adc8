"""Is it right? Every kernel and every stage against float64, replay against eager, the four padding policies."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_parts.bench import MOST_ERROR, TORCH, Bench, error_units
from s13lib.buckets.layout import BucketLayout
from s13lib.device import DeviceError
from s13lib.graphs import PADDINGS, GraphRunner
from s13lib.graphs.scenario import run_scenario
from s13lib.kernels import load, reference

KERNEL_DTYPES = (torch.bfloat16, torch.float16)
KERNEL_ROWS = (1, 2, 3, 17, 33, 128)  # each form of the linear layers at least once
ATTENTION = "rope_append_attention"


def kernels(bench: Bench) -> None:
    """Each Triton kernel, for each weight type and some row counts, on fresh inputs against float64."""
    from s13lib.kernels.cuda import KERNELS

    load("cuda")
    dtypes = (torch.float16,) if bench.dry else KERNEL_DTYPES
    for name, kernel in KERNELS.items():
        for dtype in dtypes:
            for rows in (3,) if bench.dry else KERNEL_ROWS:
                given = arguments(bench, name, rows, dtype)
                exact = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in given]
                placed = [a.to(bench.device.where) if isinstance(a, Tensor) else a for a in given]
                getattr(reference, name)(*exact)
                bench.device.bind(kernel, *placed).launch()
                bench.device.synchronize()
                written = [i for i, parameter in enumerate(kernel.parameters) if is_output(parameter)]
                worst = max(error_units(placed[i], exact[i], dtype) for i in written)
                label = f"{name}, {rows} rows, {str(dtype).removeprefix('torch.')}"
                bench.line(label, round(worst, 3), "u", worst <= MOST_ERROR)
    skipped_and_reported(bench)


def is_output(parameter: str) -> bool:
    return parameter.startswith("out") or parameter in ("k_cache", "v_cache")


def arguments(bench: Bench, name: str, rows: int, dtype: torch.dtype) -> list:
    """Random arguments for a kernel, on the host: matrices and cache in ``dtype``, all else float32."""
    c = bench.small_config()
    q, kv, size, eps = c.heads * c.head_dim, c.kv_heads * c.head_dim, 16, c.norm_eps

    def wide(*shape: int) -> Tensor:
        return torch.randn(shape, generator=bench.random)

    def matrix(height: int, width: int) -> Tensor:
        return (wide(height, width) * width**-0.5).to(dtype)

    def norm() -> Tensor:
        return 1 + 0.1 * wide(c.hidden)

    def integers(end: int, kind: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(end, (rows,), generator=bench.random).to(kind)

    def cache() -> Tensor:
        return wide(rows * 4 + 1, size, c.kv_heads, c.head_dim).to(dtype)

    def paged() -> tuple[Tensor, ...]:
        """(positions, slots, block tables, contexts): each row at the end of its own context, in its own blocks."""
        contexts = 1 + integers(4 * size, torch.int32)
        tables = torch.randperm(rows * 4, generator=bench.random).view(rows, 4).to(torch.int32)
        positions = contexts.long() - 1
        slots = tables[torch.arange(rows), positions // size].long() * size + positions % size
        return positions, slots, tables, contexts

    def angles() -> tuple[Tensor, Tensor]:
        return reference.rope_tables(c.rope_theta, c.head_dim, 4 * size)

    def attention() -> list:
        positions, slots, tables, contexts = paged()
        return [wide(rows, q), wide(rows, kv), wide(rows, kv), *angles(), positions, slots, tables, contexts,
                c.head_dim**-0.5, cache(), cache(), wide(rows, q)]  # fmt: skip

    x, qkv = wide(rows, c.hidden), matrix(q + 2 * kv, c.hidden)
    outputs = [wide(rows, q), wide(rows, kv), wide(rows, kv)]
    made = {
        "copy": lambda: [wide(rows * 7), wide(rows * 7)],
        "scale": lambda: [wide(rows * 7), wide(rows * 7), 2.5],
        "add": lambda: [x, wide(rows, c.hidden), wide(rows, c.hidden)],
        "embedding": lambda: [integers(c.vocab), matrix(c.vocab, c.hidden), wide(rows, c.hidden)],
        "rms_norm": lambda: [x, norm(), eps, wide(rows, c.hidden)],
        "add_rms_norm": lambda: [x, wide(rows, c.hidden), norm(), eps, wide(rows, c.hidden), wide(rows, c.hidden)],
        "linear": lambda: [x, matrix(q, c.hidden), wide(rows, q)],
        "linear_add": lambda: [wide(rows, q), matrix(c.hidden, q), wide(rows, c.hidden), wide(rows, c.hidden)],
        "linear_qkv": lambda: [x, qkv, *outputs],
        "gate_up_silu_mul": lambda: [x, matrix(2 * c.ffn, c.hidden), wide(rows, c.ffn)],
        "rms_norm_qkv": lambda: [x, norm(), eps, qkv, *outputs],
        "rms_norm_gate_up_silu_mul": lambda: [x, norm(), eps, matrix(2 * c.ffn, c.hidden), wide(rows, c.ffn)],
        "append_kv": lambda: [wide(rows, kv), wide(rows, kv), paged()[1], cache(), cache()],
        ATTENTION: attention,
    }
    return made[name]()


def skipped_and_reported(bench: Bench) -> None:
    """A token out of range touches no memory, its row is skipped, and the next synchronise tells."""
    weight, out = bench.device.tensor(torch.ones(4, 8)), bench.device.zeros((2, 8))
    told = ""
    bench.device.kernels.embedding(bench.device.tensor([9, 1]), weight, out)
    try:
        bench.device.synchronize()
    except DeviceError as error:
        told = str(error)
    right = told == "embedding: token 9 is outside the vocabulary; the row was skipped"
    bench.line("an index out of range is skipped and reported", told, "", right and out.sum(1).tolist() == [0.0, 8.0])


def stages(bench: Bench) -> None:
    """Logits of each stage on fresh inputs against float64; then replays, on inputs newer still, against eager."""
    dtype, most = bench.device.weight_dtype, 3 if bench.dry else 16
    context = 20 if bench.dry else 300
    models = bench.models(bench.small_config(), most, context=context)
    for rows in (3,) if bench.dry else (1, 3, 4, 16):
        for stage, model in models.items():
            batch = bench.batch(model, rows, context)
            exact = bench.logits_in_float64(model, batch)
            worst = error_units(model.forward(batch), exact, dtype)
            # Rounding in each layer adds up like a random walk; PyTorch's stage also rounds the residual stream.
            limit = MOST_ERROR * (1 + model.config.layers)
            bench.line(f"stage {stage}, batch {rows}: error", round(worst, 2), "u", worst <= limit)
    for rows in (3,) if bench.dry else (1, 4, 16):
        for stage, model in models.items():
            name = f"stage {stage}, batch {rows}: replay is eager, bit for bit"
            if bench.dry and stage == TORCH:
                bench.line(name, "not in the dry mode: PyTorch's operators need CUDA to be captured")
                continue
            runner, equal = GraphRunner(model, rows), 0
            times = 1 if bench.dry else 3
            for _ in range(times):
                replayed = runner.run(bench.batch(model, rows, context))
                runner.launch_eager()
                equal += torch.equal(runner.logits.cpu(), replayed)
            bench.line(name, f"{equal} of {times}", "", equal == times, nodes=runner.graph.node_count)


def padding(bench: Bench) -> None:
    """The padding scenario under all four policies, at stage 5: two never alarm and harm nobody, two are caught."""
    from s13lib.kernels.cuda.forms import ATTENTION, LINEAR

    config = bench.small_config()
    prompts, most, tokens = (1, 2, (2, 2)) if bench.dry else (24, 12, (6, 24))
    # A row's last bits depend on the form that its kernels take. So pad within a form alone, up to its largest batch:
    # then any difference is the policy's doing.
    buckets = sorted({form.most_rows for form in (*LINEAR, *ATTENTION) if form.most_rows < most} | {most})
    for policy in PADDINGS:
        if bench.dry and policy in ("skip", "stale"):
            bench.line(f"padding {policy}", "not in the dry mode: the interpreter is too slow for all four")
            continue
        model = bench.models(config, 2 * most, (5,), context=32 if bench.dry else 64)[5]
        asked = [[1 + i % 7] if bench.dry else [1 + i % 7, 2, 3] for i in range(prompts)]
        result = run_scenario(model, asked, BucketLayout(buckets), policy, 1, most, tokens)
        alarms = sum(len(step.violations) for step in result.steps)
        harmed = sum(step.rows_differing for step in result.steps)
        ok = alarms == harmed == 0 if policy in ("scratch", "skip") else alarms > 0
        bench.line(f"padding {policy}", f"{alarms} alarms, {harmed} rows differ from decoding without padding", "", ok)
