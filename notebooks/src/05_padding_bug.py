# ---
# title_en: The padding-corruption bug
# title_zh: 补齐污染 bug
# minutes: 15
# ---
# %% [markdown] lang="en"
# # The padding-corruption bug
#
# *About 15 minutes. 中文版：[补齐污染 bug](../zh/05_padding_bug.ipynb).*
#
# A batch of three is padded to a captured size of four. The fourth row is a dummy: nobody reads its output. But it runs
# the same kernels as a real row, and one of them **writes a key and a value into the cache**. Where it writes decides
# everything.
#
# The bug that follows is nearly the worst combination there is: it comes and goes, it depends on the batch size, and
# the output still looks reasonable. In this lesson you switch it on, watch it, and write the check that catches it.
#
# At the end you can
#
# * say which row writes where in a padded step,
# * explain why the bug shows at some batch sizes only,
# * catch it before it does harm, and name the two designs in which it cannot happen.
# %% [markdown] lang="zh"
# # 补齐污染 bug
#
# *约 15 分钟。English: [The padding-corruption bug](../en/05_padding_bug.ipynb).*
#
# 三个请求组成的 batch 补齐到已捕获的尺寸 4。第四行是占位行，没有人看它的输出。但它和真实的行一样要跑所有 kernel，其中有一个会**把 key 和 value 写进缓存**。写到哪里，决定了一切。
#
# 由此产生的 bug，几乎集齐了最糟的特点：时有时无，跟 batch 大小有关，输出还看着挺像样。这一课里你会亲手打开它，看它怎么发作，再写出能抓住它的检查。
#
# 学完之后，你能够：
#
# * 说出补齐之后的一步里，哪一行写到了哪里；
# * 解释为什么它只在某些 batch 大小下出现；
# * 在它造成损害之前把它抓住，并说出两种让它根本不可能发生的设计。
# %%
import inspect
import json
from importlib import resources

import torch

from s13lib.buckets import BucketLayout
from s13lib.device import best_device
from s13lib.graphs import PADDINGS, BucketedRunner, CacheAudit, CacheCorruption
from s13lib.graphs.scenario import by_batch_size, run_scenario
from s13lib.model import Sequence
from s13lib.model.checkpoints import load_checkpoint
from s13lib.widgets import corruption_widget, say

device = best_device(default="softgpu")
print(device.banner())
bard = load_checkpoint("bard")
encode, decode = bard.tokenizer.encode, bard.tokenizer.decode
# %% [markdown] lang="en"
# ## One step, three requests, a captured size of four
#
# Three requests have been prefilled. Each owns a block of the paged cache. The careless way to pad is to fill the
# buffers with zeros: token 0, position 0, **slot 0**.
#
# **Predict:** slot 0 is the first slot of block 0. Whose is it?
# %% [markdown] lang="zh"
# ## 一步，三个请求，捕获尺寸是 4
#
# 三个请求都做完了 prefill，各自占着分页缓存里的一个 block。偷懒的补齐方法是把缓冲区清零：token 0，位置 0，**slot 0**。
#
# **先猜**：slot 0 是 block 0 的第一个 slot。它是谁的？
# %%
model = bard.model(stage=4, max_rows=16, blocks=24)
requests = []
for name, text in (("romeo", "ROMEO.\nBut"), ("juliet", "JULIET.\nO"), ("nurse", "NURSE.\nNow")):
    request = Sequence(name)
    model.prefill(request, encode(text))
    requests.append(request)
    print(f"{name:7} blocks {request.blocks}, {request.length} tokens")

batch = model.next_batch(requests, encode(" th"))
naive = BucketedRunner(model, [4], padding="naive", progress=False)
before = [tensor.clone() for tensor in model.cache.k]
naive.forward(batch)
print("slot_mapping:", naive.inputs.slot_mapping.tolist())
changed = {
    slot
    for old, new in zip(before, model.cache.k, strict=True)
    for slot in (old != new).flatten(2).any(2).flatten().nonzero().flatten().tolist()
}
say(
    f"Slots whose bytes changed: {sorted(changed)}. Three rows, {len(changed)} slots: slot 0 is the first token of "
    f"{requests[0].name}, and it was overwritten.",
    f"字节发生变化的 slot：{sorted(changed)}。三行请求，却改了 {len(changed)} 个 slot：slot 0 是 {requests[0].name} 的第一个 token，它被覆盖了。",
)
# %% [markdown] lang="en"
# Nothing crashed. `romeo`'s first character now has the key and value of a dummy. From the next step on, every token of
# `romeo` attends to it.
#
# ## Does it show?
#
# The same batch again, next to each request decoded **alone**, in a fresh cache.
# %% [markdown] lang="zh"
# 没有任何报错。`romeo` 的第一个字符，现在存的是占位行的 key 和 value。从下一步起，`romeo` 的每个新 token 做注意力时都会读到它。
#
# ## 看得出来吗？
#
# 再跑一步，同时把每个请求**单独**放在全新的缓存里解码，对比一下。
# %%
alone_model = bard.model(stage=4, max_rows=16, blocks=24)
texts = {"romeo": "ROMEO.\nBut", "juliet": "JULIET.\nO", "nurse": "NURSE.\nNow"}
follow = encode("eir")
together = naive.forward(model.next_batch(requests, follow))
for row, request in enumerate(requests):
    twin = Sequence(request.name)
    alone_model.prefill(twin, [*encode(texts[request.name]), encode(" th")[row]])
    alone = alone_model.decode([twin], [follow[row]])[0]
    difference = (together[row] - alone).abs().max().item()
    same = bool(together[row].argmax() == alone.argmax())
    say(
        f"{request.name:7} largest difference of a logit {difference:.3f}, likeliest next character the same: {same}",
        f"{request.name:7} logit 最大相差 {difference:.3f}，最可能的下一个字符相同：{'是' if same else '否'}",
    )
# %% [markdown] lang="en"
# One request differs, the other two are exact to the last bit. And the likeliest character often stays the same: whoever
# looks at the text sees nothing.
#
# ## Four policies under traffic
#
# Now a small service: requests come in bursts, make some text, and leave; their blocks are recycled, last in first out.
# We run it under four ways to fill the rows beyond n. Here they are, in full:
# %% [markdown] lang="zh"
# 一个请求不一样了，另外两个精确到最后一位。而且最可能的那个字符往往并没有变：光看文本，什么也看不出来。
#
# ## 在一段流量下比较四种策略
#
# 现在来一个小小的服务：请求成批到来，写一段文字，然后离开；腾出的 block 后进先出地回收。多出来的那些行怎么填，有四种办法，全部代码如下：
# %%
for policy in PADDINGS.values():
    print(inspect.getsource(policy))
# %% [markdown] lang="en"
# `scratch` and `skip` are right. `naive` points at slot 0. `stale` changes nothing: the rows keep what an earlier, larger
# batch left there.
#
# **Predict:** sizes 1, 2, 4, 8, 16 are captured. At which batch sizes can `naive` do harm? And when can `stale`?
# %% [markdown] lang="zh"
# `scratch` 和 `skip` 是对的。`naive` 指向 slot 0。`stale` 什么都不改：那些行还留着之前更大的 batch 的内容。
#
# **先猜**：捕获了 1、2、4、8、16 这几个尺寸。`naive` 会在哪些 batch 大小下造成损害？`stale` 又在什么时候？
# %%
texts = json.loads((resources.files("s13lib.data") / "prompts.json").read_text(encoding="utf-8"))
prompts = [encode(text) for text in texts[:14]]
layout = BucketLayout([1, 2, 4, 8, 16])
results = {}
for policy in PADDINGS:
    served = bard.model(stage=4, max_rows=64, blocks=160)
    results[policy] = run_scenario(served, prompts, layout, policy, seed=5, max_batch=12)

rows = {policy: {row.n: row for row in by_batch_size(result)} for policy, result in results.items()}
say(
    "steps / alarms / steps whose logits differ from the requests decoded alone\n",
    "步数 / 报警 / logits 与单独解码不同的步数\n",
)
print(f"{'n':>3} {'bucket':>6}", *(f"{policy:>13}" for policy in rows))
for n in sorted({n for table in rows.values() for n in table}):
    cells = []
    for table in rows.values():
        row = table.get(n)
        cells.append("" if row is None else f"{row.steps} / {row.alarms} / {row.steps_differing}")
    print(f"{n:>3} {layout.pick(n):>6}", *(f"{cell:>13}" for cell in cells))
# %% [markdown] lang="en"
# Read the columns:
#
# * `scratch` and `skip`: no alarm, no difference, at any n.
# * `naive` raises alarms only where n is **not** a captured size: where it is, there is no padding row. But harm done
#   earlier stays in the cache, so outputs may differ at captured sizes, too.
# * `stale` needs more: the batch must have shrunk, **and** a recycled block must have a new owner by now. With other
#   traffic it stays silent for a whole day.
#
# That is why nobody finds this bug by testing one batch size.
#
# ## Watch it
#
# Choose a policy and a step. The map shows the cache by owner; a corrupted block is marked with its slot.
# %% [markdown] lang="zh"
# 按列来看：
#
# * `scratch` 和 `skip`：无论 n 是多少，没有报警，也没有差异。
# * `naive` 只在 n **不是**捕获尺寸时报警：n 恰好是捕获尺寸时，根本没有占位行。但先前造成的损害会留在缓存里，所以 n 是捕获尺寸时，输出也可能不对。
# * `stale` 要求更多：batch 必须缩小过，**而且**回收的 block 已经换了主人。换一种流量，它可以一整天不出声。
#
# 所以，只测一个 batch 大小，永远找不到这个 bug。
#
# ## 亲眼看看
#
# 选一种策略和某一步。图上按主人显示缓存，被污染的 block 会标出具体的 slot。
# %%
corruption_widget()
# %% [markdown] lang="en"
# ## Catch it
#
# What to check? Comparing the cache before and after a step is not enough: a stray row writes the same bytes again at
# each step. Look at the **write set** instead: the slots that all rows of the step are about to write, against the owners
# of their blocks. `CacheAudit` does that before the step runs, from three small inputs.
# %% [markdown] lang="zh"
# ## 抓住它
#
# 该检查什么？只比较一步前后的缓存是不够的：乱写的那一行每一步都会把同样的字节再写一遍。要看的是**写集合**：这一步所有行将要写的 slot，对照这些 block 的主人。`CacheAudit` 在这一步运行之前就做这件事，只需要三个小输入。
# %%
audited = BucketedRunner(model, [4], padding="naive", audit=CacheAudit(model.cache, "naive"), progress=False)
try:
    audited.forward(model.next_batch(requests, encode("abc")))
except CacheCorruption as alarm:
    print("CacheCorruption:", alarm)
# %% [markdown] lang="en"
# The message names row, slot, block, owner and policy, and nothing has been written yet. Switch it on in a test that
# walks through **all** batch sizes, and in production while you hunt.
#
# ## Two designs in which it cannot happen
#
# | | rows beyond n | used by (read, not measured here) |
# |---|---|---|
# | **scratch** | write to a block that no request ever owns | SGLang (slot 0 reserved), TensorRT-LLM (a dummy request), mini-sglang (an extra page) |
# | **skip** | slot −1, which the kernel does not write | vLLM (and a null block in the table), nano-vllm |
#
# Both fill **every** row at each step, so a stale row cannot exist. Watch the price of `skip`: every kernel that writes
# must know what −1 means. As a Python index it is the last slot of the cache, which is a bug of its own (vllm#43810):
# %% [markdown] lang="zh"
# 这条消息指明了行、slot、block、主人和策略，而且此刻什么都还没写。把它打开，放进一个走遍**所有** batch 大小的测试里；追查问题时，在线上也可以打开。
#
# ## 两种根本不会出事的设计
#
# | | 第 n 行往后的行 | 谁在用（读来的，不是在这里测的） |
# |---|---|---|
# | **scratch** | 写进一个永远不分给任何请求的 block | SGLang（保留 slot 0）、TensorRT-LLM（一个占位请求）、mini-sglang（多出的一页） |
# | **skip** | slot −1，kernel 遇到它就不写 | vLLM（block table 里再配一个空 block）、nano-vllm |
#
# 两种做法每一步都把**每一行**填好，所以不可能有残留的行。注意 `skip` 的代价：每个会写缓存的 kernel 都得懂得 −1 的含义。把它当成 Python 下标，就成了缓存的最后一个 slot，这本身又是一个 bug（vllm#43810）：
# %%
cache = torch.zeros(4, 2)
cache.view(-1)[torch.tensor([1, -1])] = torch.tensor([5.0, 9.0])
print("Python index:", cache.tolist())
cache, other = device.zeros((4, 2, 1, 1)), device.zeros((4, 2, 1, 1))
values = device.tensor([[5.0], [9.0]])
device.kernels.append_kv(values, values, device.tensor([1, -1]), cache, other)
device.synchronize()
print("kernel      :", cache.view(4, 2).tolist())
# %% [markdown] lang="en"
# ## The public cases
#
# * rvllm#32: dummy rows at slot 0; wrong at n = 3, right at n = 4.
# * Diffulex#44, vllm#41841: stale rows after the batch shrank.
# * vllm#43810: slot −1 as an index.
# * sglang#35546: not the cache but the output: the static buffer was returned, and the next step overwrote it (lesson 3).
#
# ## Recap
#
# * A padding row runs every kernel, the cache write included.
# * The bug depends on the batch size and on the traffic's history, and the text still reads well: judge by logits and by
#   bytes, not by eye.
# * Check the write set against the owners, at every batch size.
# * Give padding rows a scratch block, or let the kernels skip them, and fill every row at each step.
#
# **Exercise 3, The padding bug:** write it on purpose, find the batch sizes where it shows, then write the assertion that
# catches it.
# %% [markdown] lang="zh"
# ## 公开的案例
#
# * rvllm#32：占位行写 slot 0；n = 3 时错，n = 4 时对。
# * Diffulex#44、vllm#41841：batch 缩小之后的残留行。
# * vllm#43810：把 slot −1 当成下标。
# * sglang#35546：错的不是缓存而是输出：直接返回了静态缓冲区，被下一步覆盖（第 3 课）。
#
# ## 小结
#
# * 占位行会跑每一个 kernel，写缓存也不例外。
# * 这个 bug 取决于 batch 大小和流量的历史，文本读起来却很正常：要看 logits 和字节，别用眼睛判断。
# * 在每一个 batch 大小下，都拿写集合去对照 block 的主人。
# * 给占位行一个专用的 scratch block，或者让 kernel 跳过它们；并且每一步都填满每一行。
#
# **练习 3（补齐 bug）**：故意把它写出来，找出在哪些 batch 大小下会发作，再写出能抓住它的断言。
