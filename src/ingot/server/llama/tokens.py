"""`/tokenize` and `/detokenize`: between a text and its tokens."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.responses import Response

from ingot.server.body_limits import MOST_TOKENS, TokenId
from ingot.server.json_answer import LongAnswer, list_pieces
from ingot.server.sampling_body import Body
from ingot.server.sse import dumps
from ingot.server.state import Server
from ingot.tokenizer import Tokenizer

_TOGETHER = 4096  # tokens that are written at once: a millisecond


class TokenizeBody(Body):
    """A text; one that is missing is as good as an empty one."""

    model: str | None = None
    content: str = ""
    add_special: bool = False  # the tokens around it that the model's file asks for
    parse_special: bool = True  # the names of control tokens are these tokens
    with_pieces: bool = False


class TokenPiece(BaseModel):
    """A token and its text, or its bytes where they are no text."""

    id: int
    piece: str | list[int]


class TokenList(BaseModel):
    """The tokens of a text."""

    tokens: list[int] | list[TokenPiece]


class DetokenizeBody(Body):
    """Tokens."""

    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True, max_length=MOST_TOKENS)]


class Content(BaseModel):
    """Their text."""

    content: str


def router(server: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter()

    @made.post("/tokenize", response_model=TokenList)
    async def tokenize(body: TokenizeBody) -> Response:
        """The tokens of a text."""
        with await server.catalog.lease(body.model) as lease:
            tokenizer = lease.llm.tokenizer
            ids = await asyncio.to_thread(
                tokenizer.encode_array, body.content, body.add_special, body.parse_special
            )
        told = _pieces(tokenizer, ids) if body.with_pieces else map(str, _numbers(ids))
        return LongAnswer(_answer(told))

    @made.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> Content:
        """The text of tokens."""
        with await server.catalog.lease(body.model) as lease:
            text = await asyncio.to_thread(lease.llm.tokenizer.decode, body.tokens)
            return Content(content=text)

    return made


def _answer(told: Iterator[str]) -> Iterator[str]:
    yield '{"tokens":'
    yield from list_pieces(told, _TOGETHER)
    yield "}"


def _numbers(ids: NDArray[np.int32]) -> Iterator[int]:
    """The ids as Python has them, without a list of all of them."""
    for start in range(0, len(ids), _TOGETHER):
        yield from ids[start : start + _TOGETHER].tolist()


def _pieces(tokenizer: Tokenizer, ids: NDArray[np.int32]) -> Iterator[str]:
    """Each token with its text."""
    known: dict[int, str] = {}
    for id in _numbers(ids):
        if id not in known:
            known[id] = dumps({"id": id, "piece": _piece(tokenizer, id)})
        yield known[id]


def _piece(tokenizer: Tokenizer, token: int) -> str | list[int]:
    content = tokenizer.token_bytes(token)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return list(content)
