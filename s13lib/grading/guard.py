"""Run an answer that may do anything: its time limited, its output capped, its inputs watched, nothing escaping."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import inspect
import io
import signal
import threading
import traceback
from collections.abc import Callable, Iterator

from s13lib.grading.compare import same
from s13lib.grading.part import Observation, Part, Trouble
from s13lib.grading.tripwire import Borrowed, tripwires

MOST_OUTPUT = 1_000_000  # characters that an answer may print during one case
SHOWN_OUTPUT = 2_000
NEXT_BLOW_SECONDS = 0.5  # a loop that swallows every exception is hit again and again


class TooSlow(BaseException):
    """Raised inside the answer when its time is over. Not an Exception, so that ``except Exception`` lets it pass."""


class Flood(BaseException):
    """Raised inside the answer when it has printed too much."""


class CappedOutput(io.TextIOBase):
    """Takes what an answer prints, keeps the beginning, and stops it at ``MOST_OUTPUT`` characters."""

    def __init__(self) -> None:
        self.text, self.count = "", 0

    def writable(self) -> bool:
        """Whether one may write: yes."""
        return True

    def write(self, text: str) -> int:
        """Count, keep the first characters, and raise ``Flood`` past the limit."""
        self.text += text[: max(0, SHOWN_OUTPUT - len(self.text))]
        self.count += len(text)
        if self.count > MOST_OUTPUT:
            raise Flood
        return len(text)


def observe(part: Part, answer: object, inputs: tuple) -> Observation:
    """Drive ``answer`` with a copy of ``inputs`` and return what came. Raises nothing but KeyboardInterrupt."""
    if trouble := _signature_trouble(part, answer):
        return Observation(trouble=trouble)
    given = copy.deepcopy(inputs)
    part.warm_up()
    with tripwires(part):
        value, trouble = attempt(lambda: copy.deepcopy(part.drive(answer, *given)), part.seconds)
    mutated = tuple(
        name
        for name, before, after in zip(part.parameters, inputs, given, strict=True)
        if name not in part.writes and not same(before, after)
    )
    return Observation(value, trouble, mutated)


def attempt(call: Callable[[], object], seconds: float) -> tuple[object, Trouble | None]:
    """What ``call`` returns, or the trouble with it. Raises nothing but KeyboardInterrupt."""
    try:
        with contextlib.redirect_stdout(CappedOutput()), contextlib.redirect_stderr(CappedOutput()):  # noqa: SIM117
            with time_limit(seconds):
                return call(), None
    except NotImplementedError as error:
        return None, Trouble("todo", str(error))
    except Borrowed as error:
        return None, Trouble("borrowed", str(error))
    except TooSlow as error:
        return None, Trouble("slow", f"{error.args[0] if error.args else seconds:g}")
    except Flood:
        return None, Trouble("flood", f"{MOST_OUTPUT:,}")
    except SystemExit:
        return None, Trouble("exit")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a learner may raise
        return None, Trouble("raised", _described(error))


def _signature_trouble(part: Part, answer: object) -> Trouble | None:
    """What is wrong with the answer before it is called: no function, or one that takes other parameters."""
    if not callable(answer):
        return Trouble("signature", f"{type(answer).__name__}")
    try:
        wanted, got = inspect.signature(part.reference), inspect.signature(answer)
        got.bind(*wanted.parameters)
    except TypeError:
        return Trouble("signature", f"({', '.join(wanted.parameters)})")
    except ValueError:  # a built-in that does not tell
        return None
    return None


def _described(error: BaseException) -> str:
    """The error and the line of the learner's that raised it."""
    try:
        text = str(error)
    except Exception:  # a learner's exception class may be broken too
        text = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "s13lib" not in f.filename]
    where = f" (line {frames[-1].lineno} of {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {text[:300]}{where}" if text else f"{type(error).__name__}{where}"


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TooSlow`` in this thread after ``seconds``, and again until the block is left. Limits may be nested."""
    in_main = threading.current_thread() is threading.main_thread()
    with (_by_signal if in_main and hasattr(signal, "setitimer") else _by_thread)(seconds):
        yield


@contextlib.contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    """By the alarm clock of Unix, which also ends a sleep. There is one: a limit inside another takes it over."""
    outer = signal.getitimer(signal.ITIMER_REAL)
    outer_is_nearer = 0 < outer[0] < seconds

    def ring(*_: object) -> None:
        raise TooSlow if outer_is_nearer else TooSlow(seconds)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, outer[0] if outer_is_nearer else seconds, NEXT_BLOW_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)  # it was stopped meanwhile


@contextlib.contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    """By another thread, on Windows and outside the main thread: takes effect at the next line of Python."""
    target, over = threading.get_ident(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(TooSlow))
            wait = NEXT_BLOW_SECONDS

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
