"""Memory that kernels use between their own programs: one set a device, outside every graph's pool, grown on demand.

Launches on one stream run one after another (read in the CUDA programming guide), so they may share it. A captured
graph holds its addresses; so what was once handed out is never freed, only outgrown.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s13lib.device.errors import CaptureError

_kept: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}


def scratch(device: torch.device, dtype: torch.dtype, elements: int) -> Tensor:
    """At least ``elements`` of ``dtype`` on ``device``. New memory is zero; a kernel leaves counters as it found them.

    Raises:
        CaptureError: there is none of that size yet, and the stream is capturing.
    """
    kept = _kept.setdefault((device, dtype), [])
    if not kept or len(kept[-1]) < elements:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise CaptureError(
                "the attention's scratch memory is not there yet, and a capture cannot make it: run the step once "
                "before the capture."
            )
        # Doubling bounds what the outgrown ones hold by what is in use.
        kept.append(torch.zeros(max(elements, 2 * len(kept[-1]) if kept else 0), dtype=dtype, device=device))
    return kept[-1]
