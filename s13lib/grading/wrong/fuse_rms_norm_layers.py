"""Exercise 2b: the fused layers that learners write."""

from __future__ import annotations

import torch

from s13lib.grading.part import Text, Wrong


def _layers(blocks, norm, x, cos, sin, cache, behind_attention, behind_ffn, late=False):
    """The fused layers, with two things to do wrong: each is called as (delta, residual, number of the layer)."""
    normed = blocks[0].input_layernorm(x)
    residual = normed if late else x
    for number, block in enumerate(blocks):
        normed, residual = behind_attention(block.self_attn(normed, cos, sin, cache, number), residual, number)
        normed, residual = behind_ffn(block.mlp(normed), residual, number)
    return normed


def _fused(blocks, norm, add):
    """Both right."""
    firsts = [*(block.input_layernorm for block in blocks[1:]), norm]

    def behind_attention(delta, residual, number):
        own = blocks[number].post_attention_layernorm
        return add(delta, residual, own.weight, own.eps)

    def behind_ffn(delta, residual, number):
        return add(delta, residual, firsts[number].weight, firsts[number].eps)

    return behind_attention, behind_ffn


def only_within_a_block(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The add at the end of a layer stays an add."""
    for number, block in enumerate(blocks):
        delta = block.self_attn(block.input_layernorm(x), cos, sin, cache, number)
        second = block.post_attention_layernorm
        normed, residual = add_rms_norm(delta, x, second.weight, second.eps)
        x = residual + block.mlp(normed)
    return norm(x)


def last_add_left(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The final norm is called by itself."""
    behind_attention, behind_ffn = _fused(blocks, norm, add_rms_norm)

    def last_apart(delta, residual, number):
        return behind_ffn(delta, residual, number) if number + 1 < len(blocks) else (norm(residual + delta), residual)

    return _layers(blocks, norm, x, cos, sin, cache, behind_attention, last_apart)


def nothing_fused(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The blocks as they are."""
    for number, block in enumerate(blocks):
        x = block(x, cos, sin, cache, number)
    return norm(x)


def stream_lost(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The new residual is thrown away."""
    behind_attention, behind_ffn = _fused(blocks, norm, add_rms_norm)

    def keep_old(of, delta, residual, number):
        return of(delta, residual, number)[0], residual

    both = (lambda *a: keep_old(behind_attention, *a)), (lambda *a: keep_old(behind_ffn, *a))
    return _layers(blocks, norm, x, cos, sin, cache, *both)


def normed_is_the_stream(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The normalised row is taken for the residual (post-norm)."""
    behind_attention, behind_ffn = _fused(blocks, norm, add_rms_norm)
    both = (lambda *a: behind_attention(*a)[:1] * 2), (lambda *a: behind_ffn(*a)[:1] * 2)
    return _layers(blocks, norm, x, cos, sin, cache, *both)


def first_norm_is_the_stream(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The stream begins behind the first norm, not before it."""
    return _layers(blocks, norm, x, cos, sin, cache, *_fused(blocks, norm, add_rms_norm), late=True)


def results_swapped(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """Reads (residual, normed)."""

    def backwards(*arguments):
        return add_rms_norm(*arguments)[::-1]

    return _layers(blocks, norm, x, cos, sin, cache, *_fused(blocks, norm, backwards))


def own_norm_again(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The FFN's add is fused with the same layer's first norm."""
    behind_attention, _ = _fused(blocks, norm, add_rms_norm)

    def behind_ffn(delta, residual, number):
        own = blocks[number].input_layernorm
        return add_rms_norm(delta, residual, own.weight, own.eps)

    return _layers(blocks, norm, x, cos, sin, cache, behind_attention, behind_ffn)


def final_norm_twice(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The last add is fused with the final norm, which then comes again."""
    return norm(_layers(blocks, norm, x, cos, sin, cache, *_fused(blocks, norm, add_rms_norm)))


def final_norm_missing(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """Gives the stream back."""
    behind_attention, behind_ffn = _fused(blocks, norm, add_rms_norm)

    def last_stream(delta, residual, number):
        return behind_ffn(delta, residual, number)[:: -1 if number + 1 == len(blocks) else 1]

    return _layers(blocks, norm, x, cos, sin, cache, behind_attention, last_stream)


def adds_zeros_first(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """The first norm as an add of zeros."""
    first = blocks[0].input_layernorm
    add_rms_norm(torch.zeros_like(x), x, first.weight, first.eps)
    return _layers(blocks, norm, x, cos, sin, cache, *_fused(blocks, norm, add_rms_norm))


def one_layer_of_cache(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """Every layer reads and writes layer 0's keys."""

    class First(list):
        def __getitem__(self, index):
            return cache[0]

        def __setitem__(self, index, pair):
            cache[0] = pair

    only = None if cache is None else First(cache)
    return _layers(blocks, norm, x, cos, sin, only, *_fused(blocks, norm, add_rms_norm))


def cache_left_out(blocks, norm, x, cos, sin, cache, add_rms_norm):
    """Attention gets no cache."""
    return _layers(blocks, norm, x, cos, sin, None, *_fused(blocks, norm, add_rms_norm))


LAYERS = (
    Wrong("half of the adds", only_within_a_block, Text(
        "Only the add behind attention is fused. The one behind the FFN has a norm to join as well: look where its sum goes next.",
        "只融合了注意力后面的加法。FFN 后面的那次也能找到归宿：看看它的和接下来去了哪里。")),
    Wrong("final norm apart", last_add_left, Text(
        "All adds are fused but the last: the norm behind it is the final one, and it can carry the add too.",
        "只剩最后一次加法没有融合：它后面就是最终的 norm，同样可以带上这次加法。")),
    Wrong("nothing fused", nothing_fused, Text(
        "The output is right, but the blocks still run as they were: take them apart, and let add_rms_norm do each add with the norm behind it.",
        "输出是对的，但各个 block 还是照旧在跑：把它们拆开，每次加法都和它后面的 norm 一起交给 add_rms_norm。")),
    Wrong("next layer's norm", own_norm_again, Text(
        "Behind the FFN you use a norm of the same layer: its sum is the input of the layer behind, or of the final norm.",
        "FFN 之后用的是同一层的 norm：它的和是下一层的输入，或者交给最终的 norm。")),
    Wrong("stream lost", stream_lost, Text(
        "The second result of add_rms_norm is not used: the next add needs it as its residual.",
        "add_rms_norm 的第二个结果没有用上：下一次加法要拿它当残差。")),
    Wrong("normalised stream", normed_is_the_stream, Text(
        "You pass the normalised tensor on as the residual: the norm's output goes into attention or the FFN, and nowhere else.",
        "你把归一化之后的张量当成残差传了下去：norm 的输出只进注意力或 FFN，不去别处。")),
    Wrong("results swapped", results_swapped, Text(
        "add_rms_norm gives the normalised tensor first and the new residual second.",
        "add_rms_norm 先给出归一化后的张量，再给出新的残差。")),
    Wrong("stream begins too late", first_norm_is_the_stream, Text(
        "Your stream begins behind the first norm: the residual of the first add is x itself.",
        "你的残差流从第一个 norm 之后才开始：第一次加法的残差就是 x 本身。")),
    Wrong("final norm twice", final_norm_twice, Text(
        "The final norm is applied twice: the last add_rms_norm already did it.",
        "最终的 norm 做了两遍：最后一次 add_rms_norm 已经做过了。")),
    Wrong("final norm missing", final_norm_missing, Text(
        "You return the residual: what is wanted is the final norm's output.",
        "你返回的是残差：要的是最终 norm 的输出。")),
    Wrong("an add of zeros", adds_zeros_first, Text(
        "One call of add_rms_norm too many: before the first layer there is nothing to add, so a plain norm does.",
        "多调用了一次 add_rms_norm：第一层之前没有东西可加，用普通的 norm 就行。")),
    Wrong("cache left out", cache_left_out, Text(
        "The cache is not handed on: attention then sees the new tokens alone, and stores nothing.",
        "没有把缓存传下去：注意力就只看得到新的 token，也什么都没存。")),
    Wrong("one layer's cache", one_layer_of_cache, Text(
        "Every layer uses the keys and values of layer 0: give attention its own layer number.",
        "每一层用的都是第 0 层的 key 和 value：要把本层的编号交给注意力。")),
)  # fmt: skip
