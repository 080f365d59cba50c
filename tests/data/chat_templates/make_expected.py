"""Writes `expected/` anew with `transformers` (needs the `oracle` extra)."""

import json

from cases import cases, expected_path, families
from with_transformers import render

for family in families():
    texts = {case.name: render(case) for case in cases(family)}
    path = expected_path(family)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    refused = sum(text is None for text in texts.values())
    print(f"{family.name}: {len(texts)} texts, {refused} of them refused")
