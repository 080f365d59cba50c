"""Every error Ingot raises on purpose, in one tree.

A message says what was wrong and what to do about it. Catch `IngotError` for all of
them; each also derives from the built-in error a caller would guess.
"""

from pathlib import Path

import ingot
from ingot._namesake import check_ours

check_ours(ingot)  # every module of ours imports this one


class IngotError(Exception):
    """The root of all errors that Ingot raises on purpose."""


class ConfigError(IngotError, ValueError):
    """A setting (an environment variable, an option) has a value that cannot be used."""


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


class RequestCancelledError(IngotError):
    """A request was cancelled before its text was complete."""


class SavedCacheError(IngotError, ValueError):
    """A file with a saved cache is damaged, or is not for this model or these settings."""


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
