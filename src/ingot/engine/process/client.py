"""EngineClient: an engine that runs in another process, as its callers see it.

It is an `InferenceEngine`: requests, errors and results are the same. Here are the tokenizer, the
model's file, the handles of requests and the names of adapters; the model, the scheduler, the
samplers and the KV cache are in the process. A thread sends messages, and another one receives
them.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from ingot.arrays import Ints
from ingot.backends.backend import OnOpening
from ingot.convert import open_model
from ingot.engine.adapters import AdapterChoice, EngineAdapters
from ingot.engine.engine import InferenceEngine, Prompt
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.options import EngineOptions
from ingot.engine.process.link import Link
from ingot.engine.process.messages import Answer, Call, Cancel, Opened, Opening, Submit, packed
from ingot.engine.process.remote_text import RemoteText
from ingot.engine.process.worker import run_engine
from ingot.engine.request import OnProgress, Request
from ingot.engine.stats import EngineStats, TokenGaps
from ingot.engine.task import ReadLogits
from ingot.errors import EngineError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from ingot.once import once
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ingot.engine.model.second_programs import SecondPrograms
    from ingot.engine.text_task import Asked
    from ingot.sampling import BeamSearch, Grammar
    from ingot.sampling.grammar.compile_worker import CompiledGrammar


class RemoteModel(LoadedModel):
    """The facts of a model whose weights are in another process. It runs nothing."""

    def __init__(self, file: GgufLoader, options: EngineOptions, opened: Opened) -> None:
        self.file = file
        self.graph = build_graph(file, opened.context)
        self.context = opened.context
        self.threads = opened.threads
        self.precision = opened.precision
        self.layout = KvLayout.of(
            self.graph.kv_layers, KvType(options.kv_type.lower()), self.graph.states
        )
        self.gpu = opened.gpu
        self.why_cpu = opened.why_cpu
        self.copies = opened.copies
        self.decode_sequences = opened.decode_sequences
        self.default_running = opened.default_running
        self.step_tokens = opened.step_tokens
        self.device_sampler = self._backend = self._gpu_backend = self._give_back = None
        self._reads_file = file.is_mapped and not self.on_gpu


class EngineClient(InferenceEngine):
    """A model in another process and the requests to it."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._link: Link | None = None

    def load_gguf_model(
        self, path: str | os.PathLike[str], progress: OnOpening | None = None
    ) -> None:
        """Open a model in a new process; everything that can be wrong with it is an error here."""
        if self._link is not None:
            raise ModelError(f"the engine has a model already: {self.model.file.path}")
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=run_engine,
            args=(theirs, os.fspath(path), _options_there(self.options)),
            name="ingot-engine",
            daemon=True,
        )
        process.start()
        theirs.close()
        link = Link(ours, process, str(path))
        try:
            opened = _opened(link, progress)
            file = open_model(path)
            try:
                self._remote = RemoteModel(file, self.options, opened)
                self._tokenizer = Tokenizer.from_metadata(file.metadata)
            except BaseException:
                file.close()
                raise
        except BaseException:
            link.close()
            raise
        link.start()
        self._link = link
        # At the end of this process before `multiprocessing` waits for the other one.
        self._end_process = Finalize(self, link.close, exitpriority=10)
        self._adapters = EngineAdapters(
            self._remote.read_adapter,
            lambda rank: _call(link, "prepare_adapters", rank),
            lambda slot, adapter: _call(link, "attach_adapter", slot, adapter),
        )
        try:
            for name, adapter in (self.options.adapters or {}).items():
                self._adapters.add(name, adapter)
            self._adapters.set_scales(self.options.adapter_scales or {})
        except BaseException:
            self.close()
            raise

    def compile_grammar(self, grammar: "Grammar") -> "Future[CompiledGrammar]":
        """Have a grammar compiled, which may take seconds; then submit requests with it."""
        return self._links.hold("compile_grammar", grammar)

    @property
    def adapters(self) -> EngineAdapters:
        """The LoRA adapters that requests may name; their weights are in both processes."""
        self._links.home.check()
        return self._adapters

    def read_rows(
        self,
        tokens: Ints,
        read: ReadLogits,
        *,
        first: int = 0,
        adapter: AdapterChoice | None = None,
    ) -> None:
        """Run a text and pass the logits of its tokens from `first` on to a function, in order."""
        self.model.require_logits()
        self._links.read_rows(self.adapters.use(adapter), tokens, first, read)

    def run_beams(
        self, tokens: Ints, search: "BeamSearch", *, adapter: AdapterChoice | None = None
    ) -> None:
        """Beam search needs the engine in the same process."""
        del tokens, search, adapter
        raise ModelError("beam search needs the engine in this process: engine_process=False")

    def save(
        self,
        text: "Prompt | Request",
        path: str | os.PathLike[str],
        *,
        prompted: int | None = None,
        most_bytes: int | None = None,
    ) -> int:
        """Write the KV cache of a prompt or of a request's text to a file; returns its tokens."""
        self.model.require_logits()
        self.require_no_adapter(text)
        if isinstance(text, Request):
            tokens = self.encode((*text.prompt_ids, *text.token_ids))
            prompted = len(text.prompt_ids)
        else:
            tokens = self.encode(text)
        saved: int = self._call("save", tokens, os.fspath(path), prompted, most_bytes)
        return saved

    def restore(self, path: str | os.PathLike[str]) -> tuple[int, ...]:
        """Put a saved text into the cache, for prompts that begin with it; returns its tokens."""
        restored: tuple[int, ...] = self._call("restore", os.fspath(path))
        return restored

    @property
    def model(self) -> LoadedModel:
        """The facts of the model."""
        self._links.home.check()
        return self._remote

    @once
    def programs(self) -> "SecondPrograms":
        """Embeddings, scores and hidden states; in the process if the model is on a GPU there."""
        if self.model.gpu is None:
            return super().programs
        from ingot.engine.process.remote_programs import RemotePrograms  # noqa: PLC0415

        return RemotePrograms(self.model, self._call)

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        self._links.home.check()
        return self._tokenizer

    @property
    def stats(self) -> EngineStats:
        """What the engine is doing, and has done."""
        found: EngineStats = self._call("stats")[0]
        return found

    @property
    def token_gaps(self) -> TokenGaps:
        """A histogram of the seconds between the tokens of a text."""
        found: TokenGaps = self._call("stats")[1]
        return found

    def check(self) -> None:
        """Raise an error if no request can be answered."""
        self._links.check()

    def clear_cache(self) -> None:
        """Forget all texts that are not running."""
        self._call("clear_cache")

    def close(self) -> None:
        """Free everything after the running step; requests that have not ended fail."""
        if self._link is not None:
            self._end_process()
            self._remote.close()

    @property
    def _models(self) -> tuple[LoadedModel, ...]:
        return (self._remote,)

    @property
    def _links(self) -> Link:
        if self._link is None:
            raise ModelError("the engine has no model yet: call load_gguf_model first")
        return self._link

    def _call(self, name: str, *arguments: object) -> Any:
        return _call(self._links, name, *arguments)

    def submit(self, asked: "Asked", progress: OnProgress | None = None) -> Request:
        """Have a text generated in the process."""
        link = self._links
        text = RemoteText(asked)
        answer = link.ask(lambda number: Submit(number, packed(asked)), text)
        text.seed = answer.result()
        cancel: Callable[[], None] = partial(link.post, Cancel(answer.number))
        return Request(text, cancel, _no_fork, progress)


def _options_there(options: EngineOptions) -> EngineOptions:
    """What the engine in the process is opened with; adapters follow."""
    return replace(options, engine_process=False, adapters=None, adapter_scales=None)


def _call(link: Link, name: str, *arguments: object) -> Any:
    """Call a method in the process."""
    return link.ask(lambda number: Call(number, name, arguments)).result()


def _opened(link: Link, progress: OnOpening | None) -> Opened:
    """Wait until the model is open; report progress."""
    while True:
        message = link.receive()
        if isinstance(message, Opened):
            return message
        if isinstance(message, Opening):
            if progress:
                progress(*message)
        elif isinstance(message, Answer) and message.fault is not None:
            raise message.fault.error()
        else:
            raise EngineError("the engine's process ended while it opened the model")


def _no_fork(_: dict[str, Any]) -> Request:
    raise ModelError("a fork needs the engine in this process: engine_process=False")
