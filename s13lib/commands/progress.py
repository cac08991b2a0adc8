"""Show which parts of the exercises are solved on this machine, and the points.

example:
  s13 progress
  s13 progress --language zh
"""

from __future__ import annotations

import argparse
import locale
import os

from s13lib.grading.notebook import progress_text
from s13lib.widgets.language import VARIABLE, language


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--language", metavar="en|zh", help=f"default: {VARIABLE}, else the system's language")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    wanted = arguments.language
    if wanted is None and not os.environ.get(VARIABLE) and _system_language().startswith(("zh", "Chinese")):
        wanted = "zh"
    print(progress_text(language(wanted)))
    return 0


def _system_language() -> str:
    """The system's language as it names it, such as "zh_CN.UTF-8" or "Chinese (Simplified)_China"."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return next(filter(None, named), None) or locale.getlocale()[0] or ""
