"""`/apply-template`: the prompt that a conversation becomes, without an answer to it."""

import asyncio

from fastapi import APIRouter
from pydantic import BaseModel

from ingot.api import LLM
from ingot.server.chatting import Chat, prompt_text
from ingot.server.openai.chat_body import ChatBody, chat_of
from ingot.server.state import Server


class TemplatePrompt(BaseModel):
    """The prompt for `/completion`."""

    prompt: str


def router(server: Server) -> APIRouter:
    """The endpoint."""
    made = APIRouter()

    @made.post("/apply-template")
    async def apply_template(body: ChatBody) -> TemplatePrompt:
        """The prompt of a conversation, by the model's chat template."""
        chat = chat_of(body, server.options)
        with await server.catalog.lease(body.model) as lease:
            return TemplatePrompt(prompt=await asyncio.to_thread(_prompt, lease.llm, chat))

    return made


def _prompt(llm: LLM, chat: Chat) -> str:
    text = prompt_text(llm, chat)
    # The token that begins a text is added when the prompt is tokenized.
    return text.removeprefix(llm.chat_template.bos_token) if llm.tokenizer.adds_bos else text
