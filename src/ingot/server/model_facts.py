"""ModelFacts: what lists of models say of a model file, open or not.

A path comes in; facts from the header go out. They are read again after the file has changed. It
does not know the form that an API gives them.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from ingot import models
from ingot.api import LLM
from ingot.convert import open_model
from ingot.errors import IngotError
from ingot.gguf import GgufLoader
from ingot.model_summary import ModelSummary
from ingot.reply import ReplyStyle, style_of
from ingot.reply.style import CallStyle
from ingot.server.threads import run_in_thread


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


class FactsReader:
    """Facts of model files by path. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], ModelFacts]] = {}

    async def read(self, path: Path) -> ModelFacts:
        """The facts of a file; a file that cannot be read raises an error."""
        found = path.stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if path not in self._known or self._known[path][0] != stamp:
            self._known[path] = (stamp, await run_in_thread(_read, path))
        return self._known[path][1]

    async def read_if_possible(self, path: Path) -> ModelFacts | None:
        """The facts of a file, or None: a list of models has those that cannot be opened, too."""
        with suppress(IngotError, OSError):
            return await self.read(path)
        return None


def can_think(style: ReplyStyle) -> bool:
    """Whether a model of this style writes reasoning apart from its answer."""
    return style.thinking is not None or style.calls is CallStyle.HARMONY


def context_of(facts: ModelFacts, llm: LLM | None) -> int:
    """The context of an open model, or the longest that a closed one allows."""
    return facts.context_length if llm is None else llm.context


def _read(path: Path) -> ModelFacts:
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
