"""ModelFacts and TokenizerFacts: what requests about models learn of a model file, open or not.

A path comes in; facts from the header go out. They are read again after the file has changed. It
does not know the form that an API gives them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

from ingot import models
from ingot.convert import open_model
from ingot.errors import IngotError, ModelError
from ingot.gguf import GgufLoader
from ingot.model_summary import ModelSummary
from ingot.recommended import chat_template_of
from ingot.reply import ReplyStyle, style_of
from ingot.reply.style import CallStyle
from ingot.server.model_entry import Entry
from ingot.server.threads import run_in_thread
from ingot.tokenizer import Tokenizer
from ingot.tokenizer.chat_template import ChatTemplate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model file in numbers and words."""

    size: int  # bytes of all its files
    modified: datetime
    digest: str  # of its name, size and time, because nobody should wait for that of its bytes
    architecture: str
    parameters: int
    quantization: str
    context_length: int  # that the model was trained for; 0 if the file does not say
    embedding_length: int
    vocabulary: int
    template: str
    capabilities: tuple[str, ...]  # in Ollama's words


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """The tokenizer of a model, and its chat template."""

    kind: str  # of the vocabulary, such as gpt2 or llama
    vocabulary: int
    bos_token: str
    eos_token: str
    adds_bos: bool
    template: str
    control_tokens: Mapping[str, int]

    @classmethod
    def of(cls, tokenizer: Tokenizer, template: ChatTemplate) -> "TokenizerFacts":
        """The facts of a tokenizer."""
        return cls(
            kind=tokenizer.kind,
            vocabulary=tokenizer.vocab_size,
            bos_token=template.bos_token,
            eos_token=template.eos_token,
            adds_bos=tokenizer.adds_bos,
            template=template.source,
            control_tokens=tokenizer.control_tokens(),
        )


class FactsReader(Generic[T]):
    """Facts of model files by path. All methods belong to one event loop."""

    def __init__(self, of_file: Callable[[Path], T]) -> None:
        self._of_file = of_file
        self._known: dict[Path, tuple[tuple[int, int], T]] = {}

    async def read(self, path: Path) -> T:
        """The facts of a file; a file that cannot be read raises an error."""
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if path not in self._known or self._known[path][0] != stamp:
                self._known[path] = (stamp, await run_in_thread(self._of_file, path))
        except OSError as error:
            raise ModelError(f"{path.name} cannot be read: {error.strerror or error}") from error
        return self._known[path][1]

    async def read_if_possible(self, path: Path) -> T | None:
        """The facts of a file, or None: a list of models has those that cannot be opened, too."""
        with suppress(IngotError):
            return await self.read(path)
        return None


def can_think(style: ReplyStyle) -> bool:
    """Whether a model of this style writes reasoning apart from its answer."""
    return style.thinking is not None or style.calls is CallStyle.HARMONY


def context_of(facts: ModelFacts, entry: Entry) -> int:
    """The context of a model, or the longest that it allows if that is all that is known."""
    return facts.context_length if entry.context is None else entry.context


async def tokenizer_of(entry: Entry, reader: FactsReader[TokenizerFacts]) -> TokenizerFacts:
    """The tokenizer of a model; that of a closed one is read from its file."""
    if entry.llm is not None:
        return TokenizerFacts.of(entry.llm.tokenizer, entry.llm.chat_template)
    found = await reader.read(entry.model.path)
    given = entry.model.chat_template
    return found if given is None else replace(found, template=given)


def read_tokenizer(path: Path) -> TokenizerFacts:
    """The tokenizer of a file."""
    with open_model(path) as loader:
        tokenizer = Tokenizer.from_metadata(loader.metadata)
        return TokenizerFacts.of(tokenizer, chat_template_of(loader, tokenizer))


def read_model(path: Path) -> ModelFacts:
    """The facts of a file."""
    with open_model(path) as loader:
        summary = ModelSummary.of(loader)
        sizes = summary.dimensions
        modified = path.stat().st_mtime
        identity = f"{path.name} {summary.file_bytes} {modified}"
        return ModelFacts(
            size=summary.file_bytes,
            modified=datetime.fromtimestamp(modified, UTC),
            digest=sha256(identity.encode("utf-8", "surrogateescape")).hexdigest(),
            architecture=summary.architecture or "unknown",
            parameters=summary.parameters,
            quantization=summary.quantization,
            context_length=sizes.context if sizes else 0,
            embedding_length=sizes.embedding if sizes else 0,
            vocabulary=summary.vocabulary,
            template=summary.chat_template or "",
            capabilities=_capabilities(loader, summary),
        )


def _capabilities(loader: GgufLoader, summary: ModelSummary) -> tuple[str, ...]:
    if models.is_reranker(loader):
        return ("rerank",)
    is_encoder = summary.dimensions is not None and not summary.dimensions.causal
    if is_encoder or models.is_embedder(loader):
        return ("embedding",)
    found = ["completion", "tools"]  # if a template has no place for tools, a message lists them
    if any(key.startswith("tokenizer.ggml.fim_pre") for key in loader.metadata):
        found.append("insert")
    if can_think(style_of(summary.chat_template or "")):
        found.append("thinking")
    return tuple(found)
