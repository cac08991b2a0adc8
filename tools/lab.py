"""Open the course in JupyterLab, on working copies: an update of the project never touches what you wrote.

The lessons and the exercises are copied to ``work/``. A copy that you have not changed is brought up to date; one that
you have changed stays yours, and if the original has changed too, you are told. Further arguments go to JupyterLab.

    python3 run.py lab                   opens "Start here", in Chinese where that is the system's language
    python3 run.py lab --language zh
    python3 run.py lab --copy-only       makes the copies, opens nothing
"""

from __future__ import annotations

import argparse
import hashlib
import json
import locale
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("notebooks", "exercises")
LANGUAGES = ("en", "zh")
START = "00_start_here.ipynb"
RECORD = "copies.json"  # relative path → digest of the original as it was copied


def digest(path: Path) -> str:
    """What is in a file, as a short text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy_course(root: Path = ROOT, work: Path | None = None) -> list[str]:
    """Bring the working copies up to date; return the paths of those that stay behind: the learner changed them."""
    work = work or root / "work"
    record_path = work / RECORD
    try:
        record = json.loads(record_path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    if not isinstance(record, dict):
        record = {}
    behind = []
    for folder in FOLDERS:
        for language in LANGUAGES:
            for original in sorted((root / folder / language).glob("*.ipynb")):
                name = original.relative_to(root).as_posix()
                copy, now = work / name, digest(original)
                if not copy.exists() or digest(copy) == record.get(name):  # new, or as it was copied
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(original, copy)
                elif record.get(name) != now and digest(copy) != now:
                    behind.append(name)
                    continue
                record[name] = now
    work.mkdir(parents=True, exist_ok=True)
    record_path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return behind


def system_language() -> str:
    """The course's language that fits the system's."""
    named = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or locale.getlocale()[0]
    return "zh" if (named or "").lower().startswith(("zh", "chinese")) else "en"


def main(arguments: list[str]) -> int:
    """Copy, then open JupyterLab; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", choices=LANGUAGES, default=system_language())
    parser.add_argument("--copy-only", action="store_true")
    options, rest = parser.parse_known_args(arguments)
    try:
        behind = copy_course()
    except OSError as error:
        print(f"lab: the working copies cannot be written: {error}.", file=sys.stderr)
        return 2
    for name in behind:
        print(
            f"{name} has a newer version; work/{name} holds your changes and stays as it is. Delete it to get the new."
        )
    page = f"work/notebooks/{options.language}/{START}"
    if options.copy_only:
        print(f"The course is in work/; it starts with {page}.")
        return 0
    # default_url, not a root folder: the README and the library lie beside the copies and stay within reach.
    from jupyterlab.labapp import LabApp

    LabApp.launch_instance([f"--LabApp.default_url=/lab/tree/{page}", *rest])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
