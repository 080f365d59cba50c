"""Show the examples of docstrings as code.

A docstring has an example as a paragraph that starts with `>>>`. Markdown takes that for a
quotation, so the paragraph becomes a fenced block before it is rendered.
"""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.M)


class ExamplesInDocstrings(Extension):
    """Called by griffe for every object that it reads."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Fence the examples of an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(
                lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value
            )
