"""The peer's side of bench_quantize.py: llama.cpp's quantizer, for an interpreter that has it.

    llama_cpp_quantize_worker.py SOURCE IMATRIX.npz JOBS THREADS

JOBS is a JSON list of (path to be written, number of the mix). The importance matrix has the mean
squares of every tensor, by name; it may be empty.
"""

import ctypes
import json
import sys

import llama_cpp as lc
import numpy as np


def say_nothing(level: int, text: bytes, user_data: object) -> None:
    del level, text, user_data


def main(source: str, imatrix: str, jobs: str, threads: str) -> None:
    quiet = lc.llama_log_callback(say_nothing)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    means = np.load(imatrix).items() if imatrix else ()
    known = {name: values.astype("f4").copy() for name, values in means}
    entries = (lc.llama_model_imatrix_data * (len(known) + 1))()
    for entry, (name, values) in zip(entries, known.items(), strict=False):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    for out, number in json.loads(jobs):
        params = lc.llama_model_quantize_default_params()
        params.ftype, params.nthread = number, int(threads)
        if known:
            params.imatrix = entries
        if lc.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)):
            sys.exit(f"llama.cpp cannot write {out}")


if __name__ == "__main__":
    main(*sys.argv[1:5])
