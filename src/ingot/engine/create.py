"""The engine that options ask for: in this process, or in one for itself."""

from ingot.engine.engine import InferenceEngine
from ingot.engine.options import EngineOptions


def create_engine(options: EngineOptions) -> InferenceEngine:
    """An engine without a model."""
    if not options.engine_process:
        return InferenceEngine(options)
    from ingot.engine.process import EngineClient  # noqa: PLC0415 (few need it)

    return EngineClient(options)
