"""Runners that learners write in 4c. ``Safe`` is right; each other class changes one thing."""

from __future__ import annotations

import torch

from s13lib.grading.wrong.runners import Padded, StaleRows, StaticOutput


class Safe(Padded):
    """A right answer to 4c, in pieces."""

    def capture(self):
        """Warm up, record, remember."""
        self.step(self.x, self.slots, self.out)
        self.device.synchronize()
        super().capture()
        self.remember()

    def remember(self):
        """Where the weight lies."""
        self.address = self.step.weight.data_ptr()

    def replaced(self):
        """Whether it lies elsewhere now."""
        return self.step.weight.data_ptr() != self.address

    def check(self, x):
        """Refuse what cannot be right."""
        super().check(x)
        if self.replaced():
            raise ValueError("the weight was replaced")


class NoWarmUp(Safe):
    """The step's first call happens in the capture."""

    def capture(self):
        """Record at once."""
        Padded.capture(self)
        self.remember()


class WarmUpAtSlotZero(Safe):
    """The buffers still hold zeros when the step runs for the first time."""

    def prepare(self):
        """Nothing."""


class NotNoticed(Safe):
    """The graph goes on with the old weight."""

    def replaced(self):
        """Never."""
        return False


class SameObject(Safe):
    """Compares tensor objects."""

    def remember(self):
        """The object."""
        self.kept = self.step.weight

    def replaced(self):
        """Another object."""
        return self.step.weight is not self.kept


class SameValues(Safe):
    """Compares numbers."""

    def remember(self):
        """A copy."""
        self.kept = self.step.weight.clone()

    def replaced(self):
        """Other numbers."""
        return not torch.equal(self.step.weight, self.kept)


class CapturesAnew(Safe):
    """Makes another graph where an error was asked for."""

    def check(self, x):
        """Records again."""
        Padded.check(self, x)
        if self.replaced():
            Safe.capture(self)


class SafeCapturesInRun(Safe):
    """A graph a call."""

    def fill(self, x, slots):
        """And records anew."""
        super().fill(x, slots)
        Padded.capture(self)


class SafeCapturesInRunAlone(SafeCapturesInRun):
    """The constructor warms up, and no more."""

    def capture(self):
        """Not yet."""
        self.step(self.x, self.slots, self.out)
        self.device.synchronize()
        self.remember()


class ChecksTooLate(Safe):
    """After the replay."""

    def run(self, x, slots):
        """The cache is written by then."""
        Padded.check(self, x)
        self.fill(x, slots)
        self.graph.replay()
        self.device.synchronize()
        self.check(x)
        return self.result(len(x))


class SafeStale(Safe):
    """4b forgotten: stale rows."""

    fill = StaleRows.fill


class SafeStatic(Safe):
    """4b forgotten: the output is the buffer."""

    result = StaticOutput.result
