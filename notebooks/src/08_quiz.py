# ---
# title_en: Quiz and what comes next
# title_zh: 习题与接下来
# minutes: 15
# ---
# %% [markdown] lang="en"
# # Quiz and what comes next
#
# *About 15 minutes. 中文版：[习题与接下来](../zh/08_quiz.ipynb).*
#
# Six questions on what you have seen. Answer first; the explanation comes after. A wrong answer is worth more than a
# right one: it names the section to read again.
#
# At the end of this lesson you can
#
# * say in your own words what a graph records, what fusion removes, and when neither helps,
# * name the weak spot of your understanding, if there is one,
# * explain in a paragraph the idea that comes after this course.
# %% [markdown] lang="zh"
# # 习题与接下来
#
# *约 15 分钟。English: [Quiz and what comes next](../en/08_quiz.ipynb).*
#
# 六道题，考的都是前面见过的内容。先作答，再看解析。答错比答对更有价值：它会指出该回头重读哪一节。
#
# 学完这一课，你能够：
#
# * 用自己的话说清楚 graph 录下了什么、融合去掉了什么，以及什么时候两者都没有用；
# * 知道自己哪里还没有弄懂；
# * 用一段话讲出这门课之后的下一个想法。
# %%
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from s13lib.device import best_device
from s13lib.simulator import PRESETS, simulate
from s13lib.widgets import pick, quiz_widget, say

device = best_device(default="softgpu")
print(device.banner())  # nothing is measured here: any machine will do
# %% [markdown] lang="en"
# ## Six questions
#
# Choose an option, then press **Answer**. Each question can be answered once; **Start again** forgets all answers.
# With the keyboard: **Tab** goes on, **Shift + Tab** goes back, **Enter** presses.
#
# A class may want to know who answered what: put a given name between the quotes. Running the cell again keeps your
# answers, for as long as the kernel lives.
# %% [markdown] lang="zh"
# ## 六道题
#
# 选一个选项，再按**作答**。每题只能答一次；**重新开始**会清除所有回答。用键盘操作：**Tab** 往后，**Shift + Tab**
# 往前，**Enter** 按下。
#
# 如果老师要收结果，就在引号里填一个名字。只要 notebook 的内核没有重启，重新运行这一格，回答仍然保留。
# %%
LEARNER = ""  # a given name, or nothing

quiz = quiz_widget(LEARNER)
quiz
# %% [markdown] lang="en"
# ## Your result
#
# Run this cell when you are done. It says your score, and which sections to read again.
# %% [markdown] lang="zh"
# ## 你的成绩
#
# 答完之后运行这一格：它会报出得分，以及该回头重读的章节。
# %%
total, answers = len(quiz.questions), quiz.state["answers"]
say(
    f"Score {quiz.score}/{total}; {len(answers)} of {total} questions answered.",
    f"得分 {quiz.score}/{total}；共 {total} 题，已答 {len(answers)} 题。",
)
for question in quiz.questions:
    if question.id in answers and not (option := question.option(answers[question.id])).right:
        where = option.read.where(pick("en", "zh"))
        say(f"Read again: {where}.", f"回头重读：{where}。")
# %% [markdown] lang="en"
# ## For a class
#
# `quiz.export("amara.json")` writes the result next to the notebook: the name that you gave, the answers, the score,
# and nothing else about you or your machine. The cell below writes it into a temporary folder and shows it.
# %% [markdown] lang="zh"
# ## 给班级用
#
# `quiz.export("xiaolin.json")` 会把结果写在 notebook 旁边：你填的名字、回答和得分，此外没有任何关于你或这台机器的信息。
# 下面这一格把它写到临时文件夹里，再显示出来。
# %%
with tempfile.TemporaryDirectory() as folder:
    exported = json.loads(quiz.export(Path(folder) / "result.json").read_text(encoding="utf-8"))
print(json.dumps({**exported, "answers": exported["answers"][:2]}, ensure_ascii=False, indent=2))
say("(the first two answers are shown)", "（只显示前两题）")
# %% [markdown] lang="en"
# ## What comes next
#
# A forward pass is now about as cheap as it gets: few kernels, one submission, little padding. What is left is the
# rule that one pass makes one token. At batch 1 nearly all of a pass is spent on reading weights, whether one token
# uses them or several.
#
# **Predict:** how much longer does a step take with five rows instead of one? Five times, twice, or hardly longer?
# %% [markdown] lang="zh"
# ## 接下来
#
# 一次前向现在差不多省到头了：kernel 少，提交一次，补齐不多。剩下的是“一次前向一个 token”这条规则。batch 为 1 时，
# 一次前向的时间几乎都花在读权重上，不管用这些权重的是一个 token 还是几个。
#
# **先猜**：一步里有五行而不是一行，会慢多少？五倍、两倍，还是几乎不变？
# %%
setup = replace(PRESETS["llama-3-8b-h200"], stage=7, graph=True)
one, five = (simulate(replace(setup, batch=rows)) for rows in (1, 5))
ratio = five.timeline.step_us / one.timeline.step_us
say(
    f"One row: {one.timeline.step_us / 1000:.2f} ms. Five rows: {five.timeline.step_us / 1000:.2f} ms, "
    f"{ratio:.2f} times as long. (modelled: {one.timeline.provenance})",
    f"一行：{one.timeline.step_us / 1000:.2f} ms。五行：{five.timeline.step_us / 1000:.2f} ms，"
    f"是一行的 {ratio:.2f} 倍。（模型推算：{one.timeline.provenance}）",
)
# %% [markdown] lang="en"
# **Speculative decoding** uses those nearly free rows for *one* request. Something cheap guesses the next few
# tokens: a small draft model, a few extra heads, or the text itself when it repeats. The large model then checks all
# guesses in a single pass, one row a guess, keeps them up to the first that it rejects, and puts a token of its own
# there. So a pass makes at least one token and often several. Acceptance is a small game of chance whose odds are
# set so that the result follows exactly the distribution of the large model: faster, and not one probability
# changes. It works well where graphs work well, at low concurrency. With many requests the rows are no longer free.
# And this course comes along: rows are then tokens and no longer requests, so captured sizes count tokens, and a
# rejected guess leaves a key and a value in the cache that nobody may read. You know now what to check there.
# %% [markdown] lang="zh"
# **投机解码**就是把这些几乎免费的行用在**同一个**请求上。先用便宜的办法猜出后面几个 token：一个小的草稿模型、
# 几个额外的输出头，或者在文本重复时直接照抄前文。然后大模型用一次前向检查所有猜测，每个猜测一行，
# 一直保留到第一个被拒绝的为止，并在那里换上自己的 token。所以一次前向至少产出一个 token，往往有好几个。
# 接受与否由一次随机抽取决定，接受的概率取得恰到好处，结果严格服从大模型的分布：更快，却没有改变任何一个概率。它在 graph
# 有用的地方最有用，也就是低并发；请求一多，这些行就不再免费。这门课的内容也跟着用得上：那时一行是一个 token
# 而不是一个请求，捕获的尺寸数的是 token；被拒绝的猜测会在缓存里留下谁也不该读的 key 和 value。该检查什么，
# 你现在已经知道了。
# %% [markdown] lang="en"
# ## Recap
#
# * A graph records launches and addresses. Fusion removes kernels, a graph removes the CPU's work for each.
# * Buckets let a changing batch use fixed shapes; a scratch block keeps the padding harmless.
# * All of it matters where kernels are short. Profile first.
#
# **Exercises**: the six of them are your proof. If you do one alone, take exercise 3, “The padding bug”: it is the
# one that you will meet again.
#
# Back to the start: [lesson 0](00_start_here.ipynb).
# %% [markdown] lang="zh"
# ## 小结
#
# * graph 录下的是启动和地址。融合去掉 kernel，graph 去掉 CPU 为每个 kernel 做的工作。
# * 分桶让不断变化的 batch 用上固定的 shape；scratch block 让补齐行无害。
# * 这一切只在 kernel 很短的地方才重要。先 profile。
#
# **练习**：六道练习是真正的检验。如果只做一道，就做练习 3（补齐 bug）：它是你以后还会遇到的那一个。
#
# 回到开头：[第 0 课](00_start_here.ipynb)。
