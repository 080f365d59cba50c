"""Answers of `/v1/responses` that may be asked for again, in memory, within bounds."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ingot.server.openai.responses_items import Item

_MOST_ANSWERS = 1024
_MOST_CHARACTERS = 64 << 20  # of all conversations together; the oldest are let go first


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """An answer, and the conversation up to its end."""

    answer: dict[str, Any]
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """About as many characters as it has."""
        return sum(len(repr(item)) for item in self.items)


class KeptResponses:
    """Answers by their ids. All methods belong to one event loop."""

    def __init__(
        self, most_answers: int = _MOST_ANSWERS, most_characters: int = _MOST_CHARACTERS
    ) -> None:
        self._kept: OrderedDict[str, tuple[KeptResponse, int]] = OrderedDict()
        self._most_answers = most_answers
        self._most_characters = most_characters
        self._characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, id: str, response: KeptResponse) -> None:
        """Remember an answer; the oldest make room for it."""
        size = response.size
        self._kept[id] = (response, size)
        self._characters += size
        while len(self._kept) > self._most_answers or self._characters > self._most_characters:
            _, (_, size) = self._kept.popitem(last=False)
            self._characters -= size

    def find(self, id: str) -> KeptResponse | None:
        """An answer, if it is still there."""
        found = self._kept.get(id)
        return None if found is None else found[0]

    def forget(self, id: str) -> bool:
        """Let an answer go: whether it was there."""
        found = self._kept.pop(id, None)
        if found is not None:
            self._characters -= found[1]
        return found is not None
