"""`/v1/load_lora_adapter` and `unload_lora_adapter`: LoRA adapters that come and go with clients.

Both are off unless the server has a folder of adapters that clients may load. A path outside of it
is refused. Status codes and messages are vLLM's.
"""

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse

from ingot.server.body_limits import Name
from ingot.server.error_bodies import VllmError
from ingot.server.errors import ApiError
from ingot.server.http.access_log import record_of
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import RequestBody
from ingot.server.state import Server
from ingot.server.threads import run_in_thread


class LoadBody(RequestBody):
    """An adapter of the server's folder, and its name in requests."""

    lora_name: Name = ""
    lora_path: Name = ""  # in the folder
    model: str | None = None  # that it is for, if the server has several


class UnloadBody(RequestBody):
    """The name of an adapter."""

    lora_name: Name = ""


def router(server: Server) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **{code: {"model": VllmError} for code in (400, 403, 404)},
        }
    )

    def folder() -> Path:
        if server.options.adapters_folder is None:
            raise ApiError(
                403,
                "this server does not load adapters for clients: start it with "
                "--allow-adapter-loading FOLDER, or load the adapter with --lora",
            )
        return server.options.adapters_folder

    @routes.post("/v1/load_lora_adapter")
    async def load(body: LoadBody, http: HttpRequest) -> PlainTextResponse:
        """Load a LoRA adapter. Requests choose it by naming it as their model."""
        check_parameters(body, record_of(http.scope), server.options)
        allowed = folder()
        if not body.lora_name or not body.lora_path:
            raise ApiError(400, "Both 'lora_name' and 'lora_path' must be provided.")
        path = await run_in_thread(_inside, allowed, body.lora_path)
        if server.catalog.find_exactly(body.lora_name) is not None:
            raise ApiError(400, f"The lora adapter '{body.lora_name}' has already been loaded.")
        await server.catalog.add_adapter(body.model, body.lora_name, path)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    @routes.post("/v1/unload_lora_adapter")
    async def unload(body: UnloadBody, http: HttpRequest) -> PlainTextResponse:
        """Unload a LoRA adapter, also one of `--lora`; requests that run with it continue."""
        check_parameters(body, record_of(http.scope), server.options)
        folder()
        if not body.lora_name:
            raise ApiError(400, "'lora_name' needs to be provided to unload a LoRA adapter.")
        for entry in server.catalog.entries.values():
            if body.lora_name in entry.adapters:
                await server.catalog.remove_adapter(entry, body.lora_name)
                return PlainTextResponse(
                    f"Success: LoRA adapter '{body.lora_name}' removed successfully."
                )
        raise ApiError(404, f"The lora adapter '{body.lora_name}' cannot be found.")

    return routes


def _inside(folder: Path, given: str) -> Path:
    """The path of an adapter in a folder; symbolic links must not lead out of it."""
    try:
        path = (folder / given).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ApiError(400, f"'{given}' is not in the folder of --allow-adapter-loading")
        exists = path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a null character, a loop of links
        exists = False
    if not exists:
        raise ApiError(404, f"Loading lora failed: No adapter found for {given}")
    return path
