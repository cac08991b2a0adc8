"""The command line: a table of commands, each in a module of ``s13lib.commands``, loaded only when asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from s13lib import __version__
from s13lib.errors import InputError, look_up

# command -> what it does. The module of the same name has add_arguments(parser) and run(arguments).
COMMANDS = {
    "report": "the whole story on one page: batch sweep, fusion table, bucket layouts (modelled)",
    "simulate": "one decode step or prefill: where the time goes (modelled)",
    "sweep": "step time against batch size, and where launches stop mattering (modelled)",
    "fusion": "kernels, intermediates and bytes at each fusion stage (modelled)",
    "buckets": "the best batch sizes to capture for your traffic",
    "decode": "one decode step of a real model: step, host and device time (measured)",
    "profile": "one decode step on this machine: a timeline, its gaps, what the host did (measured)",
    "calibrate": "measure what launches and kernels cost on this machine (measured)",
    "predict": "hold the calibrated launch model against measurements of a grid of steps",
    "padding": "the padding bug, switched on: who is hurt, at which batch sizes (measured)",
    "trace": "what a profiler's trace file says: busy, launches, gaps, and what would help (recorded)",
    "doctor": "check this machine: what is installed, which device, can its times be trusted, what to repair",
    "generate": "continue a prompt with a real model, at any fusion stage (measured)",
    "progress": "which parts of the exercises are solved here, and the points",
    "grade": "grade submitted exercises, each learner's code in a sandbox",
    "check": "for maintainers: are the exercises complete, do stubs fail and solutions pass?",
}
COURSE_PACKAGES = ("torch", "numba", "llvmlite", "safetensors")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise an ``InputError`` instead of printing usage and exiting."""
        raise InputError(f"{self.prog}: {message}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0, 2 for bad input, 130 when interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None or sys.stderr is None:  # closed by the shell: there is nobody to talk to
        return 2
    for stream in (sys.stdout, sys.stderr):  # a console that cannot show µ shows "?" instead of a traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        return _dispatch(arguments)
    except InputError as error:
        print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe (head, less) has seen enough
        _forget_output()
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        _forget_output()
        print(f"error: standard output cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted.", file=sys.stderr)
        return 130


def _forget_output() -> None:
    """Drop what is still buffered, so that Python does not try to write it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments and arguments[0] == "--version":
        print(f"s13lib {__version__}")
        return 0
    # Without a command this is the lesson's script: the report.
    name = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "report"
    look_up(COMMANDS, name, "command")
    try:
        command = importlib.import_module(f"s13lib.commands.{name}")
    except ModuleNotFoundError as error:
        if error.name not in COURSE_PACKAGES:
            raise
        raise InputError(
            f"s13 {name} needs {error.name}, which is not installed: "
            "`python3 run.py demo` sets the course up, or `pip install '.[course]'`."
        ) from None
    parser = Parser(
        prog=f"s13 {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    code = command.run(parser.parse_args(arguments))
    sys.stdout.flush()
    return code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: s13 COMMAND [options]   (python -m s13lib COMMAND is the same)",
            "",
            *(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()),
            "",
            "s13 COMMAND --help says more, with an example.",
        ]
    )
