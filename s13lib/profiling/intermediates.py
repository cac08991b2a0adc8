"""Which memory each PyTorch operation fills: from such a record one counts the intermediates of a computation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Recorder(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler at the first record, which takes more than a second."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[int, int] = {}
        self.inputs: list[int] = []
        self.steps: list[tuple[str, int, int]] = []
        self._alive: list[torch.UntypedStorage] = []  # so that no memory is freed and given to a later tensor

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        self.note_inputs((arguments, named))
        result = operation(*arguments, **(named or {}))
        name = operation._schema.name.removeprefix("aten::")
        for tensor in _tensors(result):
            self.steps.append((name, self.number(tensor), tensor.untyped_storage().nbytes()))
        return result

    def note_inputs(self, values: object) -> None:
        """Memory that is met here for the first time was there before: an input."""
        for tensor in _tensors(values):
            known = len(self.numbers)
            if self.number(tensor) == known:
                self.inputs.append(known)

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor's memory, a new one when it was not seen before."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.numbers:
            self._alive.append(storage)
        return self.numbers.setdefault(storage._cdata, len(self.numbers))


def _tensors(values: object) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def record_operations(function: Callable, *arguments: object) -> dict[str, list]:
    """Call ``function(*arguments)`` and note, for each PyTorch operation, the memory that its result lies in.

    Returns a dictionary of plain values; pieces of memory are numbered in the order in which they are met:

    * ``"inputs"``: numbers of the memory that was there before (arguments, weights);
    * ``"steps"``: a tuple (operation, memory, bytes) for each tensor that an operation gave, in order. A view and an
      operation in place give a number again that was there already; ``bytes`` is the size of that whole memory;
    * ``"outputs"``: numbers of the memory of the tensors that ``function`` returned.

    A kernel that is launched on a device fills memory that an operation such as ``empty`` made, and is no step itself.
    """
    with torch.no_grad(), _Recorder() as recorder:
        result = function(*arguments)
    recorder.note_inputs(result)  # what it returns without an operation, it was given
    outputs = [recorder.number(tensor) for tensor in _tensors(result)]
    return {"inputs": recorder.inputs, "steps": recorder.steps, "outputs": list(dict.fromkeys(outputs))}
