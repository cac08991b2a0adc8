"""Exercise 2: what learners write. The layers of 2b and the kernels of 2e stand in files of their own."""

from __future__ import annotations

import torch

from s13lib.grading.part import Text, Wrong
from s13lib.grading.wrong.fuse_rms_norm_kernel import KERNELS
from s13lib.grading.wrong.fuse_rms_norm_layers import LAYERS

# ---- 2a


def _mean_square(x, **where):
    return x.pow(2).mean(**(where or {"dim": -1, "keepdim": True}))


def _norm(x, weight, eps):
    return x * torch.rsqrt(_mean_square(x) + eps) * weight


def eps_outside(x, residual, weight, eps):
    """Eps behind the root."""
    total = x + residual
    return total / (_mean_square(total).sqrt() + eps) * weight, total


def eps_forgotten(x, residual, weight, eps):
    """No eps."""
    return _norm(x + residual, weight, 0.0), x + residual


def mean_over_rows(x, residual, weight, eps):
    """The mean over the first dimension."""
    total = x + residual
    return total * torch.rsqrt(_mean_square(total, dim=0, keepdim=True) + eps) * weight, total


def mean_over_everything(x, residual, weight, eps):
    """One mean for all rows."""
    total = x + residual
    return total * torch.rsqrt(total.pow(2).mean() + eps) * weight, total


def sum_of_squares(x, residual, weight, eps):
    """The mean's division is missing."""
    total = x + residual
    return total * torch.rsqrt(total.pow(2).sum(-1, keepdim=True) + eps) * weight, total


def layer_norm(x, residual, weight, eps):
    """LayerNorm without its bias."""
    total = x + residual
    centred = total - total.mean(-1, keepdim=True)
    return _norm(centred, weight, eps), total


def variance(x, residual, weight, eps):
    """The variance, with torch's n − 1."""
    total = x + residual
    spread = total.var(-1, keepdim=True) if total.shape[-1] > 1 else torch.zeros_like(total)
    return total * torch.rsqrt(spread + eps) * weight, total


def no_root(x, residual, weight, eps):
    """Divided by the mean square itself."""
    total = x + residual
    return total / (_mean_square(total) + eps) * weight, total


def residual_missing_in_the_norm(x, residual, weight, eps):
    """Normalises x alone."""
    return _norm(x, weight, eps), x + residual


def norm_then_add(x, residual, weight, eps):
    """The add behind the norm."""
    normed = _norm(x, weight, eps) + residual
    return normed, normed


def old_residual(x, residual, weight, eps):
    """Gives the stream back as it was."""
    return _norm(x + residual, weight, eps), residual.clone()


def normed_residual(x, residual, weight, eps):
    """The normalised row goes on as the stream."""
    normed = _norm(x + residual, weight, eps)
    return normed, normed.clone()


def swapped(x, residual, weight, eps):
    """The two results in the other order."""
    return x + residual, _norm(x + residual, weight, eps)


def weight_first(x, residual, weight, eps):
    """The weight before the norm."""
    return _norm((x + residual) * weight, 1.0, eps), x + residual


def weight_forgotten(x, residual, weight, eps):
    """No weight."""
    return _norm(x + residual, 1.0, eps), x + residual


def writes_into_residual(x, residual, weight, eps):
    """The sum in place, in the caller's tensor."""
    residual += x
    return _norm(residual, weight, eps), residual


def writes_into_x(x, residual, weight, eps):
    """The sum in place, in x."""
    x += residual
    return _norm(x, weight, eps), x


# ---- 2c


def _counted(sizes):
    return len(sizes), sum(sizes)


def every_step(record):
    """All steps."""
    return _counted([size for _, _, size in record["steps"]])


def results_too(record):
    """Outputs are counted."""
    return _counted({memory: size for _, memory, size in record["steps"] if memory not in record["inputs"]}.values())


def inputs_too(record):
    """What is written in place into an input is counted."""
    return _counted({memory: size for _, memory, size in record["steps"] if memory not in record["outputs"]}.values())


def every_step_between(record):
    """A memory is counted at each step that gives it."""
    outside = {*record["inputs"], *record["outputs"]}
    return _counted([size for _, memory, size in record["steps"] if memory not in outside])


def bytes_of_every_step(record):
    """The number is right; the bytes are added at each step."""
    outside = {*record["inputs"], *record["outputs"]}
    steps = [(memory, size) for _, memory, size in record["steps"] if memory not in outside]
    return len({memory for memory, _ in steps}), sum(size for _, size in steps)


def all_but_the_last(record):
    """Takes the last step alone for the result."""
    memories = {memory: size for _, memory, size in record["steps"][:-1] if memory not in record["inputs"]}
    return _counted(memories.values())


def by_name(record):
    """Leaves out what is called a view, and counts the rest."""
    outside = {*record["inputs"], *record["outputs"]}
    views = ("view", "t", "transpose", "select", "slice", "split", "unsqueeze", "expand")
    return _counted([size for name, memory, size in record["steps"] if memory not in outside and name not in views])


# ---- 2d


def _textbook(total, weight, eps):
    wide = total.float()
    return (wide * torch.rsqrt(_mean_square(wide) + eps)).to(total.dtype) * weight


def new_names(x, residual, weight, eps):
    """Binds the names to new tensors."""
    residual = x + residual
    x = _textbook(residual, weight, eps)


def norm_before_the_sum(x, residual, weight, eps):
    """Overwrites x, then adds it to the stream."""
    x.copy_(_textbook(x + residual, weight, eps))
    residual.add_(x)


def normed_into_residual(x, residual, weight, eps):
    """The two results are exchanged."""
    total = x + residual
    residual.copy_(_textbook(total, weight, eps))
    x.copy_(total)


def float_that_copies_nothing(x, residual, weight, eps):
    """In fp32, float() gives the same tensor back, and mul_ writes into it: nano-vllm#170."""
    residual.add_(x)
    wide = residual.float()
    wide.mul_(torch.rsqrt(_mean_square(wide) + eps))
    x.copy_(wide.to(x.dtype) * weight)


def squares_in_16_bits(x, residual, weight, eps):
    """All in the type that came."""
    residual.add_(x)
    x.copy_(residual * torch.rsqrt(_mean_square(residual) + eps) * weight)


def sum_in_32_bits(x, residual, weight, eps):
    """The norm reads the sum before its rounding."""
    total = x.float() + residual.float()
    residual.copy_(total)
    x.copy_((total * torch.rsqrt(_mean_square(total) + eps)).to(x.dtype) * weight)


def weight_in_32_bits(x, residual, weight, eps):
    """Rounds once, behind the weight."""
    residual.add_(x)
    wide = residual.float()
    x.copy_(wide * torch.rsqrt(_mean_square(wide) + eps) * weight.float())


def factor_in_16_bits(x, residual, weight, eps):
    """The factor of the row is rounded before it is used."""
    residual.add_(x)
    factor = torch.rsqrt(_mean_square(residual.float()) + eps).to(x.dtype)
    x.copy_(residual * factor * weight)


WRONG = {
    "2a": (
        Wrong("eps outside the root", eps_outside, Text(
            "eps stands behind the root: it belongs to the mean of the squares, before the root is taken.",
            "eps 加在了开方之后：它应当先和平方的均值相加，再开方。")),
        Wrong("missing residual", residual_missing_in_the_norm, Text(
            "You normalise x alone: the norm must see the sum of x and residual.",
            "你归一化的只是 x：norm 要看到的是 x 与 residual 之和。")),
        Wrong("old residual", old_residual, Text(
            "The second result is the old residual: what x added is lost to all later layers.",
            "返回的第二个结果还是旧的残差：x 加上去的东西，后面的层都看不到了。")),
        Wrong("mean over the batch", mean_over_rows, Text(
            "The mean runs over the first dimension, across rows: each row has its own, over the last dimension.",
            "均值是沿第一维求的，把不同的行混在了一起：每一行要沿最后一维求自己的均值。")),
        Wrong("one mean for all", mean_over_everything, Text(
            "All rows share one mean: say the dimension, and keep it so that the division still fits.",
            "所有的行共用了一个均值：要指明沿哪一维求，并保留那一维，除法才对得上。")),
        Wrong("writes into residual", writes_into_residual, Text(
            "residual itself is overwritten (`+=`, `add_`): the caller may still need it. Here you return new tensors.",
            "residual 本身被改写了（`+=`、`add_`）：调用者可能还要用它。这一题要返回新的张量。")),
        Wrong("writes into x", writes_into_x, Text(
            "x itself is overwritten (`+=`, `add_`): the caller may still need it. Here you return new tensors.",
            "x 本身被改写了（`+=`、`add_`）：调用者可能还要用它。这一题要返回新的张量。")),
        Wrong("results swapped", swapped, Text(
            "The two results are in the other order: first the normalised tensor, then the sum.",
            "两个结果的次序反了：先是归一化后的张量，再是和。")),
        Wrong("normalised stream", normed_residual, Text(
            "Your new residual is the normalised tensor: the stream goes on un-normalised, as the plain sum.",
            "你返回的新残差是归一化之后的张量：残差流里走的应当是没有归一化的和。")),
        Wrong("eps forgotten", eps_forgotten, Text(
            "eps changes nothing in your answer; a row of zeros then divides by zero.",
            "你的答案里 eps 没有起作用；遇到全零的行就会除以零。")),
        Wrong("layer norm", layer_norm, Text(
            "This is LayerNorm: RMSNorm does not subtract the mean.",
            "这是 LayerNorm：RMSNorm 不减均值。")),
        Wrong("variance", variance, Text(
            "var() subtracts the mean and divides by n − 1: RMSNorm takes the plain mean of the squares.",
            "var() 会减去均值，还除以 n − 1：RMSNorm 要的就是平方的均值。")),
        Wrong("sum of squares", sum_of_squares, Text(
            "You add the squares up but do not divide by their number: it is the mean of the squares.",
            "平方加起来之后没有除以个数：要的是平方的均值。")),
        Wrong("no root", no_root, Text(
            "The root is missing: you divide by the mean square itself.",
            "少了开方：你直接除以了平方的均值。")),
        Wrong("weight before the norm", weight_first, Text(
            "The weight is applied before the norm, so it changes the mean: multiply by it at the end.",
            "weight 在归一化之前就乘上了，均值也跟着变了：应当最后再乘。")),
        Wrong("weight forgotten", weight_forgotten, Text(
            "weight changes nothing in your answer: each column is scaled by its weight.",
            "你的答案里 weight 没有起作用：每一列都要乘上自己的权重。")),
        Wrong("norm, then add", norm_then_add, Text(
            "You add behind the norm: here the add comes first, and the norm sees the sum.",
            "你先归一化再相加：这里是先相加，norm 看到的是和。")),
    ),
    "2b": LAYERS,
    "2c": (
        Wrong("every step", every_step, Text(
            "You count every step: views, writes in place and the results are no intermediates.",
            "你数了每一步：视图、原地写入和最后的结果都不算中间张量。")),
        Wrong("results counted", results_too, Text(
            "The results are counted too: somebody needs them, so no fusion can remove them.",
            "把结果也数进去了：后面有人要用它们，怎么融合都省不掉。")),
        Wrong("inputs counted", inputs_too, Text(
            "A write in place into an input is counted: that memory was there before.",
            "原地写入输入也被数进去了：那块内存本来就在。")),
        Wrong("one memory several times", every_step_between, Text(
            "A memory that several steps give is counted several times: views and writes in place bring no new memory.",
            "同一块内存出现在好几步里，就被数了好几次：视图和原地写入并没有新的内存。")),
        Wrong("by the operation's name", by_name, Text(
            "You leave views out by name but still count writes in place: look at the memory's number, not at the name.",
            "你按名字排除了视图，却还在数原地写入：要看的是内存的编号，不是名字。")),
        Wrong("bytes several times", bytes_of_every_step, Text(
            "The number is right, the bytes are not: add each memory's size once.",
            "个数对了，字节数不对：每块内存的大小只加一次。")),
        Wrong("all but the last", all_but_the_last, Text(
            "You take the last step for the only result: which memory holds results, the record says under outputs.",
            "你以为只有最后一步是结果：哪些内存里是结果，记录的 outputs 里写着。")),
    ),
    "2d": (
        Wrong("new names", new_names, Text(
            "Nothing was written: `x = …` gives the name x to a new tensor, and the caller's stays as it was.",
            "什么也没写进去：`x = …` 只是让 x 这个名字指向新的张量，调用者的张量还是原样。")),
        Wrong("float() that copies nothing", float_that_copies_nothing, Text(
            "Right in bf16, wrong in fp32: there float() gives the same tensor back, and writing in place spoils the residual. This bug has shipped (nano-vllm#170).",
            "bf16 对，fp32 错：fp32 时 float() 返回的就是原来的张量，再原地写就毁了残差。这个 bug 真的发布过（nano-vllm#170）。")),
        Wrong("squares in 16 bits", squares_in_16_bits, Text(
            "Right in fp32 only: squares and mean are computed in bf16, which keeps 8 bits. Widen before you square.",
            "只有 fp32 是对的：平方和均值都在 bf16 里算，只剩 8 位有效数字。先加宽，再平方。")),
        Wrong("unrounded sum", sum_in_32_bits, Text(
            "The norm reads the sum before it is rounded: the textbook rounds the sum to the tensor's type first, and normalises what the residual holds.",
            "norm 读的是舍入之前的和：教科书先把和舍入到张量的类型，再对残差里存着的值做归一化。")),
        Wrong("one rounding too few", weight_in_32_bits, Text(
            "One rounding is missing: the textbook rounds the normalised row to the tensor's type, then multiplies by the weight.",
            "少了一次舍入：教科书先把归一化的结果舍入到张量的类型，再乘 weight。")),
        Wrong("factor in 16 bits", factor_in_16_bits, Text(
            "The factor of the row (one over the root) is rounded to bf16 before it is used: keep it in fp32, and round the product.",
            "每行的系数（方根的倒数）还没用就舍入到了 bf16：让它留在 fp32，相乘之后再舍入。")),
        Wrong("norm before the sum", norm_before_the_sum, Text(
            "x is overwritten before it is added to the residual: the order of the two writes matters.",
            "x 还没加进残差就被覆盖了：两次写入的先后很要紧。")),
        Wrong("results exchanged", normed_into_residual, Text(
            "The two results are exchanged: the sum belongs into residual, the normalised tensor into x.",
            "两个结果放反了：和要写进 residual，归一化后的张量写进 x。")),
    ),
    "2e": KERNELS,
}  # fmt: skip
