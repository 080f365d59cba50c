"""Parts of grammars in llguidance's Lark, which rules of replies are made of."""

import json
from collections.abc import Mapping
from typing import Any

from ingot.reply.style import ReplyStyle

# As templates write JSON; free white space would only cost tokens.
_SETTINGS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def text(text: str) -> str:
    """A text as it is."""
    return json.dumps(text)


def mark(style: ReplyStyle, mark: str) -> str:
    """A mark: its token, or its text where it has none of its own."""
    return f"<[{style.controls[mark]}]>" if mark in style.controls else text(mark)


def json_by(schema: Any) -> str:
    """JSON by a schema, without free white space."""
    if not isinstance(schema, Mapping):  # True is any JSON, False none
        schema = {} if schema else {"not": {}}
    return f"%json {json.dumps({**schema, 'x-guidance': _SETTINGS})}"
