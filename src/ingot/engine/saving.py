"""Texts out of the cache and back into it: between a model's blocks and a `SavedText`."""

import numpy as np

from ingot.engine.loaded import LoadedModel
from ingot.engine.strand import Strand
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.saved import Header, SavedText


def copy_text(model: LoadedModel, strand: Strand) -> SavedText:
    """The full runs of a text that is in the cache."""
    runs = strand.computed // BLOCK_TOKENS
    first = [min(run, runs) for run in strand.blocks.first_runs]
    tokens = strand.tokens[: runs * BLOCK_TOKENS].copy()
    blocks = [
        np.array(
            [model.read_block(group, index) for index in strand.blocks.tables[group][oldest:runs]],
            np.uint8,
        ).reshape(runs - oldest, model.layout.groups[group].block_bytes)
        for group, oldest in enumerate(first)
    ]
    layout = model.layout
    header = Header(
        model=model.fingerprint,
        kv_type=layout.type.value,
        block_tokens=BLOCK_TOKENS,
        windows=[group.window for group in layout.groups],
        block_bytes=[group.block_bytes for group in layout.groups],
        first=first,
        tokens=len(tokens),
        prompted=min(strand.prompted, len(tokens)),
        runs=runs,
    )
    return SavedText(header, tokens, blocks)


def insert_text(model: LoadedModel, saved: SavedText) -> None:
    """Put the runs of a saved text where prompts find them."""
    header, cache = saved.header, model.cache
    sequence = cache.insert(header.runs, header.first)
    try:
        for group, (blocks, oldest) in enumerate(zip(saved.blocks, header.first, strict=True)):
            table = sequence.blocks.tables[group][oldest:]
            for index, block in zip(table.tolist(), blocks, strict=True):
                model.write_block(group, index, block)
        cache.settle(sequence, saved.tokens, header.prompted)
    finally:
        cache.close(sequence)
