"""Ingot runs language models from GGUF files, in Python.

Names are imported on first use, so `import ingot` costs milliseconds and pulls in
neither NumPy nor anything heavier.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ingot._namesake import DISTRIBUTION, check_alone

if TYPE_CHECKING:
    from ingot.api import LLM as LLM
    from ingot.chat import ChatSession as ChatSession
    from ingot.engine import Completion as Completion
    from ingot.engine import EngineOptions as EngineOptions
    from ingot.engine import InferenceEngine as InferenceEngine
    from ingot.engine import Request as Request
    from ingot.errors import ChatTemplateError as ChatTemplateError
    from ingot.errors import ContextLengthError as ContextLengthError
    from ingot.errors import GgufError as GgufError
    from ingot.errors import IngotError as IngotError
    from ingot.errors import ModelError as ModelError
    from ingot.errors import QueueFullError as QueueFullError
    from ingot.gguf import GgufLoader as GgufLoader
    from ingot.gguf import GgufWriter as GgufWriter
    from ingot.sampling import Grammar as Grammar
    from ingot.sampling import SamplingParams as SamplingParams
    from ingot.tokenizer import StreamDecoder as StreamDecoder
    from ingot.tokenizer import Tokenizer as Tokenizer
    from ingot.tokenizer.chat_template import ChatTemplate as ChatTemplate

__distribution__ = DISTRIBUTION
__version__ = "0.1.0"

check_alone(__file__)

_HOME = {
    "ChatSession": "ingot.chat",
    "ChatTemplate": "ingot.tokenizer.chat_template",
    "ChatTemplateError": "ingot.errors",
    "Completion": "ingot.engine",
    "ContextLengthError": "ingot.errors",
    "EngineOptions": "ingot.engine",
    "GgufError": "ingot.errors",
    "GgufLoader": "ingot.gguf",
    "GgufWriter": "ingot.gguf",
    "Grammar": "ingot.sampling",
    "InferenceEngine": "ingot.engine",
    "IngotError": "ingot.errors",
    "LLM": "ingot.api",
    "ModelError": "ingot.errors",
    "QueueFullError": "ingot.errors",
    "Request": "ingot.engine",
    "SamplingParams": "ingot.sampling",
    "StreamDecoder": "ingot.tokenizer",
    "Tokenizer": "ingot.tokenizer",
}

__all__ = [
    "LLM",
    "ChatSession",
    "ChatTemplate",
    "ChatTemplateError",
    "Completion",
    "ContextLengthError",
    "EngineOptions",
    "GgufError",
    "GgufLoader",
    "GgufWriter",
    "Grammar",
    "InferenceEngine",
    "IngotError",
    "ModelError",
    "QueueFullError",
    "Request",
    "SamplingParams",
    "StreamDecoder",
    "Tokenizer",
    "__distribution__",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ingot' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
