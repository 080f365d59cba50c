"""InferenceEngine: many requests at once from any thread or event loop, batched step by step.

    engine = InferenceEngine()
    engine.load_gguf_model("model.gguf")
    request = engine.submit_request("Once upon a time", SamplingParams(max_tokens=50))
    for piece in request:
        print(piece, end="")

The step thread runs the model (loop.py); threads that submit requests only read.
"""

import math
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.adapters import Adapter
from ingot.arrays import Ints
from ingot.backends.backend import OnOpening
from ingot.engine.adapters import AdapterChoice, AdapterUse, EngineAdapters
from ingot.engine.beam_task import BeamTask
from ingot.engine.cache_file import SaveTask, insert_text
from ingot.engine.chunk_sizes import ChunkSizes
from ingot.engine.loop import StepLoop
from ingot.engine.model.eagle_head import EagleHead
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.options import EngineOptions, RequestSpeculation
from ingot.engine.request import OnProgress, Request
from ingot.engine.scheduler import Limits
from ingot.engine.speculation import EngineGuesses, open_eagle
from ingot.engine.stats import EngineStats, TokenGaps
from ingot.engine.task import LogitsTask, ReadLogits
from ingot.engine.text_task import Asked, Overflow, TextTask, TextTools
from ingot.errors import (
    AdapterError,
    ConfigError,
    EngineError,
    ModelError,
    SamplingError,
    SavedCacheError,
    SavedCacheSizeError,
)
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.saved import read_saved
from ingot.once import once
from ingot.sampling import ChainBuilder, SamplingParams
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ingot.engine.model.second_programs import SecondPrograms
    from ingot.sampling import BeamSearch, Grammar
    from ingot.sampling.grammar.compile_worker import CompiledGrammar

Prompt = str | Sequence[int] | NDArray[np.integer]

_CHUNK = 128  # tokens: tens of milliseconds
_GPU_CHUNKS = (256, 512, 1024)  # captured sizes, among which a GPU's own times choose
_ROW_BYTES = 128 << 20  # of logits in a step: 127 rows of a vocabulary of 262,144 tokens


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an engine has after its model is loaded."""

    model: LoadedModel
    guesses: EngineGuesses
    tokenizer: Tokenizer
    chains: ChainBuilder
    loop: StepLoop
    adapters: EngineAdapters


class InferenceEngine:
    """A model and the requests to it."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._loaded: _Parts | None = None

    def load_gguf_model(
        self, path: str | os.PathLike[str], progress: OnOpening | None = None
    ) -> None:
        """Open a model; everything that can be wrong with it is an error here.

        `progress(stage, done, total)` is called while a GPU is made ready.
        """
        if self._loaded is not None:
            raise ModelError(f"the engine has a model already: {self.model.file.path}")
        options = self.options
        with ExitStack() as opened:  # closed again if anything is wrong
            eagle = open_eagle(options.draft, options.context)
            if eagle is not None:
                opened.callback(eagle.file.close)
            model = LoadedModel(
                path,
                threads=options.threads,
                context=options.context,
                kv_type=options.kv_type,
                weights=options.weights,
                precision=options.precision,
                numa=options.numa,
                pin_threads=options.pin_threads,
                cache_tokens=options.cache_tokens,
                reuse=options.reuse,
                device=options.device,
                gpu_layers=options.gpu_layers,
                gpu_split=options.gpu_split,
                sequences=options.max_running,
                mtp=options.mtp,
                hidden_layers=eagle.spec.target_layers if eagle else (),
                progress=progress,
            )
            opened.callback(model.close)
            if options.max_running is not None:
                _check_running(options.max_running, model)
            tokenizer = Tokenizer.from_metadata(model.file.metadata)
            limits = _limits(options, model)
            guesses = EngineGuesses(model, options, limits.generation_tokens, eagle)
            opened.pop_all()
        timeout = options.step_timeout
        chunks = _chunk_sizes(options, model)
        loop = StepLoop(model, limits, timeout, guesses.auto, guesses.hidden_states, chunks)
        adapters = EngineAdapters(
            model.read_adapter,
            model.prepare_adapters,
            lambda slot, adapter: _attach(model, loop, slot, adapter),
        )
        self._loaded = _Parts(model, guesses, tokenizer, ChainBuilder(tokenizer), loop, adapters)
        self._stop = weakref.finalize(self, _stop_quietly, self._loaded)
        try:
            for name, file in (options.adapters or {}).items():
                adapters.add(name, file)
            adapters.set_scales(options.adapter_scales or {})
        except BaseException:
            self.close()
            raise

    def submit_request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        negative_prompt: Prompt | None = None,
        cfg_scale: float = 1.0,
        heal: bool = False,
        context_overflow: str = Overflow.ERROR,
        keep: int = 0,
        reuse: bool = True,
        progress: OnProgress | None = None,
        parse: Callable[[str], Any] | None = None,
        adapter: AdapterChoice | None = None,
        priority: int = 0,
        speculation: RequestSpeculation = "auto",
    ) -> Request:
        """Continue a prompt (text or token ids).

        `negative_prompt` and `cfg_scale`: guidance away from a second prompt. `heal`: let the
        text continue from inside the prompt's last token. `context_overflow`: what to do with a
        text that fills the context: "error", "stop", or "shift", which keeps the first `keep`
        tokens and the newest. `reuse`: whether to reuse what the KV cache holds of the prompt.
        `progress(done, total)` is called by the thread that iterates, during prefill. `parse`
        turns a complete text into `Completion.parsed`. `adapter`: the name of a LoRA adapter, or
        names with their scales; None: those of `adapters.set_scales`. `priority`: of the requests
        that wait, those with the lowest value are admitted first. `speculation`: "off" for no
        guesses; "auto": as the engine was opened.
        """
        self.model.require_logits()
        try:
            overflow = Overflow(context_overflow)
        except ValueError:
            known = ", ".join(Overflow)
            raise SamplingError("context_overflow", context_overflow, f"one of {known}") from None
        if keep < 0:
            raise SamplingError("keep", keep, "0 or more")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise SamplingError("priority", priority, "a whole number")
        if speculation not in get_args(RequestSpeculation):
            ways = "'off' or 'auto'; the engine's options choose what guesses"
            raise SamplingError("speculation", speculation, ways)
        if negative_prompt is None and cfg_scale != 1.0:
            raise SamplingError("cfg_scale", cfg_scale, "1 without a negative_prompt")
        if not math.isfinite(cfg_scale):
            raise SamplingError("cfg_scale", cfg_scale, "a finite number")
        if negative_prompt is not None and overflow is Overflow.SHIFT:
            raise SamplingError("context_overflow", "shift", "another one with a negative_prompt")
        if self.model.graph.encoder is not None:
            if overflow is Overflow.SHIFT:
                raise SamplingError("context_overflow", "shift", "another one with an encoder")
            if heal:
                raise SamplingError("heal", heal, "false: an encoder reads the whole prompt")
        asked = Asked(
            prompt=self.encode(prompt),
            params=params or SamplingParams(),
            negative=None if negative_prompt is None else self.encode(negative_prompt),
            cfg_scale=cfg_scale,
            heal=heal,
            overflow=overflow,
            keep=keep,
            reuse=reuse,
            parse=parse,
            adapter=self.adapters.use(adapter),
            priority=priority,
            speculation=speculation,
        )
        return self.submit(asked, progress)

    def submit(self, asked: Asked, progress: OnProgress | None = None) -> Request:
        """The same, if what is asked for is known to be valid."""
        return self.start(self.text_of(asked), progress)

    def compile_grammar(self, grammar: "Grammar") -> "Future[CompiledGrammar]":
        """Have a grammar compiled, which may take seconds; then submit requests with it.

        It stays compiled at least as long as the result exists. Cancel the future if the grammar
        is not needed any more.
        """
        return self._parts.chains.compile_grammar(grammar)

    def encode(self, prompt: Prompt) -> Ints:
        """The tokens of a prompt, checked."""
        ids = self.tokenizer.encode_array(prompt) if isinstance(prompt, str) else prompt
        return self.model.check_ids(ids)

    def read_rows(
        self,
        tokens: Ints,
        read: ReadLogits,
        *,
        first: int = 0,
        adapter: AdapterChoice | None = None,
    ) -> None:
        """Run a text and pass the logits of its tokens from `first` on to a function.

        It is called in the step thread, some rows at a time, in order.
        """
        self.read_rows_with(self.adapters.use(adapter), tokens, read, first)

    def read_rows_with(
        self, adapter: AdapterUse | None, tokens: Ints, read: ReadLogits, first: int
    ) -> None:
        """The same with an adapter that is in a slot of the model."""
        self.model.require_logits(of_prompts=True)
        task = LogitsTask(tokens, first, read, adapter)
        self._loop.submit(task)
        task.channel.result()

    def attach_adapter(self, slot: int, adapter: Adapter | None) -> None:
        """Put an adapter into a slot of the model between two steps; None: free the slot."""
        _attach(self.model, self._loop, slot, adapter)

    def run_beams(
        self, tokens: Ints, search: "BeamSearch", *, adapter: AdapterChoice | None = None
    ) -> None:
        """Run a beam search to its end, or to the end of the context."""
        self.model.require_logits()
        task = BeamTask(
            tokens,
            search,
            self.model.context,
            self.model.threads,
            self.model.copy_blocks,
            self.model.graph.start_token,
            self.adapters.use(adapter),
        )
        self._loop.submit(task)
        task.channel.result()

    def require_no_adapter(self, text: "Prompt | Request") -> None:
        """Refuse to save what was computed with an adapter."""
        adapter = text.adapter if isinstance(text, Request) else self.adapters.use(None)
        if adapter is not None:
            raise AdapterError("the KV cache of a text with an adapter cannot be saved")

    def save(
        self,
        text: "Prompt | Request",
        path: str | os.PathLike[str],
        *,
        prompted: int | None = None,
        most_bytes: int | None = None,
    ) -> int:
        """Write the KV cache of a prompt or of a request's text to a file; returns its tokens.

        What the cache lacks is computed first. The last tokens, up to a block, are left out.
        `prompted`: how many of the tokens were read as a prompt, by default all of them. If the
        file would have more than `most_bytes`, raise `SavedCacheSizeError`.
        """
        self.model.require_logits()
        self.require_no_adapter(text)
        start = self.model.graph.start_token
        if isinstance(text, Request):
            first = () if start is None else (start,)
            tokens = self.encode((*text.prompt_ids, *first, *text.token_ids))
            prompted = len(text.prompt_ids)
        else:
            tokens = self.encode(text)
            prompted = len(tokens) if prompted is None else prompted
        if start is None:
            # A recurrent state is that of the last token that ran, which must be the one that is
            # saved.
            tokens = tokens[: len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS or len(tokens)]
        task = SaveTask(self.model, tokens, min(prompted, len(tokens)))
        self._loop.submit(task)
        saved = task.channel.result()
        if most_bytes is not None and saved.nbytes > most_bytes:
            raise SavedCacheSizeError(
                f"the saved text would have {saved.nbytes} bytes, and {most_bytes} are allowed"
            )
        saved.write(path)
        return saved.header.tokens

    def restore(self, path: str | os.PathLike[str]) -> tuple[int, ...]:
        """Put a saved text into the cache, for prompts that begin with it; returns its tokens."""
        model = self.model
        saved = read_saved(path, model.layout, model.fingerprint, most_tokens=model.context)
        if saved.header.tokens:
            try:
                model.check_ids(saved.tokens)
            except ModelError as error:
                raise SavedCacheError(f"{path} is damaged: {error}") from error
        self._loop.call(lambda: insert_text(self.model, saved))
        return tuple(saved.tokens.tolist())

    @property
    def model(self) -> LoadedModel:
        """The loaded model."""
        return self._parts.model

    @once
    def programs(self) -> "SecondPrograms":
        """Embeddings, scores and hidden states, which few need."""
        from ingot.engine.model.second_programs import SecondPrograms  # noqa: PLC0415

        return SecondPrograms(self.model)

    @property
    def adapters(self) -> EngineAdapters:
        """The LoRA adapters that requests may name; they may be added and removed at any time."""
        return self._parts.adapters

    @property
    def max_running(self) -> int:
        """How many requests run at once."""
        return self.options.max_running or self.model.default_running

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self._parts.tokenizer

    @property
    def _parts(self) -> _Parts:
        if self._loaded is None:
            raise ModelError("the engine has no model yet: call load_gguf_model first")
        self._loaded.loop.health.home.check()
        return self._loaded

    @property
    def _loop(self) -> StepLoop:
        return self._parts.loop

    @property
    def stats(self) -> EngineStats:
        """What the engine is doing, and has done."""
        scheduler, counters, pool = self._loop.scheduler, self._loop.counters, self.model.pool
        groups, prepared = range(len(pool.layout.groups)), self.model.prepared
        return EngineStats(
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            steps=counters.steps,
            prompt_tokens=counters.prompt_tokens,
            reused_tokens=scheduler.reused_tokens,
            generated_tokens=counters.generated_tokens,
            text_steps=counters.text_steps,
            guessed_tokens=counters.guessed_tokens,
            accepted_tokens=counters.accepted_tokens,
            preemptions=scheduler.preemptions,
            blocks=max(pool.sizes, default=0),
            blocks_held=max((pool.sizes[g] - pool.available(g) for g in groups), default=0),
            blocks_kept=max((pool.available(g) - pool.free(g) for g in groups), default=0),
            step_seconds=self._loop.health.step_seconds,
            compilations=prepared.compilations,
            captures=prepared.captures,
            compilations_after_ready=prepared.compilations_after_ready,
            captures_after_ready=prepared.captures_after_ready,
            copied_bytes=0 if self.model.copies is None else self.model.copies.size,
        )

    @property
    def change(self) -> str | None:
        """How a model file was changed while in use, so that requests fail; None: it was not."""
        return next((model.change for model in self._models if model.change is not None), None)

    @property
    def is_replaced(self) -> bool:
        """Whether a path leads to another file now. The open file can still be used."""
        return any(model.file.is_replaced for model in self._models)

    @property
    def _models(self) -> tuple[LoadedModel | EagleHead, ...]:
        parts = self._parts
        draft = parts.guesses.draft
        return (parts.model,) if draft is None else (parts.model, draft)

    @property
    def token_gaps(self) -> TokenGaps:
        """A histogram of the seconds between the tokens of a text."""
        return self._loop.counters.gaps

    def check(self) -> None:
        """Raise an error if no request can be answered.

        That is `EngineError` if the step thread failed, hangs, or is in another process, and
        `ModelError` if the engine is closed.
        """
        self._loop.check()

    def clear_cache(self) -> None:
        """Forget all texts that are not running."""
        self._loop.call(self.model.cache.clear)

    def close(self) -> None:
        """Free everything after the running step.

        Requests that have not ended fail with `ModelError`.
        """
        if self._loaded is not None:
            _stop(self._loaded)
            self._stop.detach()

    def text_of(self, asked: Asked) -> TextTask:
        """A text that is to be generated; `start` has it run."""
        parts = self._parts
        tools = TextTools(
            chains=parts.chains,
            tokenizer=parts.tokenizer,
            context=parts.model.context,
            start_token=parts.model.graph.start_token,
            counters=parts.loop.counters,
            in_background=parts.loop.background.submit,
        )
        decided = asked.negative is not None or asked.params.grammar is not None
        can_guess = asked.speculation != "off" and not decided
        return TextTask(asked, tools, parts.guesses.guesser(can_guess=can_guess))

    def start(self, task: TextTask, progress: OnProgress | None = None) -> Request:
        """Have a text generated."""
        if task.channel.is_ended:
            task.channel.publish()
        else:
            self._loop.submit(task)
        return Request(task, self._loop.wake, partial(self._fork, task), progress)

    def _fork(self, task: TextTask, changes: dict[str, Any]) -> Request:
        """A request that continues a text as it is now."""
        params = replace(task.asked.params, seed=None).with_names(changes)
        # Compiled here, not in the step thread, which finds it as long as it is held.
        grammar = None if params.grammar is None else self.compile_grammar(params.grammar).result()

        def copy() -> TextTask:
            written = tuple(task.transcript.sampled)
            made = self.text_of(replace(task.asked, params=params, written=written))
            if not made.channel.is_ended:
                for sequence, other in zip(made.sequences, task.sequences, strict=True):
                    self.model.copy_blocks(sequence.share(other))
            return made

        request = self.start(self._loop.call(copy))
        del grammar
        return request


def _attach(model: LoadedModel, loop: StepLoop, slot: int, adapter: Adapter | None) -> None:
    """Make ready what an adapter needs while steps run; then put it into a slot between two."""
    if adapter is not None:
        model.prepare_adapters(adapter.rank)
    loop.call(partial(model.attach, slot, adapter))


def _check_running(running: int, model: LoadedModel) -> None:
    if running > model.decode_sequences:
        raise ConfigError(
            f"max_running is {running}, and a model of which layers run on the CPU takes at most "
            f"{model.decode_sequences}"
        )


def _limits(options: EngineOptions, model: LoadedModel) -> Limits:
    rows = _ROW_BYTES // (4 * model.graph.logits.width)
    chunk = options.chunk_tokens or (_GPU_CHUNKS[-1] if model.on_gpu else _CHUNK)
    return Limits(
        running=options.max_running or model.default_running,
        queue=options.max_queue,
        generation_tokens=max(model.decode_sequences, _native.MAX_GENERATION_TOKENS),
        prompt_tokens=model.step_tokens,
        chunk=min(chunk, model.step_tokens),
        whole_prompts=model.graph.encoder is not None,
        whole_runs=model.gpu is not None and model.layout.recurrent,
        rows=max(rows, model.decode_sequences, _native.MAX_GENERATION_TOKENS),
    )


def _chunk_sizes(options: EngineOptions, model: LoadedModel) -> ChunkSizes | None:
    """What chooses the chunks beside texts in decode; None: they are as asked, or on the CPU."""
    if options.chunk_tokens is not None or not model.on_gpu or model.graph.encoder is not None:
        return None
    most = min(_GPU_CHUNKS[-1], model.step_tokens)
    return ChunkSizes([*(size for size in _GPU_CHUNKS if size < most), most])


def _stop(parts: _Parts) -> None:
    parts.chains.close()
    parts.loop.stop()
    parts.guesses.close()


def _stop_quietly(parts: _Parts) -> None:
    """Stop an engine that nobody holds any more, or at the end of the process.

    Ctrl-C ends the wait: native code never continues after the end of the interpreter.
    """
    with suppress(KeyboardInterrupt, EngineError):
        _stop(parts)
