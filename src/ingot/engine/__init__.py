"""From an open model to texts: requests, the scheduler and the step loop."""

from ingot.engine.create import create_engine
from ingot.engine.engine import InferenceEngine, Prompt
from ingot.engine.model.loaded_model import LoadedModel, Weights
from ingot.engine.options import EngineOptions
from ingot.engine.request import Completion, OnProgress, Request, RequestState, Timings
from ingot.engine.stats import EngineStats

__all__ = [
    "Completion",
    "EngineOptions",
    "EngineStats",
    "InferenceEngine",
    "LoadedModel",
    "OnProgress",
    "Prompt",
    "Request",
    "RequestState",
    "Timings",
    "Weights",
    "create_engine",
]
