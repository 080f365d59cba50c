"""Threads: conversations that `/v1/messages` holds, so that a client sends only what is new.

`thread: {"type": "create"}` holds a conversation under the id of its answer; `continue` with that
id goes on with it. A thread keeps all fields of its requests; later ones replace them. Threads are
in memory; if one is gone, the client is told so and sends the whole conversation again.
"""

from collections import OrderedDict
from typing import Any, TypeVar

from ingot.server.anthropic.messages_body import Conversation, MessageBody, MessagesBody
from ingot.server.errors import ApiError

T = TypeVar("T", bound=Conversation)

_MOST_THREADS = 1024
_MOST_CHARACTERS = 64 << 20  # of all conversations; the oldest are dropped first
_OWN = frozenset({"messages", "thread", "stream"})  # fields that a later request does not inherit


class ThreadStore:
    """Conversations by the id of their last answer. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[MessagesBody, int]] = OrderedDict()
        self._characters = 0

    def continued(self, body: T) -> T:
        """The whole request: what is held of its thread, and what the body adds."""
        if body.thread is None or body.thread.type == "create":
            return body
        held = self._held.get(body.thread.previous_message_id or "")
        if held is None:
            raise ApiError(
                404,
                f"there is no thread that ends with {body.thread.previous_message_id!r:.60}; send "
                'the whole conversation with thread: {"type": "create"}',
                param="thread",
                code="thread_not_found",
            )
        before = held[0]
        inherited = {
            name: getattr(before, name)
            for name in before.model_fields_set - body.model_fields_set - _OWN
            if name in type(body).model_fields
        }
        messages = [*before.messages, *body.messages]
        return body.model_copy(update={**inherited, "messages": messages})

    def hold(self, body: MessagesBody, message_id: str, content: list[dict[str, Any]]) -> None:
        """Hold a conversation that the model has answered, if its client wants that."""
        if body.thread is None:
            return
        answer = MessageBody.model_validate({"role": "assistant", "content": content or ""})
        whole = body.model_copy(update={"messages": [*body.messages, answer]})
        if body.thread.previous_message_id in self._held:
            self._drop(str(body.thread.previous_message_id))
        size = len(repr(whole.messages))
        self._held[message_id] = (whole, size)
        self._characters += size
        while len(self._held) > _MOST_THREADS or self._characters > _MOST_CHARACTERS:
            self._drop(next(iter(self._held)))

    def _drop(self, message_id: str) -> None:
        _, size = self._held.pop(message_id)
        self._characters -= size
