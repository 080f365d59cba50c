"""InferenceEngine: many requests at once from any thread or event loop, batched step by step.

    engine = InferenceEngine()
    engine.load_gguf_model("model.gguf")
    request = engine.submit_request("Once upon a time", SamplingParams(max_tokens=50))
    for piece in request:
        print(piece, end="")

A thread of its own runs the model (see loop.py); whoever submits only reads.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.backend import OnSent
from ingot.engine.gaps import Gaps
from ingot.engine.loaded import Ints, LoadedModel
from ingot.engine.loop import StepLoop
from ingot.engine.options import EngineOptions
from ingot.engine.other_tasks import BeamTask, Consume, KeepTask, RowsTask
from ingot.engine.request import OnProgress, Request
from ingot.engine.saving import copy_text, insert_text
from ingot.engine.scheduler import Limits
from ingot.engine.speculation import NgramProposer
from ingot.engine.strand import Strand
from ingot.engine.text_task import Asked, Overflow, Proposer, TextTask
from ingot.errors import (
    ConfigError,
    EngineError,
    ModelError,
    SamplingError,
    SavedCacheError,
    SavedCacheSizeError,
)
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.saved import SavedText, read_saved
from ingot.sampling import ChainBuilder, SamplingParams
from ingot.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ingot.sampling import BeamSearch, Grammar
    from ingot.sampling.grammar.compile_worker import CompiledGrammar

Prompt = str | Sequence[int] | NDArray[np.integer]

_CHUNK, _GPU_CHUNK = 128, 1024  # tokens: tens of milliseconds
_ROW_BYTES = 128 << 20  # of logits in a step: 127 rows of a vocabulary of 262,144 tokens


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the engine is doing now, and has done since it started."""

    waiting: int
    running: int
    steps: int
    prompt_tokens: int  # read
    reused_tokens: int  # of prompts, which were in the cache already
    generated_tokens: int
    preemptions: int
    blocks: int  # of the cache
    blocks_held: int  # by texts that run
    blocks_kept: int  # for texts to come
    step_seconds: float  # since the step that runs began; 0 if none does


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an engine has once its model is loaded."""

    model: LoadedModel
    draft: LoadedModel | None
    tokenizer: Tokenizer
    chains: ChainBuilder
    loop: StepLoop


class InferenceEngine:
    """A model and the requests to it."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._loaded: _Parts | None = None

    def load_gguf_model(self, path: str | os.PathLike[str], progress: OnSent | None = None) -> None:
        """Open a model; all that can be wrong with it is said here.

        `progress` is told how many bytes of the weights have been sent to a GPU, and of how many.
        """
        if self._loaded is not None:
            raise ModelError(f"the engine has a model: {self.model.file.path}")
        options = self.options
        model = LoadedModel(
            path,
            threads=options.threads,
            context=options.context,
            kv_type=options.kv_type,
            weights=options.weights,
            cache_tokens=options.cache_tokens,
            reuse=options.reuse,
            device=options.device,
            gpu_layers=options.gpu_layers,
            progress=progress,
        )
        try:
            if options.speculation or options.draft:
                _check_guesses(model)
            tokenizer = Tokenizer.from_metadata(model.file.metadata)
            draft = _open_draft(options, model)
        except BaseException:
            model.close()
            raise
        loop = StepLoop(model, _limits(options, model), options.step_timeout)
        self._loaded = _Parts(model, draft, tokenizer, ChainBuilder(tokenizer), loop)
        self._stop = weakref.finalize(self, _stop_quietly, self._loaded)

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
    ) -> Request:
        """Continue a prompt (text or token ids).

        `negative_prompt` and `cfg_scale`: guidance away from a second prompt. `heal`: let the
        text continue from inside the prompt's last token. `context_overflow`: what to do with a
        text that fills the context: "error", "stop", or "shift", which keeps the first `keep`
        tokens and the newest. `reuse`: whether to reuse what the KV cache holds of the prompt.
        `progress(done, total)` is called, by whoever iterates, as the prompt is read. `parse`
        turns a complete text into `Completion.parsed`.
        """
        self.model.require_logits()
        try:
            overflow = Overflow(context_overflow)
        except ValueError:
            known = ", ".join(Overflow)
            raise SamplingError("context_overflow", context_overflow, f"one of {known}") from None
        if keep < 0:
            raise SamplingError("keep", keep, "0 or more")
        if negative_prompt is None and cfg_scale != 1.0:
            raise SamplingError("cfg_scale", cfg_scale, "1 without a negative_prompt")
        if not np.isfinite(cfg_scale):
            raise SamplingError("cfg_scale", cfg_scale, "a finite number")
        if negative_prompt is not None and overflow is Overflow.SHIFT:
            raise SamplingError("context_overflow", "shift", "another one with a negative_prompt")
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
        )
        return self._request(self._text(asked), progress)

    def compile_grammar(self, grammar: "Grammar") -> "Future[CompiledGrammar]":
        """Have a grammar compiled, which may take seconds; then submit requests with it.

        It stays compiled at least as long as somebody has the result. Cancel the future if the
        grammar is not wanted any more.
        """
        return self._parts.chains.compile_grammar(grammar)

    def encode(self, prompt: Prompt) -> Ints:
        """The tokens of a prompt, checked."""
        ids = self.tokenizer.encode_array(prompt) if isinstance(prompt, str) else prompt
        return self.model.check_ids(ids)

    def read_rows(self, tokens: Ints, consume: Consume, *, first: int = 0) -> None:
        """Run a text and hand the logits of its tokens from `first` on to a function.

        It is called in the thread that runs the model, some rows at a time, in order.
        """
        self.model.require_logits()
        task = RowsTask(tokens, first, consume)
        self._loop.submit(task)
        task.channel.result()

    def run_beams(self, tokens: Ints, search: "BeamSearch") -> None:
        """Take a beam search to its end, or to the end of the context."""
        self.model.require_logits()
        task = BeamTask(
            tokens, search, self.model.context, self.model.threads, self.model.copy_blocks
        )
        self._loop.submit(task)
        task.channel.result()

    def save(
        self,
        text: "Prompt | Request",
        path: str | os.PathLike[str],
        *,
        prompted: int | None = None,
        most_bytes: int | None = None,
    ) -> int:
        """Write what the cache has of a prompt or a request's text to a file: so many tokens.

        What it does not have is computed first. The last tokens, up to a block, are left out.
        `prompted`: how many of the tokens were read and not written, if not all of them. A file
        of more than `most_bytes` is not written: `SavedCacheSizeError`.
        """
        self.model.require_logits()
        if isinstance(text, Request):
            tokens = self.encode((*text.prompt_ids, *text.token_ids))
            prompted = len(text.prompt_ids)
        else:
            tokens = self.encode(text)
            prompted = len(tokens) if prompted is None else prompted
        # A state is that of the last token which ran: it must be the one that is saved.
        tokens = tokens[: len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS or len(tokens)]
        prompted = min(prompted, len(tokens))
        saved: list[SavedText] = []

        def show(strand: Strand) -> None:
            strand.settle()
            saved.append(copy_text(self.model, strand))

        task = KeepTask(tokens, prompted, show)
        self._loop.submit(task)
        task.channel.result()
        if most_bytes is not None and saved[0].nbytes > most_bytes:
            raise SavedCacheSizeError(
                f"the saved text would have {saved[0].nbytes} bytes, and {most_bytes} are allowed"
            )
        saved[0].write(path)
        return saved[0].header.tokens

    def restore(self, path: str | os.PathLike[str]) -> tuple[int, ...]:
        """Bring a saved text back, for all prompts that begin with it; its tokens."""
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
        """The model that is loaded."""
        return self._parts.model

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
        scheduler, stepper, pool = self._loop.scheduler, self._loop.stepper, self.model.pool
        groups = range(len(pool.layout.groups))
        return EngineStats(
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            steps=stepper.steps,
            prompt_tokens=stepper.prompt_tokens,
            reused_tokens=scheduler.reused_tokens,
            generated_tokens=stepper.generated_tokens,
            preemptions=scheduler.preemptions,
            blocks=max(pool.sizes, default=0),
            blocks_held=max((pool.sizes[g] - pool.available(g) for g in groups), default=0),
            blocks_kept=max((pool.available(g) - pool.free(g) for g in groups), default=0),
            step_seconds=self._loop.health.step_seconds,
        )

    @property
    def change(self) -> str | None:
        """What somebody did to a file that it runs from, so that its requests fail; or None."""
        return next((model.change for model in self._models if model.change is not None), None)

    @property
    def is_replaced(self) -> bool:
        """Whether the path of a file leads to another one by now. This one can be used on."""
        return any(model.file.is_replaced for model in self._models)

    @property
    def _models(self) -> tuple[LoadedModel, ...]:
        parts = self._parts
        return (parts.model,) if parts.draft is None else (parts.model, parts.draft)

    @property
    def token_gaps(self) -> Gaps:
        """How long texts have waited from token to token."""
        return self._loop.stepper.gaps

    def check(self) -> None:
        """Raise an error if no request could be answered.

        That is `EngineError` if the step thread failed, hangs, or is in another process, and
        `ModelError` if the engine is closed.
        """
        self._loop.check()

    def clear_cache(self) -> None:
        """Forget all texts that are not running."""
        self._loop.call(self.model.cache.clear)

    def close(self) -> None:
        """Free everything, after the step that may be running.

        Requests that have not ended fail with `ModelError`.
        """
        if self._loaded is not None:
            _stop(self._loaded)
            self._stop.detach()

    def _text(self, asked: Asked) -> TextTask:
        parts = self._parts
        return TextTask(
            asked, parts.chains, parts.tokenizer, parts.model.context, self._proposer(parts.draft)
        )

    def _request(self, task: TextTask, progress: OnProgress | None = None) -> Request:
        if task.channel.is_ended:
            task.channel.publish()
        else:
            self._loop.submit(task)
        return Request(task, self._loop.wake, self._fork, progress)

    def _fork(self, task: TextTask, changes: dict[str, Any]) -> Request:
        """A request that continues a text as it is now."""
        params = replace(task.asked.params, seed=None).with_names(changes)
        # Compiled here, not in the step thread, which finds it as long as it is held.
        grammar = None if params.grammar is None else self.compile_grammar(params.grammar).result()

        def copy() -> TextTask:
            written = tuple(task.transcript.sampled)
            made = self._text(replace(task.asked, params=params, written=written))
            if not made.channel.is_ended:
                for strand, other in zip(made.strands, task.strands, strict=True):
                    self.model.copy_blocks(strand.share(other))
            return made

        request = self._request(self._loop.call(copy))
        del grammar
        return request

    def _proposer(self, draft: LoadedModel | None) -> Proposer | None:
        if draft is not None:
            from ingot.engine.draft import DraftProposer  # noqa: PLC0415 (few need it)

            return DraftProposer(draft)
        return NgramProposer() if self.options.speculation else None


def _open_draft(options: EngineOptions, model: LoadedModel) -> LoadedModel | None:
    if options.draft is None:
        return None
    from ingot.engine.draft import check_draft  # noqa: PLC0415 (few need it)

    draft = LoadedModel(options.draft, threads=options.threads, device=options.device)
    try:
        _check_guesses(draft)
        check_draft(model, draft)
    except ConfigError:
        draft.close()
        raise
    return draft


def _check_guesses(model: LoadedModel) -> None:
    """Refuse guesses of or for a model that cannot take a token back."""
    if model.layout.recurrent:
        raise ConfigError(
            f"{model.file.path} is a recurrent model, whose state cannot be taken back behind a "
            "wrong guess; leave speculation and draft out"
        )


def _limits(options: EngineOptions, model: LoadedModel) -> Limits:
    rows = _ROW_BYTES // (4 * model.graph.logits.width)
    chunk = options.chunk_tokens or (_GPU_CHUNK if model.on_gpu else _CHUNK)
    return Limits(
        running=options.max_running,
        queue=options.max_queue,
        generation_tokens=_native.MAX_GENERATION_TOKENS,
        prompt_tokens=model.step_tokens,
        chunk=min(chunk, model.step_tokens),
        rows=max(rows, _native.MAX_GENERATION_TOKENS),
    )


def _stop(parts: _Parts) -> None:
    parts.chains.close()
    parts.loop.stop()
    if parts.draft is not None:
        parts.draft.close()


def _stop_quietly(parts: _Parts) -> None:
    """Stop an engine that nobody holds any more, or at the end of the process.

    Ctrl-C ends the wait: native code never continues after the end of the interpreter.
    """
    with suppress(KeyboardInterrupt, EngineError):
        _stop(parts)
