"""What changed between two traces: figures, and kernels by name."""

from __future__ import annotations

from dataclasses import dataclass

from s13lib.profiling.analysis import TraceReport


@dataclass(frozen=True)
class TraceChange:
    """From ``before`` to ``after``."""

    before: TraceReport
    after: TraceReport

    @property
    def figures(self) -> dict[str, tuple[object, object]]:
        """Figure (a JSON key of ``s13 trace``) → before and after, for all figures that the two can be compared by."""

        def of(report: TraceReport) -> dict[str, object]:
            return {
                "device_kernels": report.device_kernels,
                "device_copies": report.device_copies,
                "launch_calls": report.launch_calls,
                "launch_median_us": report.launch_median_us,
                "graph_launches": len(report.graphs),
                "device_busy_fraction": report.busy_fraction,
                "device_busy_us": report.busy_us,
                "gaps": len(report.gaps),
                "gap_median_us": report.gap_median_us,
                "idle_us": report.idle_us,
                "queue_delay_us": report.queue_delay_us,
                "step_us": report.step_us,
                "verdict": report.verdict.name,
            }

        before, after = of(self.before), of(self.after)
        return {name: (before[name], after[name]) for name in before}

    @property
    def kernels_added(self) -> dict[str, int]:
        """Kernels that only ``after`` has, with their counts, most frequent first."""
        before = self.before.kernel_counts
        return {name: count for name, count in self.after.kernel_counts.most_common() if not before[name]}

    @property
    def kernels_removed(self) -> dict[str, int]:
        """Kernels that only ``before`` has, with their counts, most frequent first."""
        return TraceChange(self.after, self.before).kernels_added

    @property
    def kernels_changed(self) -> dict[str, tuple[int, int]]:
        """Kernels that both have in different numbers: before and after, the largest change first."""
        before, after = self.before.kernel_counts, self.after.kernel_counts
        changed = {name: (n, after[name]) for name, n in before.items() if after[name] not in (0, n)}
        return dict(sorted(changed.items(), key=lambda item: -abs(item[1][1] - item[1][0])))
