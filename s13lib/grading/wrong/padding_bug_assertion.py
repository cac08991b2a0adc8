"""Exercise 3c: the assertions that learners write, as two checks: of the write set, and of the bytes."""

from __future__ import annotations

import torch

from s13lib.grading.part import Text, Wrong


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


def own_blocks_exempt(before, after, slot_mapping, own_slots):
    """The write set is right; of the bytes, whole blocks are let pass."""
    size = before.shape[3]
    _check_writes(before, slot_mapping, own_slots)
    own = {slot // size * size + i for slot in own_slots for i in range(size)}
    _check_bytes(before, own, _bits(before, after))


def _open_ended(harmless):
    def answer(before, after, slot_mapping, own_slots):
        slots, n = slot_mapping.tolist(), len(own_slots)
        assert slots[:n] == own_slots
        assert all(harmless(slot, before.shape[2:4]) for slot in slots[n:])
        _check_bytes(before, own_slots, _bits(before, after))

    return answer


def _behind(slot, shape):
    return slot >= (shape[0] - 1) * shape[1]


def _inside(slot, shape):
    return _behind(slot, shape) and slot < shape[0] * shape[1]


# Where the scratch block has no end; where every negative slot is "no write"; both.
beyond_allowed = _open_ended(lambda slot, shape: slot == -1 or _behind(slot, shape))
negative_allowed = _open_ended(lambda slot, shape: slot < 0 or _inside(slot, shape))
both_allowed = _open_ended(lambda slot, shape: slot < 0 or _behind(slot, shape))


def padding_rows_unseen(before, after, slot_mapping, own_slots):
    """Rules 1 and 3."""
    assert slot_mapping.tolist()[: len(own_slots)] == own_slots
    _check_bytes(before, own_slots, _bits(before, after))


def another_exception(before, after, slot_mapping, own_slots):
    """Right, but what is raised is not what was asked for."""
    try:
        _check_writes(before, slot_mapping, own_slots)
        _check_bytes(before, own_slots, _bits(before, after))
    except AssertionError:
        raise ValueError("padding is not harmless") from None


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


ASSERTIONS = (
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
    Wrong("own blocks exempt", own_blocks_exempt, Text(
        "Only the slot itself is allowed, not its block: the earlier tokens of a running request lie in the same block, and a stray write there goes unnoticed.",
        "可以变的只有那个 slot 本身，不是它所在的 block：运行中的请求之前的 token 也在同一个 block 里，写坏了你却没有发现。")),
    Wrong("beyond the scratch block", beyond_allowed, Text(
        "You let every slot from the scratch block on pass. The scratch block has an end, and what lies behind it is no slot.",
        "从 scratch block 开始往后的 slot 你全都放过了。scratch block 是有尽头的，再往后就不是 slot 了。")),
    Wrong("every negative slot", negative_allowed, Text(
        "You let every negative slot pass: −1 alone means no write.",
        "所有负的 slot 你都放过了：只有 −1 表示不写。")),
    Wrong("open at both ends", both_allowed, Text(
        "You only exclude the real blocks. −2, or a slot behind the scratch block, is neither −1 nor in it: say what is allowed.",
        "你只排除了真实的 block。−2，或者 scratch block 之后的 slot，既不是 −1 也不在 scratch block 里：应当写明什么是允许的。")),
    Wrong("padding rows unseen", padding_rows_unseen, Text(
        "The slots of the padding rows are not checked. The bytes are no substitute: a stray write of the same bytes, or into a slot that changes anyway, shows nowhere.",
        "补齐行的 slot 没有检查。只看字节代替不了它：写进去的字节恰好相同，或者写的 slot 本来就要变，就什么也看不出来。")),
    Wrong("another exception", another_exception, Text(
        "It notices what it should, but raises ValueError: whoever calls it expects AssertionError.",
        "该发现的都发现了，抛出的却是 ValueError：调用者等的是 AssertionError。")),
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
)  # fmt: skip
