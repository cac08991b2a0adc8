"""A learner's own progress, kept on this machine: the points reached in each part."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from s13lib.grading.manifest import entries

VARIABLE = "S13_PROGRESS"  # names another file


def progress_file() -> Path:
    """The file: ``S13_PROGRESS``, else in the user's data folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    elif sys.platform == "darwin":
        base = Path("~/Library/Application Support")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    return base.expanduser() / "s13lib" / "progress.json"


def solved() -> set[str]:
    """Keys of the parts that were solved. A file that cannot be read counts as none."""
    try:
        data = json.loads(progress_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    keys = data.get("solved", []) if isinstance(data, dict) else []
    return {key for key in keys if isinstance(key, str)} & entries().keys() if isinstance(keys, list) else set()


def add_solved(key: str) -> None:
    """Note that a part was solved. Where nothing may be written, the check still counts for itself."""
    path, keys = progress_file(), solved()
    if key in keys:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps({"solved": sorted(keys | {key})}) + "\n", encoding="utf-8")
        draft.replace(path)
