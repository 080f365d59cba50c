"""`/tokenizer_info`: a model's tokenizer and chat template, as vLLM describes them."""

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.server.model_facts import context_of, tokenizer_of
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
        """The tokenizer of a model, which stays closed if it is."""
        entry = server.catalog.find(model)
        facts = await tokenizer_of(entry, server.tokenizers)
        return TokenizerInfo(
            tokenizer_class=facts.kind,
            vocab_size=facts.vocabulary,
            model_max_length=context_of(await server.facts.read(entry.model.path), entry),
            bos_token=facts.bos_token,
            eos_token=facts.eos_token,
            add_bos_token=facts.adds_bos,
            chat_template=facts.template,
            added_tokens_decoder={str(id): text for text, id in facts.control_tokens.items()},
        )

    return routes
