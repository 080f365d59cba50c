"""Answer a message, piece by piece as the answer is written; Ctrl-C ends it early.

python examples/streaming.py [MESSAGE]
"""

import sys

from ingot import LLM, ChatTemplate, store

message = sys.argv[1] if len(sys.argv) > 1 else "Name three primary colours."

with LLM(store.resolve("default")) as llm:
    template = ChatTemplate.from_metadata(llm.model.metadata, llm.tokenizer)
    prompt = template.render([{"role": "user", "content": message}])
    ids = llm.tokenizer.encode(
        prompt.text, add_special=False, parse_special=True, plain_spans=prompt.plain_spans
    )
    answer = llm.stream(ids, max_tokens=60, temperature=0)
    try:
        for piece in answer:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        answer.close()
    print()
    print(f"{answer.timings.generation_rate:.1f} tokens per second", file=sys.stderr)
