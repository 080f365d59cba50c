"""`/tokenizer_info`: a model's tokenizer and chat template, as vLLM describes them."""

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.api import LLM
from ingot.server.state import Server


class TokenizerInfo(BaseModel):
    """A tokenizer, with the fields of a `tokenizer_config.json` that a GGUF file states."""

    tokenizer_class: str  # the kind of vocabulary, such as gpt2 or llama
    vocab_size: int
    model_max_length: int
    bos_token: str
    eos_token: str
    add_bos_token: bool
    chat_template: str
    added_tokens_decoder: dict[str, str]  # control tokens by their ids


def router(server: Server) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.get("/tokenizer_info")
    async def tokenizer_info(model: str | None = None) -> TokenizerInfo:
        """The tokenizer of a model."""
        with await server.catalog.lease(model) as lease:
            return _info(lease.llm)

    return routes


def _info(llm: LLM) -> TokenizerInfo:
    tokenizer, template = llm.tokenizer, llm.chat_template
    return TokenizerInfo(
        tokenizer_class=tokenizer.kind,
        vocab_size=tokenizer.vocab_size,
        model_max_length=llm.context,
        bos_token=template.bos_token,
        eos_token=template.eos_token,
        add_bos_token=tokenizer.adds_bos,
        chat_template=template.source,
        added_tokens_decoder={str(id): text for text, id in tokenizer.control_tokens().items()},
    )
