"""The settings to paste."""

import json
import shlex

import pytest

from s13lib.buckets import BucketLayout, export
from s13lib.errors import InputError

LAYOUT = BucketLayout([1, 2, 24])


def test_vllm():
    text = export(LAYOUT, "vllm")
    assert text == "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 24]}'"
    assert json.loads(shlex.split(text)[1]) == {"cudagraph_capture_sizes": [1, 2, 24]}


def test_sglang():
    assert export(LAYOUT, "sglang") == "--cuda-graph-bs 1 2 24"


def test_tensorrt_llm():
    assert export(LAYOUT, "tensorrt-llm") == (
        "cuda_graph_config:\n"
        "  batch_sizes: [1, 2, 24]\n"
        "  enable_padding: true"
    )  # fmt: skip


def test_an_unknown_engine():
    with pytest.raises(InputError, match=r"^engine: unknown name 'tensorrt'; did you mean tensorrt-llm\?$"):
        export(LAYOUT, "tensorrt")
