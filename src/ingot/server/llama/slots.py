"""`/slots`: the texts that are being written, and what the cache has of a slot's last one.

The cache belongs to all texts together. What is saved of a slot is the text it had last; to
erase it is to forget all texts that are not running.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import BaseModel

from ingot.errors import FileWriteError, SavedCacheError, SavedCacheSizeError
from ingot.sampling import SamplingParams
from ingot.server.catalog import Lease
from ingot.server.errors import ApiError
from ingot.server.llama.answers import ErrorAnswer
from ingot.server.llama.settings import GenerationSettings, settings_of
from ingot.server.sampling_body import Body
from ingot.server.slot_files import FULL
from ingot.server.slot_table import Slot
from ingot.server.state import Server

_ERRORS: dict[int | str, dict[str, Any]] = {
    413: {"model": ErrorAnswer, "description": "The saved slots would take too much room."},
    507: {"model": ErrorAnswer, "description": "The disk is full, or cannot be written."},
}


class NextToken(BaseModel):
    """How far a text is; -1 remain where nothing is said about it."""

    has_next_token: bool
    has_new_line: bool
    n_remain: int
    n_decoded: int


class SlotStatus(BaseModel):
    """A slot and its text."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    params: GenerationSettings
    next_token: NextToken


class SlotBody(Body):
    """A file in the server's folder of saved caches."""

    model: str | None = None
    filename: str | None = None


class SlotAnswer(BaseModel):
    """What was saved, restored or erased: tokens, bytes and milliseconds."""

    id_slot: int
    filename: str | None = None
    n_saved: int | None = None
    n_written: int | None = None
    n_restored: int | None = None
    n_read: int | None = None
    n_erased: int | None = None
    timings: dict[str, float] | None = None


def router(server: Server) -> APIRouter:
    """The endpoints."""
    made = APIRouter()

    @made.get("/slots")
    async def slots(
        model: str | None = None, fail_on_no_slot: str | None = None
    ) -> list[SlotStatus]:
        """All slots of a model."""
        with await server.catalog.lease(model) as lease:
            table = server.writings.slots_of(lease).slots
            if fail_on_no_slot is not None and all(slot.is_busy for slot in table):
                raise ApiError(503, "no slot is free", retry=True)
            return [_status(slot, lease) for slot in table]

    @made.post("/slots/{id_slot}", response_model_exclude_none=True, responses=_ERRORS)
    async def act(
        id_slot: Annotated[int, PathParameter(ge=0)],
        action: Literal["save", "restore", "erase"],
        body: SlotBody | None = None,
    ) -> SlotAnswer:
        """Save the text of a slot, bring one back, or forget it."""
        given = body or SlotBody()
        with await server.catalog.lease(given.model) as lease:
            slot = _slot(server, lease, id_slot)
            if action == "erase":
                return await _erase(slot, lease)
            path = server.slot_files.path(given.filename)
            with _telling(path):
                if action == "restore":
                    return await _restore(slot, lease, path)
                async with server.slot_files.room_for(path) as room:
                    return await _save(slot, lease, path, room)

    return made


async def _save(slot: Slot, lease: Lease, path: Path, room: int) -> SlotAnswer:
    slot.remember()
    tokens, prompted = [*slot.prompt_ids, *slot.token_ids], len(slot.prompt_ids)
    if not tokens:
        raise ApiError(400, f"slot {slot.id} has had no text yet")
    began = time.perf_counter()
    count = await asyncio.to_thread(
        lease.llm.engine.save, tokens, path, prompted=prompted, most_bytes=room
    )
    return SlotAnswer(
        id_slot=slot.id,
        filename=path.name,
        n_saved=count,
        n_written=path.stat().st_size,
        timings={"save_ms": (time.perf_counter() - began) * 1e3},
    )


async def _restore(slot: Slot, lease: Lease, path: Path) -> SlotAnswer:
    _refuse_busy(slot)
    if not path.is_file():
        raise ApiError(400, f"there is no saved file {path.name!r}", param="filename")
    began = time.perf_counter()
    tokens = await asyncio.to_thread(lease.llm.restore, path)
    slot.prompt_ids, slot.token_ids = tokens, ()
    return SlotAnswer(
        id_slot=slot.id,
        filename=path.name,
        n_restored=len(tokens),
        n_read=path.stat().st_size,
        timings={"restore_ms": (time.perf_counter() - began) * 1e3},
    )


async def _erase(slot: Slot, lease: Lease) -> SlotAnswer:
    _refuse_busy(slot)
    count = len(slot.prompt_ids) + len(slot.token_ids)
    slot.prompt_ids = slot.token_ids = ()
    await asyncio.to_thread(lease.llm.engine.clear_cache)
    return SlotAnswer(id_slot=slot.id, n_erased=count)


def _slot(server: Server, lease: Lease, number: int) -> Slot:
    table = server.writings.slots_of(lease).slots
    if number >= len(table):
        raise ApiError(400, f"there is no slot {number}; there are {len(table)}", param="id_slot")
    return table[number]


def _refuse_busy(slot: Slot) -> None:
    if slot.is_busy:
        raise ApiError(400, f"slot {slot.id} is writing a text; wait for its end")


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Let errors name a file as the client does, who need not know where the folder is."""
    try:
        yield
    except SavedCacheSizeError as error:
        message = f"{error}: all saved slots together would be over --slot-save-limit"
        raise ApiError(413, message, code=FULL) from error
    except (FileWriteError, SavedCacheError) as error:
        status = 507 if isinstance(error, FileWriteError) else 400
        raise ApiError(status, str(error).replace(str(path), path.name)) from error


def _status(slot: Slot, lease: Lease) -> SlotStatus:
    request = slot.request
    options = lease.llm.engine.options
    params = SamplingParams() if request is None else request.params
    written = len(slot.token_ids) if request is None else request.timings.generated_tokens
    most: Any = params.max_tokens
    return SlotStatus(
        id=slot.id,
        id_task=slot.task,
        n_ctx=lease.llm.context,
        speculative=bool(options.speculation or options.draft),
        is_processing=slot.is_busy,
        params=settings_of(params, seed=None if request is None else request.seed),
        next_token=NextToken(
            has_next_token=slot.is_busy,
            has_new_line=request is not None and "\n" in request.text,
            n_remain=-1 if most is None else max(most - written, 0),
            n_decoded=written,
        ),
    )
