"""`/tokenize` and `/detokenize`: between a text and its tokens."""

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ingot.server.sampling_body import Body, TokenId
from ingot.server.state import Server
from ingot.tokenizer import Tokenizer


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
    tokens: Annotated[list[TokenId], Field(max_length=1 << 20)]


class Content(BaseModel):
    """Their text."""

    content: str


def router(server: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter()

    @made.post("/tokenize")
    async def tokenize(body: TokenizeBody) -> TokenList:
        """The tokens of a text."""
        with await server.catalog.lease(body.model) as lease:
            return await asyncio.to_thread(_tokenized, lease.llm.tokenizer, body)

    @made.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> Content:
        """The text of tokens."""
        with await server.catalog.lease(body.model) as lease:
            text = await asyncio.to_thread(lease.llm.tokenizer.decode, body.tokens)
            return Content(content=text)

    return made


def _tokenized(tokenizer: Tokenizer, body: TokenizeBody) -> TokenList:
    tokens = tokenizer.encode(body.content, body.add_special, body.parse_special)
    if not body.with_pieces:
        return TokenList(tokens=tokens)
    pieces = {token: TokenPiece(id=token, piece=_piece(tokenizer, token)) for token in set(tokens)}
    return TokenList(tokens=[pieces[token] for token in tokens])


def _piece(tokenizer: Tokenizer, token: int) -> str | list[int]:
    content = tokenizer.token_bytes(token)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return list(content)
