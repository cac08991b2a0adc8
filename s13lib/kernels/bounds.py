"""How far a float32 kernel may be from the truth: first principles, not a tolerance that happens to pass.

``Bounded`` carries a float64 value and a bound on the error of its float32 computation. Each function takes and returns
them, under the name of the kernel that it bounds; a fused kernel's bound is made by calling them one after another.

The rules (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §2.2, §3.1): one operation rounds by at
most u = 2**−24 relatively, or not at all if it is fused into an FMA; a sum of n products, in whatever order, errs by at
most γ_n·Σ|a||b| with γ_n = n·u / (1 − n·u). What an input was already wrong by is carried along exactly, to first order
only where a comment says so.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

UNIT = 2.0**-24
"""Unit roundoff of float32."""

EXP_UNITS = 4
"""Relative error of the kernels' exp, in units of u: 2 units in the last place (a test measures it)."""

TINY = 2.0**-126
"""Smallest normal float32: below it rounding is absolute, and exp is cut off near it."""


def gamma(operations: float) -> float:
    """γ_n = n·u / (1 − n·u): the relative error that n roundings can add up to."""
    return operations * UNIT / (1 - operations * UNIT)


class Bounded(NamedTuple):
    """A float64 ``value`` and, elementwise, how far float32 may be from it: ``error`` ≥ |computed − value|."""

    value: Tensor
    error: Tensor

    @property
    def reach(self) -> Tensor:
        """The largest magnitude that the computed number can have."""
        return self.value.abs() + self.error

    def map(self, function) -> Bounded:
        """Apply an operation that moves numbers about (view, index, transpose) to both parts."""
        return Bounded(function(self.value), function(self.error))


def exact(x: Tensor | float) -> Bounded:
    """Numbers that are what they are: a kernel's inputs."""
    x = torch.as_tensor(x, dtype=torch.float64)
    return Bounded(x, torch.zeros_like(x))


def excess(computed: Tensor, bounded: Bounded) -> float:
    """Return the largest |computed − value| / error: at most 1 if the bound holds. 0/0 counts as 0, NaN as infinite."""
    distance = (computed.double() - bounded.value).abs().nan_to_num(nan=torch.inf)
    return torch.where(distance == 0, 0.0, distance / bounded.error.clamp(min=1e-300)).max().item()


def add(x: Bounded, y: Bounded) -> Bounded:
    """One rounding of the sum."""
    value, error = x.value + y.value, x.error + y.error
    return Bounded(value, error + UNIT * (value.abs() + error))


def mul(x: Bounded, y: Bounded, roundings: float = 1) -> Bounded:
    """``roundings`` counts the product's own and any that came before it."""
    value = x.value * y.value
    spread = x.value.abs() * y.error + y.value.abs() * x.error + x.error * y.error
    return Bounded(value, spread + gamma(roundings) * (value.abs() + spread) + TINY)


def linear(x: Bounded, weight: Bounded, roundings: int | None = None) -> Bounded:
    """x·weightᵀ: n products in any order; ``roundings`` counts more than these n."""
    spread = x.value.abs() @ weight.error.mT + x.error @ weight.reach.mT
    rounded = gamma(roundings or x.value.shape[-1]) * (x.reach @ weight.reach.mT)
    return Bounded(x.value @ weight.value.mT, spread + rounded)


def sixteen_bit(x: Bounded) -> Bounded:
    """Activations rounded to 16-bit integers, a scale a block of 32, as they are before they meet quantised weights.

    The scale is largest / 32767, so half a step is largest / 65534; the reciprocal, the product before the rounding and
    the scale itself err by 3 roundings of at most ``largest``, which 4 u cover. Below 2**−100 the scale is fixed.
    """
    largest = x.reach.unflatten(-1, (-1, 32)).amax(-1, keepdim=True).clamp(min=2.0**-100)
    rounded = (largest * (1 / 65534 + 4 * UNIT)).expand(*largest.shape[:-1], 32).flatten(-2)
    return Bounded(x.value, x.error + rounded)


def rms_norm(x: Bounded, weight: Bounded, eps: float) -> Bounded:
    """Relative roundings: mean of squares n + 2, plus eps 2, all halved by the root; root, reciprocal, two products 4.

    An input error of Euclidean length δ changes the root mean square by at most δ/√n.
    """
    n = x.value.shape[-1]
    rms = (x.value.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    drift = x.error.pow(2).mean(-1, keepdim=True).sqrt() / rms
    inverse = Bounded(1 / rms, drift / (1 - drift) / rms)
    return mul(mul(x, inverse), weight, roundings=(n + 4) / 2 + 3)


def rope(x: Bounded, cos: Bounded, sin: Bounded) -> Bounded:
    """Rotate x (rows, n·head_dim) by cos, sin (rows, head_dim/2), half-split: sums of two products."""
    rows, half = cos.value.shape
    first, second = (x.map(lambda t, i=i: t.view(rows, -1, 2, half)[:, :, i]) for i in (0, 1))
    cos, sin = (t.map(lambda t: t[:, None]) for t in (cos, sin))
    minus = Bounded(-sin.value, sin.error)
    turned = (add(mul(first, cos), mul(second, minus)), add(mul(second, cos), mul(first, sin)))
    return Bounded(*(torch.stack(parts, dim=2).view(x.value.shape) for parts in zip(*turned, strict=True)))


def silu_mul(gate: Bounded, up: Bounded) -> Bounded:
    """Roundings: exp, 1 + exp, the division (two, by way of a reciprocal), the product; |silu'| ≤ 1.1 on gate's error.

    exp's argument is clamped at 87.3: beyond it silu is off by less than |gate|·1e−37.
    """
    silu = gate.value * torch.sigmoid(gate.value)
    return mul(Bounded(silu, 1.1 * gate.error + gate.reach * 1e-37), up, roundings=EXP_UNITS + 4)


def attention(q: Bounded, keys: Bounded, values: Bounded, scale: float) -> Bounded:
    """One row: q (heads, head_dim), keys and values (context, heads, head_dim); softmax over the context.

    Softmax does not change when all scores move together, so only the scores' own errors and the rounding of
    score − largest count, which enter exp as relative errors; numerator and denominator can both be off.
    """
    context = keys.value.shape[0]
    if context == 0:
        return exact(torch.zeros_like(q.value))
    q = q.map(lambda t: t[:, None])
    keys = keys.map(lambda t: t.transpose(0, 1))  # (heads, context, head_dim)
    values = values.map(lambda t: t.permute(1, 2, 0))  # (heads, head_dim, context)

    scores = mul(linear(q, keys), exact(scale), roundings=2)  # (heads, 1, context); scale is rounded too
    spread = scores.error.amax(-1, keepdim=True)
    depth = (scores.value.amax(-1, keepdim=True) - scores.value).amax(-1, keepdim=True) + 2 * spread
    relative = torch.expm1(2 * (spread + UNIT * depth + EXP_UNITS * UNIT))
    weights = torch.softmax(scores.value, -1)
    # Numerator and denominator are sums over the context; then a reciprocal and a product with it.
    roundings = 2 * context + 3
    return linear(Bounded(weights, weights * relative + TINY), values, roundings).map(lambda t: t[:, 0])
