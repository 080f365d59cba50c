"""SlotTable: numbered slots for a model's requests, as llama-server's clients know them.

Each running request has a slot; if all are busy, it gets the first that becomes free. A slot
remembers the tokens of its last request. The engine itself does not number its requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.engine import Request, RequestState

_RUNNING = (RequestState.QUEUED, RequestState.PROMPT, RequestState.GENERATING)
NO_SLOT = -1


@dataclass(slots=True)
class Slot:
    """A slot, its request, and the tokens of its last request."""

    id: int
    task: int = -1  # the number of its last request, counted from 0
    request: Request | None = None
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether its request is still running."""
        return self.request is not None and self.request.state in _RUNNING

    def remember(self) -> None:
        """Keep the tokens that its request has now."""
        if self.request is not None:
            self.prompt_ids = self.request.prompt_ids
            self.token_ids = self.request.token_ids


class SlotTable:
    """The slots of one model. All methods belong to one event loop."""

    def __init__(self, count: int) -> None:
        self.slots = [Slot(number) for number in range(count)]
        self._vacant = set(range(count))  # slots without a request
        self._assigned: dict[Request, int] = {}
        self._waiting: list[Request] = []
        self._tasks = 0

    def enter(self, requests: Sequence[Request], wanted: int | None = None) -> None:
        """Assign slots to requests; the first gets the wanted one, if it is free."""
        for request in requests:
            slot = self._free_slot(wanted)
            if slot is None:
                self._waiting.append(request)
                continue
            self._assign(slot, request)
            wanted = None

    def _free_slot(self, wanted: int | None) -> Slot | None:
        """The wanted slot, or the lowest one without a request, or one whose request has ended."""
        if wanted is not None and 0 <= wanted < len(self.slots):
            slot = self.slots[wanted]
            if not slot.is_busy:
                return slot
        if self._vacant:
            return self.slots[min(self._vacant)]
        return next((slot for slot in self.slots if not slot.is_busy), None)

    def leave(self, requests: Sequence[Request]) -> None:
        """Free the slots of requests, for those that wait."""
        for request in requests:
            if request in self._waiting:
                self._waiting.remove(request)
            number = self._assigned.pop(request, NO_SLOT)
            if number == NO_SLOT:
                continue
            slot = self.slots[number]
            if slot.request is not request:  # it had ended, and another request has the slot
                continue
            slot.remember()
            slot.request = None
            self._vacant.add(number)
            if self._waiting:
                first = min(self._waiting, key=lambda each: each.priority)  # as the engine does
                self._waiting.remove(first)
                self._assign(slot, first)

    def number_of(self, request: Request) -> int:
        """The slot of a request; -1 while it waits for one."""
        return self._assigned.get(request, NO_SLOT)

    def _assign(self, slot: Slot, request: Request) -> None:
        slot.remember()
        self._vacant.discard(slot.id)
        slot.request, slot.task = request, self._tasks
        self._assigned[request] = slot.id
        self._tasks += 1
