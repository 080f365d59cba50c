"""Every error Ingot raises on purpose, in one tree.

A message says what was wrong and what to do about it. Catch `IngotError` for all of
them; each also derives from the built-in error a caller would guess.
"""

from collections.abc import Collection
from pathlib import Path

import ingot
from ingot._namesake import check_ours

check_ours(ingot)  # every module of ours imports this one


class IngotError(Exception):
    """The root of all errors that Ingot raises on purpose."""


class ConfigError(IngotError, ValueError):
    """A setting (an environment variable, an option) has a value that cannot be used."""


class UnknownParameterError(ConfigError, TypeError):
    """Nothing takes a parameter of this name; the message suggests the nearest one."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 (only if something is wrong)

        self.name = name
        nearest = get_close_matches(name, known, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"use {', '.join(sorted(known))}"
        super().__init__(f"unknown parameter {name!r}; {hint}")


class GgufError(IngotError, ValueError):
    """A GGUF file is not, or would not be, what the format says it should be.

    `field` names what is wrong and `offset` the byte where it starts; there is no offset
    when the field is not in the file (a missing key, a value that is still to be written).
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
    """Values or bytes do not fit the block format they are meant for."""


class FileWriteError(IngotError, OSError):
    """A file cannot be written: a full disk, a missing permission. What was there before stays."""

    def __init__(self, path: str | Path, problem: str, cause: OSError) -> None:
        self.problem = problem
        super().__init__(cause.errno, cause.strerror or str(cause), str(path))

    def __str__(self) -> str:
        return f"{self.filename} {self.problem}: {self.strerror}"


class StoreError(IngotError):
    """A model could not be found, fetched or verified."""


class ModelError(IngotError, ValueError):
    """A model file is sound, but cannot be run: its architecture, a tensor, a number."""


class MemoryShortageError(ModelError, MemoryError):
    """A model needs more memory than there is, or than this process may lock."""


class ModelChangedError(ModelError):
    """Somebody changed a model's file while it was in use; open the model again."""


class GraphError(IngotError, ValueError):
    """A computation graph is not well formed."""


class CacheFullError(IngotError):
    """The cache has no block left for a token."""


class QueueFullError(IngotError):
    """More requests are waiting than the engine takes; try again later."""


class EngineError(IngotError, RuntimeError):
    """The thread that runs a model cannot go on: it failed, hangs, or is in another process."""


class ThreadLimitError(IngotError, RuntimeError):
    """The system has no thread left for this process."""


class RequestCancelledError(IngotError):
    """A request was cancelled before its text was complete."""


class SavedCacheError(IngotError, ValueError):
    """A file with a saved cache is damaged, or is not for this model or these settings."""


class SavedCacheSizeError(IngotError, ValueError):
    """A saved cache would be larger than the caller allows."""


class SavedChatError(IngotError, ValueError):
    """A file with a saved conversation is damaged, or is something else."""


class TokenizerError(IngotError, ValueError):
    """A vocabulary cannot be used, or a text or an id does not fit it."""


class ContextLengthError(IngotError, ValueError):
    """A sequence is longer than the context it has to fit in."""


class SamplingError(IngotError, ValueError):
    """A sampling parameter has a value that cannot be used: `field` names it, `value` is it."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field} is {value!r}; it must be {expected}")


class LogitsError(IngotError, ValueError):
    """A row of logits leaves no token to choose: it holds NaN, or every token is banned."""


class ProcessorError(IngotError):
    """A logits processor raised an error, which is this one's `__cause__`."""


class GrammarError(IngotError, ValueError):
    """A grammar or schema cannot be used or honoured, or a text does not fit it."""


class ToolError(IngotError, ValueError):
    """The description of a tool, or the choice of one, cannot be used."""


class ChatTemplateError(IngotError, ValueError):
    """A chat template is not usable, went past its limits, or refused the messages.

    `line` is the line of the template where it happened, if known.
    """

    def __init__(self, reason: str, *, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(f"line {line} of the chat template: {reason}" if line else reason)
