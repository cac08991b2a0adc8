"""A layout as the exact setting to paste into an engine."""

from __future__ import annotations

import json
from collections.abc import Callable

from s13lib.buckets.layout import BucketLayout
from s13lib.errors import look_up


def to_vllm(layout: BucketLayout) -> str:
    """Return the ``--compilation-config`` argument of ``vllm serve``, quoted for a shell.

    vLLM sets ``max_cudagraph_capture_size`` to the largest size of the list by itself, and only full decode graphs up
    to ``--max-num-seqs`` are made. Source: ``CompilationConfig`` in vllm/config/compilation.py.
    """
    return f"--compilation-config '{json.dumps({'cudagraph_capture_sizes': list(layout)})}'"


def to_sglang(layout: BucketLayout) -> str:
    """Return the ``--cuda-graph-bs`` argument of ``sglang.launch_server``: sizes with spaces between.

    SGLang sets ``--cuda-graph-max-bs`` to the largest size of the list by itself. Releases from June 2026 call the flag
    ``--cuda-graph-bs-decode`` and keep this name as an alias. Source: ``ServerArgs`` in sglang/srt/server_args.py;
    sglang PR #23906.
    """
    return f"--cuda-graph-bs {' '.join(map(str, layout))}"


def to_tensorrt_llm(layout: BucketLayout) -> str:
    """Return the YAML for ``trtllm-serve --config FILE`` (older releases: ``--extra_llm_api_options FILE``).

    ``enable_padding`` is off by default, and then only the exact sizes use a graph. ``max_batch_size`` of this section
    is derived from the list. Source: ``DecodeCudaGraphConfig`` in TensorRT-LLM's LLM API reference.
    """
    return f"cuda_graph_config:\n  batch_sizes: {json.dumps(list(layout))}\n  enable_padding: true"


EXPORTS: dict[str, Callable[[BucketLayout], str]] = {
    "vllm": to_vllm,
    "sglang": to_sglang,
    "tensorrt-llm": to_tensorrt_llm,
}


def export(layout: BucketLayout, engine: str) -> str:
    """Return the setting that makes ``engine`` capture ``layout``; the names are the keys of ``EXPORTS``."""
    return look_up(EXPORTS, engine, "engine")(layout)
