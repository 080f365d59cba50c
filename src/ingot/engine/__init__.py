"""From an open model to text: one step for some sequences, and a generation made of steps."""

from ingot.engine.generation import Completion, Generation, Mode, Prompt, Timings
from ingot.engine.loaded import LoadedModel, Weights
from ingot.engine.writer import FinishReason, Progress

__all__ = [
    "Completion",
    "FinishReason",
    "Generation",
    "LoadedModel",
    "Mode",
    "Progress",
    "Prompt",
    "Timings",
    "Weights",
]
