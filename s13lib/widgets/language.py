"""Which language a notebook speaks, and text that is shown in that language."""

from __future__ import annotations

import os
from pathlib import Path

from s13lib.errors import look_up

LANGUAGES = {"en": "English", "zh": "中文"}
VARIABLE = "S13_LANGUAGE"


def language(wanted: str | None = None) -> str:
    """Return "en" or "zh": ``wanted`` if given, else S13_LANGUAGE, else the notebook's folder, else English.

    Notebooks live in ``notebooks/en`` and ``notebooks/zh``, and a kernel starts in its notebook's folder, so the same
    code cell speaks the language of the prose around it.

    Raises:
        InputError: ``wanted`` or S13_LANGUAGE is no language of the course.
    """
    if wanted is not None:
        look_up(LANGUAGES, wanted, "language")
        return wanted
    chosen = os.environ.get(VARIABLE)
    if chosen:
        look_up(LANGUAGES, chosen, VARIABLE)
        return chosen
    folder = Path.cwd().name
    return folder if folder in LANGUAGES else "en"


def pick(en: str, zh: str, wanted: str | None = None) -> str:
    """The text of the notebook's language."""
    return zh if language(wanted) == "zh" else en


def say(en: str, zh: str) -> None:
    """Print the text of the notebook's language. Both texts hold the same computed numbers: pass f-strings."""
    print(pick(en, zh))
