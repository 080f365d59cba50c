"""Stream the answer to a message; Ctrl-C stops it.

python examples/streaming.py [MESSAGE]
"""

import sys

from ingot import LLM, store

message = sys.argv[1] if len(sys.argv) > 1 else "Name three primary colours."

with LLM(store.resolve("default")) as llm:
    answer = llm.stream_chat([{"role": "user", "content": message}], max_tokens=60, temperature=0)
    try:
        for piece in answer:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        answer.cancel()
    print()
    print(f"{answer.timings.generation_rate:.1f} tokens per second", file=sys.stderr)
