"""LLM: open a model file and use it from Python.

from ingot import LLM
llm = LLM("model.gguf")
print(llm.generate("The capital of France is", max_tokens=16).text)
for piece in llm.stream("Once upon a time"):
    print(piece, end="")
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from ingot import models, results, store
from ingot.arrays import Floats
from ingot.backends.backend import OnOpening
from ingot.bar import DownloadBar
from ingot.convert import locate_quantized
from ingot.engine import (
    Completion,
    EngineOptions,
    EngineStats,
    OnProgress,
    Prompt,
    Request,
    create_engine,
)
from ingot.engine.adapters import AdapterChoice
from ingot.engine.options import EngineFields
from ingot.engine.recommended_options import recommended_options
from ingot.engine.request_fields import RequestFields, read_fields
from ingot.errors import PickleError
from ingot.recommended import recommended_sampling
from ingot.sampling import SamplingParams
from ingot.sampling.fields import SamplingFields
from ingot.sampling.params import DEFAULT_MAX_TOKENS

if TYPE_CHECKING:
    from ingot.chat import ChatSession, Overflow
    from ingot.reply import OfferedTools, Reply, ReplyStyle
    from ingot.tokenizer.chat_template import ChatTemplate
    from ingot.tool_runs import Functions, ToolRun

_log = logging.getLogger("ingot")

Schema = type | Mapping[str, object]
Messages = str | Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any] | Callable[..., Any]]


class LLM:
    """A model, ready to use from any number of threads and asyncio tasks.

    Requests are batched continuously: each step of the model computes tokens of all of them. Each
    request gets the same text as if it ran alone.

    Methods that generate text take sampling parameters by name (`temperature`, `seed`, `stop`,
    ...), or together as a `SamplingParams`. `max_tokens` is 128 by default; None means until the
    context is full. They also take `negative_prompt` and `cfg_scale` (classifier-free guidance),
    `heal`, `context_overflow`, `keep`, `reuse`, `adapter`, `priority` and `speculation`;
    `InferenceEngine.submit_request` explains these.

    `schema` is a JSON schema, a pydantic model or a dataclass that the text must follow;
    `Completion.parsed` is then the parsed object. For asyncio there are `agenerate`, `achat`,
    `astream`, `abatch`, `aembed` and `arun_tools`, with the same parameters.

    >>> from ingot import LLM
    >>> llm = LLM("default")
    >>> llm.generate("The capital of France is", max_tokens=2, temperature=0).text
    ' Paris.'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        chat_template: str | None = None,
        pooling: models.Pooling | None = None,
        progress: OnOpening | None = None,
        **options: Unpack[EngineFields],
    ) -> None:
        """Open a model. A problem with the file or an option is reported here, not later.

        `path` is a GGUF file, or a name that `ingot.store` knows: "hf:OWNER/REPO:QUANT",
        "https://...", "ollama:NAME", "default". What is not on this machine is downloaded. A `~` at
        the beginning of a path is the home folder.

        `chat_template` is the source of a Jinja template that replaces the model's. `pooling` is
        the default of `embed`.

        `options` are the fields of `EngineOptions`: `threads`, `context` (length in tokens),
        `kv_type`, `weights`, `cache_tokens`, `reuse`, `max_running`, `max_queue`, `chunk_tokens`,
        `speculation`, `device` ("cpu", "cuda", "cuda:1", "auto"), `gpu_layers` (a number or
        "auto"), `draft`, `step_timeout`, `engine_process`, `adapters` (LoRA adapters by name) and
        `adapter_scales`. While a GPU is made ready, `progress(stage, done, total)` is called: bytes
        of weights, then kernels to compile, then steps to capture.
        """
        started = time.perf_counter()
        given = EngineOptions.from_names(options)
        if chat_template is not None:
            from ingot.tokenizer.sandbox import CompiledTemplate  # noqa: PLC0415 (imports jinja2)

            CompiledTemplate(chat_template)  # an invalid one is an error now
        with DownloadBar() as bar:
            found = locate_quantized(path, bar) or store.locate(path, bar)
        self.engine = create_engine(recommended_options(found, given))
        self.engine.load_gguf_model(found, progress)
        model = self.engine.model
        self.path = model.file.path
        _log.info(
            "opened %s: context %d of %d, threads %d, %.2f s",
            model.file.path,
            model.context,
            model.graph.context_length,
            model.threads,
            time.perf_counter() - started,
        )
        if model.copies is not None:
            _log.info("%s: %s", model.file.path, model.copies.remark)
        self.file = model.file
        self.graph = model.graph
        self.context = model.context
        self.threads = model.threads
        self.tokenizer = self.engine.tokenizer
        self.defaults = SamplingParams.from_names(recommended_sampling(self.path))
        self.pooling: models.Pooling = pooling or models.pooling(self.file)
        self._template_source = chat_template

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        **fields: Unpack[RequestFields],
    ) -> Completion:
        """Continue a prompt (text or token ids) until the model stops or a limit is reached.

        >>> llm.generate("One, two, three,", max_tokens=4, temperature=0).text
        ' four, five,'
        """
        return results.whole(self._submit(prompt, params, fields, schema))

    async def agenerate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        **fields: Unpack[RequestFields],
    ) -> Completion:
        """`generate` as a coroutine. Cancelling the awaiting task cancels the request."""
        return await self._submit(prompt, params, fields, schema)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        progress: OnProgress | None = None,
        **fields: Unpack[RequestFields],
    ) -> Request:
        """Continue a prompt; iterate over the returned request to get the text piece by piece.

        `result()` of the request waits for the whole completion. `progress(done, total)` is called
        as prompt tokens are read.

        >>> list(llm.stream("One, two, three,", max_tokens=4, temperature=0))
        [' four', ',', ' five', ',']
        """
        return self._submit(prompt, params, fields, schema, progress)

    def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        progress: OnProgress | None = None,
        **fields: Unpack[RequestFields],
    ) -> Request:
        """`stream` for `async for`; `await` the request to get the whole completion.

        >>> import asyncio
        >>> async def main():
        ...     return [piece async for piece in llm.astream("1, 2,", max_tokens=2, temperature=0)]
        >>> asyncio.run(main())
        [' ', '3']
        """
        return self._submit(prompt, params, fields, schema, progress)

    def chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        tools: Tools | None = None,
        tool_choice: str = "auto",
        **fields: Unpack[RequestFields],
    ) -> Completion:
        """Answer messages like `{"role": "user", "content": "hi"}`, using the chat template.

        A text alone is a message of the user. `tools` are Python functions, or mappings in OpenAI's
        form; `parse_reply` finds the calls in the answer, and `run_tools` makes them. `tool_choice`
        is "auto", "required", "none" or the name of a tool that must be called (docs/engine.md).

        >>> llm.chat("What is the capital of France?", temperature=0).text
        'The capital of France is Paris.'
        """
        return results.whole(
            self.stream_chat(
                messages, params, schema=schema, tools=tools, tool_choice=tool_choice, **fields
            )
        )

    async def achat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        tools: Tools | None = None,
        tool_choice: str = "auto",
        **fields: Unpack[RequestFields],
    ) -> Completion:
        """`chat` as a coroutine. Cancelling the awaiting task cancels the request."""
        return await self.stream_chat(
            messages, params, schema=schema, tools=tools, tool_choice=tool_choice, **fields
        )

    def stream_chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        tools: Tools | None = None,
        tool_choice: str = "auto",
        progress: OnProgress | None = None,
        **fields: Unpack[RequestFields],
    ) -> Request:
        """`chat` piece by piece; iterate over the request with `for` or `async for`."""
        if tool_choice == "none" or (not tools and tool_choice == "auto"):
            return self._submit(self.chat_prompt(messages), params, fields, schema, progress)
        from ingot.reply import OfferedTools  # noqa: PLC0415 (few need it)

        prompt = self.chat_prompt(messages, tools=tools)
        calls = OfferedTools.read(self.reply_style, tools, tool_choice, self.tokenizer, prompt)
        return self._submit(prompt, params, fields, schema, progress, calls)

    def run_tools(
        self,
        messages: Messages,
        tools: "Functions",
        params: SamplingParams | None = None,
        *,
        tool_choice: str = "auto",
        max_rounds: int = 8,
        **fields: Unpack[RequestFields],
    ) -> "ToolRun":
        """Chat with Python functions as tools: call what the model asks for until it answers.

        The schema of a function comes from its type hints, descriptions from its docstring. If the
        arguments of a call do not fit, the model is told and may try again. An error that a
        function raises ends the run. After `max_rounds` answers with calls, `ToolError` is raised.
        `tool_choice` is that of `chat`, for the first answer; the model chooses freely after it.

        Unless `max_tokens` is passed, only the context limits answers and calls. A limit that cuts
        a call raises `IncompleteTextError`; one that cuts the answer sets `completion.is_cut`.

        >>> def now() -> str:
        ...     "The time of day."
        ...     return "12:30"
        >>> llm.run_tools("What is the capital of France?", [now], temperature=0).messages[0]
        {'role': 'user', 'content': 'What is the capital of France?'}
        """
        from ingot.tool_runs import run_tools  # noqa: PLC0415 (few need it)

        return run_tools(self, messages, tools, params, tool_choice, max_rounds, **fields)

    async def arun_tools(
        self,
        messages: Messages,
        tools: "Functions",
        params: SamplingParams | None = None,
        *,
        tool_choice: str = "auto",
        max_rounds: int = 8,
        **fields: Unpack[RequestFields],
    ) -> "ToolRun":
        """`run_tools` as a coroutine. Functions may be async; others run in a thread."""
        from ingot.tool_runs import arun_tools  # noqa: PLC0415 (few need it)

        return await arun_tools(self, messages, tools, params, tool_choice, max_rounds, **fields)

    def session(
        self,
        system: str | None = None,
        params: SamplingParams | None = None,
        *,
        overflow: "Overflow" = "error",
        **fields: Unpack[RequestFields],
    ) -> "ChatSession":
        """Start a conversation that remembers its messages; see `ChatSession`."""
        from ingot.chat import ChatSession  # noqa: PLC0415 (few need it)

        return ChatSession(self, system, params, overflow=overflow, **fields)

    def batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        progress: bool = True,
        **fields: Unpack[RequestFields],
    ) -> list[Completion]:
        """Continue many prompts at once; completions are in the order of the prompts.

        If stderr is a terminal and `progress` is true, a progress bar shows how many are done.

        >>> both = llm.batch(["1, 2, 3,", "A, B, C, D,"], max_tokens=2, temperature=0)
        >>> [done.text for done in both]
        [' 4', ' E,']
        """
        submit = partial(self._submit, params=params, fields=fields, schema=schema)
        with results.shown_batch(prompts, submit, shown=progress) as requests:
            return [request.result() for request in requests]

    async def abatch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        progress: bool = True,
        **fields: Unpack[RequestFields],
    ) -> list[Completion]:
        """`batch` as a coroutine. Cancelling the awaiting task cancels all requests."""
        submit = partial(self._submit, params=params, fields=fields, schema=schema)
        with results.shown_batch(prompts, submit, shown=progress) as requests:
            return [await request for request in requests]

    def chat_prompt(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        **extra: Any,
    ) -> list[int]:
        """The tokens that messages become by the model's chat template; `extra` is for it.

        If the template has no place for tools, the system message lists them.
        """
        from ingot.reply import for_template  # noqa: PLC0415 (not everybody chats)

        said, offered = for_template(messages, tools, self.reply_style)
        prompt = self.chat_template.render(said, tools=offered, **extra)
        return self.tokenizer.encode(
            prompt.text, add_special=False, parse_special=True, plain_spans=prompt.plain_spans
        )

    @cached_property
    def reply_style(self) -> "ReplyStyle":
        """The format in which this model writes reasoning and tool calls."""
        from ingot.reply import style_of  # noqa: PLC0415 (few need it)

        template = self.chat_template
        source = template.variants.get("tool_use", "") + template.source
        return style_of(source, self.tokenizer.control_tokens())

    def parse_reply(self, answer: Completion | str, *, tools: Tools | None = None) -> "Reply":
        """Split an answer into `content`, `reasoning` and `tool_calls`.

        If a limit ended a completion in a tool call, the arguments of that call are not complete.

        >>> tools = [{"name": "now", "description": "The time of day."}]
        >>> reply = llm.parse_reply('{"name": "now", "arguments": {}}', tools=tools)
        >>> reply.tool_calls[0].name, reply.content
        ('now', '')
        """
        from ingot.reply import parse_reply, read_tools  # noqa: PLC0415 (few need it)

        text, cut = (answer, False) if isinstance(answer, str) else (answer.text, answer.is_cut)
        return parse_reply(
            text,
            self.reply_style,
            read_tools(tools),
            begins_in_reasoning=self._begins_in_reasoning,
            cut=cut,
        )

    def fork(
        self, request: Request, count: int = 1, **changes: Unpack[SamplingFields]
    ) -> list[Request]:
        """Requests that continue a request's text from its current state, each with a new seed.

        They share its KV cache. `changes` are the sampling parameters that differ.
        """
        return [request.fork(**changes) for _ in range(count)]

    def beam_search(
        self,
        prompt: Prompt,
        width: int = 4,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        length_penalty: float = 1.0,
        adapter: AdapterChoice | None = None,
    ) -> list[results.BeamText]:
        """Beam search: the most likely continuations of a prompt found with `width` beams.

        They are sorted by log-probability / length ** length_penalty, best first.
        """
        ids = self.engine.encode(prompt)
        return results.beams_of(
            self.engine, ids, width, max_tokens, length_penalty=length_penalty, adapter=adapter
        )

    def score(
        self, prompt: Prompt, *, first: int = 1, adapter: AdapterChoice | None = None
    ) -> results.Score:
        """The log-probability of each token of a text, from token number `first` on.

        >>> score = llm.score("The capital of France is Paris")
        >>> len(score.token_ids), len(score.logprobs)
        (6, 5)
        """
        return results.score_of(self.engine, self.engine.encode(prompt), first, adapter)

    def logits(self, token_ids: Sequence[int], *, adapter: AdapterChoice | None = None) -> Floats:
        """Logits [tokens, vocabulary] for the token after each given token."""
        return results.logits_of(self.engine, self.engine.encode(token_ids), adapter)

    def embed(
        self,
        texts: str | Sequence[Prompt],
        *,
        pooling: models.Pooling | None = None,
        normalize: bool = True,
    ) -> Floats:
        """Embeddings [texts, width], or [width] for one text.

        `pooling` turns the hidden states of a text's tokens into one vector: their "mean", the
        "last" or the first ("cls"). The default is that of the model, else the mean. With
        `normalize`, vectors have length 1, so a dot product is a cosine similarity.

        >>> cat, kitten, tax = llm.embed(["a cat", "a kitten", "the income tax law of 1913"])
        >>> bool(cat @ kitten > cat @ tax)
        True
        """
        asked = [texts] if isinstance(texts, str) else list(texts)
        ids = [self.engine.encode(text) for text in asked]
        self.engine.adapters.require_none()
        chosen = self.pooling if pooling is None else pooling
        vectors = self.engine.programs.embeddings(ids, chosen, normalize=normalize)
        return vectors[0] if isinstance(texts, str) else vectors

    async def aembed(
        self,
        texts: str | Sequence[Prompt],
        *,
        pooling: models.Pooling | None = None,
        normalize: bool = True,
    ) -> Floats:
        """`embed` as a coroutine; it runs in a thread."""
        import asyncio  # noqa: PLC0415 (imported already if somebody awaits)

        return await asyncio.to_thread(self.embed, texts, pooling=pooling, normalize=normalize)

    def rerank(
        self, query: str, documents: Sequence[str], *, truncate: int | None = None
    ) -> Floats:
        """Scores [documents] of how well each document answers a query; the model is a reranker.

        Larger is better; only the order is meaningful. A query and a document of more than
        `truncate` tokens together are cut to that many. Models without a ranking head raise
        `ModelError`; use `embed` with these.

        >>> llm.rerank("capital of France", ["Paris", "a cat"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ingot.errors.ModelError: ... use embed
        """
        self.engine.adapters.require_none()
        return self.engine.programs.ranking(self.tokenizer, query, documents, truncate)

    def hidden_states(self, prompt: Prompt) -> Floats:
        """Hidden states [1 + layers, tokens, width]: the embeddings, then each layer's output.

        >>> llm.hidden_states("hi").shape
        (31, 1, 576)
        """
        self.engine.adapters.require_none()
        return self.engine.programs.layer_states(self.engine.encode(prompt))

    def save(self, text: Prompt | Request, path: str | os.PathLike[str]) -> None:
        """Write the KV cache of a prompt, or of a request so far, to a file."""
        self.engine.save(text, path)

    def restore(self, path: str | os.PathLike[str]) -> tuple[int, ...]:
        """Load a saved KV cache and return its tokens; prompts that begin with them reuse it."""
        return self.engine.restore(path)

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """The tokens of a text.

        >>> llm.detokenize(llm.tokenize("hello"))
        'hello'
        """
        return self.tokenizer.encode(text, add_special=add_special)

    def detokenize(self, token_ids: Iterable[int]) -> str:
        """The text of tokens."""
        return self.tokenizer.decode(token_ids)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the LoRA adapters that requests may choose."""
        return tuple(info.name for info in self.engine.adapters.infos)

    def add_adapter(self, name: str, path: str | os.PathLike[str], *, scale: float = 0.0) -> None:
        """Open a LoRA adapter, a GGUF file or a folder of PEFT, while requests run.

        Requests choose it with `adapter=name`. Those that choose none use it with `scale`.
        """
        self.engine.adapters.add(name, path, scale)

    def remove_adapter(self, name: str) -> None:
        """Remove an adapter; requests that run with it continue."""
        self.engine.adapters.remove(name)

    @cached_property
    def chat_template(self) -> "ChatTemplate":
        """The chat template: the given one, that of the model, or ChatML if it has none."""
        from ingot.recommended import chat_template_of  # noqa: PLC0415 (imports jinja2)

        return chat_template_of(self.file, self.tokenizer, self._template_source)

    @property
    def stats(self) -> EngineStats:
        """Counters of the engine: running and waiting requests, tokens, cache use, ..."""
        return self.engine.stats

    def close(self) -> None:
        """Free everything, after the current step. Unfinished requests fail with `ModelError`."""
        self.engine.close()
        _log.info("closed %s", self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise PickleError(
            "an LLM cannot be pickled or copied: it owns threads and memory; open the model in the "
            f"other process with LLM({str(self.path)!r})"
        )

    def __repr__(self) -> str:
        return f"LLM({str(self.path)!r}, threads={self.threads}, context={self.context})"

    def _submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        fields: RequestFields,
        schema: Schema | None = None,
        progress: OnProgress | None = None,
        calls: "OfferedTools | None" = None,
    ) -> Request:
        made, others = read_fields(params, fields, self.defaults)
        parse: Callable[[str], Any] | None = None
        if schema is not None:
            made, parse = results.with_schema(made, schema)
        if calls is not None:
            made = replace(made, grammar=calls.grammar(made.grammar))
            parse = parse and partial(calls.parse, parse_answer=parse)
        return self.engine.submit_request(prompt, made, progress=progress, parse=parse, **others)

    @cached_property
    def _begins_in_reasoning(self) -> bool:
        """Whether the chat template opens the reasoning block at the end of a prompt."""
        asked = self.chat_template.render([{"role": "user", "content": "?"}])
        return self.reply_style.is_opened_by(asked.text)
