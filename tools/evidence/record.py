"""The record of the benchmark suite, ``docs/evidence.json``: measured figures by claim, each group with its run.

    {"groups": {"device": {
        "run": {"date": "2026-01-31", "seconds": 41.5, "quick": false, "others_share": 0.02,
                "machine": {"system": "Linux x86_64", "processor": "…", "processors": 2, "python": "3.11.7", …}},
        "rows": {"device.wake": {"ours": 51.2, "spread": 0.2, "peer": …, "peer_spread": …, "peak_mib": …},
                 "device.idle": {"missing": "the sentence that says why"}}}}}

Only ``ours`` (or ``missing``) must be there. Words, units and aims are the claims'.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.evidence.claims import CLAIMS, GROUPS, ROOT, Claim, of_group

RECORD = ROOT / "docs" / "evidence.json"
FIELD = re.compile(r"\{([\w.]+):(ours|peer|ratio)\}")
QUIET = 0.05  # others held at most this share of all processors

RUN_KEYS = {
    "date": str,
    "seconds": (int, float),
    "quick": bool,
    "others_share": (int, float, type(None)),
    "machine": dict,
}
MACHINE_KEYS = {"system": str, "processor": str, "processors": int, "python": str}
NUMBERS = ("ours", "spread", "peer", "peer_spread", "peak_mib")


class RecordError(ValueError):
    """The record does not hold what it must; the message says where."""


@dataclass(frozen=True)
class Figure:
    """A claim with its figures; ``ours`` is None where there are none, and ``missing`` says why."""

    claim: Claim
    ours: float | None = None
    spread: float | None = None
    peer: float | None = None
    peer_spread: float | None = None
    peak_mib: float | None = None
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; None without a peer."""
        return None if self.ours is None or self.peer is None else self.claim.ratio(self.ours, self.peer)

    @property
    def met(self) -> bool | None:
        """Whether the aim is reached; None without an aim or without figures."""
        return None if self.ours is None else self.claim.met(self.ours, self.peer)


@dataclass(frozen=True)
class Run:
    """When, where and how a group was measured."""

    date: str
    seconds: float
    quick: bool
    others_share: float | None
    machine: Mapping[str, object]

    @property
    def quiet(self) -> bool | None:
        """Whether the machine was quiet meanwhile; None where the system does not tell."""
        return None if self.others_share is None else self.others_share <= QUIET


class Record:
    """The record, checked, to be asked for figures."""

    def __init__(self, data: Mapping[str, object]) -> None:
        check(data)
        self.runs = {name: Run(**group["run"]) for name, group in data["groups"].items()}
        rows = {key: row for group in data["groups"].values() for key, row in group["rows"].items()}
        self.figures = {key: Figure(each, **rows.get(key, {"missing": ""})) for key, each in CLAIMS.items()}

    @classmethod
    def read(cls, path: Path = RECORD) -> Record:
        """The record at ``path``; where there is none, one without figures."""
        return cls(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"groups": {}})

    def of_group(self, group: str) -> list[Figure]:
        """All figures of a group, in the claims' order."""
        return [self.figures[each.key] for each in of_group(group)]

    def measured(self) -> list[Figure]:
        return [each for each in self.figures.values() if each.ours is not None]

    def without_figures(self) -> list[Figure]:
        return [each for each in self.figures.values() if each.ours is None]

    def fell_short(self) -> list[Figure]:
        return [each for each in self.figures.values() if each.met is False]

    def fill(self, text: str) -> str:
        """``text`` with each ``{key:field}`` replaced: a field of the claim's figure, ``ratio`` as ``1.3×``.

        Raises RecordError for a key that is no claim. A figure that is not there reads "—".
        """

        def figure(match: re.Match) -> str:
            key, field = match[1], match[2]
            if key not in self.figures:
                raise RecordError(f"no claim {key!r} in: {text}")
            each = self.figures[key]
            value = getattr(each, field)
            return "—" if value is None else f"{value:.2f}×" if field == "ratio" else shown(value, each.claim.unit)

        return FIELD.sub(figure, text)

    def has_all_of(self, text: str) -> bool:
        """Whether every figure that ``text`` names was measured."""
        return all(self.figures[key].ours is not None for key, _ in FIELD.findall(text))


def shown(value: float, unit: str) -> str:
    """Three significant digits, and the unit."""
    size = abs(value)
    if unit == "s" and 0 < size < 0.1:
        value, size, unit = value * 1000, size * 1000, "ms"
    decimals = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2
    return f"{value:,.{decimals}f} {unit}".strip()


def check(data: Mapping[str, object]) -> None:
    """Raise a RecordError that names the first thing that is not as the module says."""
    groups = _typed(data, "groups", dict, "the record")
    for name, group in groups.items():
        if name not in GROUPS:
            raise RecordError(f"groups: no group {name!r} (there are {', '.join(GROUPS)})")
        run = _typed(group, "run", dict, name)
        _exactly(run, RUN_KEYS, f"{name}: run")
        for key, kind in MACHINE_KEYS.items():
            _typed(run["machine"], key, kind, f"{name}: machine")
        known = {each.key for each in of_group(name)}
        for key, row in _typed(group, "rows", dict, name).items():
            if key not in known:
                raise RecordError(f"{name}: {key!r} is no claim of tools/evidence/claims.py")
            if ("ours" in row) == ("missing" in row):
                raise RecordError(f"{key}: must have either 'ours' or 'missing'")
            for field, value in row.items():
                good = isinstance(value, str) if field == "missing" else field in NUMBERS and _is_number(value)
                if not good:
                    raise RecordError(f"{key}: {field} is {value!r}")


def _is_number(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
        and abs(value) != float("inf")
    )


def _typed(data: object, key: str, kind: type | tuple[type, ...], where: str) -> object:
    if not isinstance(data, dict) or not isinstance(data.get(key), kind) or (key not in data):
        raise RecordError(f"{where}: {key!r} must be there, as {kind}")
    return data[key]


def _exactly(data: dict, kinds: Mapping[str, object], where: str) -> None:
    for key, kind in kinds.items():
        _typed(data, key, kind, where)
    if extra := set(data) - set(kinds):
        raise RecordError(f"{where}: does not know {sorted(extra)}")


def merged(path: Path, groups: Mapping[str, object], known: Iterable[str] = GROUPS) -> dict[str, object]:
    """The record at ``path`` with ``groups`` measured anew; groups that are no more are dropped."""
    old = json.loads(path.read_text(encoding="utf-8"))["groups"] if path.exists() else {}
    both = old | dict(groups)
    return {"groups": {name: both[name] for name in known if name in both}}


def write(path: Path, data: Mapping[str, object]) -> None:
    """Write a checked record."""
    check(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
