"""What the host was doing at a time: millions of operations in columns, and the most telling one under a gap."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import inf

import numpy as np

from s13lib.simulator import Span

TELLING_SHARE = 0.5  # an operation explains a gap when it covers at least half of it


class HostOps:
    """Host operations of all kinds (Python functions, PyTorch operators, API calls, annotations), 24 bytes each."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._starts, self._durations = array("d"), array("d")
        self._names, self._lanes = array("i"), array("i")
        self._number: dict[str, int] = {}  # a text's number, for names and lanes alike
        for span in spans:
            self.add(span.name, span.start_us, span.duration_us, span.lane)

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, name: str, start_us: float, duration_us: float, lane: str = "") -> None:
        """Note an operation; ``lane`` names its thread."""
        self._starts.append(start_us)
        self._durations.append(duration_us)
        self._names.append(self._number.setdefault(name, len(self._number)))
        self._lanes.append(self._number.setdefault(lane, len(self._number)))

    @property
    def start_us(self) -> float:
        """The first start; infinity where there is no operation."""
        return min(self._starts, default=inf)

    def shifted(self, by_us: float) -> HostOps:
        """The same operations, ``by_us`` later."""
        moved = HostOps()
        moved._starts = array("d", (np.frombuffer(self._starts) + by_us).tobytes())
        moved._durations, moved._names, moved._lanes = self._durations, self._names, self._lanes
        moved._number = self._number
        return moved

    def under(self, start_us: float, end_us: float, lane: str | None = None) -> str | None:
        """The name of the shortest operation that covers at least half of a stretch: the most specific one.

        Operations on the thread ``lane`` come first, where it is given. None where no operation covers that much.
        """
        if not len(self):
            return None
        starts = np.frombuffer(self._starts)
        ends = starts + np.frombuffer(self._durations)
        covered = np.minimum(ends, end_us) - np.maximum(starts, start_us)
        telling = covered >= TELLING_SHARE * max(end_us - start_us, np.finfo(float).tiny)
        on_lane = telling & (np.frombuffer(self._lanes, "i") == self._number.get(lane, -1))
        found = np.flatnonzero(on_lane if on_lane.any() else telling)
        if not len(found):
            return None
        shortest = found[np.argmin(np.frombuffer(self._durations)[found])]
        return list(self._number)[self._names[int(shortest)]]
