"""A list of captured batch sizes, and the lists that engines use by default."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral

from s13lib.errors import InputError, look_up, require

LARGEST_BATCH = 8192  # far above any engine's decode batch; a larger one is a typing error, and would fill the memory


def batch_size(value: object, argument: str, least: int = 1) -> int:
    """Return ``value`` as an int, or raise an ``InputError`` unless it is a whole number from ``least`` to 8192."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(whole and least <= value <= LARGEST_BATCH, argument, value, f"a whole number, {least} to {LARGEST_BATCH}")
    return int(value)


@dataclass(frozen=True)
class BucketLayout:
    """The batch sizes for which an engine captures one graph each: sorted, unique, at least one.

    ``sizes`` may be given in any order and with repeats (``[4, 4, 2]`` makes two captures). An empty list, and a size
    that is not a whole number of at least 1, is an ``InputError``.
    """

    sizes: tuple[int, ...]

    def __init__(self, sizes: Iterable[int]) -> None:
        given = list(sizes)
        if not given:
            raise InputError("sizes is empty: a layout needs at least one batch size (or run the engine eager).")
        object.__setattr__(self, "sizes", tuple(sorted({batch_size(size, "a layout's batch size") for size in given})))

    def __iter__(self) -> Iterator[int]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def top(self) -> int:
        """The largest captured size."""
        return self.sizes[-1]

    def pick(self, n: int) -> int | None:
        """Return the smallest captured size that holds ``n`` rows, or None above the top: that batch runs eager.

        Raises ``InputError`` when ``n`` is below 1: an empty batch has no step to run.
        """
        n = batch_size(n, "n")
        at = bisect_left(self.sizes, n)
        return self.sizes[at] if at < len(self.sizes) else None


SEED_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def seed(max_batch: int = 256) -> BucketLayout:
    """Return the thirteen sizes of the course's text, cut at ``max_batch`` and ended by it."""
    return _ended(SEED_SIZES, max_batch)


def vllm(max_batch: int = 256) -> BucketLayout:
    """Return vLLM's default sizes: 1, 2, 4, then by 8 below 256, then by 16.

    vLLM itself takes ``min(2·max_num_seqs, 512)`` as the top, and leaves a top off that is not on its grid (vllm
    PR #37865); here the list always ends in ``max_batch``.
    Source: ``CompilationConfig.max_cudagraph_capture_size`` in vllm/config/compilation.py.
    """
    return _ended([1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_BATCH, 16)], max_batch)


def sglang(max_batch: int = 256) -> BucketLayout:
    """Return SGLang's default sizes: 1, 2, 4, 8, 12, then by 8 to 256, by 16 below 512, by 32 from there.

    Source: ``ServerArgs._generate_cuda_graph_batch_sizes`` in sglang/srt/server_args.py; the end at the maximum is
    sglang PR #21005.
    """
    return _ended([1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, LARGEST_BATCH, 32)], max_batch)


def tensorrt_llm(max_batch: int = 256) -> BucketLayout:
    """Return the default sizes of TensorRT-LLM's PyTorch backend with padding: 1, 2, 4, by 8 to 128, then by 64.

    Source: ``_generate_cuda_graph_batch_sizes`` in tensorrt_llm/llmapi/llm_args.py (the 64-step ladder; older
    releases used powers of two above 128).
    """
    return _ended([1, 2, 4, *range(8, 129, 8), *range(192, LARGEST_BATCH, 64)], max_batch)


def nano_vllm(max_batch: int = 256) -> BucketLayout:
    """Return nano-vllm's sizes: 1, 2, 4, 8, then by 16.

    nano-vllm's own list misses a maximum off its grid and then crashes there (PR #216); this one ends in it.
    Source: ``capture_cudagraph`` in nanovllm/engine/model_runner.py.
    """
    return _ended([1, 2, 4, 8, *range(16, LARGEST_BATCH, 16)], max_batch)


def mini_sglang(max_batch: int = 256) -> BucketLayout:
    """Return mini-sglang's sizes: 1, 2, 4, then by 8.

    Source: ``_determine_cuda_graph_bs`` in minisgl/engine/graph.py.
    """
    return _ended([1, 2, 4, *range(8, LARGEST_BATCH, 8)], max_batch)


def powers_of_two(max_batch: int = 256) -> BucketLayout:
    """Return 1, 2, 4, 8, … below ``max_batch``, and ``max_batch``: the list that one would write without thinking."""
    return _ended([1 << bit for bit in range(LARGEST_BATCH.bit_length())], max_batch)


PRESETS: dict[str, Callable[[int], BucketLayout]] = {
    "seed": seed,
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt-llm": tensorrt_llm,
    "nano-vllm": nano_vllm,
    "mini-sglang": mini_sglang,
    "powers-of-two": powers_of_two,
}


def preset(name: str, max_batch: int = 256) -> BucketLayout:
    """Return the sizes that the engine ``name`` captures by default, ending at ``max_batch``.

    An unknown name is an ``InputError`` that suggests the nearest ones; the names are the keys of ``PRESETS``.
    """
    return look_up(PRESETS, name, "layout preset")(max_batch)


def _ended(grid: Iterable[int], max_batch: int) -> BucketLayout:
    # A list that stops short of the maximum leaves the largest batches without a graph: end every list at it.
    max_batch = batch_size(max_batch, "max_batch")
    return BucketLayout([*(size for size in grid if size < max_batch), max_batch])
