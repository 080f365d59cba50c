"""SlotTable: the places of a model's texts by number, as llama-server's clients know them.

A text that is being written has a slot; one for which there is none waits for the first that
becomes free. A slot remembers the tokens of the text it had last. It does not know the engine's
own order: there, places have no numbers.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ingot.engine import Request, RequestState

_WRITING = (RequestState.QUEUED, RequestState.PROMPT, RequestState.GENERATING)
NO_SLOT = -1


@dataclass(slots=True)
class Slot:
    """A place, the text in it, and the tokens of the last one."""

    id: int
    task: int = -1  # which of the table's texts it has or had last, counted from 0
    request: Request | None = None
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether its text has not ended."""
        return self.request is not None and self.request.state in _WRITING

    def remember(self) -> None:
        """Take note of the tokens that its text has by now."""
        if self.request is not None:
            self.prompt_ids = self.request.prompt_ids
            self.token_ids = self.request.token_ids


class SlotTable:
    """The slots of one model. All methods belong to one event loop."""

    def __init__(self, count: int) -> None:
        self.slots = [Slot(number) for number in range(count)]
        self._given: dict[Request, int] = {}
        self._waiting: deque[Request] = deque()
        self._tasks = 0

    def enter(self, requests: Sequence[Request], wanted: int | None = None) -> None:
        """Give texts slots, the first of them the one that is wanted, if it is free."""
        for request in requests:
            free = [slot for slot in self.slots if not slot.is_busy]
            if not free:
                self._waiting.append(request)
                continue
            self._give(next((slot for slot in free if slot.id == wanted), free[0]), request)
            wanted = None

    def leave(self, requests: Sequence[Request]) -> None:
        """Take them back; those that wait get them."""
        for request in requests:
            if request in self._waiting:
                self._waiting.remove(request)
            number = self._given.pop(request, NO_SLOT)
            if number == NO_SLOT:
                continue
            slot = self.slots[number]
            if slot.request is not request:  # it had ended, and another text came
                continue
            slot.remember()
            slot.request = None
            if self._waiting:
                self._give(slot, self._waiting.popleft())

    def number_of(self, request: Request) -> int:
        """The slot of a text; -1 while it has none."""
        return self._given.get(request, NO_SLOT)

    def _give(self, slot: Slot, request: Request) -> None:
        slot.remember()
        slot.request, slot.task = request, self._tasks
        self._given[request] = slot.id
        self._tasks += 1
