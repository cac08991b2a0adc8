"""Exercise 3: what learners write."""

from __future__ import annotations

import torch

from s13lib.grading.part import Text, Wrong
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
        if any(owner_of(slot) is not None for slot in padding_slots[n + first : size + past]):
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


# ---- 3c: assertions, as two checks: of the write set, and of the bytes


def _scratch(before):
    blocks, size = before.shape[2:4]
    return set(range((blocks - 1) * size, blocks * size))


def _check_writes(before, slot_mapping, own_slots):
    slots, n = slot_mapping.tolist(), len(own_slots)
    assert slots[:n] == own_slots
    _check_padding(before, slot_mapping, own_slots)


def _check_padding(before, slot_mapping, own_slots):
    assert set(slot_mapping.tolist()[len(own_slots) :]) <= _scratch(before) | {-1}


def _bits(before, after):
    return before.view(torch.int32) != after.view(torch.int32)


def _changed(differ):
    """Slots in a (layers, 2, blocks, block_size, …) map of what differs, or in a part of it."""
    while differ.dim() < 6:
        differ = differ[None]
    return set(differ.flatten(2, 3).flatten(3).any(3).any(0).any(0).nonzero().flatten().tolist())


def _check_bytes(before, own_slots, differ):
    assert _changed(differ) <= _scratch(before) | set(own_slots)


def never_fires(before, after, slot_mapping, own_slots):
    """Returns the verdict."""
    return False


def always_fires(before, after, slot_mapping, own_slots):
    """A condition that never holds."""
    raise AssertionError


def nothing_may_change(before, after, slot_mapping, own_slots):
    """The real rows' writes are forbidden, too."""
    assert torch.equal(before, after)


def bytes_alone(before, after, slot_mapping, own_slots):
    """No look at the write set."""
    _check_bytes(before, own_slots, _bits(before, after))


def writes_alone(before, after, slot_mapping, own_slots):
    """No look at the bytes."""
    _check_writes(before, slot_mapping, own_slots)


def equal_signs(before, after, slot_mapping, own_slots):
    """NaN differs from itself."""
    _check_writes(before, slot_mapping, own_slots)
    _check_bytes(before, own_slots, before != after)


def numbers(before, after, slot_mapping, own_slots):
    """NaN is dealt with; 0.0 equals −0.0."""
    _check_writes(before, slot_mapping, own_slots)
    _check_bytes(before, own_slots, (before != after) & ~(before.isnan() & after.isnan()))


def nearly(before, after, slot_mapping, own_slots):
    """A tolerance."""
    _check_writes(before, slot_mapping, own_slots)
    _check_bytes(before, own_slots, ~torch.isclose(before, after, equal_nan=True))


def keys_alone(before, after, slot_mapping, own_slots):
    """V is not looked at."""
    _check_writes(before, slot_mapping, own_slots)
    _check_bytes(before, own_slots, _bits(before, after)[:, :1])


def first_layer(before, after, slot_mapping, own_slots):
    """The other layers are not looked at."""
    _check_writes(before, slot_mapping, own_slots)
    _check_bytes(before, own_slots, _bits(before, after)[:1])


def without_scratch(before, after, slot_mapping, own_slots):
    """The scratch block may not change."""
    _check_writes(before, slot_mapping, own_slots)
    assert _changed(_bits(before, after)) <= set(own_slots)


def scratch_first_slot(before, after, slot_mapping, own_slots):
    """Only the first slot of the scratch block is allowed."""
    slots, n, allowed = slot_mapping.tolist(), len(own_slots), {min(_scratch(before)), *own_slots}
    assert slots[:n] == own_slots
    assert set(slots[n:]) <= {min(_scratch(before)), -1}
    assert _changed(_bits(before, after)) <= allowed


def counts(before, after, slot_mapping, own_slots):
    """As many changed slots as rows."""
    _check_writes(before, slot_mapping, own_slots)
    assert len(_changed(_bits(before, after)) - _scratch(before)) == len(own_slots)


def whole_blocks(before, after, slot_mapping, own_slots):
    """The blocks of the real rows, not their slots."""
    size = before.shape[3]
    own = {slot // size * size + i for slot in own_slots for i in range(size)}
    assert set(slot_mapping.tolist()) <= own | _scratch(before) | {-1}
    _check_bytes(before, own, _bits(before, after))


def padding_rows_alone(before, after, slot_mapping, own_slots):
    """The real rows' slots are trusted."""
    _check_padding(before, slot_mapping, own_slots)
    _check_bytes(before, own_slots, _bits(before, after))


def as_a_set(before, after, slot_mapping, own_slots):
    """Any row may write any allowed slot."""
    assert set(slot_mapping.tolist()) <= set(own_slots) | _scratch(before) | {-1}
    _check_bytes(before, own_slots, _bits(before, after))


def slot_zero(before, after, slot_mapping, own_slots):
    """Looks for the naive bug alone."""
    assert 0 not in slot_mapping.tolist()


def minus_one_forbidden(before, after, slot_mapping, own_slots):
    """Padding rows must name a slot of the scratch block."""
    slots, n = slot_mapping.tolist(), len(own_slots)
    assert slots[:n] == own_slots
    assert set(slots[n:]) <= _scratch(before)
    _check_bytes(before, own_slots, _bits(before, after))


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
    "3c": (
        Wrong("never fires", never_fires, Text(
            "It never raises. Returning False alarms nobody: raise AssertionError, or use assert.",
            "它从来不报警。返回 False 谁也不会知道：要抛出 AssertionError，或者用 assert。")),
        Wrong("always fires", always_fires, Text(
            "It fires at every step, at the harmless ones, too: an alarm that always rings tells nothing. Print the condition for a step with padding in the scratch block.",
            "每一步它都报警，没有问题的步也不例外：总在响的报警等于没有。拿补齐行写 scratch block 的一步，把条件打印出来看看。")),
        Wrong("nothing may change", nothing_may_change, Text(
            "A right step does change the cache: every real row stores its token, and padding rows may write to the scratch block.",
            "正确的一步本来就会改缓存：每个真实的行都要存自己的 token，补齐行也可以写 scratch block。")),
        Wrong("bytes alone", bytes_alone, Text(
            "Comparing before with after is not enough: a stray row that strikes twice writes the same bytes again. Look at slot_mapping, too.",
            "只比较前后不够：乱写的行第二次写的还是同样的字节。还要看 slot_mapping。")),
        Wrong("write set alone", writes_alone, Text(
            "slot_mapping says what the rows should write. A kernel that misreads it (slot −1 as an index) shows only in the bytes: compare before with after, too.",
            "slot_mapping 说的是这些行应该写哪里。kernel 要是读错了（把 −1 当下标），只有字节会露馅：before 和 after 也要比。")),
        Wrong("NaN differs from itself", equal_signs, Text(
            "NaN == NaN is false, so it fires where nothing changed; and −0.0 == 0.0 is true. Compare bits, not numbers.",
            "NaN == NaN 为假，于是没有变化的地方也报警；而 −0.0 == 0.0 为真。要比的是比特，不是数值。")),
        Wrong("keys alone", keys_alone, Text(
            "A stray write into V goes unnoticed: axis 1 holds K and V.",
            "V 里的乱写没有被发现：第 1 维是 K 和 V，两个都要看。")),
        Wrong("first layer alone", first_layer, Text(
            "A stray write in a later layer goes unnoticed: axis 0 holds the layers.",
            "后面某一层里的乱写没有被发现：第 0 维是层，每一层都要看。")),
        Wrong("no scratch block", without_scratch, Text(
            "It fires at the right design: padding rows may write to the scratch block, which is the last one.",
            "正确的做法也被它报警了：补齐行可以写 scratch block，也就是最后一个 block。")),
        Wrong("one scratch slot", scratch_first_slot, Text(
            "All slots of the scratch block may be written, not just its first.",
            "scratch block 的每个 slot 都可以写，不只是第一个。")),
        Wrong("a tolerance", nearly, Text(
            "allclose forgives small differences. Somebody's cache must not change by one bit.",
            "allclose 会放过微小的差别。别人的缓存一位都不能变。")),
        Wrong("−0.0 equals 0.0", numbers, Text(
            "A write of −0.0 over 0.0 goes unnoticed, since both compare equal. Compare the bits: view(torch.int32).",
            "把 0.0 写成 −0.0 没有被发现，因为两者比较起来相等。请比较比特：view(torch.int32)。")),
        Wrong("counts slots", counts, Text(
            "It counts changed slots. A step that runs twice changes no byte the second time, and is right: ask which slots changed, not how many.",
            "它数的是变了几个 slot。同一步跑第二遍，一个字节也不变，却是对的：要问变的是哪些，而不是多少。")),
        Wrong("whole blocks", whole_blocks, Text(
            "It allows whole blocks of the running requests. Their earlier tokens must stay as well: only the one own slot of each row may change.",
            "它放过了运行中请求的整个 block。它们之前的 token 也不能动：每一行只有自己的那一个 slot 可以变。")),
        Wrong("real rows trusted", padding_rows_alone, Text(
            "The real rows are not checked: one of them names another slot than its own, and its token is stored in the wrong place or not at all.",
            "真实的行没有检查：其中一行的 slot 不是它自己的，它的 token 存错了地方，或者根本没存。")),
        Wrong("rows mixed up", as_a_set, Text(
            "A slot may be right for one row and wrong for another: real row i writes own_slots[i], padding rows write to none of them.",
            "同一个 slot，对这一行是对的，对另一行就是错的：第 i 个真实的行写 own_slots[i]，补齐行哪个也不能写。")),
        Wrong("slot 0 alone", slot_zero, Text(
            "It looks for slot 0 only. Other slots can be hit as well, and slot 0 may be a request's own.",
            "它只找 slot 0。别的 slot 一样会被写坏，而 slot 0 也可能正是某个请求自己的。")),
        Wrong("−1 forbidden", minus_one_forbidden, Text(
            "Slot −1 is harmless in a padding row: the kernels skip it.",
            "补齐行用 slot −1 是无害的：kernel 会跳过它。")),
    ),
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
