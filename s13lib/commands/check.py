"""Check the exercises themselves, for maintainers: manifest, hints, wrong answers, stubs, solutions, both languages.

It ends with one line and exit code 0 or 1. Stubs and solutions are in a checkout of the project only.

example:
  s13 check
"""

from __future__ import annotations

import argparse

from s13lib.grading import sandbox
from s13lib.grading.complete import checkout, manifest_faults, notebook_faults
from s13lib.grading.manifest import exercises
from s13lib.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    found = list(manifest_faults())
    root, sandboxed = checkout(), sandbox.problem() is None
    if root is not None:
        with Progress("checking", len(exercises())) as bar:
            for exercise in exercises():
                found += notebook_faults(root, exercise, sandboxed)
                bar.update()
    for fault in found:
        print(fault)
    if found:
        print(f"{len(found)} fault{'s' * (len(found) > 1)} in the exercises.")
        return 1
    parts = sum(len(exercise.parts) for exercise in exercises())
    how = "in a sandbox" if sandboxed else "without a sandbox"
    solutions = f"stubs fail and solutions pass, {how}" if root else "stubs and solutions not checked: no checkout here"
    print(f"{len(exercises())} exercises with {parts} parts are complete; {solutions}.")
    return 0
