"""Write a zip of the course for learners: everything but the solutions, the tests and what builds them.

    python3 run.py handout                          writes s13-handout.zip
    python3 run.py handout --output course.zip

The zip holds a folder in which ``python3 run.py lab`` works. What checks an exercise is part of the library and comes
along, since ``check`` must run on the learner's machine: docs/instructors.md says what that means.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "s13"  # in the zip
# Solutions, and all that names or holds them.
LEFT_OUT = ("solutions/", "tests/", ".ci/", ".github/", "tools/build_exercises.py", "tools/nbgrader_check.py")
MADE_HERE = {".venv", ".venv-nbgrader", ".git", "work", "site", "models", "__pycache__", "build", "dist"}
EPOCH = (2026, 1, 1, 0, 0, 0)  # the same files make the same zip


def project_files(root: Path = ROOT) -> list[str]:
    """All files of the project, relative to it: those that git tracks, or what lies there but was not made there."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        return sorted(name for name in listing.stdout.decode().split("\0") if name and (root / name).is_file())
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(p.as_posix() for p in paths if not MADE_HERE & set(p.parts) and not p.name.endswith(".zip"))


def for_learners(names: list[str]) -> list[str]:
    """Those of the files that learners get."""
    return [name for name in names if not name.startswith(LEFT_OUT)]


def write_zip(output: Path, root: Path = ROOT) -> int:
    """Write the zip, whole or not at all; return how many files it holds."""
    names = for_learners(project_files(root))
    draft = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                entry = zipfile.ZipInfo(f"{FOLDER}/{name}", EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o755 if name == "run.py" else 0o644) << 16
                archive.writestr(entry, (root / name).read_bytes())
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
    return len(names)


def main(arguments: list[str]) -> int:
    """Write the handout; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("s13-handout.zip"), metavar="FILE")
    output = parser.parse_args(arguments).output
    try:
        count = write_zip(output)
    except OSError as error:
        print(f"handout: --output {str(output)!r} cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    print(f"wrote {output}: {count} files, {output.stat().st_size / 1e6:.1f} MB, no solutions.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
