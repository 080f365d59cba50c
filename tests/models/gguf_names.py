"""Architectures and keys: those of the `gguf` package, and those that only llama.cpp's copy has.

The released package is older than llama.cpp. What is written here goes when it is not any more.
"""

import gguf

ARCHITECTURES = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
ARCHITECTURES |= {"deepseek32": gguf.MODEL_ARCH.GLM_DSA}  # the same tensors
NEWER_KEYS = {"{arch}.attention.indexer.types": gguf.GGUFValueType.ARRAY}
