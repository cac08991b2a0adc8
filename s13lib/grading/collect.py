"""Find submissions: in folders, single notebooks, and zips as learning-management systems export them.

Whose a file is says its path: the name that Moodle and Canvas put before a file, else the first folder below what was
given, else the file's own name; or what ``--id-pattern`` finds. Nothing is unpacked to disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath

from s13lib.errors import InputError, shortened
from s13lib.grading.manifest import exercises
from s13lib.grading.submission import MOST_NOTEBOOK, Refused

MOST_MEMBERS = 50_000  # of an archive
MOST_INNER = 256 << 20  # bytes of a zip inside a zip
MOST_UNPACKED = 8 << 30  # bytes of all that is read of one archive
NAME_IS_UTF8 = 0x800  # a flag in a zip; without it, code page 437
SKIPPED = {".ipynb_checkpoints", "__MACOSX", "__pycache__"}

# "Ada Lovelace_1234567_assignsubmission_file_/5_two_lanes.ipynb", "… _file_5_two_lanes.ipynb"
MOODLE = re.compile(r"([^/]+_[0-9]+)_assignsubmission_")
# "lovelaceada_12345_678901_5_two_lanes-1.ipynb", "lovelaceada_LATE_12345_678901_…"
CANVAS = re.compile(r"(?:^|/)([^/]+?)(?:_LATE)?_([0-9]+)_[0-9]+_[^/]*")


@dataclass(frozen=True)
class File:
    """A file that was handed in: its learner, its path as one would say it, and its bytes, or why there are none."""

    learner: str
    path: str
    raw: bytes = b""
    refusal: str = ""


@dataclass(frozen=True)
class _Found:
    """A file before its learner is known. ``inside`` is its path below what was given."""

    inside: PurePosixPath
    shown: str
    raw: bytes = b""
    refusal: str = ""


def collect(names: Iterable[str], id_pattern: str | None = None) -> Iterator[File]:
    """All notebooks among ``names``, one at a time, in order of their paths.

    Args:
        names: notebooks, zips, and folders of them.
        id_pattern: a regular expression for the path below what was given; its group ``id``, first group or whole match
            is the learner.

    Raises:
        InputError: a name that does not exist or is of another kind, or a bad pattern.
    """
    pattern = None
    if id_pattern is not None:
        try:
            pattern = re.compile(id_pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise InputError(f"--id-pattern {shortened(id_pattern)} is no regular expression: {error}.") from None
    paths = [_given(name) for name in names]
    for path in paths:
        above = path.resolve().name if path.is_dir() else ""
        for found in _found(path):
            yield _file(found, above, pattern)


def _given(name: str) -> Path:
    path = Path(name)
    try:
        good = path.is_dir() or (path.is_file() and path.suffix.lower() in (".ipynb", ".zip"))
        exists = path.exists()
    except (OSError, ValueError):
        good = exists = False
    if not name or not good:
        why = "must be a folder, a notebook or a zip" if exists and name else "does not exist"
        raise InputError(f"SUBMISSIONS {shortened(name)} {why}.")
    return path


def _found(path: Path) -> Iterator[_Found]:
    if path.is_dir():
        yield from _in_folder(path)
    elif path.suffix.lower() == ".zip":
        yield from _in_zip_file(path, PurePosixPath(), str(path))
    else:
        yield _read(path, PurePosixPath(path.name), str(path))


def _in_folder(root: Path) -> Iterator[_Found]:
    for folder, folders, files in os.walk(root):  # does not follow links
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            inside = PurePosixPath(*path.relative_to(root).parts)
            if name.startswith("."):
                continue
            if path.suffix.lower() == ".zip" and not path.is_symlink():
                yield from _in_zip_file(path, inside.with_suffix(""), str(path))
            elif path.suffix.lower() == ".ipynb":
                yield _read(path, inside, str(path))


def _read(path: Path, inside: PurePosixPath, shown: str) -> _Found:
    """A file on disk. A link could name any file of the grader's, a pipe never ends."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return _Found(inside, shown, refusal="It is no plain file but a link or a device.")
        if status.st_size > MOST_NOTEBOOK:
            return _Found(inside, shown, refusal=_too_large())
        return _Found(inside, shown, path.read_bytes())
    except OSError as error:
        return _Found(inside, shown, refusal=f"It cannot be read: {error.strerror}.")


def _too_large() -> str:
    return f"It is larger than {MOST_NOTEBOOK >> 20} MiB: its outputs must be cleared."


def _in_zip_file(path: Path, above: PurePosixPath, shown: str) -> Iterator[_Found]:
    try:
        with path.open("rb") as file:
            yield from _in_zip(file, above, shown, _Budget(), depth=0)
    except OSError as error:
        yield _Found(above / path.name, shown, refusal=f"It cannot be read: {error.strerror}.")


class _Budget:
    """How much of an archive has been unpacked: a small file can hold far more than a disk."""

    def __init__(self) -> None:
        self.left = MOST_UNPACKED

    def spend(self, count: int) -> None:
        """Count; ``Refused`` when it is too much."""
        self.left -= count
        if self.left < 0:
            raise Refused(f"The archive unpacks to more than {MOST_UNPACKED >> 30} GiB.")


def _in_zip(file: object, above: PurePosixPath, shown: str, budget: _Budget, depth: int) -> Iterator[_Found]:
    here = above / "archive"
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                yield _Found(here, shown, refusal=f"The archive holds more than {MOST_MEMBERS:,} files.")
                return
            seen: set[str] = set()
            for member in sorted(members, key=lambda member: member.filename):
                yield from _member(archive, member, above, shown, budget, depth, seen)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
        yield _Found(here, shown, refusal="It is no zip archive, or is damaged.")
    except Refused as refused:
        yield _Found(here, shown, refusal=str(refused))


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, above: PurePosixPath, shown: str, budget: _Budget, depth: int,
    seen: set[str],
) -> Iterator[_Found]:  # fmt: skip
    name = _name(member)
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    kind = PurePosixPath(parts[-1]).suffix.lower() if parts else ""
    if member.is_dir() or kind not in (".ipynb", ".zip") or any(p in SKIPPED or p.startswith("._") for p in parts):
        return
    inside, where = above.joinpath(*parts), f"{shown}:{name}"
    refusal = ""
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        inside = above / parts[-1]
        refusal = "Its path in the archive leads outside the archive."
    elif stat.S_ISLNK(member.external_attr >> 16):
        refusal = "It is a symbolic link in the archive."
    elif member.flag_bits & 1:
        refusal = "It is encrypted in the archive."
    elif name in seen:
        refusal = "The archive holds it twice, so it is not clear which one counts."
    elif kind == ".zip" and depth > 0:
        refusal = "It is a zip inside a zip inside a zip."
    seen.add(name)
    if refusal:
        yield _Found(inside, where, refusal=refusal)
        return
    most = MOST_NOTEBOOK if kind == ".ipynb" else MOST_INNER
    try:
        with archive.open(member) as stream:
            raw = stream.read(most + 1)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, OSError, ValueError):
        yield _Found(inside, where, refusal="It is damaged in the archive.")
        return
    budget.spend(len(raw))
    if len(raw) > most:
        yield _Found(inside, where, refusal=_too_large() if kind == ".ipynb" else "It unpacks to too much.")
    elif kind == ".zip":
        yield from _in_zip(BytesIO(raw), inside.with_suffix(""), where, budget, depth + 1)
    else:
        yield _Found(inside, where, raw)


def _name(member: zipfile.ZipInfo) -> str:
    """A member's name. Some systems write UTF-8 without saying so."""
    if not member.flag_bits & NAME_IS_UTF8:
        with contextlib.suppress(UnicodeError):
            return member.filename.encode("cp437").decode("utf-8")
    return member.filename


def _file(found: _Found, above: str, pattern: re.Pattern[str] | None) -> File:
    path = found.inside.as_posix()
    if pattern is not None:
        match = pattern.search(path)
        if match is None:
            refusal = found.refusal or "Its path does not match --id-pattern."
            return File(found.inside.stem, found.shown, refusal=refusal)
        groups = match.groupdict()
        learner = groups["id"] if "id" in groups else match[1] if pattern.groups else match[0]
        return File((learner or "").strip() or found.inside.stem, found.shown, found.raw, found.refusal)
    return File(_learner(path, above), found.shown, found.raw, found.refusal)


def _learner(path: str, above: str) -> str:
    """Whose file this is, by its path below the folder ``above`` ("" where none was given)."""
    if match := MOODLE.search(path):
        return match[1]
    if match := CANVAS.search(path):
        return f"{match[1]}_{match[2]}"
    first, *rest = path.split("/")
    if rest:
        return first
    stem = PurePosixPath(first).stem
    handed_out = any(stem.startswith(exercise.file) for exercise in exercises())
    return above if handed_out and above else stem
