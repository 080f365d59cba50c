"""Answer many questions at once with asyncio; all requests share each step of the model.

python examples/async_answers.py [MODEL]
"""

import asyncio
import sys

from ingot import LLM, store

QUESTIONS = {
    "Ada": "What is the capital of France?",
    "Ben": "What is the capital of Germany?",
    "Cleo": "What is the capital of Egypt?",
    "Dan": "What is the capital of Japan?",
}


async def serve(llm: LLM, name: str, question: str) -> None:
    done = await llm.achat([{"role": "user", "content": question}], max_tokens=24, temperature=0)
    print(f"{name}: {done.text}")


async def main() -> None:
    path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")
    with LLM(path) as llm:
        await asyncio.gather(*(serve(llm, *asked) for asked in QUESTIONS.items()))
        print(f"{llm.stats.generated_tokens} tokens in {llm.stats.steps} steps")


asyncio.run(main())
