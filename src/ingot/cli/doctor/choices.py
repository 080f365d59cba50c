"""The numbers and kernels by which the CPU backend divides work, as this build has them.

They are compiled in; the size of the team of threads is the only one that follows measurements
while a model runs.
"""

from dataclasses import dataclass

from ingot import _native
from ingot.backends.cpu import team_size
from ingot.backends.cpu.handover import native_precision
from ingot.backends.precision import Precision
from ingot.gguf import GgmlType
from ingot.memory_estimate import BATCH_TOKENS


@dataclass(frozen=True, slots=True)
class Choice:
    """One number and what it decides."""

    name: str
    value: int | float
    decides: str


_NATIVE = {
    "piece_bytes": "bytes of weights that a thread takes at once in decode",
    "piece_row_multiple": "rows of such a piece are a multiple of this",
    "piece_most_rows": "rows of such a piece, at most",
    "pieces_per_thread": "pieces of a matrix per thread, so that threads finish together",
    "prompt_panel_rows": "rows of weights that are unpacked together in prefill",
    "prompt_least_columns": "tokens of a prompt that a thread takes at least, if rows are too few",
    "decode_most_sequences": "sequences of a decode step; more take several steps",
    "attention_part_positions": "positions of a context that one thread attends to at once",
    "attention_tile_rows": "rows of queries that share a pass over keys in prefill",
    "kv_block_tokens": "tokens of a block of the KV cache",
}


def choices() -> list[Choice]:
    """All of them."""
    native = _native.tuning()
    return [
        Choice("prefill_tokens", BATCH_TOKENS, "tokens of a prompt in one step"),
        *(Choice(name, native[name], decides) for name, decides in _NATIVE.items()),
        *(
            Choice(f"team_{name}", value, text)
            for name, value, text in (
                ("trial_steps", team_size.TRIAL, "decode steps by which a team size is judged"),
                ("waiting", team_size.WAITING, "share of waiting that starts a smaller team"),
                ("shrink_below", team_size.SHRINK_BELOW, "ratio of times that keeps it"),
                ("grow_below", team_size.GROW_BELOW, "ratio of times that keeps a larger team"),
            )
        ),
    ]


def input_kinds(precision: Precision) -> dict[str, tuple[str, str]]:
    """What the kernels of each tensor type read as inputs, in decode and in prefill."""
    code = native_precision(precision)
    found = {kind.name: _native.input_kinds(kind, code) for kind in GgmlType}
    return {name: kinds for name, kinds in found.items() if any(kinds)}
