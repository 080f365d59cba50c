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
    from ingot.chat import Exchange as Exchange
    from ingot.engine import Completion as Completion
    from ingot.engine import EngineOptions as EngineOptions
    from ingot.engine import EngineStats as EngineStats
    from ingot.engine import InferenceEngine as InferenceEngine
    from ingot.engine import Request as Request
    from ingot.engine import RequestState as RequestState
    from ingot.engine import Timings as Timings
    from ingot.errors import AccessDeniedError as AccessDeniedError
    from ingot.errors import AdapterError as AdapterError
    from ingot.errors import CacheFullError as CacheFullError
    from ingot.errors import ChatTemplateError as ChatTemplateError
    from ingot.errors import ChecksumError as ChecksumError
    from ingot.errors import ConfigError as ConfigError
    from ingot.errors import ContextLengthError as ContextLengthError
    from ingot.errors import ConversionError as ConversionError
    from ingot.errors import DiskSpaceError as DiskSpaceError
    from ingot.errors import DownloadError as DownloadError
    from ingot.errors import EngineError as EngineError
    from ingot.errors import FileWriteError as FileWriteError
    from ingot.errors import GgufError as GgufError
    from ingot.errors import GrammarError as GrammarError
    from ingot.errors import GraphError as GraphError
    from ingot.errors import IncompleteTextError as IncompleteTextError
    from ingot.errors import IngotError as IngotError
    from ingot.errors import LogitsError as LogitsError
    from ingot.errors import MemoryShortageError as MemoryShortageError
    from ingot.errors import MissingPackageError as MissingPackageError
    from ingot.errors import ModelChangedError as ModelChangedError
    from ingot.errors import ModelError as ModelError
    from ingot.errors import ModelNotFoundError as ModelNotFoundError
    from ingot.errors import PickleError as PickleError
    from ingot.errors import ProcessorError as ProcessorError
    from ingot.errors import QuantError as QuantError
    from ingot.errors import QueueFullError as QueueFullError
    from ingot.errors import RequestCancelledError as RequestCancelledError
    from ingot.errors import SamplingError as SamplingError
    from ingot.errors import SavedCacheError as SavedCacheError
    from ingot.errors import SavedCacheSizeError as SavedCacheSizeError
    from ingot.errors import SavedChatError as SavedChatError
    from ingot.errors import StoreError as StoreError
    from ingot.errors import ThreadLimitError as ThreadLimitError
    from ingot.errors import TokenizerError as TokenizerError
    from ingot.errors import ToolError as ToolError
    from ingot.errors import UnknownParameterError as UnknownParameterError
    from ingot.gguf import GgufLoader as GgufLoader
    from ingot.gguf import GgufWriter as GgufWriter
    from ingot.reply import Reply as Reply
    from ingot.reply import ToolCall as ToolCall
    from ingot.results import BeamText as BeamText
    from ingot.results import Score as Score
    from ingot.sampling import FinishReason as FinishReason
    from ingot.sampling import Grammar as Grammar
    from ingot.sampling import SamplingParams as SamplingParams
    from ingot.sampling import TokenLogprobs as TokenLogprobs
    from ingot.tokenizer import StreamDecoder as StreamDecoder
    from ingot.tokenizer import Tokenizer as Tokenizer
    from ingot.tokenizer.chat_template import ChatTemplate as ChatTemplate
    from ingot.tool_runs import ToolRun as ToolRun

__distribution__ = DISTRIBUTION
__version__ = "0.1.0"

check_alone(__file__)

_HOME = {
    "AccessDeniedError": "ingot.errors",
    "AdapterError": "ingot.errors",
    "BeamText": "ingot.results",
    "CacheFullError": "ingot.errors",
    "ChatSession": "ingot.chat",
    "ChatTemplate": "ingot.tokenizer.chat_template",
    "ChatTemplateError": "ingot.errors",
    "ChecksumError": "ingot.errors",
    "Completion": "ingot.engine",
    "ConfigError": "ingot.errors",
    "ContextLengthError": "ingot.errors",
    "ConversionError": "ingot.errors",
    "DiskSpaceError": "ingot.errors",
    "DownloadError": "ingot.errors",
    "EngineError": "ingot.errors",
    "EngineOptions": "ingot.engine",
    "EngineStats": "ingot.engine",
    "Exchange": "ingot.chat",
    "FileWriteError": "ingot.errors",
    "FinishReason": "ingot.sampling",
    "GgufError": "ingot.errors",
    "GgufLoader": "ingot.gguf",
    "GgufWriter": "ingot.gguf",
    "Grammar": "ingot.sampling",
    "GrammarError": "ingot.errors",
    "GraphError": "ingot.errors",
    "InferenceEngine": "ingot.engine",
    "IncompleteTextError": "ingot.errors",
    "IngotError": "ingot.errors",
    "LLM": "ingot.api",
    "LogitsError": "ingot.errors",
    "MemoryShortageError": "ingot.errors",
    "MissingPackageError": "ingot.errors",
    "ModelChangedError": "ingot.errors",
    "ModelError": "ingot.errors",
    "ModelNotFoundError": "ingot.errors",
    "PickleError": "ingot.errors",
    "ProcessorError": "ingot.errors",
    "QuantError": "ingot.errors",
    "QueueFullError": "ingot.errors",
    "Reply": "ingot.reply",
    "Request": "ingot.engine",
    "RequestCancelledError": "ingot.errors",
    "RequestState": "ingot.engine",
    "SamplingError": "ingot.errors",
    "SamplingParams": "ingot.sampling",
    "SavedCacheError": "ingot.errors",
    "SavedCacheSizeError": "ingot.errors",
    "SavedChatError": "ingot.errors",
    "Score": "ingot.results",
    "StoreError": "ingot.errors",
    "StreamDecoder": "ingot.tokenizer",
    "ThreadLimitError": "ingot.errors",
    "Timings": "ingot.engine",
    "TokenLogprobs": "ingot.sampling",
    "Tokenizer": "ingot.tokenizer",
    "TokenizerError": "ingot.errors",
    "ToolCall": "ingot.reply",
    "ToolError": "ingot.errors",
    "ToolRun": "ingot.tool_runs",
    "UnknownParameterError": "ingot.errors",
}

__all__ = [
    "LLM",
    "AccessDeniedError",
    "AdapterError",
    "BeamText",
    "CacheFullError",
    "ChatSession",
    "ChatTemplate",
    "ChatTemplateError",
    "ChecksumError",
    "Completion",
    "ConfigError",
    "ContextLengthError",
    "ConversionError",
    "DiskSpaceError",
    "DownloadError",
    "EngineError",
    "EngineOptions",
    "EngineStats",
    "Exchange",
    "FileWriteError",
    "FinishReason",
    "GgufError",
    "GgufLoader",
    "GgufWriter",
    "Grammar",
    "GrammarError",
    "GraphError",
    "IncompleteTextError",
    "InferenceEngine",
    "IngotError",
    "LogitsError",
    "MemoryShortageError",
    "MissingPackageError",
    "ModelChangedError",
    "ModelError",
    "ModelNotFoundError",
    "PickleError",
    "ProcessorError",
    "QuantError",
    "QueueFullError",
    "Reply",
    "Request",
    "RequestCancelledError",
    "RequestState",
    "SamplingError",
    "SamplingParams",
    "SavedCacheError",
    "SavedCacheSizeError",
    "SavedChatError",
    "Score",
    "StoreError",
    "StreamDecoder",
    "ThreadLimitError",
    "Timings",
    "TokenLogprobs",
    "Tokenizer",
    "TokenizerError",
    "ToolCall",
    "ToolError",
    "ToolRun",
    "UnknownParameterError",
    "__distribution__",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ingot' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
