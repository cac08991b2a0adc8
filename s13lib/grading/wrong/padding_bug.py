"""Exercise 3: what learners write."""

from __future__ import annotations

import torch

from s13lib.grading.part import Text, Wrong
from s13lib.grading.wrong.padding_bug_assertion import ASSERTIONS
from s13lib.model.batch import DecodeBatch

# ---- 3a, 3d: policies. The library's own are out of reach while an answer runs.


def _rows(held, slot, block, context=1):
    rows = DecodeBatch(*(torch.zeros_like(tensor) for tensor in held.tensors()))
    rows.slot_mapping.fill_(slot)
    rows.block_tables.fill_(block)
    rows.context_lens.fill_(context)
    return rows


def at_the_scratch_block(cache, held):
    """Right in 3d."""
    return _rows(held, cache.scratch_block * cache.block_size, cache.scratch_block)


def skipped(cache, held):
    """Right in 3d."""
    return _rows(held, -1, 0, 0)


def as_they_were(cache, held):
    """The stale bug."""
    return held


def float_zeros(cache, held):
    """torch's default dtype."""
    return DecodeBatch(*(torch.zeros(tensor.shape) for tensor in held.tensors()))


def one_row_of_zeros(cache, held):
    """A single dummy, however many rows are to be filled."""
    return DecodeBatch(*(tensor[:1] for tensor in zeros(cache, held).tensors()))


def one_row_skipped(cache, held):
    """A single dummy, however many rows are to be filled."""
    return DecodeBatch(*(tensor[:1] for tensor in skipped(cache, held).tensors()))


def a_slot_each(cache, held):
    """Counts up instead of staying at 0."""
    rows = _rows(held, 0, 0)
    rows.slot_mapping.copy_(torch.arange(1, held.rows + 1))
    return rows


def context_zero(cache, held):
    """Every field zero."""
    return _rows(held, 0, 0, context=0)


def scratch_in_the_table(cache, held):
    """Reads from the scratch block, writes to slot 0."""
    return _rows(held, 0, cache.scratch_block)


def slots_alone(cache, held):
    """The other fields keep what they held."""
    rows = DecodeBatch(*(tensor.clone() for tensor in held.tensors()))
    rows.slot_mapping.fill_(0)
    rows.context_lens.fill_(1)
    return rows


def zeros(cache, held):
    """Right in 3a."""
    return _rows(held, 0, 0)


def block_number_as_slot(cache, held):
    """A block's number where a slot's is meant."""
    return _rows(held, cache.scratch_block, cache.scratch_block)


def last_real_block(cache, held):
    """One block short."""
    return _rows(held, (cache.scratch_block - 1) * cache.block_size, cache.scratch_block - 1)


def beyond_the_cache(cache, held):
    """One block too far."""
    return _rows(held, (cache.scratch_block + 1) * cache.block_size, cache.scratch_block)


def only_the_first(cache, held):
    """The other rows stay as they were."""
    rows = DecodeBatch(*(tensor.clone() for tensor in held.tensors()))
    for mine, harmless in zip(rows.tensors(), skipped(cache, held).tensors(), strict=True):
        mine[:1] = harmless[:1]
    return rows


# ---- 3b: where it shows


def _sizes(captured, owners, most, padding_slots, owner_of, first=0, past=0, wider=False, pick=None):
    found = []
    for n in range(1, most + 1):
        fitting = [size for size in captured if size >= n + wider]
        size = pick(fitting, n) if pick else min(fitting, default=n)
        if any(owner_of(slot) is not None for slot in padding_slots[max(n + first, 0) : max(size + past, 0)]):
            found.append(n)
    return found


def _owner(owners, block_size):
    return lambda slot: owners[slot // block_size] if 0 <= slot < len(owners) * block_size else None


def not_captured(captured, padding_slots, owners, block_size, most):
    """Wherever there is padding."""
    return [n for n in range(1, most + 1) if n not in captured and n < max(captured)]


def minus_one_wraps(captured, padding_slots, owners, block_size, most):
    """owners[−1] is the last block."""

    def owner_of(slot):
        return owners[slot // block_size] if slot < len(owners) * block_size else None

    return _sizes(captured, owners, most, padding_slots, owner_of)


def scratch_is_out_of_range(captured, padding_slots, owners, block_size, most):
    """The scratch block is looked up among the owned ones."""
    return _sizes(captured, owners, most, padding_slots, lambda slot: owners[slot // block_size] if slot >= 0 else None)


def slot_as_block(captured, padding_slots, owners, block_size, most):
    """The division is missing."""
    return _sizes(captured, owners, most, padding_slots, lambda s: owners[s] if 0 <= s < len(owners) else None)


def all_rows_to_the_top(captured, padding_slots, owners, block_size, most):
    """As if every batch were padded to the largest size."""
    return _sizes(
        captured, owners, most, padding_slots, _owner(owners, block_size), pick=lambda f, n: max(f, default=n)
    )


def first_padding_row(captured, padding_slots, owners, block_size, most):
    """Row n alone."""
    return _sizes(
        captured, owners, most, padding_slots, _owner(owners, block_size),
        pick=lambda fitting, n: min(min(fitting, default=n), n + 1),
    )  # fmt: skip


def one_row_late(captured, padding_slots, owners, block_size, most):
    """Rows from n + 1: counted from 1."""
    return _sizes(captured, owners, most, padding_slots, _owner(owners, block_size), first=1)


def one_row_early(captured, padding_slots, owners, block_size, most):
    """The last real row is taken for padding."""
    return _sizes(captured, owners, most, padding_slots, _owner(owners, block_size), first=-1)


def last_row_missing(captured, padding_slots, owners, block_size, most):
    """Rows to size − 2."""
    return _sizes(captured, owners, most, padding_slots, _owner(owners, block_size), past=-1)


def one_row_too_many(captured, padding_slots, owners, block_size, most):
    """A row behind the captured size."""
    return _sizes(captured, owners, most, padding_slots, _owner(owners, block_size), past=1)


def every_row(captured, padding_slots, owners, block_size, most):
    """Rows 0 to size − 1, the real ones among them."""
    return _sizes(captured, owners, most, padding_slots, _owner(owners, block_size), first=-most)


def once_for_each_row(captured, padding_slots, owners, block_size, most):
    """A size is noted for each row that strikes."""
    owner_of, found = _owner(owners, block_size), []
    for n in range(1, most + 1):
        size = min((size for size in captured if size >= n), default=n)
        found += [n for slot in padding_slots[n:size] if owner_of(slot) is not None]
    return found


def running_owners(captured, padding_slots, owners, block_size, most):
    """Only the blocks of the n requests that run, one each."""
    owner_of, found = _owner(owners, block_size), []
    for n in range(1, most + 1):
        size = min((size for size in captured if size >= n), default=n)
        if any(slot // block_size < n and owner_of(slot) is not None for slot in padding_slots[n:size]):
            found.append(n)
    return found


def next_larger_size(captured, padding_slots, owners, block_size, most):
    """Pads even when n is captured."""
    return _sizes(captured, owners, most, padding_slots, _owner(owners, block_size), wider=True)


def first_in_the_list(captured, padding_slots, owners, block_size, most):
    """Takes the first size that fits, in the order given."""
    return _sizes(
        captured, owners, most, padding_slots, _owner(owners, block_size),
        pick=lambda fitting, n: fitting[0] if fitting else n,
    )  # fmt: skip


def no_size_fits(captured, padding_slots, owners, block_size, most):
    """next(...) without a default."""
    return _sizes(
        captured, owners, most, padding_slots, _owner(owners, block_size), pick=lambda fitting, n: next(iter(sorted(fitting)))
    )  # fmt: skip


def real_rows(captured, padding_slots, owners, block_size, most):
    """The rows before n instead of those after."""
    owner_of = _owner(owners, block_size)
    return [n for n in range(1, most + 1) if any(owner_of(slot) is not None for slot in padding_slots[:n])]


DTYPE = Text(
    "torch.zeros makes float32. A graph reads the buffers as they are: each field needs the dtype of the one in held.",
    "torch.zeros 默认是 float32。graph 按缓冲区原样读取：每个字段的 dtype 都要和 held 里的一样。",
)
ROWS = Text(
    "There may be several padding rows: return as many as held has.",
    "补齐行可能不止一行：held 有多少行，就返回多少行。",
)
WRONG = {
    "3a": (
        Wrong("harmless: scratch", at_the_scratch_block, Text(
            "That is right for once: the scratch block is nobody's. Here the bug is wanted. The slot mapping decides where a row writes; what does a buffer full of zeros say?",
            "这回反倒写对了：scratch block 不属于任何人。这里要的是 bug。一行写到哪里由 slot_mapping 决定；一个全是零的缓冲区，写的是哪个 slot？")),
        Wrong("harmless: skip", skipped, Text(
            "Slot −1 is skipped by the kernels, so these rows write nothing. A careless engineer does not think of −1: which slot do zeros mean? The block table alone decides only what is read.",
            "kernel 会跳过 slot −1，这些行什么也不写。粗心的人不会想到 −1：零对应的是哪个 slot？只改 block table 没有用，它只管读。")),
        Wrong("held as it is", as_they_were, Text(
            "These rows keep what an earlier batch left: that is the stale bug, which hits somebody else. Here the rows are to be filled with zeros.",
            "这些行保留了上一批留下的内容：那是残留行的 bug，伤的是别人。这里要求把这些行填成零。")),
        Wrong("context length 0", context_zero, Text(
            "All your fields are zero, context_lens as well: attention then has no token to read. Each padding row attends to one.",
            "你的每个字段都是零，context_lens 也不例外：这样注意力一个 token 也读不到。每个补齐行要读一个 token。")),
        Wrong("the scratch block in the table", scratch_in_the_table, Text(
            "Your block table names the scratch block: whoever thinks of that has noticed the bug. Here the table is zeros as well.",
            "你的 block table 里填了 scratch block：想得到这一点的人，早就发现 bug 了。这里 block table 也填零。")),
        Wrong("slots alone", slots_alone, Text(
            "Tokens, positions and block tables still hold what held held: every field of every row is to be filled.",
            "token、位置和 block table 还是 held 里原来的内容：每一行的每个字段都要填。")),
        Wrong("another dtype", float_zeros, DTYPE),
        Wrong("one row", one_row_of_zeros, ROWS),
        Wrong("a slot each", a_slot_each, Text(
            "Your rows count slots up. All of them are to be zeros: every padding row writes to the same slot.",
            "你的补齐行依次用了不同的 slot。这里要求全部是零：每个补齐行都写同一个 slot。")),
    ),
    "3b": (
        Wrong("every size that is not captured", not_captured, Text(
            "There is padding at these sizes, but padding alone does no harm: look where each padding row writes, and whether anybody owns that block.",
            "这些大小确实有补齐，但补齐本身没有害处：要看每个补齐行写到哪里，那个 block 有没有主人。")),
        Wrong("−1 as an index", minus_one_wraps, Text(
            "Slot −1 means no write. In Python, owners[−1] is the last block: an owner who was not hit.",
            "slot −1 表示不写。而在 Python 里 owners[−1] 是最后一个 block：你把没有受害的人也算进去了。")),
        Wrong("the scratch block looked up", scratch_is_out_of_range, Text(
            "The scratch block comes after all blocks in owners, so its number is no index there. Nobody owns it.",
            "scratch block 排在 owners 的所有 block 之后，它的编号不能拿去当下标。它没有主人。")),
        Wrong("a slot taken for a block", slot_as_block, Text(
            "padding_slots holds slots, owners is indexed by block: a block has block_size slots.",
            "padding_slots 里是 slot，owners 的下标是 block：一个 block 有 block_size 个 slot。")),
        Wrong("padded to the largest size", all_rows_to_the_top, Text(
            "A batch is padded to the smallest captured size that holds it, not to the largest: the rows after that do not run.",
            "batch 补齐到装得下它的最小捕获尺寸，而不是最大的：再后面的行根本不运行。")),
        Wrong("only the first padding row", first_padding_row, Text(
            "You look at row n alone. All rows from n to the captured size run, and each has a slot of its own.",
            "你只看了第 n 行。从第 n 行到捕获尺寸为止的每一行都会运行，各有各的 slot。")),
        Wrong("one row late", one_row_late, Text(
            "Rows are counted from 0: n real rows are rows 0 to n − 1, so the first padding row is row n.",
            "行从 0 数起：n 个真实的行是第 0 到 n − 1 行，第一个补齐行就是第 n 行。")),
        Wrong("one row early", one_row_early, Text(
            "Your first padding row is row n − 1: that is the last real one, since rows count from 0.",
            "你把第 n − 1 行当成了第一个补齐行：行从 0 数起，那是最后一个真实的行。")),
        Wrong("the last padding row missing", last_row_missing, Text(
            "The last padding row is left out: range and slices already end before the size that you give them.",
            "漏了最后一个补齐行：range 和切片本来就到给定的尺寸之前为止。")),
        Wrong("one row too many", one_row_too_many, Text(
            "You look at one row behind the captured size: it does not run.",
            "你多看了捕获尺寸后面的一行：那一行并不运行。")),
        Wrong("every row", every_row, Text(
            "You look at all rows of the step. The real ones have their own slots by then: padding_slots counts for the padding rows alone.",
            "你看了这一步的所有行。真实的行用的是自己的 slot，padding_slots 只对补齐行有意义。")),
        Wrong("a size several times", once_for_each_row, Text(
            "A batch size stands in your list once for each row that strikes: it belongs there once.",
            "有几行写坏，你就把这个 batch 大小列了几次：它只该出现一次。")),
        Wrong("running owners alone", running_owners, Text(
            "You count only owners that run in this step. A request that waits has its keys and values in the cache as well, in any block.",
            "你只算了这一步里正在运行的主人。正在等待的请求也有 key 和 value 在缓存里，可以在任何一个 block。")),
        Wrong("the next larger size", next_larger_size, Text(
            "A batch of exactly a captured size has no padding row at all.",
            "batch 大小恰好等于某个捕获尺寸时，一个补齐行也没有。")),
        Wrong("the first size in the list", first_in_the_list, Text(
            "The captured sizes come in any order: take the smallest one that fits, not the first.",
            "captured 的顺序是任意的：要取装得下的最小的那个，而不是第一个。")),
        Wrong("no size is large enough", no_size_fits, Text(
            "Above the largest captured size the step runs eager, without padding rows: that is no error.",
            "超过最大的捕获尺寸时，这一步走 eager，没有补齐行：这不是错误。")),
        Wrong("the real rows", real_rows, Text(
            "These are the rows before n, which are real and overwrite their buffers. The padding rows are those from n on.",
            "这些是 n 之前的行，它们是真实的，缓冲区已经换上了新内容。补齐行是从第 n 行开始的。")),
    ),
    "3c": ASSERTIONS,
    "3d": (
        Wrong("zeros", zeros, Text(
            "That is the bug of 3a: slot 0 belongs to a request. Use a slot that no request can own, or none at all.",
            "这就是 3a 的 bug：slot 0 属于某个请求。要用任何请求都不可能拥有的 slot，或者干脆不写。")),
        Wrong("held as it is", as_they_were, Text(
            "The rows keep the slots of requests that have ended; their blocks have new owners. Fill every field of every row anew.",
            "这些行留着已经结束的请求的 slot，而那些 block 已经换了主人。每一行的每个字段都要重新填。")),
        Wrong("a block's number as a slot", block_number_as_slot, Text(
            "cache.scratch_block is the number of a block. The slot mapping wants a slot: a block has cache.block_size of them.",
            "cache.scratch_block 是 block 的编号，而 slot_mapping 要的是 slot：一个 block 有 cache.block_size 个 slot。")),
        Wrong("one block short", last_real_block, Text(
            "Off by one: the block before the scratch block is a real one. It may be free now, and somebody's later.",
            "差了一个：scratch block 前面那一块是真的 block。现在也许空着，以后就是别人的。")),
        Wrong("one block too far", beyond_the_cache, Text(
            "This slot lies beyond the cache: the scratch block is already its last block.",
            "这个 slot 已经在缓存之外了：scratch block 本身就是最后一个 block。")),
        Wrong("only the first row", only_the_first, Text(
            "One padding row is harmless, the others still hold what they held: fill all rows.",
            "第一个补齐行没问题，其余的还留着旧内容：所有行都要填。")),
        Wrong("another dtype", float_zeros, DTYPE),
        Wrong("one row", one_row_skipped, ROWS),
    ),
}  # fmt: skip
