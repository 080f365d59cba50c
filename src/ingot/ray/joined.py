"""One response of those that all replicas gave to the same call."""

import json
from collections.abc import Sequence
from typing import Any

from ingot.ray.call import HISTORY, LOADED, METRICS, STATUS, Call
from ingot.ray.status import joined_history, joined_models, joined_status
from ingot.ray.sums import added_up
from ingot.server.http.json_response import dumps

Messages = list[dict[str, Any]]  # of ASGI
_JOINS = {STATUS: joined_status, HISTORY: joined_history, LOADED: joined_models}


def joined(call: Call, answers: Sequence[tuple[str, Messages]]) -> Messages:
    """Metrics and states as one; of other endpoints the first response, as all say the same.

    If a replica refused, its response. The answers come with the names of their replicas.
    """
    for _, messages in answers:
        if messages[0]["status"] != 200:
            return messages
    texts = {name: _body(messages) for name, messages in answers}
    match call.path:
        case path if path == METRICS:
            body = added_up(texts, call.scope.get("query_string", b""))
        case path if path in _JOINS:
            found = {name: json.loads(text) for name, text in texts.items()}
            body = dumps(_JOINS[path](found)).encode()
        case _:
            return answers[0][1]
    start = answers[0][1][0]
    headers = [each for each in start["headers"] if each[0].lower() != b"content-length"]
    headers.append((b"content-length", str(len(body)).encode()))
    return [{**start, "headers": headers}, {"type": "http.response.body", "body": body}]


def _body(messages: Messages) -> str:
    return b"".join(each.get("body", b"") for each in messages[1:]).decode()
