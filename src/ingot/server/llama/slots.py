"""`/slots`: running requests, and saving, restoring and erasing KV caches.

All requests share one KV cache. To save a slot is to save the tokens of its last request with
their cache; to erase it is to clear the cache of everything that is not running.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest

from ingot.api import LLM
from ingot.errors import FileWriteError, SavedCacheError, SavedCacheSizeError
from ingot.sampling import SamplingParams
from ingot.server.error_bodies import LlamaError
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.llama.generation_settings import GenerationSettings, settings_of
from ingot.server.model_entry import Lease
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.slot_files import FULL
from ingot.server.slot_table import Slot
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

_ERRORS: dict[int | str, dict[str, Any]] = {
    413: {"model": LlamaError, "description": "The saved slots would exceed their limit."},
    507: {"model": LlamaError, "description": "The disk is full or cannot be written to."},
}


class NextToken(BaseModel):
    """The progress of a completion; `n_remain` is -1 without a limit."""

    has_next_token: bool
    has_new_line: bool
    n_remain: int
    n_decoded: int


class SlotStatus(BaseModel):
    """A slot and its request."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    params: GenerationSettings
    next_token: NextToken


class SlotBody(RequestBody):
    """A file in the server's folder of saved slots."""

    model: str | None = None
    filename: str | None = None


class SlotActionResult(BaseModel):
    """Tokens, bytes and milliseconds of a save, restore or erase."""

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
    routes = APIRouter()

    @routes.get("/slots")
    async def slots(
        model: str | None = None, fail_on_no_slot: str | None = None
    ) -> list[SlotStatus]:
        """The slots of a model; one that is closed has none until a request opens it."""
        entry = server.catalog.find(model)
        if (llm := entry.llm) is None:
            return []
        table = server.generations.slots_of(entry.name, llm).slots
        if fail_on_no_slot is not None and all(slot.is_busy for slot in table):
            raise ApiError(503, "no slot is free", retry=True)
        return [_status(slot, llm) for slot in table]

    @routes.post("/slots/{id_slot}", response_model_exclude_none=True, responses=_ERRORS)
    async def act(
        id_slot: Annotated[int, PathParameter(ge=0)],
        action: Literal["save", "restore", "erase"],
        http: HttpRequest,
        body: SlotBody | None = None,
    ) -> SlotActionResult:
        """Save the KV cache of a slot's last request, restore one, or erase it."""
        given = body or SlotBody()
        check_parameters(given, record_of(http.scope), server.options)
        with await server.catalog.lease(given.model) as lease:
            slot = _slot(server, lease, id_slot)
            if action == "erase":
                return await _erase(slot, lease)
            path = server.slot_files.path(given.filename)
            with _naming(path):
                if action == "restore":
                    return await _restore(slot, lease, path)
                async with server.slot_files.room_for(path) as room:
                    return await _save(slot, lease, path, room)

    return routes


async def _save(slot: Slot, lease: Lease, path: Path, room: int) -> SlotActionResult:
    slot.remember()
    tokens, prompted = [*slot.prompt_ids, *slot.token_ids], len(slot.prompt_ids)
    if not tokens:
        raise ApiError(400, f"slot {slot.id} has had no request yet")
    began = time.perf_counter()
    count = await run_in_thread(
        lease.llm.engine.save, tokens, path, prompted=prompted, most_bytes=room
    )
    return SlotActionResult(
        id_slot=slot.id,
        filename=path.name,
        n_saved=count,
        n_written=path.stat().st_size,
        timings={"save_ms": (time.perf_counter() - began) * 1e3},
    )


async def _restore(slot: Slot, lease: Lease, path: Path) -> SlotActionResult:
    _refuse_busy(slot)
    if not path.is_file():
        raise ApiError(400, f"there is no saved slot {path.name!r}", param="filename")
    began = time.perf_counter()
    tokens = await run_in_thread(lease.llm.restore, path)
    slot.prompt_ids, slot.token_ids = tokens, ()
    return SlotActionResult(
        id_slot=slot.id,
        filename=path.name,
        n_restored=len(tokens),
        n_read=path.stat().st_size,
        timings={"restore_ms": (time.perf_counter() - began) * 1e3},
    )


async def _erase(slot: Slot, lease: Lease) -> SlotActionResult:
    _refuse_busy(slot)
    count = len(slot.prompt_ids) + len(slot.token_ids)
    slot.prompt_ids = slot.token_ids = ()
    await run_in_thread(lease.llm.engine.clear_cache)
    return SlotActionResult(id_slot=slot.id, n_erased=count)


def _slot(server: Server, lease: Lease, number: int) -> Slot:
    table = server.generations.slots_of(lease.name, lease.llm).slots
    if number >= len(table):
        raise ApiError(400, f"there is no slot {number}; there are {len(table)}", param="id_slot")
    return table[number]


def _refuse_busy(slot: Slot) -> None:
    if slot.is_busy:
        raise ApiError(400, f"slot {slot.id} is running a request; wait until it ends")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make errors name the file without the folder, which clients need not know."""
    try:
        yield
    except SavedCacheSizeError as error:
        message = f"{error}: all saved slots together would exceed --slot-save-limit"
        raise ApiError(413, message, code=FULL) from error
    except (FileWriteError, SavedCacheError) as error:
        status = 507 if isinstance(error, FileWriteError) else 400
        raise ApiError(status, str(error).replace(str(path), path.name)) from error


def _status(slot: Slot, llm: LLM) -> SlotStatus:
    request = slot.request
    options = llm.engine.options
    params = SamplingParams() if request is None else request.params
    generated = len(slot.token_ids) if request is None else request.timings.generated_tokens
    return SlotStatus(
        id=slot.id,
        id_task=slot.task,
        n_ctx=llm.context,
        speculative=options.guesses,
        is_processing=slot.is_busy,
        params=settings_of(
            params,
            seed=None if request is None else request.seed,
            adapters=None if request is None else llm.engine.adapters.places(request.adapter),
        ),
        next_token=NextToken(
            has_next_token=slot.is_busy,
            has_new_line=request is not None and "\n" in request.text,
            n_remain=-1 if params.max_tokens is None else max(params.max_tokens - generated, 0),
            n_decoded=generated,
        ),
    )
