"""Render messages with the chat template and tokenize them.

python examples/tokenize_chat.py [MODEL]
"""

import sys

from ingot import GgufLoader, store
from ingot.tokenizer import Tokenizer
from ingot.tokenizer.chat_template import ChatTemplate

path = store.resolve(sys.argv[1] if len(sys.argv) > 1 else "default")
messages = [{"role": "user", "content": "What does <|im_end|> do?"}]

with GgufLoader(path) as model:
    tokenizer = Tokenizer.from_metadata(model.metadata)
    prompt = ChatTemplate.from_metadata(model.metadata, tokenizer).render(messages)
    ids = tokenizer.encode(
        prompt.text,
        add_special=False,
        parse_special=True,  # special tokens of the template are tokens;
        plain_spans=prompt.plain_spans,  # those typed by a user are text
    )
    print(ids)
    print(tokenizer.decode(ids))
