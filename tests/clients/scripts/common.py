"""What the scripts share: questions that the scripted model knows, and how to tell the results.

A script has functions named like what they do. Each returns what it found, or the class and the
message of the error that it expected. All results go to stdout as JSON.
"""

import asyncio
import contextlib
import inspect
import io
import json
import sys
from collections.abc import Callable
from typing import Any

URL = sys.argv[1] if len(sys.argv) > 1 else ""
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""  # steps whose names begin with this
KEY = "sesame"
HELLO, WEATHER, PERSON = "Say hello.", "What is the weather in Rome?", "Give a person as JSON."
LONG = "word " * 20_000  # more than the context
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CALLED: list[str] = []
RUNNER = asyncio.Runner()  # one loop for all steps, because clients keep connections


def get_weather(city: str) -> str:
    """Get the weather in a city.

    Args:
        city: The name of the city.
    """
    CALLED.append(city)
    return f"sunny in {city}"


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def error_of(call: Callable[[], Any]) -> dict[str, str]:
    """The error that a call raises."""
    try:
        answer = call()
        if inspect.iscoroutine(answer):
            answer = RUNNER.run(answer)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": "", "message": f"no error, but {answer!r}"}


def tell(*steps: Callable[[], Any]) -> None:
    """Run the steps and print what they return; libraries may print to stdout meanwhile."""
    results: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for step in steps:
            if not step.__name__.startswith(ONLY):
                continue
            CALLED.clear()
            found = step()
            if inspect.iscoroutine(found):
                found = RUNNER.run(found)
            results[step.__name__] = found
            if step.__name__.startswith("tools"):
                results[f"{step.__name__} called"] = list(CALLED)
    json.dump(results, sys.stdout)
