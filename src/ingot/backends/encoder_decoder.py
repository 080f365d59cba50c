"""EncoderDecoder: an encoder that reads prompts, and a decoder that writes, over one cache.

Tokens of prompts run in the encoder's program, all of a prompt in one step, and leave keys and
values for the decoder. All other tokens run in the decoder's. Knows nothing of devices.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingot.adapters import Adapter
from ingot.backends.backend import Backend
from ingot.backends.batch import Batch, ExecutionPhase


class EncoderDecoder:
    """Two programs; which one runs a batch is a matter of its phase."""

    def __init__(self, encoder: Backend, decoder: Backend) -> None:
        """Both have the same cache."""
        self._encoder, self._decoder = encoder, decoder

    @property
    def max_tokens(self) -> int:
        """The most tokens of a step of prompts."""
        return self._encoder.max_tokens

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]; of prompts, hidden rows."""
        if batch.phase is ExecutionPhase.PROMPT:
            return self._encoder.forward(replace(batch, encoded=None))
        return self._decoder.forward(batch)

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot: each program has what concerns its layers."""
        self._encoder.attach(slot, adapter)
        self._decoder.attach(slot, adapter)

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        self._decoder.copy_block(group, source, target)

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        return self._decoder.read_block(group, index)

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        self._decoder.write_block(group, index, data)
