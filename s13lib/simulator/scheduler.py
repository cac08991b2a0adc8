"""Continuous batching, first come first served: who runs in each decode step.

The one scheduler of the project: traffic simulation, generation and the padding scenario all use it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

from s13lib.errors import InputError, require

R = TypeVar("R", bound=Hashable)


class Scheduler(Generic[R]):
    """A waiting queue and the running batch.

    A request joins when fewer than ``max_batch`` run (and ``can_join`` agrees), makes one token in each step, and
    leaves after its last. Requests keep their order of arrival; nobody overtakes the head of the queue.

    Args:
        max_batch: most requests that run together.
        can_join: asked for the head of the queue before it joins, for instance "are there enough free cache blocks?".
    """

    def __init__(self, max_batch: int, can_join: Callable[[R], bool] = lambda request: True) -> None:
        require(isinstance(max_batch, int) and max_batch >= 1, "max_batch", max_batch, "a whole number of at least 1")
        self.max_batch = max_batch
        self.step = 0
        self._can_join = can_join
        self._waiting: deque[tuple[R, int]] = deque()
        self._running: dict[R, int] = {}  # request -> the step at whose end it leaves; in order of joining
        self._leaving: list[tuple[int, int, R]] = []  # heap; an entry whose request was stopped early is stale
        self._order = count()

    def submit(self, request: R, tokens: int) -> None:
        """Queue ``request``, which will make ``tokens`` tokens (at least 1). A request may be in the system once."""
        require(tokens >= 1, "tokens", tokens, "at least 1")
        self._waiting.append((request, tokens))

    def admit(self) -> list[R]:
        """Let waiting requests join, in order, while there is room; return those that joined."""
        joined: list[R] = []
        while self._waiting and len(self._running) < self.max_batch and self._can_join(self._waiting[0][0]):
            request, tokens = self._waiting.popleft()
            if request in self._running:
                raise InputError(f"request {request!r} is already running: submit it once.")
            leaves = self.step + tokens
            self._running[request] = leaves
            heapq.heappush(self._leaving, (leaves, next(self._order), request))
            joined.append(request)
        return joined

    @property
    def running(self) -> list[R]:
        """The running requests, in the order in which they joined: the rows of the next decode step."""
        return list(self._running)

    @property
    def batch_size(self) -> int:
        """How many requests run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """True when nobody runs or waits."""
        return not self._running and not self._waiting

    def steps_to_next_finish(self) -> int | None:
        """Steps until the first running request leaves, or None when nobody runs."""
        self._drop_stale()
        return self._leaving[0][0] - self.step if self._leaving else None

    def advance(self, steps: int = 1) -> list[R]:
        """Run ``steps`` steps (no more than ``steps_to_next_finish``); return the requests that left at their end."""
        until = self.steps_to_next_finish()
        if until is not None and not 1 <= steps <= until:
            raise InputError(f"steps is {steps}: must be between 1 and {until}: a request leaves then.")
        self.step += steps
        left: list[R] = []
        while self._leaving and self._leaving[0][0] <= self.step:
            leaves, _, request = heapq.heappop(self._leaving)
            if self._running.get(request) == leaves:
                del self._running[request]
                left.append(request)
        return left

    def stop(self, request: R) -> None:
        """Take a running request out before its last token, for instance at an end-of-text token."""
        if request not in self._running:
            raise InputError(f"request {request!r} is not running.")
        del self._running[request]

    def _drop_stale(self) -> None:
        while self._leaving and self._running.get(self._leaving[0][2]) != self._leaving[0][0]:
            heapq.heappop(self._leaving)
