"""A llama.cpp process: one JSON command per line in, one JSON answer per line out.

It runs under any interpreter with llama-cpp-python or ik-llama-cpp-python (`benchmarks/peer.py`
starts it), so llama.cpp can be built for another instruction set. It stays loaded while the engines
take turns.

    {"do": "open", "model": PATH, "threads": N, "context": N, "sequences": N, "repack": false,
     "gpu_layers": 0}
    {"do": "prompt", "tokens": N}                       -> seconds
    {"do": "generate", "tokens": N, "depth": D, "sequences": S} -> seconds
    {"do": "serve", "prompt": N, "tokens": N, "sequences": S} -> seconds
    {"do": "logits", "ids": [...], "one_by_one": false, "to": FILE} -> raw float32 rows
"""

import ctypes
import json
import os
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

IS_FORK = find_spec("llama_cpp") is None  # ik_llama.cpp: some functions have older names
lc: Any = import_module("ik_llama_cpp._ctypes_api" if IS_FORK else "llama_cpp")
if IS_FORK:  # its package leaves out some functions of its library
    context, sequence, position = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32
    for name, arguments, result in (
        ("llama_synchronize", [context], None),
        ("llama_get_logits", [context], ctypes.POINTER(ctypes.c_float)),
        ("llama_kv_cache_seq_rm", [context, sequence, position, position], ctypes.c_bool),
    ):
        function = getattr(lc._lib, name)
        function.argtypes, function.restype = arguments, result
        setattr(lc, name, function)

_MOST_LEFT = 256  # tokens of earlier calls that may be left beyond the depth that is asked for


class Worker:
    def __init__(self, command: dict[str, Any]) -> None:
        options = lc.llama_model_default_params()
        options.n_gpu_layers = command["gpu_layers"]
        if options.n_gpu_layers and not lc.llama_supports_gpu_offload():
            sys.exit('this llama.cpp is built for the CPU alone: CMAKE_ARGS="-DGGML_CUDA=ON"')
        if command["repack"]:
            if not IS_FORK:
                sys.exit("only ik_llama.cpp repacks rows when it is told to")
            options.repack_tensors, options.use_mmap = True, False
        self.model = lc.llama_model_load_from_file(command["model"].encode(), options)
        if not self.model:
            sys.exit(f"llama.cpp could not load {command['model']}")
        params = lc.llama_context_default_params()
        self.sequences = command["sequences"]
        params.n_ctx = command["context"] * self.sequences
        params.n_batch, params.n_ubatch = 2048, 512
        params.n_seq_max = self.sequences
        params.n_threads = params.n_threads_batch = command["threads"]
        if IS_FORK:
            params.flash_attn = self.sequences == 1  # with several it fails an assertion
        self.context = lc.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp could not make a context")
        if not IS_FORK:
            self.memory = lc.llama_get_memory(self.context)
        self.vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        self.batch = lc.llama_batch_init(2048, 0, self.sequences)
        self.lengths = [0] * self.sequences

    def clear(self) -> None:
        if IS_FORK:
            lc.llama_kv_cache_clear(self.context)
        else:
            lc.llama_memory_clear(self.memory, True)
        self.lengths = [0] * self.sequences

    def decode(self, tokens: list[tuple[int, int, bool]]) -> None:
        """Tokens as (id, sequence, whether logits are wanted)."""
        for i, (token, sequence, wanted) in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = self.lengths[sequence]
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
            self.lengths[sequence] += 1
        self.batch.n_tokens = len(tokens)
        if lc.llama_decode(self.context, self.batch) != 0:
            sys.exit("llama.cpp failed to decode")
        lc.llama_synchronize(self.context)

    def read(self, ids: list[int], sequence: int) -> None:
        """Run a prompt; logits of its last token only."""
        for start in range(0, len(ids), 2048):
            part = ids[start : start + 2048]
            last = start + len(part) == len(ids)
            self.decode(
                [(token, sequence, last and i == len(part) - 1) for i, token in enumerate(part)]
            )

    def made_up(self, count: int) -> list[int]:
        return [(i * 7919 + 13) % self.vocabulary for i in range(count)]

    def prompt(self, tokens: int) -> float:
        self.clear()
        started = time.perf_counter()
        self.read(self.made_up(tokens), 0)
        return time.perf_counter() - started

    def generate(self, tokens: int, depth: int, sequences: int) -> float:
        """Single tokens of each sequence, after `depth` tokens (kept for the next call).

        A recurrent model cannot go back to them: its next call goes on from where it is.
        """
        if min(self.lengths[:sequences]) < depth or max(self.lengths) > depth + _MOST_LEFT:
            self.clear()
            for sequence in range(sequences):
                self.read(self.made_up(depth), sequence)
        started = time.perf_counter()
        for i in range(tokens):
            token = (i * 31 + 7) % self.vocabulary
            self.decode([(token, sequence, True) for sequence in range(sequences)])
        seconds = time.perf_counter() - started
        for sequence in range(sequences):
            if IS_FORK:
                removed = lc.llama_kv_cache_seq_rm(self.context, sequence, depth, -1)
            else:
                removed = lc.llama_memory_seq_rm(self.memory, sequence, depth, -1)
            if removed:
                self.lengths[sequence] = depth
        return seconds

    def serve(self, prompt: int, tokens: int, sequences: int) -> float:
        """Prompts of several sequences, then tokens of all of them together; nothing is chosen."""
        self.clear()
        started = time.perf_counter()
        for sequence in range(sequences):
            self.read(self.made_up(prompt), sequence)
        for i in range(tokens - 1):
            token = (i * 31 + 7) % self.vocabulary
            self.decode([(token, sequence, True) for sequence in range(sequences)])
        return time.perf_counter() - started

    def logits(self, ids: list[int], one_by_one: bool, to: str) -> int:
        self.clear()
        size = 1 if one_by_one else 256
        with open(to, "wb") as file:  # noqa: PTH123
            for start in range(0, len(ids), size):
                part = ids[start : start + size]
                self.decode([(token, 0, True) for token in part])
                pointer = lc.llama_get_logits(self.context)
                rows = np.ctypeslib.as_array(pointer, (len(part), self.vocabulary))
                file.write(rows.astype(np.float32).tobytes())
        return int(self.vocabulary)


def main() -> None:
    """Answer commands until the pipe closes."""
    if IS_FORK:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it logs there
    else:
        quiet = lc.llama_log_callback(lambda _level, _text, _data: None)
        lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    worker: Worker | None = None
    for line in sys.stdin:
        command = json.loads(line)
        kind = command.pop("do")
        if kind == "open":
            worker = None
            started = time.perf_counter()
            worker = Worker(command)
            answer: float = time.perf_counter() - started
        else:
            answer = getattr(worker, kind)(**command)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
