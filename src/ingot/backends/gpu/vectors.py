"""Small tensors on the device as floats (norms, biases, positions), and tables of RoPE."""

from dataclasses import dataclass, field

import torch

from ingot.backends.gpu.attention import Rotary
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.quant import decode


@dataclass(slots=True)
class Vectors:
    """Each is sent once."""

    model: GgufLoader
    device: torch.device
    context: int
    _sent: dict[o.Weight, torch.Tensor] = field(default_factory=dict)
    _rotaries: dict[o.Rotary, Rotary] = field(default_factory=dict)

    def get(self, weight: o.Weight | None) -> torch.Tensor | None:
        """A tensor, or its rows that are read, flat."""
        if weight is None:
            return None
        if weight not in self._sent:
            tensor = self.model.tensors[weight.name]
            values = decode(tensor.data, tensor.type).reshape(weight.tensor_shape)
            rows = torch.from_numpy(values[weight.rows].reshape(-1))
            self._sent[weight] = rows.to(self.device)
        return self._sent[weight]

    def rotary(self, rope: o.Rotary) -> Rotary:
        """Cosines and sines of all positions of the context."""
        if rope not in self._rotaries:
            self._rotaries[rope] = Rotary.of(rope, self.context, self.device)
        return self._rotaries[rope]
