# %% [markdown] lang="en"
# # Exercise 3: The padding bug
#
# A padded step runs its padding rows through every kernel, also the one that writes the KV cache. Lesson 5 showed what
# follows. Here you write that bug yourself, find out at which batch sizes it shows, write the assertion that catches
# it, and then make it impossible.
#
# The words: the cache lies in **blocks** of `block_size` **slots**, one slot a token; slot = block · block_size +
# offset. The last block is the **scratch block**, which no request ever owns. A step has one row for each request,
# and padding rows up to the captured size. Slot −1 means: do not write.
# %% [markdown] lang="zh"
# # 练习 3：补齐 bug
#
# 补齐之后的一步里，补齐行和真实的行一样跑完所有 kernel，包括写 KV 缓存的那一个。会出什么事，第 5 课已经看过了。这里由你亲手写出这个 bug，找出它在哪些 batch 大小下发作，写出能抓住它的断言，最后让它根本不可能发生。
#
# 用到的词：缓存分成一个个 **block**，每个 block 有 `block_size` 个 **slot**，一个 slot 存一个 token；slot = block · block_size + 块内位置。最后一个 block 是 **scratch block**，永远不属于任何请求。一步里每个请求占一行，后面用补齐行凑到捕获尺寸。slot −1 的意思是：不写。
# %% part="setup"
import torch

from s13lib.device import best_device
from s13lib.grading import check, hint, inputs, progress
from s13lib.graphs import GraphRunner
from s13lib.model import DecodeBatch, Sequence
from s13lib.model.checkpoints import load_checkpoint
from s13lib.widgets import say

device = best_device(default="softgpu")
bard = load_checkpoint("bard")
TEXTS = ("ROMEO.\nBut", "JULIET.\nO", "NURSE.\nNow", "TYBALT.\nWhat", "BENVOLIO.\nPart")


def service(n):
    """A model with a fresh cache, and n requests that have been prefilled."""
    model = bard.model(stage=4, max_rows=16, blocks=24)
    requests = [Sequence(text.split(".")[0].lower()) for text in TEXTS[:n]]
    for request, text in zip(requests, TEXTS):
        model.prefill(request, bard.tokenizer.encode(text))
    return model, requests


# %% [markdown] part="3a" lang="en"
# A runner asks a *padding policy* what the rows beyond the real ones shall hold. A policy gets the cache and `held`,
# what those rows hold now, and returns a `DecodeBatch` with as many rows. Look at one:
# %% [markdown] part="3a" lang="zh"
# 真实的行后面还要填些什么，runner 会去问一个**补齐策略**。策略拿到缓存和 `held`（这些行现在的内容），返回一个行数相同的 `DecodeBatch`。先看看它的样子：
# %%
def look_at_held():
    model, _ = service(3)
    held = GraphRunner(model, 8).inputs
    for name, tensor in held.named().items():
        print(f"{name:13} {tensor.dtype}  {list(tensor.shape)}")
    cache = model.cache
    print(f"scratch block: {cache.scratch_block}  slots a block: {cache.block_size}")


look_at_held()


# %% [markdown] part="3a" lang="en"
# Write `careless_rows(cache, held)`, the policy of somebody who thinks "nobody reads these rows, so zeros will do":
# for every row of `held` token 0, position 0, slot 0, a block table of zeros, and context length 1 (a row must attend
# to something). For two rows that is `slot_mapping` [0, 0] and `context_lens` [1, 1]. Use `held`'s shapes and dtypes.
# You make the result with `DecodeBatch(input_ids, positions, slot_mapping, block_tables, context_lens)`;
# `held.tensors()` gives the five of `held` in this order.
#
# The check captures a real step with your policy, runs it, and looks at what your rows hold and at whose slots were hit.
# %% [markdown] part="3a" lang="zh"
# 写出 `careless_rows(cache, held)`，也就是“反正没人看这些行，填零就行”的策略：`held` 的每一行都用 token 0、位置 0、slot 0、全零的 block table，上下文长度为 1（每一行的注意力至少要有一个 token 可读）。比如有两行时，`slot_mapping` 是 [0, 0]，`context_lens` 是 [1, 1]。形状和 dtype 要和 `held` 一致。结果用 `DecodeBatch(input_ids, positions, slot_mapping, block_tables, context_lens)` 来建，`held.tensors()` 按同样的顺序给出 `held` 的五个张量。
#
# 检查会用你的策略捕获真实的一步，运行它，再看你的行里填了什么、写坏了谁的 slot。
# %% part="3a"
def careless_rows(cache, held):
    ### BEGIN SOLUTION
    rows = DecodeBatch(*(torch.zeros_like(tensor) for tensor in held.tensors()))
    rows.context_lens.fill_(1)
    return rows
    ### END SOLUTION


# %% [markdown] part="3a" lang="en"
# Now watch it. Sizes 1, 2, 4 and 8 are captured. For each number of requests n we decode two steps twice: padded with
# your rows, and exactly, without padding. **Predict** before you run it: at which n do the logits differ, and whose?
# %% [markdown] part="3a" lang="zh"
# 现在看它发作。捕获了 1、2、4、8 四个尺寸。对每个请求数 n，同样的两步解码两遍：一遍用你的行补齐，一遍刚好 n 行、不补齐。运行之前**先猜**：哪些 n 下 logits 会不同？是谁的？
# %%
def compare(padding, n, size):
    """Two steps, padded and exact.

    For each request: the largest difference of a logit, and whether the choice changed.
    """
    (padded_model, padded), (exact_model, exact) = service(n), service(n)
    runner = GraphRunner(padded_model, size, padding=padding)
    for token in bard.tokenizer.encode(" t"):
        got = runner.run(padded_model.next_batch(padded, [token] * n))
        want = exact_model.decode(exact, [token] * n)
    changed = got.argmax(1) != want.argmax(1)
    return (got - want).abs().amax(dim=1).tolist(), changed.tolist()


def compare_all():
    flips = 0
    names = [text.split(".")[0].lower() for text in TEXTS]
    for n, size in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8)):
        differences, flipped = compare(careless_rows, n, size)
        flips += sum(flipped)
        row = (f"{name} {d:.3f} " for name, d in zip(names, differences))
        print(f"n={n} size={size} ", *row)
    say(
        f"Largest differences of a logit, measured. Rows whose likeliest next character changed: {flips}.",
        f"每个请求的 logit 最大相差多少（实测）。最可能的下一个字符变了的行数：{flips}。",
    )


compare_all()


# %% [markdown] part="3b" lang="en"
# Now in general. Write
# `sizes_where_it_shows(captured, padding_slots, owners, block_size, most)`: the sorted list of all batch sizes n from 1
# to `most` at which a step corrupts somebody.
#
# * `captured`: the captured sizes, in any order. A batch of n runs at the smallest one that is at least n. Above the
#   largest one it runs eager, without padding.
# * `padding_slots[i]`: where row i writes when it is a padding row. Rows count from 0, so the real rows are 0 to n − 1.
# * `owners[b]`: the name of the request that owns block b, or `None`. Whoever owns a block counts, whether it runs in
#   this step or waits. The scratch block is number `len(owners)`.
# * Slot −1 is not written. A write to a block without an owner corrupts nobody.
#
# Example: `captured=[1, 2, 4, 8]`, `padding_slots=[0] * 8` (your rows of 3a), `owners=["romeo", "juliet"]`,
# `block_size=16`, `most=8` gives `[3, 5, 6, 7]`. With `owners=[None, "juliet"]` it gives `[]`: the same bug, and nothing
# to be seen.
# %% [markdown] part="3b" lang="zh"
# 现在考虑一般情形。写出 `sizes_where_it_shows(captured, padding_slots, owners, block_size, most)`：从 1 到 `most` 的 batch 大小 n 里，哪些会让某个请求的缓存被污染，从小到大列成一个列表。
#
# * `captured`：捕获的尺寸，顺序任意。大小为 n 的 batch 用不小于 n 的最小尺寸来跑；超过最大尺寸就走 eager，不补齐。
# * `padding_slots[i]`：第 i 行作为补齐行时写到哪个 slot。行从 0 数起，所以真实的行是第 0 到 n − 1 行。
# * `owners[b]`：拥有 block b 的请求的名字，没有主人就是 `None`。只要有主人就算，不管那个请求在不在这一步里。scratch block 的编号是 `len(owners)`。
# * slot −1 不写。写到没有主人的 block，谁也没有受害。
#
# 例如 `captured=[1, 2, 4, 8]`、`padding_slots=[0] * 8`（3a 的行）、`owners=["romeo", "juliet"]`、`block_size=16`、`most=8`，结果是 `[3, 5, 6, 7]`。换成 `owners=[None, "juliet"]`，结果是 `[]`：bug 还在，却什么也看不出来。
# %% part="3b"
def sizes_where_it_shows(captured, padding_slots, owners, block_size, most):
    ### BEGIN SOLUTION
    found = []
    for n in range(1, most + 1):
        size = min((c for c in captured if c >= n), default=n)
        blocks = [slot // block_size for slot in padding_slots[n:size] if slot >= 0]
        if any(block < len(owners) and owners[block] is not None for block in blocks):
            found.append(n)
    return found
    ### END SOLUTION


# %% [markdown] part="3b" lang="en"
# Does your function agree with what was measured above? It knows nothing of tokens or logits, only of slots and owners.
# %% [markdown] part="3b" lang="zh"
# 你的函数和上面实测的一致吗？它不知道什么 token 和 logits，只知道 slot 和主人。
# %%
def compute_where():
    model, _ = service(5)
    held, block_size = model.cache.owners, model.cache.block_size
    owners = [held[b].name if b in held else None for b in range(24)]
    print("owners:", owners[:6], "…")
    sizes = sizes_where_it_shows([1, 2, 4, 8], [0] * 8, owners, block_size, 5)
    print("computed:", sizes)


compute_where()


# %% [markdown] part="3c" lang="en"
# Now catch it. Around a step somebody took two snapshots of the cache, and the step's slot mapping. Write
# `assert_padding_is_harmless(before, after, slot_mapping, own_slots)`. It raises `AssertionError` exactly when one of
# three rules is broken, and otherwise returns without a sound:
#
# 1. Real row i writes to its own slot: `slot_mapping[i] == own_slots[i]` for every real row.
# 2. Every row after those is a padding row: its slot is −1, or any slot of the scratch block.
# 3. Outside `own_slots` and the scratch block not one **bit** of the cache changed.
#
# What you get:
#
# * `before`, `after`: float32 tensors (layers, 2, blocks + 1, block_size, kv_heads, head_dim); index 0 of the second
#   axis is K, 1 is V; the last block is the scratch block.
# * `slot_mapping`: int64 (rows,), of all rows that ran.
# * `own_slots`: a list, the slot of each real row's new token. Its length is the number of real rows.
#
# A block that nobody owns today is somebody's tomorrow, so owners do not matter here. The check runs your assertion on
# right steps and on broken ones: it must be silent on the right ones. NaN may lie in the cache, a right step may leave
# every byte as it was, and slot 0 may be a request's own.
#
# `padded_step` takes such snapshots of a real step, for you to try things out:
# %% [markdown] part="3c" lang="zh"
# 现在来抓它。有人在一步的前后各拍了一份缓存快照，还记下了这一步的 slot_mapping。写出 `assert_padding_is_harmless(before, after, slot_mapping, own_slots)`：下面三条规则只要有一条不成立，就抛出 `AssertionError`；都成立，就不声不响地返回。
#
# 1. 第 i 个真实的行写它自己的 slot：对每个真实的行，`slot_mapping[i] == own_slots[i]`。
# 2. 再往后的行都是补齐行：它的 slot 是 −1，或者是 scratch block 里的任意一个。
# 3. 除了 `own_slots` 和 scratch block，缓存里没有任何一个**比特**变过。
#
# 你会拿到：
#
# * `before`、`after`：float32 张量，形状 (layers, 2, blocks + 1, block_size, kv_heads, head_dim)；第二维的 0 是 K，1 是 V；最后一个 block 是 scratch block。
# * `slot_mapping`：int64，形状 (rows,)，包括所有运行过的行。
# * `own_slots`：一个列表，每个真实的行的新 token 该存在哪个 slot。它有多长，就有多少个真实的行。
#
# 今天没有主人的 block，明天就有了，所以这里不管主人是谁。检查会用正确的步和各种写坏的步来试你的断言：正确的步上它必须安静。缓存里可能有 NaN；正确的一步可能一个字节也没改；slot 0 也可能正是某个请求自己的。
#
# `padded_step` 会给真实的一步拍下这样的快照，供你试验：
# %%
def snapshot(cache):
    """(layers, 2, blocks + 1, block_size, kv_heads, head_dim), a copy."""
    return torch.stack([torch.stack(pair) for pair in zip(cache.k, cache.v)])


def padded_step(padding, n, size, steps=1):
    """Snapshots around the last of `steps` equal steps of n requests.

    Also its slot mapping, and the requests' own slots.
    """
    model, requests = service(n)
    runner = GraphRunner(model, size, padding=padding)
    batch = model.next_batch(requests, [1] * n)
    for _ in range(steps):
        before = snapshot(model.cache)
        runner.run(batch)
    slot_mapping = runner.inputs.slot_mapping.clone()
    return before, snapshot(model.cache), slot_mapping, batch.slot_mapping.tolist()


def look_at_two_steps():
    for steps in (1, 2):
        before, after, slot_mapping, own_slots = padded_step(careless_rows, 3, 4, steps)
        # which numbers of the cache differ, and in which slots do those lie?
        block_size, places = before.shape[3], (before != after).nonzero()[:, 2:4]
        changed = sorted({int(b) * block_size + int(offset) for b, offset in places})
        print(f"step {steps}: slot_mapping {slot_mapping.tolist()}")
        print(f"        own_slots {own_slots}, changed slots {changed}")


look_at_two_steps()


# %% [markdown] part="3c" lang="en"
# Look at step 2, the same step once more: the padding row strikes again, and no byte shows it.
# %% [markdown] part="3c" lang="zh"
# 注意第 2 步，它只是把同一步又走了一遍：补齐行又写坏了一次，字节上却看不出来。
# %% part="3c"
def assert_padding_is_harmless(before, after, slot_mapping, own_slots):
    ### BEGIN SOLUTION
    blocks, block_size = before.shape[2:4]
    scratch = range((blocks - 1) * block_size, blocks * block_size)
    slots, n = slot_mapping.tolist(), len(own_slots)
    assert slots[:n] == own_slots, f"real rows write to {slots[:n]}, their own slots are {own_slots}"
    for row, slot in enumerate(slots[n:], start=n):
        assert slot == -1 or slot in scratch, f"padding row {row} writes to slot {slot}"
    differ = before.view(torch.int32) != after.view(torch.int32)
    changed = differ.flatten(2, 3).flatten(3).any(3).any(0).any(0).nonzero().flatten().tolist()
    stray = set(changed) - set(own_slots) - set(scratch)
    assert not stray, f"slots {sorted(stray)} changed, and no row may write there"
    ### END SOLUTION


# %% [markdown] part="3d" lang="en"
# Last, the right twin of 3a. Write `harmless_rows(cache, held)`: as many rows as `held`, same shapes and dtypes, and
# whatever the cache and `held` hold, no request is hurt, now or later. `cache.scratch_block` is the number of the
# scratch block, `cache.block_size` the slots of a block. Both designs of lesson 5 count. The rows must still be valid:
# tokens and positions in range, and no slot beyond the cache.
# %% [markdown] part="3d" lang="zh"
# 最后是 3a 的正确版本。写出 `harmless_rows(cache, held)`：行数、形状、dtype 都和 `held` 一样，而且不管缓存和 `held` 里是什么，任何请求都不会受害，现在不会，以后也不会。`cache.scratch_block` 是 scratch block 的编号，`cache.block_size` 是一个 block 的 slot 数。第 5 课的两种设计都算对。这些行还得是合法的：token 和位置不越界，slot 不超出缓存。
# %% part="3d"
def harmless_rows(cache, held):
    ### BEGIN SOLUTION
    rows = DecodeBatch(*(torch.zeros_like(tensor) for tensor in held.tensors()))
    rows.slot_mapping.fill_(cache.scratch_block * cache.block_size)
    rows.block_tables.fill_(cache.scratch_block)
    rows.context_lens.fill_(1)
    return rows
    ### END SOLUTION


# %% [markdown] part="3d" lang="en"
# Both policies under your assertion, at every batch size. This table is the test that an engine should have.
# %% [markdown] part="3d" lang="zh"
# 两种策略，每个 batch 大小，都用你的断言过一遍。一个引擎该有的测试，就是这张表。
# %%
def table():
    for n, size in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8)):
        for policy in (careless_rows, harmless_rows):
            try:
                assert_padding_is_harmless(*padded_step(policy, n, size))
                said = "silent"
            except AssertionError as alarm:
                said = f"ALARM: {alarm}"
            print(f"n={n} size={size} {policy.__name__:14} {said}")


table()
