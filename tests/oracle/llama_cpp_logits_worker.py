"""The peer's side of the model oracle: llama.cpp's logits in a separate process.

    llama_cpp_logits_worker.py JOBS

JOBS is a JSON list of objects: model (a path), ids (tokens of one sequence), want ("logits",
"hidden" for rows of an encoder, or "score" for one of the text), out (where to save them, .npy),
prompt (how many of the ids an encoder reads before the others are decoded; 0: none), adapter (the
path of a LoRA adapter) and its scale. A model or an adapter that llama.cpp refuses has no file
afterwards.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp as lc
import numpy as np


@lc.llama_log_callback
def quiet(level: int, text: bytes, user_data: object) -> None:
    del level, text, user_data


def fill(batch: Any, ids: list[int]) -> None:
    """Tokens of one sequence, from its beginning; all of their rows are wanted."""
    batch.n_tokens = len(ids)
    for at, token in enumerate(ids):
        batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, at, 1
        batch.seq_id[at][0], batch.logits[at] = 0, True


def rows_of(job: dict[str, Any]) -> np.ndarray | None:
    """One row for each token, from one pass over all of them; or one of scores."""
    ids, want = job["ids"], job["want"]
    model = lc.llama_model_load_from_file(job["model"].encode(), lc.llama_model_default_params())
    if not model:
        return None
    parameters = lc.llama_context_default_params()
    parameters.n_ctx = job["context"]
    parameters.n_batch = parameters.n_ubatch = len(ids)
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.type_k = parameters.type_v = lc.GGML_TYPE_F32
    parameters.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.embeddings = want != "logits"
    ranks = want == "score"
    parameters.pooling_type = lc.LLAMA_POOLING_TYPE_RANK if ranks else lc.LLAMA_POOLING_TYPE_NONE
    context = lc.llama_init_from_model(model, parameters)
    if "adapter" in job:
        adapter = lc.llama_adapter_lora_init(model, job["adapter"].encode())
        if not adapter:
            return None
        adapters = (lc.llama_adapter_lora_p_ctypes * 1)(adapter)
        if lc.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(job["scale"])):
            return None
    batch = lc.llama_batch_init(len(ids), 0, 1)
    if prompt := job.get("prompt", 0):
        fill(batch, ids[:prompt])
        if lc.llama_encode(context, batch):
            return None
        ids = ids[prompt:] or ids
    if prompt < len(job["ids"]):
        fill(batch, ids)
        if lc.llama_decode(context, batch):
            return None
    if ranks:
        found = [lc.llama_get_embeddings_seq(context, 0)]
    else:
        get = lc.llama_get_embeddings_ith if want == "hidden" else lc.llama_get_logits_ith
        found = [get(context, at) for at in range(len(ids))]
    rows = np.array([np.ctypeslib.as_array(row, (job["width"],)) for row in found])
    lc.llama_batch_free(batch)
    lc.llama_free(context)
    lc.llama_model_free(model)
    return rows


if __name__ == "__main__":
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    for job in json.loads(Path(sys.argv[1]).read_text()):
        if (rows := rows_of(job)) is not None:
            np.save(job["out"], rows)
