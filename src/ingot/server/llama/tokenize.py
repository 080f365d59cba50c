"""`/tokenize`, `/detokenize` and `/apply-template`: between messages, text and tokens.

llama-server sends `content` to `/tokenize`, vLLM `prompt` or `messages`. Each gets its own form.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.server.body_limits import MAX_TOKEN_IDS, TokenId, Tools
from ingot.server.chat import Chat, for_counting, prepare, prompt_text
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.http.json_response import LongJsonResponse, RawJson, dumps
from ingot.server.openai.chat_body import ChatBody, FunctionTool, Messages, chat_of
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread
from ingot.tokenizer import Tokenizer

_AT_ONCE = 4096  # token ids that become Python integers together


class TokenizeBody(RequestBody):
    """A text (llama-server's `content`, vLLM's `prompt`), or messages."""

    model: str | None = None
    content: str = ""
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools[FunctionTool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special: bool = False  # add BOS and EOS as the model's file asks for it
    add_special_tokens: bool = True  # the same for `prompt`
    parse_special: bool = True  # names of control tokens in the text become these tokens
    with_pieces: bool = False
    return_token_strs: bool | None = None  # for `prompt` and `messages`


class TokenPiece(BaseModel):
    """A token and its text, or its bytes if they are not valid UTF-8."""

    id: int
    piece: str | list[int]


class TokenList(BaseModel):
    """The tokens of a text."""

    tokens: list[int] | list[TokenPiece]
    warnings: list[str] | None = None  # about parameters that were ignored


class CountedTokens(BaseModel):
    """The tokens of a prompt in vLLM's form."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    warnings: list[str] | None = None


class DetokenizeBody(RequestBody):
    """Token ids."""

    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_TOKEN_IDS)]


class Content(BaseModel):
    """The text of tokens, under the names of llama-server and of vLLM."""

    content: str
    prompt: str
    warnings: list[str] | None = None


class TemplatePrompt(BaseModel):
    """A prompt for `/completion`."""

    prompt: str
    warnings: list[str] | None = None


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    @routes.post("/tokenize", response_model=TokenList | CountedTokens)
    async def tokenize(body: TokenizeBody, http: HttpRequest) -> Response:
        """Tokenize a text, or a conversation."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        told = {"warnings": record.warnings} if record.warnings else {}
        if body.prompt is not None or body.messages is not None:
            return LongJsonResponse({**await _counted(server, body), **told})
        with await server.catalog.lease(body.model) as lease:
            tokenizer = lease.llm.tokenizer
            ids = await run_in_thread(
                tokenizer.encode_array, body.content, body.add_special, body.parse_special
            )
        tokens = _pieces(tokenizer, ids) if body.with_pieces else map(RawJson, _integers(ids))
        return LongJsonResponse({"tokens": tokens, **told})

    @routes.post("/detokenize", response_model_exclude_none=True)
    async def detokenize(body: DetokenizeBody, http: HttpRequest) -> Content:
        """Turn tokens into text."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        with await server.catalog.lease(body.model) as lease:
            text = await run_in_thread(lease.llm.tokenizer.decode, body.tokens)
            return Content(content=text, prompt=text, warnings=record.warnings or None)

    @routes.post("/apply-template", response_model_exclude_none=True)
    async def apply_template(body: ChatBody, http: HttpRequest) -> TemplatePrompt:
        """Render a conversation with the model's chat template."""
        record = record_of(http.scope)
        check_parameters(body, record, server.options)
        chat = chat_of(body, for_counting(server.request_options(body.model)))
        with await server.catalog.lease(body.model) as lease:
            prompt = await run_in_thread(_prompt, lease.llm, chat)
        return TemplatePrompt(prompt=prompt, warnings=record.warnings or None)

    return routes


async def _counted(server: Server, body: TokenizeBody) -> dict[str, object]:
    """The tokens of a prompt or of messages, in vLLM's form."""
    if body.prompt is not None and (body.messages is not None or body.content):
        raise ApiError(400, "prompt cannot be combined with messages or content", param="prompt")

    def encode(llm: LLM) -> list[int]:
        if body.prompt is not None:
            return llm.tokenizer.encode(body.prompt, body.add_special_tokens, parse_special=True)
        given = ChatBody(
            messages=body.messages or [],
            tools=[*(body.tools or ())],
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            chat_template_kwargs=body.chat_template_kwargs,
        )
        return prepare(llm, chat_of(given, server.request_options(body.model)))[0]

    with await server.catalog.lease(body.model) as lease:
        llm = lease.llm
        ids = await run_in_thread(encode, llm)
    response: dict[str, object] = {
        "count": len(ids),
        "max_model_len": llm.context,
        "tokens": iter(ids),
        "token_strs": None,
    }
    if body.return_token_strs:
        pieces = map(llm.tokenizer.token_bytes, ids)
        response["token_strs"] = (piece.decode("utf-8", "replace") for piece in pieces)
    return response


def _integers(ids: NDArray[np.int32]) -> Iterator[int]:
    """The ids as Python integers, without a list of all of them."""
    for start in range(0, len(ids), _AT_ONCE):
        yield from ids[start : start + _AT_ONCE].tolist()


def _pieces(tokenizer: Tokenizer, ids: NDArray[np.int32]) -> Iterator[RawJson]:
    """Each token with its text."""
    known: dict[int, RawJson] = {}
    for id in _integers(ids):
        if id not in known:
            known[id] = RawJson(dumps({"id": id, "piece": _piece(tokenizer, id)}))
        yield known[id]


def _piece(tokenizer: Tokenizer, token: int) -> str | list[int]:
    content = tokenizer.token_bytes(token)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return list(content)


def _prompt(llm: LLM, chat: Chat) -> str:
    text = prompt_text(llm, chat)
    # `/completion` adds BOS when it tokenizes the prompt.
    return text.removeprefix(llm.chat_template.bos_token) if llm.tokenizer.adds_bos else text
