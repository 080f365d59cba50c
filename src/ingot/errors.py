"""All errors that Ingot raises on purpose.

A message says what happened, why, and what to do. Catch `IngotError` to catch them all; each also
derives from the built-in error that fits best (`ValueError`, `OSError`, `MemoryError`, ...).
"""

from collections.abc import Collection
from pathlib import Path

import ingot
from ingot._namesake import check_ours

check_ours(ingot)  # here, because every other module imports this one


class IngotError(Exception):
    """The base class of all errors that Ingot raises on purpose."""


class ConfigError(IngotError, ValueError):
    """An option or an environment variable has an invalid value."""


class UnknownParameterError(ConfigError, TypeError):
    """There is no parameter of this name; the message suggests the closest one."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 (only if something is wrong)

        self.name = name
        self.known = known
        nearest = get_close_matches(name, known, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"use {', '.join(sorted(known))}"
        super().__init__(f"unknown parameter {name!r}; {hint}")


class GgufError(IngotError, ValueError):
    """A GGUF file, or a value to be written to one, violates the format.

    `field` names what is wrong and `offset` is the byte where it starts. There is no offset if the
    field is not in the file: a missing key, or a value to be written.
    """

    def __init__(
        self,
        reason: str,
        *,
        field: str,
        offset: int | None = None,
        path: str | Path | None = None,
    ) -> None:
        self.reason = reason
        self.field = field
        self.offset = offset
        self.path = path
        where = f"{path}: " if path is not None else ""
        position = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{where}{field}{position}: {reason}")


class QuantError(IngotError, ValueError):
    """Values cannot be quantized to a format, or bytes are not valid blocks of it."""


class FileWriteError(IngotError, OSError):
    """A file cannot be written, e.g. because the disk is full. The old file, if any, is intact."""

    def __init__(self, path: str | Path, problem: str, cause: OSError) -> None:
        self.problem = problem
        super().__init__(cause.errno, cause.strerror or str(cause), str(path))

    def __str__(self) -> str:
        return f"{self.filename} {self.problem}: {self.strerror}"


class StoreError(IngotError):
    """A model cannot be found, downloaded or verified."""


class ModelNotFoundError(StoreError):
    """There is no model, repository, file or tag of this name."""


class AccessDeniedError(StoreError):
    """A server wants a token, or terms that its user has accepted, before it gives a model."""


class DownloadError(StoreError):
    """A download failed. What has arrived is kept, and the next download continues there."""


class ChecksumError(DownloadError):
    """A downloaded file is not the one that was asked for; it was removed."""


class DiskSpaceError(StoreError):
    """A model is larger than the free space on the disk."""


class MissingPackageError(StoreError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class ConversionError(IngotError, ValueError):
    """A checkpoint cannot be converted: unknown architecture, damaged file, missing setting, ..."""


class ModelError(IngotError, ValueError):
    """A valid model file cannot be run: unknown architecture, missing tensor, wrong shape, ..."""


class AdapterError(IngotError, ValueError):
    """A LoRA adapter cannot be used: a damaged file, another base model, an unsupported kind."""


class MemoryShortageError(ModelError, MemoryError):
    """A model needs more memory than is free, or than this process may lock."""


class ModelChangedError(ModelError):
    """A model's file changed while it was in use; open the model again."""


class GraphError(IngotError, ValueError):
    """A computation graph is invalid: shapes do not match, a value is missing, ..."""


class CacheFullError(IngotError):
    """The KV cache has no free block."""


class PickleError(IngotError, TypeError):
    """An object that owns a running model cannot be pickled or copied."""


class QueueFullError(IngotError):
    """The queue of waiting requests is full; try again later."""


class EngineError(IngotError, RuntimeError):
    """The thread that runs a model has failed, hangs, or belongs to the parent process."""


class ThreadLimitError(IngotError, RuntimeError):
    """The system allows this process no more threads."""


class RequestCancelledError(IngotError):
    """A request was cancelled before its text was complete."""


class SavedCacheError(IngotError, ValueError):
    """A saved KV cache is damaged, or belongs to another model or other settings."""


class SavedCacheSizeError(IngotError, ValueError):
    """A saved KV cache would be larger than the caller allows."""


class SavedChatError(IngotError, ValueError):
    """A file is not a saved conversation, or is damaged."""


class TokenizerError(IngotError, ValueError):
    """A vocabulary is invalid, or a text or token id does not belong to it."""


class ContextLengthError(IngotError, ValueError):
    """A sequence does not fit in the context.

    If it is a prompt, `tokens` is its length and `context` how many tokens fit.
    """

    def __init__(
        self, message: str, *, tokens: int | None = None, context: int | None = None
    ) -> None:
        self.tokens = tokens
        self.context = context
        super().__init__(message)


class SamplingError(IngotError, ValueError):
    """A sampling parameter (`field`) has an invalid value (`value`)."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field} is {value!r}; it must be {expected}")


class LogitsError(IngotError, ValueError):
    """No token can be sampled: the logits contain NaN, or every token is masked."""


class ProcessorError(IngotError):
    """A logits processor raised an error; `__cause__` holds it."""


class IncompleteTextError(IngotError, ValueError):
    """A limit ended a text before what was asked for was complete."""


class GrammarError(IngotError, ValueError):
    """A grammar or schema is invalid or unsupported, or a text does not match it."""


class ToolError(IngotError, ValueError):
    """A tool definition or a tool choice is invalid."""


class ChatTemplateError(IngotError, ValueError):
    """A chat template is invalid, exceeded its limits, or rejected the messages.

    `line` is the line of the template, if known.
    """

    def __init__(self, reason: str, *, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(f"line {line} of the chat template: {reason}" if line else reason)
