"""Exercise 2e: the kernels that learners write."""

from __future__ import annotations

import numpy as np

from s13lib.device import F32
from s13lib.grading.part import Text, Wrong


def padding_touched(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """All rows of the tensor."""
    for r in range(x.shape[0]):
        squares = 0.0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            x[r, i] = residual[r, i] * inverse * weight[i]


def sum_not_reset(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """One sum for all rows."""
    squares = 0.0
    for r in range(rows):
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            x[r, i] = residual[r, i] * inverse * weight[i]


def one_loop(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """Normalises while the sum is still growing."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
            x[r, i] = residual[r, i] / np.sqrt(squares / x.shape[1] + eps) * weight[i]


def sum_not_stored(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """The sum never reaches the residual."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1]):
            x[r, i] += residual[r, i]
            squares += x[r, i] * x[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            x[r, i] = x[r, i] * inverse * weight[i]


def normed_residual(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """The normalised row goes into the residual."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            residual[r, i] = residual[r, i] * inverse
            x[r, i] = residual[r, i] * weight[i]


def delta_normed(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """The factor is of the sum, what it multiplies is x."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            x[r, i] = x[r, i] * inverse * weight[i]


def last_forgotten(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """The loops end one element early."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1] - 1):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1] - 1):
            x[r, i] = residual[r, i] * inverse * weight[i]


def one_too_far(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """The loops end one element late."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1] + 1):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1] + 1):
            x[r, i] = residual[r, i] * inverse * weight[i]


def mean_over_rows(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """Divides by the number of rows."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / np.sqrt(squares / rows + eps)
        for i in range(x.shape[1]):
            x[r, i] = residual[r, i] * inverse * weight[i]


def eps_outside(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """Eps behind the root."""
    for r in range(rows):
        squares = 0.0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += residual[r, i] * residual[r, i]
        inverse = 1.0 / (np.sqrt(squares / x.shape[1]) + eps)
        for i in range(x.shape[1]):
            x[r, i] = residual[r, i] * inverse * weight[i]


def whole_numbers(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """The squares are added up as integers."""
    for r in range(rows):
        squares = 0
        for i in range(x.shape[1]):
            residual[r, i] += x[r, i]
            squares += int(residual[r, i] * residual[r, i])
        inverse = 1.0 / np.sqrt(squares / x.shape[1] + eps)
        for i in range(x.shape[1]):
            x[r, i] = residual[r, i] * inverse * weight[i]


def new_names(x: F32[2], residual: F32[2], weight: F32[1], eps: float, rows: int):
    """Computes, and writes nothing."""
    residual = residual + x
    x = residual * weight


KERNELS = (
    Wrong("padding touched", padding_touched, Text(
        "The rows behind `rows` were changed: they belong to padding, or to somebody else. Loop over `rows`, not over the tensor.",
        "`rows` 之后的行也被改了：那是补齐的行，或者是别人的。循环要走 `rows` 行，不是整个张量。")),
    Wrong("sum not reset", sum_not_reset, Text(
        "The first row is right, later ones are not: the sum of squares still holds the rows before. Where does it start at zero?",
        "第一行对，后面的不对：平方和里还留着前面各行的。它在哪里清零？")),
    Wrong("one loop", one_loop, Text(
        "You normalise in the loop that still adds up: the factor is known only when the row is complete. A row needs two passes.",
        "你在还没加完的循环里就归一化了：整行加完才知道系数。一行要走两遍。")),
    Wrong("sum not stored", sum_not_stored, Text(
        "x is right, but residual still holds the old row: the next layer adds to it, so the sum must be stored there.",
        "x 是对的，可 residual 里还是旧的行：下一层要在它上面继续加，所以和必须存进去。")),
    Wrong("normalised stream", normed_residual, Text(
        "x is right, but residual holds the normalised row: it must keep the plain sum.",
        "x 是对的，可 residual 里成了归一化后的行：它应当保留没有归一化的和。")),
    Wrong("x normalised, not the sum", delta_normed, Text(
        "The factor is right but multiplies x: it is the sum that is normalised.",
        "系数是对的，却乘在了 x 上：要归一化的是和。")),
    Wrong("last element forgotten", last_forgotten, Text(
        "The last element of a row is missing: range(n) already ends at n − 1.",
        "每行漏了最后一个元素：range(n) 本来就到 n − 1 为止。")),
    Wrong("one too far", one_too_far, Text(
        "The loop runs one element past the end of the row. A kernel without bounds checks would read foreign memory and go on.",
        "循环越过了行尾一个元素。没有越界检查的 kernel 会读到别人的内存，然后若无其事地继续。")),
    Wrong("mean over the wrong length", mean_over_rows, Text(
        "You divide by the number of rows: the mean is over the elements of one row.",
        "你除以了行数：均值是对一行里的元素求的。")),
    Wrong("eps outside the root", eps_outside, Text(
        "eps stands behind the root: it belongs to the mean of the squares, before the root is taken.",
        "eps 加在了开方之后：它应当先和平方的均值相加，再开方。")),
    Wrong("whole numbers", whole_numbers, Text(
        "The squares are added up as whole numbers, so each loses its fraction.",
        "平方是按整数累加的，小数部分都丢了。")),
    Wrong("nothing written", new_names, Text(
        "Nothing was written: a kernel returns nothing and must assign into its arguments, element by element.",
        "什么也没写进去：kernel 没有返回值，必须把结果逐个写进它的参数。")),
)  # fmt: skip
