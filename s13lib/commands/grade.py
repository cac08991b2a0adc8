"""Grade submitted exercises: fresh inputs, each learner's code in a sandbox, points and feedback with reasons.

SUBMISSIONS are folders, notebooks, and zips as a learning-management system exports them. A file that cannot be graded
is refused with the reason, and has no points rather than zero. Interrupted, it goes on where it stopped: just run the
same command again. The first run keeps a course key beside the output; with the same key the same code gets the same
inputs, and so the same grade.

The sandbox is bubblewrap (Linux). Elsewhere, grade in a container with --no-sandbox; docs/cli.md says what it promises.

example:
  s13 grade submissions.zip --out grades.csv --feedback feedback
  s13 grade submitted/ --out grades.csv --only 2,3 --id-pattern '^(?P<id>[^/]+)/'
"""

from __future__ import annotations

import argparse
from pathlib import Path

from s13lib.commands.output import heading, print_json, table, whole, whole_list, write_files
from s13lib.errors import InputError, require, require_whole, shortened
from s13lib.grading import feedback, sandbox
from s13lib.grading.batch import Row, course_key, flag_twins, grade_all, read_all
from s13lib.grading.collect import collect
from s13lib.grading.executor import Dask, Local, usable
from s13lib.grading.journal import Journal
from s13lib.grading.manifest import Exercise, exercises
from s13lib.grading.results import Summary, as_csv, printable, summary
from s13lib.grading.room import BrokenEnvironment

SHOWN_MISTAKES = 10
MOST_JOBS = 60  # Windows waits for no more processes at a time
NO_SANDBOX = "NOT sandboxed: each submission ran in a process of its own, which could read this user's files."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("submissions", nargs="+", metavar="SUBMISSIONS", help="folders, notebooks or zips")
    add("--out", required=True, metavar="FILE", help="the grades, CSV (columns: docs/cli.md)")
    add("--feedback", metavar="DIR", help="write Markdown and HTML for each learner there")
    add("--jobs", type=whole, metavar="N", help="submissions graded at a time (default: one a usable processor)")
    add("--only", type=whole_list, metavar="N,N", help="these exercises alone")
    add("--id-pattern", metavar="REGEX", help="finds the learner in a file's path: group id, first group, or all")
    add("--key", metavar="COURSE_KEY", help="inputs derive from it (default: kept in FILE.key, made once)")
    add("--scheduler", metavar="ADDRESS", help="grade on the workers of this Dask scheduler")
    add("--no-sandbox", action="store_true", help="grade without bubblewrap, in plain processes")
    add("--json", action="store_true", help="print the summary as JSON (keys: docs/cli.md)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0, or 1 when a check of ours failed on a submission; 2 when grading does not work here."""
    chosen = _chosen(arguments.only)
    out = Path(arguments.out)
    require(bool(arguments.out), "--out", arguments.out, "the name of a file")
    require(out.parent.is_dir() and not out.is_dir(), "--out", arguments.out, "a file in a folder that exists")
    sandboxed = not arguments.no_sandbox
    if sandboxed and arguments.scheduler is None and (problem := sandbox.problem()):
        raise InputError(f"no sandbox: {problem} Grade in a container with --no-sandbox (`s13 grade --help`).")
    jobs = usable() if arguments.jobs is None else arguments.jobs
    require_whole("--jobs", jobs, 1, MOST_JOBS)
    rows = flag_twins(read_all(collect(arguments.submissions, arguments.id_pattern), arguments.only))
    if not rows:
        raise InputError("SUBMISSIONS hold no notebook of these exercises.")
    folder = _feedback_folder(arguments.feedback)
    key = course_key(arguments.key, _beside(out, "key"))
    with Journal(_beside(out, "journal")) as journal:
        known = len(journal.grades)
        executor = Dask(arguments.scheduler) if arguments.scheduler is not None else Local(jobs)
        try:
            rows = grade_all(rows, key, executor, journal, sandboxed)
        except BrokenEnvironment as error:
            raise InputError(f"grading does not work here, so nobody gets a grade: {error}") from None
        finally:
            executor.stop()
        new = len(journal.grades) - known
    present = {row.number for row in rows}
    chosen = tuple(exercise for exercise in chosen if exercise.number in present)
    report = summary(rows, chosen)
    contents = [(str(out), "--out", lambda: as_csv(rows, chosen))]
    if folder is not None:
        texts = feedback.files(rows)
        contents += [(str(folder / name), "--feedback", lambda text=text: text) for name, text in texts.items()]
    write_files(contents)
    if arguments.json:
        print_json(as_json(report, rows, sandboxed, new))
    else:
        print(as_text(report, rows, sandboxed, new))
        print(f"\nwrote {out}" + (f", and {len(texts)} files in {folder}" if folder is not None else ""))
    return 1 if report.errors else 0


def _chosen(only: list[int] | None) -> tuple[Exercise, ...]:
    numbers = [exercise.number for exercise in exercises()]
    for number in only or ():
        require(number in numbers, "--only", number, f"an exercise of this course, {numbers[0]} to {numbers[-1]}")
    return tuple(exercise for exercise in exercises() if not only or exercise.number in only)


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(f"{out.name}.{ending}")


def _feedback_folder(name: str | None) -> Path | None:
    if name is None:
        return None
    require(bool(name), "--feedback", name, "the name of a folder")
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--feedback {shortened(name)} cannot be made: {error.strerror}.") from None
    return Path(name)


def as_json(report: Summary, rows: list[Row], sandboxed: bool, new: int) -> dict[str, object]:
    """The summary under stable keys (documented in docs/cli.md)."""
    return {
        "graded": report.graded,
        "refused": report.refused,
        "errors": report.errors,
        "new": new,
        "sandboxed": sandboxed,
        "parts": [
            {
                "part": part.key,
                "solved": part.solved,
                "graded": part.graded,
                "mistakes": [{"mistake": name, "count": count} for name, count in part.mistakes],
            }
            for part in report.parts
        ],
        "flagged": [
            {"learner": row.learner, "exercise": row.number, "flags": list(row.flags)} for row in report.flagged
        ],
        "not_graded": [
            {"learner": row.learner, "file": row.file, "status": row.status, "reason": row.reason}
            for row in rows
            if row.status != "graded"
        ],
    }


def as_text(report: Summary, rows: list[Row], sandboxed: bool, new: int) -> str:
    """The summary for people."""
    errors = f", {report.errors} where our own check failed (no points, look at the reason)" if report.errors else ""
    lines = [
        heading("Grades"),
        f"{report.graded} graded ({new} of them now), {report.refused} refused (no points, not zero){errors}.",
        "Each submission ran in a sandbox of its own." if sandboxed else NO_SANDBOX,
    ]
    parts = [part for part in report.parts if part.graded]
    if parts:
        solved = [(part.key, f"{part.solved}/{part.graded}", f"{part.solved / part.graded:.0%}") for part in parts]
        lines += ["", table(("part", "solved", ""), solved)]
    mistakes = sorted(((count, part.key, name) for part in parts for name, count in part.mistakes), key=lambda m: -m[0])
    if mistakes:
        shown = [(key, name, str(count)) for count, key, name in mistakes[:SHOWN_MISTAKES]]
        lines += ["", "The commonest mistakes:", table(("part", "mistake", "learners"), shown, left=2)]
    lines += _listed("To look at:", [(row, "; ".join(row.flags)) for row in report.flagged])
    return "\n".join(lines + _listed("Not graded:", [(row, row.reason) for row in rows if row.status != "graded"]))


def _listed(title: str, items: list[tuple[Row, str]]) -> list[str]:
    if not items:
        return []
    return ["", title, *(printable(f"  {row.learner} ({row.file}): {text}") for row, text in items)]
