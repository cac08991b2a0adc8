"""Read a profiler's trace file: how busy the device is, what launches cost, where it waits, and what would help.

FILE is a Chrome trace of the PyTorch profiler (CUDA or ROCm), plain or gzip, or what --chrome-trace wrote.

example:
  s13 trace decode.pt.trace.json.gz --svg decode.svg
  s13 trace after.json.gz --against before.json.gz
"""

from __future__ import annotations

import argparse
import textwrap

from s13lib.commands.output import heading, print_json, table, whole, write_files
from s13lib.errors import InputError, look_up
from s13lib.figures.svg import format_us
from s13lib.figures.timeline import LABELS
from s13lib.profiling import REASONS, IdleGap, TraceChange, TraceReport, Verdict, read_trace, telling_svg
from s13lib.progress import elapsed

LONGEST_GAPS = 10  # in JSON; the text shows half of them
WIDTH, MARGIN = 110, 17  # characters of a line, and before a value
NAME_WIDTH = 72  # characters of a kernel's name in a table
SHOWN_KERNELS = 12  # in each of the lists of --against


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("file", metavar="FILE", help="the trace")
    parser.add_argument("--against", metavar="FILE", help="an earlier trace: say what changed from it to FILE")
    parser.add_argument("--stream", type=whole, metavar="N", help="the work of one stream alone")
    parser.add_argument("--json", action="store_true", help="print JSON (keys: docs/cli.md)")
    parser.add_argument("--svg", metavar="FILE", help="draw a graph replay or the surroundings of the longest gap")
    parser.add_argument("--language", default="en", metavar="en|zh", help="labels of the picture")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    look_up(LABELS, arguments.language, "--language")
    for option, name in (("FILE", arguments.file), ("--against", arguments.against)):
        if name == "":
            raise InputError(f"{option} is empty: name a file.")
    reports = [_report(name, arguments.stream) for name in (arguments.against, arguments.file) if name is not None]

    def picture() -> str:
        return telling_svg(reports, arguments.language)

    with elapsed("analysing"):  # takes seconds for hundreds of thousands of events
        written = write_files([(arguments.svg, "--svg", picture)])
        if arguments.against is not None:
            change = TraceChange(*reports)
            result = change_as_json(change) if arguments.json else change_as_text(change)
        else:
            result = as_json(reports[0]) if arguments.json else as_text(reports[0])
    if arguments.json:
        print_json(result)
    else:
        print(result, *(f"wrote {name}" for name in written), sep="\n")
    return 0


def _report(name: str, stream: int | None) -> TraceReport:
    trace = read_trace(name)
    return TraceReport(trace if stream is None else trace.on_stream(stream))


# ---- one trace


def as_json(report: TraceReport) -> dict[str, object]:
    """The report under stable keys (documented in docs/cli.md)."""
    trace, verdict = report.trace, report.verdict
    return {
        "source": trace.label,
        "file": trace.name,
        "provenance": trace.timeline.provenance,
        "date": trace.date,
        "rank": trace.rank,
        "device_kernels": report.device_kernels,
        "device_copies": report.device_copies,
        "launch_calls": report.launch_calls,
        "launch_median_us": report.launch_median_us,
        "launches_by_name": _counts(report.launches_by_name),
        "graph_launches": len(report.graphs),
        "graphs": [
            {
                "name": g.name,
                "nodes": g.nodes,
                "host_us": g.host_us,
                "device_us": g.device_us,
                "queue_delay_us": g.queue_delay_us,
            }
            for g in report.graphs
        ],
        "device_busy_fraction": report.busy_fraction,
        "device_busy_us": report.busy_us,
        "extent_us": report.extent_us,
        "gaps": len(report.gaps),
        "gap_median_us": report.gap_median_us,
        "idle_us": report.idle_us,
        "idle_us_by_reason": report.idle_us_by_reason,
        "longest_gaps": [_gap(report, gap) for gap in report.gaps[:LONGEST_GAPS]],
        "queue_delay_us": report.queue_delay_us,
        "step_us": report.step_us,
        "step_from": report.step_from,
        "verdict": verdict.name,
        "why": verdict.why,
        "would_help": None if verdict.would_help is None else list(verdict.would_help),
        "advice": verdict.advice,
        "devices": [
            {
                "device": d.device,
                "name": trace.device_names.get(d.device),
                "kernels": sum(d.timeline.kernel_counts().values()),
                "busy_fraction": d.busy_fraction,
                "streams": _counts(d.streams),
            }
            for d in report.devices
        ],
        "skipped_events": trace.skipped,
    }


def as_text(report: TraceReport) -> str:
    """The report for people."""
    trace, verdict = report.trace, report.verdict
    rows = [("Device", _device(report, i)) for i in range(len(report.devices))]
    if trace.exported:
        rows.append(("Where from", f"{trace.source}: {trace.timeline.provenance}"))
    elif when := ", ".join(filter(None, [trace.date, None if trace.rank is None else f"rank {trace.rank}"])):
        rows.append(("Recorded", when))
    rows += [
        ("Device work", f"{report.device_kernels:,} kernels; copies and fills: {report.device_copies:,}"),
        ("Device busy", f"{_share(report.busy_fraction)} of {format_us(report.extent_us)}, {_extent(report)}"),
        ("Launch calls", _launches(report)),
        *(("Graph launches", line) for line in _graphs(report)),
        ("Queue delay", f"{_queue_delay(report.queue_delay_us)}"),
        ("Gaps", f"{len(report.gaps):,}: {format_us(report.idle_us)} in all, median {_us(report.gap_median_us)}"),
        ("Step", f"{format_us(report.step_us)} ({report.step_from})"),
        ("Verdict", f"{verdict.name}: {verdict.why}"),
        ("What would help", _help(verdict)),
    ]
    if trace.skipped:
        rows.append(("Left out", f"{trace.skipped:,} events without a usable time"))
    lines = [heading(trace.label), *(_row(name, value) for name, value in rows)]
    if report.gaps:
        lines += ["", "Idle, by reason", *_reasons(report), "", "Longest gaps", _gap_table(report)]
    return "\n".join(lines)


def _row(name: str, value: str) -> str:
    return textwrap.fill(f"{name:<{MARGIN}}{value}", WIDTH, subsequent_indent=" " * MARGIN)


def _help(verdict: Verdict) -> str:
    if verdict.would_help is None:
        return verdict.advice
    return f"{' and '.join(verdict.would_help) or 'nothing'}: {verdict.advice}"


def _extent(report: TraceReport) -> str:
    waits = any(d.first_wait for d in report.devices)
    return f"first {'wait' if waits else 'start'} to last end"


def _queue_delay(us: float | None) -> str:
    if us is not None and us < 0:
        return f"none: a kernel typically starts {format_us(-us)} before its launch call returns"
    return f"{_us(us)} (median from a launch's end to its kernel's start)"


def _device(report: TraceReport, index: int) -> str:
    device = report.devices[index]
    name = report.trace.device_names.get(device.device)
    number = f"GPU {device.device}"
    parts = [f"{name} ({number})" if name else number]
    parts += [f"{lane or 'one stream'}: {count:,}" for lane, count in device.streams.items()]
    if len(report.devices) > 1:
        parts.append(f"busy {_share(device.busy_fraction)}")
    return "; ".join(parts)


def _launches(report: TraceReport) -> str:
    if not report.launch_calls:
        return "0"
    names = list(report.launches_by_name.items())
    kinds = ", ".join(f"{count:,} {name}" for name, count in names[:6]) + (", …" if len(names) > 6 else "")
    return f"{report.launch_calls:,}, median {report.launch_median_us:.2f} µs ({kinds})"


def _graphs(report: TraceReport) -> list[str]:
    """One line for each kind of graph, told by its number of nodes."""
    kinds: dict[int, list] = {}
    for graph in report.graphs:
        kinds.setdefault(graph.nodes, []).append(graph)
    lines = []
    for nodes, graphs in kinds.items():
        host, device = (sorted(us)[len(us) // 2] for us in ([g.host_us for g in graphs], [g.device_us for g in graphs]))
        lines.append(f"{len(graphs):,} of {nodes:,} kernels: {format_us(host)} of CPU → {format_us(device)} of GPU")
    return lines or ["0"]


def _reasons(report: TraceReport) -> list[str]:
    rows = [(reason, us) for reason, us in report.idle_us_by_reason.items() if us]
    return [f"  {format_us(us):>8}  {us / report.extent_us:>6.1%}  {REASONS[reason]}" for reason, us in rows]


def _gap_table(report: TraceReport) -> str:
    header = ("length", "at", "why", "what the host did", "ended by")
    rows = [
        (
            format_us(gap.duration_us),
            format_us(gap.start_us),
            gap.reason,
            _cut(report.host_operation(gap) or "(nothing recorded)", 40),
            _cut(gap.ended_by.name, 40),
        )
        for gap in report.gaps[: LONGEST_GAPS // 2]
    ]
    return table(header, rows, left=len(header))


def _gap(report: TraceReport, gap: IdleGap) -> dict[str, object]:
    return {
        "device": next(d.device for d in report.devices if gap in d.gaps),
        "start_us": gap.start_us,
        "duration_us": gap.duration_us,
        "reason": gap.reason,
        "host_operation": report.host_operation(gap),
        "ended_by": gap.ended_by.name,
    }


# ---- two traces


def change_as_json(change: TraceChange) -> dict[str, object]:
    """What changed, under stable keys (documented in docs/cli.md)."""
    return {
        "source": change.after.trace.label,
        "against": change.before.trace.label,
        "figures": {name: {"before": b, "after": a} for name, (b, a) in change.figures.items()},
        "kernels_added": _counts(change.kernels_added),
        "kernels_removed": _counts(change.kernels_removed),
        "kernels_changed": [{"name": n, "before": b, "after": a} for n, (b, a) in change.kernels_changed.items()],
    }


def change_as_text(change: TraceChange) -> str:
    """What changed, for people."""
    before, after = change.before.trace.label, change.after.trace.label
    rows = [(name, _figure(name, b), _figure(name, a)) for name, (b, a) in change.figures.items() if b != a]
    lines = [heading(f"{before} → {after}")]
    lines.append(table(("what changed", "before", "after"), rows) if rows else "No figure changed.")
    for title, counts in (("Kernels added", change.kernels_added), ("Kernels removed", change.kernels_removed)):
        lines += _kernels(title, [(f"{count:,}", name) for name, count in counts.items()])
    lines += _kernels("Kernels counted", [(f"{b:,} → {a:,}", n) for n, (b, a) in change.kernels_changed.items()])
    return "\n".join(lines)


def _kernels(title: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    shown = [f"  {count:>13}  {_cut(name, NAME_WIDTH)}" for count, name in rows[:SHOWN_KERNELS]]
    more = [f"  … and {len(rows) - SHOWN_KERNELS} more (--json lists all)"] if len(rows) > SHOWN_KERNELS else []
    return ["", f"{title}: {len(rows)} names", *shown, *more]


def _figure(name: str, value: object) -> str:
    if value is None or isinstance(value, str):
        return value or "none"
    if name.endswith("_us"):
        return format_us(value)
    return _share(value) if name.endswith("_fraction") else f"{value:,}"


# ---- words


def _counts(counts: dict[str, int]) -> list[dict[str, object]]:
    return [{"name": name, "count": count} for name, count in counts.items()]


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{value:.1%}"


def _us(value: float | None) -> str:
    return "none" if value is None else format_us(value)


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"
