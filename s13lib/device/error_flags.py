"""Error flags on a device that cannot raise: one word a kernel, which it sets and the next synchronise reads."""

from __future__ import annotations

import torch

from s13lib.errors import require

MOST_KERNELS = 64
WORD_BITS = 48
WORD_MASK = (1 << WORD_BITS) - 1


class ErrorFlags:
    """A word of 64 bits for each kernel: 0, or the first error word that it reported (``s13lib.device.types``).

    Bits above ``WORD_BITS`` are the kernel's own affair.
    """

    def __init__(self, where: torch.device) -> None:
        self._words = torch.zeros(MOST_KERNELS, dtype=torch.int64, device=where)
        self._index: dict[str, int] = {}

    def of(self, kernel: str) -> torch.Tensor:
        """The word of one kernel, int64 (1,), always at the same address."""
        index = self._index.setdefault(kernel, len(self._index))
        require(index < MOST_KERNELS, "kernels that report errors", index + 1, f"at most {MOST_KERNELS}")
        return self._words[index : index + 1]

    def take(self) -> dict[str, int]:
        """The words that are set, by kernel, and clear them. Waits for the device."""
        words = self._words.tolist()
        found = {kernel: words[index] & WORD_MASK for kernel, index in self._index.items() if words[index]}
        if found:
            self._words.zero_()
        return found
