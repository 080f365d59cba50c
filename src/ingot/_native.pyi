"""Types of the compiled module (see native/bindings/)."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

# isa
def cpu_features() -> list[str]: ...
def instruction_sets(supported_only: bool = True) -> list[str]: ...
def instruction_set_needs() -> dict[str, list[str]]: ...
def active_isa() -> str: ...
def set_isa(name: str) -> None: ...

# gguf
_Entry = tuple[str, int, int, int, int, NDArray[np.uint64] | None]
_Tensor = tuple[str, int, tuple[int, ...], int, int]

ScannedHeader = tuple[int, int, int, int, list[_Entry], list[_Tensor]]

def scan_gguf(data: NDArray[np.uint8], file_size: int, path: str) -> ScannedHeader | None: ...

class GuardedMap:
    def __init__(self, descriptor: int, size: int) -> None: ...
    @property
    def bytes(self) -> NDArray[np.uint8]: ...
    @property
    def is_damaged(self) -> bool: ...
    def prefetch(self) -> None: ...
    def release(self, bytes: int) -> None: ...

# json
class JsonFault(Enum):
    NONE = ...
    VALUES = ...
    DEPTH = ...
    NUMBER = ...
    NOT_FINITE = ...
    SURROGATE = ...
    ENCODING = ...
    DUPLICATE = ...

def scan_json(body: bytes, *, values: int, depth: int, word: int) -> JsonFault: ...

# quant
def tensor_types() -> list[tuple[str, int, int, int]]: ...
def decode(
    type: int, blocks: NDArray[np.uint8], out: NDArray[np.float32], threads: int
) -> None: ...
def encode(
    type: int, values: NDArray[np.float32], out: NDArray[np.uint8], threads: int
) -> None: ...
def has_encoder(type: int) -> bool: ...
def encode_weighted(
    type: int,
    values: NDArray[np.float32],
    importance: NDArray[np.float32],
    out: NDArray[np.uint8],
    threads: int,
) -> None: ...
def has_weighted_encoder(type: int) -> bool: ...
def grid(name: str) -> NDArray[np.int8]: ...

# sampling
def select_top(
    rows: NDArray[np.float32],
    counts: NDArray[np.int32],
    ids: NDArray[np.int32],
    logits: NDArray[np.float32],
    found: NDArray[np.int32],
    threads: int,
) -> None: ...
def sample_rows(
    rows: NDArray[np.float32],
    which: NDArray[np.int32],
    counts: NDArray[np.int32],
    least: NDArray[np.int32],
    numbers: NDArray[np.float64],
    tokens: NDArray[np.int32],
    threads: int,
) -> None: ...
def select_near_top(
    row: NDArray[np.float32], distance: float
) -> tuple[NDArray[np.int32], NDArray[np.float32]]: ...
def sum_row(row: NDArray[np.float32]) -> tuple[float, float, float]: ...
def sum_rows(rows: NDArray[np.float32], out: NDArray[np.float64], threads: int) -> None: ...
def spread_of_row(row: NDArray[np.float32]) -> tuple[float, float]: ...
def softmax(row: NDArray[np.float32]) -> NDArray[np.float64]: ...
def draw(row: NDArray[np.float32], uniform: float) -> int: ...
def mask_row(row: NDArray[np.float32], words: NDArray[np.uint32]) -> None: ...
def repeat_lengths(tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> None: ...
def exp(x: NDArray[np.float64]) -> NDArray[np.float64]: ...
def log(x: NDArray[np.float64]) -> NDArray[np.float64]: ...
def uniform_at(seed: int, place: int, purpose: int) -> float: ...

# tokenizer
class Vocabulary:
    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        scores: NDArray[np.float32] | None,
        types: NDArray[np.int32] | None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def find(self, text: bytes) -> int: ...
    def type(self, id: int) -> int: ...
    def set_type(self, id: int, type: int) -> None: ...
    def ids_of_type(self, type: int) -> list[int]: ...

class Model: ...

def byte_bpe(
    vocabulary: Vocabulary,
    merges: NDArray[np.uint8],
    merge_offsets: NDArray[np.uint64],
    passes: list[str],
    whole_words: bool,
) -> Model: ...
def character_bpe(
    vocabulary: Vocabulary, merges: NDArray[np.uint8], merge_offsets: NDArray[np.uint64]
) -> Model: ...
def sentencepiece(vocabulary: Vocabulary, space_prefix: bool, unknown: int) -> Model: ...
def word_piece(
    vocabulary: Vocabulary, lower_case: bool, strip_accents: bool, unknown: int
) -> Model: ...
def unigram(
    vocabulary: Vocabulary,
    charsmap: NDArray[np.uint8],
    space_prefix: bool,
    merge_spaces: bool,
    unknown: int,
) -> Model: ...
def rwkv(vocabulary: Vocabulary, unknown: int) -> Model: ...
def split_words(text: bytes, passes: list[str]) -> list[bytes]: ...

class Tokenizer:
    def __init__(
        self,
        vocabulary: Vocabulary,
        model: Model,
        before: list[int],
        after: list[int],
        strip_left: list[int],
        strip_right: list[int],
    ) -> None: ...
    def encode(
        self,
        text: str | bytes,
        add_special: bool,
        parse_special: bool,
        plain_spans: list[tuple[int, int]],
    ) -> list[int]: ...
    def encode_array(
        self, text: str | bytes, add_special: bool, parse_special: bool
    ) -> NDArray[np.int32]: ...
    def encode_batch(
        self, texts: list[str | bytes], add_special: bool, parse_special: bool, threads: int
    ) -> list[list[int]]: ...
    def decode(self, ids: list[int], skip_special: bool) -> bytes: ...

# kernels: one at a time, for tests and benchmarks; phase is "generation" or "prompt"
def quantized_bytes(width: int, precision: Enum) -> int: ...  # of CODES["Precision"]
def quantize_inputs(
    type: int,
    phase: str,
    values: NDArray[np.float32],
    out: NDArray[np.uint8],
    precision: Enum,
) -> None: ...
def linear(
    type: int,
    phase: str,
    weight: NDArray[np.uint8],
    values: NDArray[np.float32],
    quantized: NDArray[np.uint8],
    begin: int,
    end: int,
    out: NDArray[np.float32],
    precision: Enum,
    interleaved: bool = False,
) -> None: ...
def interleaved_rows(type: int, precision: Enum) -> int: ...
def interleaved_row_bytes(type: int, width: int, precision: Enum) -> int: ...
def interleave(
    type: int,
    weight: NDArray[np.uint8],
    width: int,
    out: NDArray[np.uint8],
    precision: Enum,
) -> None: ...
def multiply_in_registers(rounds: int) -> int: ...
def read_through(data: NDArray[np.uint8], threads: int) -> int: ...
def tuning() -> dict[str, int]: ...
def input_kinds(type: int, precision: Enum) -> tuple[str, str]: ...  # of decode, of prefill
def exponentials(x: NDArray[np.float32], out: _Floats) -> None: ...
def softcap(x: NDArray[np.float32], cap: float, out: _Floats) -> None: ...
def activate(
    kind: Enum,  # of CODES["Activation"]
    gate: NDArray[np.float32],
    up: NDArray[np.float32] | None,
    out: NDArray[np.float32],
) -> None: ...
def norm(
    layer: bool,
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    epsilon: float,
    out: NDArray[np.float32],
) -> None: ...

# codes: the enums of native/kernels/codes.h, by name
CODES: Mapping[str, type[Enum]]

# program: operations are added in the order they run; values are the numbers value() gave
KV_BLOCK_TOKENS: int
MAX_GENERATION_TOKENS: int  # sequences that one generation step takes

def has_linear(type: int) -> bool: ...

class Operation:
    """The record of an operation, made by keyword; it is checked when it is added."""

# Records by the names of ingot.graph.ops: operations, and parts of them. Each class has FIELDS.
OPERATIONS: Mapping[str, Callable[..., Operation]]
PARTS: Mapping[str, Callable[..., object]]
UP_PANEL: int  # outputs that an adapter's second matrix has beside each other

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int32]

class Program:
    def __init__(
        self,
        *,
        threads: int,
        seats: Sequence[tuple[Sequence[int], int, int]],  # CPUs, node, replica of each thread
        precision: Enum,  # of CODES["Precision"]
        arena_bytes_per_token: int,
        max_tokens: int,
        max_positions: int,
    ) -> None: ...
    def value(self, *, offset: int, width: int, selected: bool, logits: bool) -> int: ...
    def add(self, operation: Operation) -> None: ...
    def run(
        self,
        *,
        ids: _Ints,
        positions: _Ints,
        counts: _Ints,
        tables: _Ints,
        table_ends: _Ints,
        outputs: _Ints,
        types: _Ints | None,
        rows: _Floats | None,
        adapters: _Ints | None,
        adapter_scales: _Floats | None,
        encoded: _Ints | None,
        expanded: _Ints | None,
        prompt: bool,
        logits: _Floats,
        threads: int,  # of those of the program
    ) -> float: ...  # seconds that one of them waited for others
    def adapt(self, *, slot: int, op: int, part: int, weights: object | None) -> None: ...
    def read(self, *, value: int, tokens: int, out: _Floats) -> None: ...
    @property
    def copied_bytes(self) -> int: ...  # of the copies that copy_next writes
    @property
    def copies_replace(self) -> bool: ...  # once they are written, nothing reads what was copied
    def copy_next(self) -> bool: ...  # False: all are written
