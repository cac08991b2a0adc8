"""StepBuffers: what a decode step keeps between its kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from s13lib.device import Device
from s13lib.device.protocol import BoundLaunch
from s13lib.kernels.textbook import DecoderConfig

WIDE = ("x", "delta", "logits")


class StepBuffers:
    """A step's intermediates by name, (rows, width) each, allocated when a stage first asks for them.

    The residual stream, what is added to it and the logits are float32; the others have ``dtype``, the weights'.
    ``bound`` holds the launches that a model bound to them, for devices that bind ahead; they go when the buffers go.
    """

    def __init__(
        self,
        device: Device,
        config: DecoderConfig,
        rows: int,
        dtype: torch.dtype = torch.float32,
        view: Callable[[str], Tensor] | None = None,
    ) -> None:
        self._device, self._config, self._rows, self._dtype, self._view = device, config, rows, dtype, view
        self.bound: dict[tuple, list[BoundLaunch]] = {}

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        shape = (self._rows, _width(self._config, name))
        dtype = torch.float32 if name in WIDE else self._dtype
        tensor = self._view(name) if self._view else self._device.empty(shape, dtype, name)
        setattr(self, name, tensor)
        return tensor

    def first(self, rows: int) -> StepBuffers:
        """The first rows, as views."""
        return StepBuffers(self._device, self._config, rows, view=lambda name: getattr(self, name)[:rows])

    def last(self) -> StepBuffers:
        """The last row, as views."""
        return StepBuffers(self._device, self._config, 1, view=lambda name: getattr(self, name)[-1:])


def _width(config: DecoderConfig, name: str) -> int:
    if name in ("x", "normed", "delta"):
        return config.hidden
    if name in ("q", "q_rope", "mixed"):
        return config.heads * config.head_dim
    if name in ("k", "v", "k_rope"):
        return config.kv_heads * config.head_dim
    if name in ("gate", "up", "gated"):
        return config.ffn
    if name == "logits":
        return config.vocab
    raise AttributeError(name)
