"""Writes `expected/` anew with `transformers` (from the `oracle` extra).

In `tests/`: python -m data.chat_templates.make_expected
"""

import json

from data.chat_templates.cases import cases, expected_path, families
from data.chat_templates.with_transformers import render

for family in families():
    texts = {case.name: render(case) for case in cases(family)}
    path = expected_path(family)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    refused = sum(text is None for text in texts.values())
    print(f"{family.name}: {len(texts)} texts, {refused} of them refused")
