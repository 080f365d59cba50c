"""From an open model to text: one step for some sequences, and a generation made of steps."""

from ingot.engine.generation import Completion, FinishReason, Generation, Progress, Timings
from ingot.engine.loaded import LoadedModel, Weights

__all__ = [
    "Completion",
    "FinishReason",
    "Generation",
    "LoadedModel",
    "Progress",
    "Timings",
    "Weights",
]
