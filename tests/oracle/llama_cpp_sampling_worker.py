"""The peer's side of the sampling oracle: llama.cpp's samplers in their own process.

    llama_cpp_sampling_worker.py MODEL < question > answers

The question is pickled: ("apply", [(logits, steps, tokens), ...]) asks for the ids and logits
that a chain of samplers leaves, ("read", [(grammar, texts), ...]) whether llama.cpp's grammar
engine reads texts (token ids) to their end. MODEL is a GGUF file with a vocabulary.
"""

import ctypes
import pickle
import sys
from collections.abc import Sequence

import llama_cpp as lc
import numpy as np
from numpy.typing import NDArray


@lc.llama_log_callback
def quiet(level: int, text: bytes, user_data: object) -> None:
    del level, text, user_data


def sampler(vocab: object, name: str, *a: object) -> object:
    match name:
        case "dry":
            breakers = (ctypes.c_char_p * len(a[4]))(*(text.encode() for text in a[4]))
            return lc.llama_sampler_init_dry(vocab, *a[:4], breakers, len(breakers))
        case "infill":
            return lc.llama_sampler_init_infill(vocab)
        case "penalties":
            return lc.llama_sampler_init_penalties(lc.llama_vocab_n_tokens(vocab), *a)
        case "logit_bias":
            size = lc.llama_vocab_n_tokens(vocab)
            biases = (lc.llama_logit_bias * len(a[0]))(*a[0])
            return lc.llama_sampler_init_logit_bias(size, len(biases), biases)
        case _:
            return getattr(lc, f"llama_sampler_init_{name}")(*a)


def candidates(ids: Sequence[int], logits: Sequence[float]) -> tuple[NDArray, object]:
    entries = np.zeros(len(ids), [("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])
    entries["id"], entries["logit"] = ids, logits
    data = (lc.llama_token_data * len(ids)).from_buffer(entries)
    return entries, lc.llama_token_data_array(data, len(ids), -1, False)


def apply(
    vocab: object,
    logits: NDArray[np.float32],
    steps: Sequence[tuple[object, ...]],
    tokens: Sequence[int],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    chain = lc.llama_sampler_chain_init(lc.llama_sampler_chain_default_params())
    for name, *arguments in steps:
        lc.llama_sampler_chain_add(chain, sampler(vocab, str(name), *arguments))
    for token in tokens:
        lc.llama_sampler_accept(chain, token)
    entries, array = candidates(range(len(logits)), logits)
    lc.llama_sampler_apply(chain, ctypes.byref(array))
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    lc.llama_sampler_free(chain)
    del entries  # the candidates lay in it
    return np.array([id for id, _ in left], np.int32), np.array([x for _, x in left], np.float32)


def read(vocab: object, grammar: str, texts: Sequence[Sequence[int]]) -> list[bool]:
    end = lc.llama_vocab_eos(vocab)
    results = []
    for text in texts:
        made = lc.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
        if not made:
            sys.exit(f"llama.cpp cannot read {grammar}")
        fits = True
        for token in (*text, end):
            entries, array = candidates([token], [0.0])
            lc.llama_sampler_apply(made, ctypes.byref(array))
            fits = bool(entries["logit"][0] == 0.0)
            if not fits:
                break
            if token != end:
                lc.llama_sampler_accept(made, token)
        lc.llama_sampler_free(made)
        results.append(fits)
    return results


if __name__ == "__main__":
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    parameters = lc.llama_model_default_params()
    parameters.vocab_only = True
    model = lc.llama_model_load_from_file(sys.argv[1].encode(), parameters)
    if not model:
        sys.exit(f"llama.cpp cannot load {sys.argv[1]}")
    kind, jobs = pickle.loads(sys.stdin.buffer.read())
    work = {"apply": apply, "read": read}[kind]
    answers = [work(lc.llama_model_get_vocab(model), *job) for job in jobs]
    sys.stdout.buffer.write(pickle.dumps(answers))
