"""Padding and capture bugs that shipped in public engines, D1 to D12: each a property, its buggy form, and ours.

Every property is shown to bite: the buggy form fails it. Sources are issue and pull-request numbers of the projects
named.
"""

import math

import pytest
import torch

from s13lib.buckets import BucketLayout, preset
from s13lib.graphs import BucketedRunner, GraphRunner
from s13lib.kernels import reference
from s13lib.model import Sequence
from tests.graphs.test_padding import changed_slots, images
from tests.graphs.test_runner import TWO_LAYERS
from tests.model.decoders import decoder_model


def bites(check, buggy, ours):
    """``check`` passes on ours and fails on the buggy form."""
    check(ours)
    with pytest.raises((AssertionError, StopIteration)):
        check(buggy)


@pytest.fixture
def model(device):
    return decoder_model(TWO_LAYERS, 4, device, blocks=24, block_size=2, max_rows=16)


def admit(model, tokens, name="request"):
    sequence = Sequence(name)
    model.prefill(sequence, tokens)
    return sequence


def test_d1_a_padding_row_writes_a_live_block(model):
    """rvllm#32: dummy rows at slot 0. Right: outside the scratch block exactly the n real slots change."""
    sequences = [admit(model, [1, 2, 3], f"request {i}") for i in range(3)]
    batch = model.next_batch(sequences, [4, 5, 6])

    def check(padding):
        runner = BucketedRunner(model, [4], padding, progress=False)
        for tensor in model.cache.k + model.cache.v:
            tensor[sequences[0].blocks[0], 0] = 7.0  # what is at slot 0 before the step
        before = images(model)
        runner.forward(batch)
        assert changed_slots(model, before) <= set(batch.slot_mapping.tolist())
        for tensor, old in zip(model.cache.k + model.cache.v, before, strict=True):
            assert torch.equal(tensor[0, 0], old[0, 0])

    for right in ("scratch", "skip"):
        bites(check, buggy="naive", ours=right)
    # and the naive form is silent at n = 4, a bucket: that is why it ships
    full = model.next_batch([*sequences, admit(model, [7], "request 3")], [1, 2, 3, 4])
    runner = BucketedRunner(model, [4], "naive", progress=False)
    before = images(model)
    runner.forward(full)
    assert changed_slots(model, before) <= set(full.slot_mapping.tolist())


def test_d2_slot_minus_one_is_not_the_last_slot(device):
    """vllm#43810: −1 used as a Python index writes the last slot of the cache."""

    def python_index(values, slots, cache):
        cache.view(-1)[slots] = values.flatten()

    def kernel(values, slots, cache):
        device.kernels.append_kv(values, values, slots, cache.view(4, 2, 1, 1), cache.clone().view(4, 2, 1, 1))
        device.synchronize()

    def check(append):
        cache = device.zeros((4, 2))
        append(device.tensor([[5.0], [9.0]]), device.tensor([1, -1]), cache)
        assert cache.tolist() == [[0, 5], [0, 0], [0, 0], [0, 0]]

    bites(check, python_index, kernel)


def test_d3_stale_rows_when_the_batch_shrinks(model):
    """Diffulex#44, vllm#41841: a row beyond n still holds the slot of a request that ended; its block is another's."""

    def check(padding):
        runner = BucketedRunner(model, [4], padding, progress=False)
        requests = [admit(model, [1, 2, 3], name) for name in "ABCD"]
        runner.forward(model.next_batch(requests, [4, 5, 6, 7]))
        model.cache.release(requests.pop())
        bystander = admit(model, [8, 9, 10, 11], "E")  # takes D's blocks, last in, first out; not in the next batch
        before = images(model)
        batch = model.next_batch(requests, [1, 2, 3])
        runner.forward(batch)
        changed = changed_slots(model, before)
        for sequence in [*requests, bystander]:
            model.cache.release(sequence)
        assert changed <= set(batch.slot_mapping.tolist())

    bites(check, buggy="stale", ours="scratch")


def test_d4_the_returned_output_is_not_the_static_buffer(model):
    """sglang#35546: the second run overwrites what the first returned."""

    class Uncloned(GraphRunner):
        def run(self, batch):
            super().run(batch)
            return self.logits[: batch.rows]

    sequence = admit(model, [1, 2])

    def check(runner_class):
        runner = runner_class(model, 1)
        first = runner.run(model.next_batch([sequence], [3]))
        kept = first.clone()
        runner.run(model.next_batch([sequence], [4]))
        assert torch.equal(first, kept)

    bites(check, Uncloned, GraphRunner)


class CallsPythonAgain:
    """A stand-in for a graph that re-runs the Python function: it hides every fault of capture."""

    def __init__(self, device, function):
        self.device, self.replay = device, function


def capture(device, function):
    with device.graph() as graph:
        function()
    return graph


def test_d5_a_rebound_input_is_not_seen(device):
    """onnxruntime#29782: y = 2x captured; x = tensor([5]) and replay still reads the old address; copy_ is seen."""

    def check(make):
        cell = {"x": device.tensor([1.0])}
        y = device.empty(1)
        graph = make(device, lambda: device.kernels.scale(cell["x"], y, 2.0))
        captured = cell["x"]
        cell["x"] = device.tensor([5.0])
        graph.replay()
        device.synchronize()
        assert y.item() == 2.0
        captured.copy_(torch.tensor([5.0]))
        graph.replay()
        device.synchronize()
        assert y.item() == 10.0

    bites(check, CallsPythonAgain, capture)


def test_d6_a_python_scalar_is_frozen(device):
    """flash-attention#1164: scale 1 at capture, 2 later, x = 3: replay gives 3, eager 6."""

    def check(make):
        cell, x, y = {"scale": 1.0}, device.tensor([3.0]), device.empty(1)

        def step():
            device.kernels.scale(x, y, cell["scale"])

        graph = make(device, step)
        cell["scale"] = 2.0
        graph.replay()
        device.synchronize()
        assert y.item() == 3.0
        step()
        device.synchronize()
        assert y.item() == 6.0

    bites(check, CallsPythonAgain, capture)


def test_d6_a_maximum_context_is_not_baked_in(model):
    """The context lengths are a tensor: a step captured at context 2 attends to all 5 tokens later."""
    sequence = admit(model, [1])
    runner = GraphRunner(model, 1)
    runner.run(model.next_batch([sequence], [2]))
    for token in (3, 4, 5):
        batch = model.next_batch([sequence], [token])
        assert torch.equal(runner.run(batch), model.forward(batch))
    assert sequence.length == 5


def test_d7_the_size_list_reaches_the_top():
    """nano-vllm PR#216: a grid of 1, 2, 4, 8, 16, 32 … ends below a maximum that is not on it."""

    def off_grid(m):
        return [1, 2, 4, 8, *range(16, m + 1, 16)]

    def check(sizes_for):
        for m in range(1, 301):
            sizes = list(sizes_for(m))
            assert sizes == sorted(set(sizes))
            assert sizes[-1] == m

    bites(check, off_grid, lambda m: preset("nano-vllm", m))


def test_d8_a_batch_above_the_largest_size(device):
    """vllm#7999: the lesson's next(...) raises StopIteration at 257. Right: eager, counted, whole."""
    model = decoder_model(TWO_LAYERS, 4, device, blocks=300, block_size=2, max_rows=257)
    sequences = [admit(model, [i % 13]) for i in range(257)]
    batch = model.next_batch(sequences, [i % 13 for i in range(257)])
    sizes = list(preset("seed"))

    class Next:
        def __init__(self):
            self.runner = BucketedRunner(model, sizes, progress=False)
            self.dispatches = self.runner.dispatches

        def forward(self, batch):
            next(b for b in sizes if b >= batch.rows)
            return self.runner.forward(batch)

    def check(make):
        runner = make()
        assert runner.forward(batch.first(256)).shape[0] == 256
        out = runner.forward(batch)
        assert out.shape[0] == 257
        assert torch.equal(out, model.forward(batch))
        assert runner.dispatches == {(256, 256, "FULL"): 1, (257, 257, "NONE"): 1}

    bites(check, Next, lambda: BucketedRunner(model, sizes, progress=False))


def test_d9_lists_as_people_write_them(model):
    """FastDeploy#2902: unsorted lists pick too large a size, repeated ones capture twice."""

    class FirstThatFits:
        def __init__(self, sizes):
            self.sizes = sizes

        def pick(self, n):
            return next(b for b in self.sizes if b >= n)

        def __len__(self):
            return len(self.sizes)

    def check(layout_class):
        layout = layout_class([16, 1, 8, 4])
        assert [layout.pick(n) for n in (1, 2, 5, 8, 9)] == [1, 4, 8, 8, 16]
        assert len(layout_class([4, 4, 2])) == 2

    bites(check, FirstThatFits, BucketLayout)
    assert sorted(BucketedRunner(model, [4, 4, 2], progress=False).runners) == [2, 4]


def test_d10_a_fused_norm_does_not_write_into_the_residual(device):
    """nano-vllm#170: x = residual = [3, 4]: the residual stays, the norm is [0.848528, 1.131371]."""
    weight = device.tensor([1.0, 1.0])

    def in_place(x, out):
        device.kernels.rms_norm(x, weight, 0.0, x)
        device.kernels.copy(x.view(-1), out.view(-1))

    def apart(x, out):
        device.kernels.rms_norm(x, weight, 0.0, out)

    def textbook(x, out):
        reference.rms_norm(x, weight.to(x.dtype), 0.0, out)

    def check(norm, dtype=torch.float32, digits=6):
        x, out = device.tensor([[3.0, 4.0]], dtype), device.empty((1, 2), dtype)
        norm(x, out)
        device.synchronize()
        assert x.tolist() == [[3.0, 4.0]]
        assert out[0].tolist() == pytest.approx([0.848528, 1.131371], rel=10.0**-digits)

    bites(check, in_place, apart)
    check(textbook, torch.bfloat16, digits=2)


def test_d11_packed_qkv_is_not_split_in_thirds(device):
    """vllm#13686: 4 heads, 1 KV head of 2: of the rows 0 … 11 q is 0 … 7, k is 8, 9 and v is 10, 11."""

    def thirds(x, weight, q, k, v):
        packed = x @ weight.T
        for out, part in zip((q, k, v), packed.split(4, dim=1), strict=True):
            width = min(out.shape[1], 4)
            out[:, :width] = part[:, :width]

    def ours(x, weight, q, k, v):
        device.kernels.linear_qkv(x, weight, q, k, v)
        device.synchronize()

    def check(split):
        weight = device.tensor([[float(row)] for row in range(12)])
        q, k, v = device.zeros((1, 8)), device.zeros((1, 2)), device.zeros((1, 2))
        split(device.tensor([[1.0]]), weight, q, k, v)
        assert q.tolist() == [list(range(8))]
        assert k.tolist() == [[8, 9]]
        assert v.tolist() == [[10, 11]]

    bites(check, thirds, ours)


def test_d12_capture_order_decides_what_the_pool_holds(device):
    """TensorRT-LLM PR#3116: 1, 2, 4, 8 rows, one pool that reuses what fits: ascending 15 rows, descending 8."""
    row_bytes = 64

    def pinned(order):
        pool, graphs = None, []
        for rows in order([1, 2, 4, 8]):
            with device.graph(pool) as graph:
                x = device.empty((rows, row_bytes // 4))
                device.kernels.scale(x.view(-1), x.view(-1), 1.0)
            graphs.append(graph)
            pool = graph.pool
        return pool.pool_bytes // row_bytes

    def check(order):
        assert pinned(order) == 8

    def ascending(sizes):
        return sizes

    bites(check, ascending, reversed)
    assert pinned(ascending) == 15


def test_the_two_property_oracle(model):
    """imp#1314: same size and own blocks, other neighbours: bit-exact; another size: rounding at most, same argmax."""
    mine = admit(model, [1, 2, 3])
    others = [admit(model, [i, i + 1]) for i in (4, 6)]
    batch = model.next_batch([mine, *others], [5, 6, 7])
    runner = BucketedRunner(model, [2, 4], progress=False)
    alone = runner.forward(batch.first(1))[0]
    pair = runner.forward(batch.first(2))[0]
    three = runner.forward(batch)[0]
    assert torch.equal(alone, pair)
    assert math.isclose((three - pair).abs().max().item(), 0.0, abs_tol=1e-6)
    assert three.argmax() == pair.argmax()
