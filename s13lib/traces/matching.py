"""Which launch belongs to which device's work: by correlation, and by process where two ranks use the same ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """A kernel or copy as the file has it: times in µs on the file's clock."""

    start_us: float
    duration_us: float
    name: str
    correlation: int | None
    kind: str
    lane: str
    device: int


class Call(NamedTuple):
    """A call of the CUDA or HIP API as the file has it: times in µs on the file's clock."""

    start_us: float
    duration_us: float
    name: str
    correlation: int | None
    lane: str
    process: str


def calls_of_devices(work: Sequence[Work], calls: Iterable[Call]) -> dict[int, list[Call]]:
    """Device → the calls that gave it work, then those that gave none to any (their kernels are not in the file).

    Each process counts its correlations for itself, so in a file that holds several ranks they may collide. Who uses
    which device is then learnt from correlations that one process alone has; where there are none, processes and
    devices pair off in order.
    """
    devices = sorted({w.device for w in work})
    users: defaultdict[int, set[int]] = defaultdict(set)
    for w in work:
        if w.correlation is not None:
            users[w.correlation].add(w.device)
    calls = list(calls)
    owner = _owners(devices, users, calls)
    found: dict[int, list[Call]] = {device: [] for device in devices}
    for call in calls:
        used = users.get(call.correlation, set())
        own = [device for device in used if owner.get(device, call.process) == call.process]
        home = [device for device in devices if owner.get(device) == call.process] or devices
        for device in own or (() if used else home[:1]):
            found[device].append(call)
    return found


def _owners(devices: list[int], users: dict[int, set[int]], calls: list[Call]) -> dict[int, str]:
    """Device → the process whose calls it serves; empty where one process has them all."""
    processes = sorted({call.process for call in calls}, key=lambda p: (len(p), p))
    if len(processes) < 2 or len(devices) < 2:
        return {}
    submitters: defaultdict[int, set[str]] = defaultdict(set)
    for call in calls:
        if call.correlation in users:
            submitters[call.correlation].add(call.process)
    votes: Counter[tuple[int, str]] = Counter(
        (device, process)
        for correlation, named in submitters.items()
        if len(named) == 1
        for process in named
        for device in users[correlation]
    )
    owner: dict[int, str] = {}
    for (device, process), _ in votes.most_common():
        owner.setdefault(device, process)
    return owner or dict(zip(devices, [p for p in processes if any(p in n for n in submitters.values())], strict=False))
