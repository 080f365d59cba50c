"""The KV cache of a text to a `SavedText` and back into the cache.

SaveTask runs a text and copies its blocks; `insert_text` puts saved blocks where prompts find them.
"""

import numpy as np

from ingot.arrays import Ints
from ingot.engine.channel import Channel
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.sequence import TokenSequence, begin_text, encoded_variant
from ingot.engine.task import Outcome, Task
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.saved import Header, SavedText


class SaveTask(Task):
    """Runs what the cache lacks of a text; its result is a copy of the text's full blocks."""

    def __init__(self, model: LoadedModel, tokens: Ints, prompted: int) -> None:
        self.channel: Channel[SavedText] = Channel()
        self.sequences = [_saved_sequence(model, tokens, prompted)]
        self._model = model

    def receive(self, _: Outcome) -> None:
        """Copy the blocks when all tokens have run; the logits are not used."""
        if self.is_ready:
            self.sequences[0].settle()
            self.channel.finish(_copy_text(self._model, self.sequences[0]))


def _saved_sequence(model: LoadedModel, tokens: Ints, prompted: int) -> TokenSequence:
    """The text; if an encoder reads all of it, what is decoded first follows."""
    start = model.graph.start_token
    if start is not None and prompted == len(tokens):
        return begin_text(tokens, start)
    return TokenSequence(tokens, prompted, encoded=start is not None)


def _copy_text(model: LoadedModel, sequence: TokenSequence) -> SavedText:
    runs = sequence.computed // BLOCK_TOKENS
    if sequence.encoded and runs * BLOCK_TOKENS < sequence.prompted:
        runs = 0  # what an encoder read is used whole or not at all
    first = [min(run, runs) for run in sequence.blocks.first_runs]
    tokens = sequence.tokens[: runs * BLOCK_TOKENS].copy()
    tables = sequence.blocks.tables
    layout = model.layout
    blocks = [
        np.array(
            [model.read_block(group, index) for index in tables[group][oldest:runs]], np.uint8
        ).reshape(runs - oldest, layout.groups[group].block_bytes)
        for group, oldest in enumerate(first)
    ]
    header = Header(
        model=model.fingerprint,
        kv_type=layout.type.value,
        block_tokens=BLOCK_TOKENS,
        windows=[group.window for group in layout.groups],
        block_bytes=[group.block_bytes for group in layout.groups],
        first=first,
        tokens=len(tokens),
        prompted=min(sequence.prompted, len(tokens)),
        runs=runs,
    )
    return SavedText(header, tokens, blocks)


def insert_text(model: LoadedModel, saved: SavedText) -> None:
    """Put the blocks of a saved text into the cache."""
    header, cache = saved.header, model.cache
    encoded = model.graph.encoder is not None
    variant = ((), encoded_variant(saved.tokens[: header.prompted])) if encoded else ()
    cached = cache.insert(header.runs, header.first, variant)
    try:
        for group, (blocks, oldest) in enumerate(zip(saved.blocks, header.first, strict=True)):
            table = cached.blocks.tables[group][oldest:]
            for index, block in zip(table.tolist(), blocks, strict=True):
                model.write_block(group, index, block)
        cache.settle(cached, saved.tokens, header.prompted)
    finally:
        cache.close(cached)
