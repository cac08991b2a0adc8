"""Compile the kernels for compute capability 9.0 (H100, H200), which needs no GPU: print what each becomes, as JSON.

Run in a process of its own: one that has used Triton's interpreter can no longer compile. It also launches, into a
launcher that runs nothing, and looks whether each of a kernel's parameters gets what is meant for it.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from s13lib.kernels.cuda import INTERPRETED, KERNELS


class Launcher:
    """In the place of Triton's: notes what it was called with."""

    calls: ClassVar[list] = []

    def __init__(self, source, metadata):
        self.source = source

    def __call__(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *arguments):
        self.calls.append((self.source, (x, y, z), stream, arguments))


class Utilities:
    """In the place of the driver's calls that load a kernel."""

    def get_device_properties(self, device):
        return {"max_shared_mem": 227 * 1024}

    def load_binary(self, name, code, shared, device):
        return None, 0, 32, 0, 1024  # module, function, registers, spills, threads


class Hopper(DriverBase):
    """Says what the target is; there is nothing to run on."""

    launcher_cls = Launcher
    utils = Utilities()

    def __init__(self):
        pass

    @classmethod
    def is_active(cls):
        return True

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_active_torch_device(self):
        return torch.device("meta")

    def get_benchmarker(self):
        raise NotImplementedError

    def map_python_to_cpp_type(self, ty):
        return ty


# hidden, ffn, heads, kv_heads, head_dim, vocabulary
SHAPES = {
    "tiny": (32, 48, 4, 2, 8, 19),
    "SmolLM2-360M": (960, 2560, 15, 5, 64, 49152),
    "Llama-3-8B": (4096, 14336, 32, 8, 128, 128256),
}
CASES = [("Llama-3-8B", rows, torch.bfloat16) for rows in (1, 16, 64, 128)]
CASES += [("SmolLM2-360M", 2, torch.float16), ("SmolLM2-360M", 128, torch.float32)]


def launches(shape, rows, dtype, where="meta"):
    """Every kernel with a decode step's arguments: residual stream, tables and norms float32, the rest ``dtype``."""
    hidden, ffn, heads, kv_heads, head_dim, vocabulary = SHAPES[shape]
    q_width, kv_width = heads * head_dim, kv_heads * head_dim

    def empty(*sizes, of=dtype):
        return torch.empty(sizes, dtype=of, device=where)

    def indices(*sizes, of=torch.int64):
        return empty(*sizes, of=of)

    x, delta = empty(rows, hidden, of=torch.float32), empty(rows, hidden, of=torch.float32)
    norm = empty(hidden, of=torch.float32)
    normed, gated, q = empty(rows, hidden), empty(rows, ffn), empty(rows, q_width)
    k, v, cache = empty(rows, kv_width), empty(rows, kv_width), empty(64, 16, kv_heads, head_dim)
    cos = empty(8192, head_dim // 2, of=torch.float32)
    qkv, gate_up = empty(q_width + 2 * kv_width, hidden), empty(2 * ffn, hidden)
    logits = empty(rows, vocabulary, of=torch.float32)
    tables, contexts = indices(rows, 512, of=torch.int32), indices(rows, of=torch.int32)
    yield "embedding", (indices(rows), empty(vocabulary, hidden), x)
    yield "rms_norm", (x, norm, 1e-5, normed)
    yield "add_rms_norm", (x, delta, norm, 1e-5, x, normed)
    yield "linear", (normed, empty(vocabulary, hidden), logits)
    yield "linear_add", (gated, empty(hidden, ffn), x, x)
    yield "linear_qkv", (normed, qkv, q, k, v)
    yield "gate_up_silu_mul", (normed, gate_up, gated)
    yield "rms_norm_qkv", (x, norm, 1e-5, qkv, q, k, v)
    yield "rms_norm_gate_up_silu_mul", (x, norm, 1e-5, gate_up, gated)
    attention = (q, k, v, cos, cos, indices(rows), indices(rows), tables, contexts, 0.1, cache, cache, q)
    yield "rope_append_attention", attention
    yield "append_kv", (k, v, indices(rows), cache, cache)
    yield "add", (x, delta, x)
    yield "scale", (x.view(-1), x.view(-1), 2.0)
    yield "copy", (x.view(-1), x.view(-1))


def stack_bytes(cubin):
    """Bytes a thread that did not fit into registers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        tool = triton.knobs.nvidia.cuobjdump.path
        text = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", text)[1])


TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
}


def check_launch(bound):
    """Launch it, and compare what the launcher got with the plan, parameter by parameter."""
    plan = bound.plan
    bound.launch(stream=7)
    source, grid, stream, arguments = Launcher.calls.pop()
    assert (grid, stream) == (plan.grid, 7)
    names = plan.function.arg_names
    assert len(arguments) == len(names) == len(source.signature)
    given = dict(zip(names, plan.arguments, strict=False)) | plan.constants
    for place, (name, argument) in enumerate(zip(names, arguments, strict=True)):
        kind, value = source.signature[name], given[name]
        if kind == "constexpr":  # the launcher leaves it out: it is in the code, and must be what the plan says
            assert source.constants[(place,)] == value, name
        elif isinstance(value, torch.Tensor):
            assert (argument, kind) == (value.data_ptr(), TYPES[value.dtype]), name
        else:
            assert argument == value, name


def main():
    assert not INTERPRETED
    triton.runtime.driver.set_active(Hopper())
    for rows in (1, 3):
        for name, arguments in launches("tiny", rows, torch.bfloat16, "cpu"):
            check_launch(KERNELS[name].bind(torch.zeros(1, dtype=torch.int64), *arguments))
    flag = torch.empty(1, dtype=torch.int64, device="meta")
    for shape, rows, dtype in CASES:
        for name, arguments in launches(shape, rows, dtype):
            compiled = KERNELS[name].plan(flag, *arguments).compile()
            ptx = compiled.asm["ptx"]
            row = {
                "case": f"{shape}, {rows} rows, {dtype}".replace("torch.", ""),
                "kernel": name,
                "compiled_name": compiled.name,
                "shared_bytes": compiled.metadata.shared,
                "stack_bytes": stack_bytes(compiled.asm["cubin"]),
                "tensor_cores": "mma" in ptx,
                "weights_in_16_bytes": bool(re.search(r"evict_first\S*\.v4\.b32|cp\.async\.cg", ptx)),
                "float_atomics": bool(re.search(r"(atom|red)\S*\.f(16|32|64)|\.bf16x?2?\s*\[", ptx)),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
