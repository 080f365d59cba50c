"""What a user writes: every call here is right, and its types are known."""

import asyncio
from dataclasses import dataclass

from ingot import LLM, ChatSession, Completion, Request, SamplingParams, Score, Timings, ToolRun


@dataclass
class City:
    """A schema."""

    name: str


def weather(city: str) -> str:
    """Look up the weather."""
    return f"warm in {city}"


def plain(llm: LLM) -> Completion:
    """Plain methods."""
    done: Completion = llm.generate("a", max_tokens=3, temperature=0.5, stop=["x"], seed=1)
    request: Request = llm.stream("a", SamplingParams(top_k=3), schema=City)
    timings: Timings = request.result().timings
    many: list[Completion] = llm.batch(["a", "b"], max_new_tokens=3, progress=False)
    score: Score = llm.score("a")
    session: ChatSession = llm.session("Be short.", overflow="drop", top_p=0.9)
    answer: Completion = session.send("hello", max_tokens=5)
    print(done.text, timings.prompt_rate, len(many), score.perplexity, answer.finish_reason)
    hello: Completion = llm.chat("hello", tools=[weather])
    run: ToolRun = llm.run_tools("Is it warm in Rome?", [weather], max_rounds=3)
    print(hello.is_cut, run.text, len(run.messages))
    return llm.chat([{"role": "user", "content": "hi"}], schema={"type": "object"}, heal=True)


async def with_asyncio(llm: LLM) -> str:
    """The same with asyncio."""
    done: Completion = await llm.agenerate("a", context_overflow="stop")
    answer: Completion = await llm.achat([{"role": "user", "content": "hi"}], max_tokens=None)
    many: list[Completion] = await llm.abatch(["a"])
    text = done.text + answer.text + many[0].text
    async for piece in llm.astream("a", cfg_scale=2.0, negative_prompt="b"):
        text += piece
    return text


if __name__ == "__main__":
    with LLM("model.gguf", threads=2, context=512, kv_type="q8_0") as opened:
        plain(opened)
        asyncio.run(with_asyncio(opened))
