"""Record the SoftGPU timelines that the library ships: bard at batch 1, un-fused and fused, eager and graph.

``python tools/record_softgpu.py`` writes ``s13lib/data/recorded/softgpu-*.json.gz``. Run it on a quiet machine.
"""

from __future__ import annotations

import datetime
import gzip
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from s13lib.device import best_device  # noqa: E402
from s13lib.graphs import GraphRunner  # noqa: E402
from s13lib.model.checkpoints import load_checkpoint  # noqa: E402
from s13lib.profiling.measure import measure_steps  # noqa: E402
from s13lib.profiling.steps import blocks_needed, eager_step, running_batch  # noqa: E402
from s13lib.simulator import chrome_trace  # noqa: E402

FOLDER = ROOT / "s13lib" / "data" / "recorded"
CONTEXT, SECONDS = 64, 20


def main() -> None:
    device, bard, steps = best_device(default="softgpu"), load_checkpoint("bard"), {}
    for stage in (15, 4):
        model = bard.model(stage, device, max_rows=64, blocks=blocks_needed(1, CONTEXT))
        batch = running_batch(model, 1, CONTEXT)
        steps[f"softgpu-bard-stage{stage}-eager"] = eager_step(model, batch)
        runner = GraphRunner(model, 1)
        runner.run(batch)
        steps[f"softgpu-bard-stage{stage}-graph"] = runner.graph.replay
    FOLDER.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    for name, step in measure_steps(device, steps, 60, 60, SECONDS).items():
        where = f"{name}, batch 1, context {CONTEXT}, {step.timeline.provenance}, {today}"
        timeline = replace(step.timeline, source="recorded", provenance=where)
        # No time of writing in the file: the same timeline gives the same bytes.
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(chrome_trace(timeline).encode(), mtime=0))
        print(f"{name}: {timeline.step_us:,.0f} µs, busy {timeline.utilization:.0%}")


if __name__ == "__main__":
    main()
