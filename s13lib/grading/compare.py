"""Compare what came with what was expected, down to the first place where they differ, and say it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Real

import numpy as np

from s13lib.errors import shortened
from s13lib.grading.part import Text

MOST_SHOWN = 120  # characters of a value in a message


def plain(value: object) -> object:
    """``value`` with tensors as arrays, NumPy's numbers as Python's, tuples as lists: what is compared."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach()
        wide = value.float() if str(value.dtype) == "torch.bfloat16" else value  # NumPy has no bf16
        return wide.cpu().numpy()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return value


def same(a: object, b: object) -> bool:
    """Whether two values are equal to the last bit, types of arrays included; NaN equals NaN."""
    if a is b:
        return True
    a, b = plain(a), plain(b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return type(a) is type(b) and a == b


def shown(value: object) -> str:
    """A value for a message: short, on one line."""
    kind = type(value).__module__.partition(".")[0]
    if isinstance(value, np.ndarray) or (kind == "torch" and hasattr(value, "detach")):
        array = np.asarray(plain(value))
        if array.size > 8:
            return f"{str(value.dtype).removeprefix('torch.')} {list(array.shape)} [{_first(array)}, …]"
        return shown(array.tolist())
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple) and len(value) <= 12:
        inside = ", ".join(shown(item) for item in value)
        return shortened_text(f"[{inside}]" if isinstance(value, list) else f"({inside})")
    if isinstance(value, Mapping) and len(value) <= 12:
        return shortened_text("{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}")
    return shortened(value, MOST_SHOWN)


def shortened_text(text: str) -> str:
    """``text``, cut in the middle where it is long."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 20]}…{text[-18:]}"


def _first(array: np.ndarray) -> str:
    return ", ".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in array.ravel()[:3].tolist())


def difference(got: object, expected: object, tolerance: float) -> tuple[Text, Text] | None:
    """None if ``got`` is right; else what was expected and what came, at the first place where they differ."""
    return _difference(plain(got), plain(expected), tolerance, "")


def _difference(got: object, expected: object, tolerance: float, place: str) -> tuple[Text, Text] | None:
    at_en, at_zh = (f"{place.lstrip('.')}: ", f"{place.lstrip('.')}：") if place else ("", "")

    def differ(want: str, want_zh: str, came: str, came_zh: str) -> tuple[Text, Text]:
        return Text(at_en + want, at_zh + want_zh), Text(at_en + came, at_zh + came_zh)

    def values() -> tuple[Text, Text]:
        return differ(shown(expected), shown(expected), shown(got), shown(got))

    if isinstance(expected, np.ndarray):
        return _array_difference(got, expected, tolerance, differ)
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return None if type(got) is type(expected) and got == expected else values()
    if isinstance(expected, Real):
        if isinstance(got, np.ndarray) and got.size == 1:
            got = got.item()
        if isinstance(got, bool) or not isinstance(got, Real):
            kind = type(got).__name__
            return differ(
                f"{shown(expected)}, a number",
                f"一个数 {shown(expected)}",
                f"{shown(got)} ({kind})",
                f"{shown(got)}（{kind}）",
            )
        close = got == expected or _close(got, expected, tolerance)
        return None if close else values()
    if isinstance(expected, list):
        if isinstance(got, np.ndarray):
            got = got.tolist()
        if not isinstance(got, list):
            return values()
        if len(got) != len(expected):
            return differ(
                f"{len(expected)} entries: {shown(expected)}", f"{len(expected)} 项：{shown(expected)}",
                f"{len(got)} entries: {shown(got)}", f"{len(got)} 项：{shown(got)}",
            )  # fmt: skip
        pairs = ((f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(got, expected, strict=True)))
    elif isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return values()
        pairs = ((f"{place}.{key}", got[key], value) for key, value in expected.items())
    else:
        return None if got == expected else values()
    found = (_difference(a, b, tolerance, where) for where, a, b in pairs)
    return next((one for one in found if one), None)


def _close(got: Real, expected: Real, tolerance: float) -> bool:
    try:
        both_nan = math.isnan(got) and math.isnan(expected)
        return both_nan or math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # a whole number too large for a float
        return False


def _array_difference(got, expected, tolerance, differ) -> tuple[Text, Text] | None:
    if not isinstance(got, np.ndarray):
        kind = type(got).__name__
        return differ(f"an array {list(expected.shape)}", f"形状为 {list(expected.shape)} 的数组", kind, kind)
    if got.shape != expected.shape:
        want, came = f"{list(expected.shape)}", f"{list(got.shape)}"
        return differ(f"shape {want}", f"形状 {want}", f"shape {came}", f"形状 {came}")
    if got.dtype != expected.dtype:
        return differ(f"dtype {expected.dtype}", f"dtype {expected.dtype}", f"dtype {got.dtype}", f"dtype {got.dtype}")
    a, b = got.astype(np.float64), expected.astype(np.float64)
    if lost := int((np.isnan(a) & ~np.isnan(b)).sum()):
        return differ("no NaN", "没有 NaN", f"{lost} NaN of {a.size}", f"{a.size} 个数里有 {lost} 个 NaN")
    close = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return None
    worst = np.unravel_index(int(np.argmax(np.where(close, -1, np.abs(np.nan_to_num(a - b))))), a.shape)
    index, wrong = "" if not worst else str([int(i) for i in worst]), int((~close).sum())
    return differ(
        f"{b[worst]:.6g} at {index}", f"{index} 处应为 {b[worst]:.6g}",
        f"{a[worst]:.6g} ({wrong} of {a.size} numbers differ)", f"{a[worst]:.6g}（{a.size} 个数里有 {wrong} 个不对）",
    )  # fmt: skip
