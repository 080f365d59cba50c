"""LoRA adapters: low-rank additions to the matrices of a model, which requests choose.

A GGUF file of llama.cpp's form or a folder of PEFT comes in, an `Adapter` goes out: pairs of small
matrices under the names of the model file, checked against the model's graph. Backends add their
products (`Backend.attach`); `merge.py` writes them into the weights instead.
"""

from ingot.adapters.adapter import Adapter, FloatMatrix, LowRank, combined
from ingot.adapters.gguf_adapter import adapter_labels
from ingot.adapters.opening import open_adapter

__all__ = ["Adapter", "FloatMatrix", "LowRank", "adapter_labels", "combined", "open_adapter"]
