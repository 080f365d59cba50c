"""The peer's side of the tokenizer oracle: llama.cpp's vocabulary functions in their own process.

    llama_cpp_worker.py describe MODEL             what the vocabulary holds, one pickle on stdout
    llama_cpp_worker.py tokenize JOBS START IDS    the ids of the texts of JOBS from number START on

JOBS is a pickled list of (model path, list of (text, add_special, parse_special)). Each text's ids
are written to the file IDS as soon as they are known (a count, then the ids, all little-endian
int32), so whoever reads it knows on which text this process died.
"""

import ctypes
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import llama_cpp as lc

IDS_AT_FIRST = 1 << 16


@lc.llama_log_callback
def quiet(level: int, text: bytes, user_data: object) -> None:
    del level, text, user_data


def load(path: str) -> tuple[object, object]:
    parameters = lc.llama_model_default_params()
    parameters.vocab_only = True
    model = lc.llama_model_load_from_file(path.encode(), parameters)
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    return model, lc.llama_model_get_vocab(model)


def describe(path: str) -> dict[str, object]:
    _, vocab = load(path)
    size = lc.llama_vocab_n_tokens(vocab)
    return {
        "kind": lc.llama_vocab_type(vocab),
        "bos": lc.llama_vocab_bos(vocab),
        "eos": lc.llama_vocab_eos(vocab),
        "texts": [lc.llama_vocab_get_text(vocab, token) for token in range(size)],
        "attributes": [lc.llama_vocab_get_attr(vocab, token) for token in range(size)],
        "end_of_generation": [t for t in range(size) if lc.llama_vocab_is_eog(vocab, t)],
        "pieces": list(pieces(vocab, size)),
    }


def pieces(vocab: object, size: int) -> Iterator[bytes]:
    buffer = ctypes.create_string_buffer(1 << 12)
    for token in range(size):
        length = lc.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, True)
        assert length >= 0, f"token {token} has {-length} bytes"
        yield buffer.raw[:length]


def tokenize(
    jobs: list[tuple[str, list[tuple[bytes, bool, bool]]]], start: int, out: BinaryIO
) -> None:
    ids = (lc.llama_token * IDS_AT_FIRST)()
    for path, texts in jobs:
        if start >= len(texts):
            start -= len(texts)
            continue
        model, vocab = load(path)
        for text, add_special, parse_special in texts[start:]:
            count = lc.llama_tokenize(
                vocab, text, len(text), ids, len(ids), add_special, parse_special
            )
            if count < 0:
                ids = (lc.llama_token * -count)()
                count = lc.llama_tokenize(
                    vocab, text, len(text), ids, len(ids), add_special, parse_special
                )
            out.write(count.to_bytes(4, "little") + memoryview(ids).cast("B")[: 4 * count])
        start = 0
        lc.llama_model_free(model)


if __name__ == "__main__":
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    if sys.argv[1] == "describe":
        pickle.dump(describe(sys.argv[2]), sys.stdout.buffer)
    else:
        with Path(sys.argv[4]).open("wb", buffering=0) as file:
            tokenize(pickle.loads(Path(sys.argv[2]).read_bytes()), int(sys.argv[3]), file)
