"""Exercise 6: small timelines, one for each sentence of its rules, at the limits that the sentence names."""

from __future__ import annotations

from s13lib.grading.parts.made_timelines import MADE, Submission, played
from s13lib.simulator.timeline import Span, Timeline

SCENE = "one question"

# What the host may do next. It launches at once while the device works, and so leaves no gap; or, "late", it waits for
# the device first, and then the device waits for it.
QUEUED = Submission(2.0, (8.0,))
LATE = Submission(4.0, (8.0,), synced=True)
LATE_REPLAY = Submission(4.0, (4.0, 4.0), synced=True)
PAUSE = Submission(5.0, (8.0,), wait_us=1200.0, synced=True)
CALL = Submission(1.0)
FIRST, FIRST_GRAPH = Submission(4.0, (20.0,)), Submission(4.0, (4.0,) * 5)

# question of 6b → host spans (start, end, correlation, kind) and device spans (start, end, correlation, stream)
LAUNCH, GRAPH = "", "graph"
QUESTIONS = {
    "queued work that waits for more than 1000 µs for something else": (
        [(0, 4, 1, LAUNCH), (4, 8, 2, LAUNCH)],
        [(4, 14, 1, 7), (1214, 1220, 2, 7)],
    ),
    "a later kernel of a graph after more than 1000 µs, while its launch call still runs": (
        [(0, 2000, 1, GRAPH)],
        [(500, 504, 1, 7), (1600, 1604, 1, 7)],
    ),
    "waits of 1000 µs sharp, for a launch and for a replay, and of a little more": (
        [(0, 4, 1, LAUNCH), (1004, 1008, 2, LAUNCH), (1500, 2010, 3, GRAPH), (3010.25, 3014.25, 4, LAUNCH)],
        [(4, 8, 1, 7), (1008, 1010, 2, 7), (2010, 2012, 3, 7), (2012, 2014, 3, 7), (3014.25, 3016.25, 4, 7)],
    ),
    "a long kernel on one stream, under which two of another begin": (
        [(0, 4, 1, LAUNCH), (4, 6, 2, LAUNCH), (16, 20, 3, LAUNCH), (36, 40, 4, LAUNCH)],
        [(4, 30, 1, 7), (6, 10, 2, 13), (20, 24, 3, 13), (40, 44, 4, 7)],
    ),
    "a graph whose first kernel leaves no gap and whose second does, while its launch call still runs": (
        [(0, 4, 1, LAUNCH), (4, 20, 2, GRAPH)],
        [(4, 10, 1, 7), (10, 13, 2, 7), (14, 16, 2, 7)],
    ),
    "a launch that ends the moment the device falls idle": (
        [(0, 4, 1, LAUNCH), (4, 8, 2, LAUNCH), (8, 10.75, 3, GRAPH)],
        [(4, 8, 1, 7), (9.5, 10.75, 2, 7), (12, 14, 3, 7), (14, 15, 3, 7)],
    ),
}

# sentence of 6c → what the host does, and the boundary between two kernels in µs
SENTENCES = {
    "10 % late to the point is not less than 10 %": (
        [Submission(4.0, (30.0,)), Submission(2.0, (30.0,)), Submission(2.0, (15.0,)),
         Submission(6.0, (15.0,), synced=True)], 0.0,
    ),
    "the first rule comes first: every launch starves the device, yet 4 % are late": (
        [Submission(2.0, (50.0,), synced=True)] * 5, 0.0,
    ),
    "replays are late too": (
        [Submission(2.0, (40.0,)), Submission(2.0, (20.0,)), Submission(2.0, (20.0,)),
         Submission(12.0, (6.0, 6.0), synced=True)], 0.0,
    ),
    "the pause is taken out of the time": ([FIRST, QUEUED, QUEUED, LATE, PAUSE], 0.0),
    "late as long as busy": (
        [Submission(10.0, (10.0,)), *[QUEUED] * 3, Submission(30.0, (6.0,), synced=True)], 0.0,
    ),
    "late for longer than busy, and for less than half of the time": (
        [Submission(10.0, (10.0,)), *[QUEUED] * 3, Submission(35.0, (6.0,), synced=True)], 5.0,
    ),
    "three launches of four": ([FIRST, LATE, LATE, LATE, QUEUED], 0.0),
    "the first launch is left out": ([FIRST, LATE, LATE, QUEUED], 0.0),
    "calls that launch nothing are left out": ([FIRST, LATE, LATE, LATE, CALL, CALL, QUEUED], 0.0),
    "a replay starves": ([FIRST, LATE, LATE, LATE_REPLAY, QUEUED], 0.0),
    "a pause starves": ([FIRST, LATE, LATE, PAUSE, QUEUED], 0.0),
    "a graph is one launch": ([FIRST_GRAPH, LATE, LATE, LATE, QUEUED], 0.0),
}  # fmt: skip


def questions() -> list[Timeline]:
    """A timeline for each of ``QUESTIONS``."""
    return [_timeline(*lanes) for lanes in QUESTIONS.values()]


def sentences() -> list[Timeline]:
    """A timeline for each of ``SENTENCES``."""
    return [played(SCENE, submissions, boundary_us) for submissions, boundary_us in SENTENCES.values()]


def _timeline(host: list[tuple], device: list[tuple]) -> Timeline:
    calls = [
        Span("graph launch" if kind else "launch", start, end - start, 700 + 3 * n, kind)
        for start, end, n, kind in host
    ]
    work = [Span("kernel", start, end - start, 700 + 3 * n, lane=f"stream {lane}") for start, end, n, lane in device]
    return Timeline(tuple(calls), tuple(work), "modelled", MADE + SCENE)
