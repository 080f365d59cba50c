"""Parts of grammars in llguidance's Lark: literals, markers, JSON by a schema."""

import json
from collections.abc import Mapping

from ingot.reply.style import ReplyStyle

# As templates write JSON. Free white space would only cost tokens.
_SETTINGS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def text(literal: str) -> str:
    """A literal."""
    return json.dumps(literal)


def marker(style: ReplyStyle, spelled: str) -> str:
    """A marker: its control token, or its text if it has none."""
    return f"<[{style.controls[spelled]}]>" if spelled in style.controls else text(spelled)


def json_by(schema: object) -> str:
    """JSON that follows a schema, without free white space."""
    if not isinstance(schema, Mapping):  # True allows any JSON, False none
        schema = {} if schema else {"not": {}}
    return f"%json {json.dumps({**schema, 'x-guidance': _SETTINGS})}"
