"""Runners that learners write. ``Fixed``, ``Padded`` and ``Safe`` are right; each other class changes one thing."""

from __future__ import annotations

import torch

# ---- 4a


class Fixed:
    """A right answer to 4a, in pieces."""

    def __init__(self, device, step, rows, width):
        self.device, self.step = device, step
        self.x, self.shift, self.out = (device.zeros((rows, width)) for _ in range(3))
        self.capture()

    def capture(self):
        """Record the step."""
        with self.device.graph() as self.graph:
            self.step(self.x, self.shift, self.out)

    def copy_in(self, x, shift):
        """New values at the old addresses."""
        self.x.copy_(x)
        self.shift.fill_(shift)

    def replay(self):
        """Replay and wait."""
        self.graph.replay()
        self.device.synchronize()

    def run(self, x, shift):
        """One step."""
        self.copy_in(x, shift)
        self.replay()
        return self.out


class Rebinds(Fixed):
    """The name points at another tensor; the graph does not care."""

    def copy_in(self, x, shift):
        """A new tensor."""
        self.x = x
        self.shift.fill_(shift)


class RebindsBoth(Fixed):
    """Both names."""

    def copy_in(self, x, shift):
        """New tensors."""
        self.x = x
        self.shift = torch.full_like(x, shift)


class FrozenShift(Fixed):
    """The number of the capture stays."""

    def copy_in(self, x, shift):
        """x alone."""
        self.x.copy_(x)


class FirstShiftStays(Fixed):
    """The number of the first call stays."""

    filled = False

    def copy_in(self, x, shift):
        """shift once."""
        self.x.copy_(x)
        if not self.filled:
            self.shift.fill_(shift)
        self.filled = True


class CapturesEachTime(Fixed):
    """A graph a call."""

    def run(self, x, shift):
        """Records anew."""
        self.copy_in(x, shift)
        self.capture()
        self.replay()
        return self.out


class Eager(Fixed):
    """No graph at all."""

    def capture(self):
        """Nothing."""

    def replay(self):
        """Calls Python again."""
        self.step(self.x, self.shift, self.out)
        self.device.synchronize()


class CapturesForNothing(Fixed):
    """The graph is recorded, and the step called all the same."""

    replay = Eager.replay


class StepAndReplay(Fixed):
    """Both."""

    def replay(self):
        """Twice the work."""
        self.step(self.x, self.shift, self.out)
        super().replay()


class DoesNotWait(Fixed):
    """Reads while the device is still busy."""

    def replay(self):
        """Without the wait."""
        self.graph.replay()


class ReplaysBeforeCopying(Fixed):
    """One call late."""

    def run(self, x, shift):
        """In the wrong order."""
        self.replay()
        self.copy_in(x, shift)
        return self.out


class NeverReplays(Fixed):
    """Believes that the capture has computed something."""

    def replay(self):
        """Nothing."""


class OnlyFirstRow(Fixed):
    """Copies one row."""

    def copy_in(self, x, shift):
        """The first."""
        self.x[0].copy_(x[0])
        self.shift.fill_(shift)


# ---- 4b


class Padded:
    """A right answer to 4b, in pieces."""

    def __init__(self, device, step, rows, width):
        self.device, self.step, self.rows = device, step, rows
        self.x, self.out = device.zeros((rows, width)), device.zeros((rows, width))
        self.slots = device.zeros(rows, torch.int64)
        self.prepare()
        self.capture()

    def prepare(self):
        """Make the buffers harmless."""
        self.slots.fill_(-1)

    def capture(self):
        """Record the step."""
        with self.device.graph() as self.graph:
            self.step(self.x, self.slots, self.out)

    def check(self, x):
        """Refuse too many rows."""
        if len(x) > self.rows:
            raise ValueError("too many rows")

    def fill(self, x, slots):
        """Every row."""
        self.x[: len(x)].copy_(x)
        self.slots[: len(x)].copy_(slots)
        self.slots[len(x) :].fill_(-1)

    def result(self, n):
        """A copy of the real rows."""
        return self.out[:n].clone()

    def run(self, x, slots):
        """One step."""
        self.check(x)
        self.fill(x, slots)
        self.graph.replay()
        self.device.synchronize()
        return self.result(len(x))


class StaticOutput(Padded):
    """Hands out the buffer."""

    def result(self, n):
        """A view."""
        return self.out[:n]


class AllRows(Padded):
    """Hands out the padding rows, too."""

    def result(self, n):
        """All."""
        return self.out.clone()


class StaleRows(Padded):
    """Copies the real rows alone."""

    def fill(self, x, slots):
        """The others keep what they held."""
        self.x[: len(x)].copy_(x)
        self.slots[: len(x)].copy_(slots)


class ZeroRows(Padded):
    """Fills up with zeros."""

    def fill(self, x, slots):
        """Slot 0."""
        self.x.zero_()
        self.slots.zero_()
        StaleRows.fill(self, x, slots)


class StaleSlotsZeroedX(Padded):
    """Clears the values, not the slots."""

    def fill(self, x, slots):
        """Zeros are written as well."""
        self.x.zero_()
        StaleRows.fill(self, x, slots)


class OneRowCleared(Padded):
    """Only the first padding row."""

    def fill(self, x, slots):
        """The others are stale."""
        StaleRows.fill(self, x, slots)
        self.slots[len(x) : len(x) + 1].fill_(-1)


class RebindsSlots(Padded):
    """A padded batch, at other addresses."""

    def fill(self, x, slots):
        """New tensors."""
        missing = self.rows - len(x)
        self.x = torch.cat([x, torch.zeros(missing, x.shape[1])])
        self.slots = torch.cat([slots, torch.full((missing,), -1)])


class FrozenSlots(Padded):
    """The slots of the capture stay."""

    def fill(self, x, slots):
        """x alone."""
        self.x[: len(x)].copy_(x)


class CutsOff(Padded):
    """Rows that do not fit are dropped."""

    def run(self, x, slots):
        """As many as fit."""
        return super().run(x[: self.rows], slots[: self.rows])


class NoCheck(Padded):
    """torch complains instead."""

    def check(self, x):
        """Nothing."""


class ReturnsNothing(Padded):
    """Too many rows: no error, no result."""

    def run(self, x, slots):
        """None."""
        return None if len(x) > self.rows else super().run(x, slots)


class RunsEager(Padded):
    """No replay: the step is called at its exact size."""

    def run(self, x, slots):
        """Python again."""
        self.check(x)
        out = self.device.empty(tuple(x.shape))
        self.step(self.device.tensor(x), self.device.tensor(slots), out)
        self.device.synchronize()
        return out


class WarmUpAtZero(Padded):
    """A warm-up while the buffers still hold zeros."""

    def prepare(self):
        """Run before the slots are set."""
        self.step(self.x, self.slots, self.out)
        self.device.synchronize()
        super().prepare()


# ---- 4c


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
