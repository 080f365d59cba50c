"""`/v1/files`: files that clients upload for batches, and the results of batches."""

from collections import OrderedDict
from email import message_from_bytes
from email.policy import HTTP
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.errors import ConfigError
from ingot.files import remove_file, sweep, write_file
from ingot.server.errors import ApiError
from ingot.server.openai.shared import ERRORS, new_id, now
from ingot.server.threads import run_in_thread

_MOST_FILES = 1024
_MOST_BYTES = 1 << 30  # of all files
_LONGEST_NAME = 256

Purpose = Literal["batch", "batch_output", "user_data"]


class FileObject(BaseModel):
    """A file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: Purpose
    status: Literal["processed"] = "processed"


class FileList(BaseModel):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(BaseModel):
    """A deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class FileStore:
    """Files by id, in memory or in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._files: OrderedDict[str, FileObject] = OrderedDict()
        self._contents: dict[str, bytes] = {}  # if there is no folder
        self._folder = folder

    def load(self) -> None:
        """Find the files of an earlier server in the folder."""
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(self._folder)
            self._files.update((file.id, file) for file in _stored(self._folder))

    def add(self, filename: str, purpose: Purpose, content: bytes) -> FileObject:
        """Keep a file; if there is no room for it, it is refused."""
        held = sum(file.bytes for file in self._files.values())
        if len(self._files) >= _MOST_FILES or held + len(content) > _MOST_BYTES:
            raise ApiError(
                413,
                f"this server keeps {_MOST_FILES} files and {_MOST_BYTES >> 20} MiB; delete files "
                "that you do not need any more",
                code="files_full",
            )
        file = FileObject(
            id=new_id("file-"),
            bytes=len(content),
            created_at=now(),
            filename=filename[:_LONGEST_NAME],
            purpose=purpose,
        )
        if self._folder is None:
            self._contents[file.id] = content
        else:
            write_file(self._folder / file.id, [content], mode=0o600)
            described = file.model_dump_json().encode()
            write_file(self._folder / f"{file.id}.json", [described], mode=0o600)
        self._files[file.id] = file
        return file

    def find(self, file_id: str, param: str | None = None) -> tuple[FileObject, bytes]:
        """A file and its content."""
        if file_id not in self._files:
            status = 404 if param is None else 400
            raise ApiError(status, f"there is no file {file_id!r:.60}", param=param)
        if self._folder is None:
            return self._files[file_id], self._contents[file_id]
        return self._files[file_id], (self._folder / file_id).read_bytes()

    def remove(self, file_id: str) -> None:
        """Delete a file."""
        self.find(file_id)
        if self._folder is None:
            del self._contents[file_id]
        else:
            remove_file(self._folder / f"{file_id}.json")
            remove_file(self._folder / file_id)
        del self._files[file_id]

    @property
    def files(self) -> list[FileObject]:
        """All files, the oldest first."""
        return list(self._files.values())


def _stored(folder: Path) -> list[FileObject]:
    """The files of an earlier server, the oldest first."""
    found: list[FileObject] = []
    for path in folder.glob("file-*.json"):
        try:
            found.append(FileObject.model_validate_json(path.read_bytes()))
        except ValueError:
            raise ConfigError(f"{path} is not a file of this server") from None
    return sorted(found, key=lambda file: file.created_at)


def router(store: FileStore) -> APIRouter:
    """The endpoints."""
    routes = APIRouter(tags=["OpenAI"], responses=ERRORS)

    @routes.post("/v1/files")
    async def upload(http: HttpRequest) -> FileObject:
        """Upload a file as multipart/form-data, with the fields `file` and `purpose`."""
        content_type = http.headers.get("content-type", "")
        parts = await run_in_thread(_parts, content_type, await http.body())
        if "file" not in parts or "purpose" not in parts:
            raise ApiError(400, "an upload is multipart/form-data with `file` and `purpose`")
        purpose = parts["purpose"][1].decode("utf-8", "replace")
        if purpose not in ("batch", "user_data"):
            raise ApiError(
                400, f"purpose is {purpose!r:.40}; this server takes batch", param="purpose"
            )
        filename, content = parts["file"]
        return store.add(
            filename or "file", "batch" if purpose == "batch" else "user_data", content
        )

    @routes.get("/v1/files")
    async def files(
        purpose: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        after: str | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> FileList:
        """List the files."""
        found = [file for file in store.files if purpose in (None, file.purpose)]
        page, has_more = page_of(found if order == "asc" else found[::-1], limit, after)
        ends = [page[0].id, page[-1].id] if page else [None, None]
        return FileList(data=page, first_id=ends[0], last_id=ends[1], has_more=has_more)

    @routes.get("/v1/files/{file_id}")
    async def file(file_id: str) -> FileObject:
        """One file."""
        return store.find(file_id)[0]

    @routes.get("/v1/files/{file_id}/content", response_class=Response)
    async def content(file_id: str) -> Response:
        """The content of a file."""
        return Response(store.find(file_id)[1], media_type="application/octet-stream")

    @routes.delete("/v1/files/{file_id}")
    async def delete(file_id: str) -> DeletedFile:
        """Delete a file."""
        store.remove(file_id)
        return DeletedFile(id=file_id)

    return routes


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_HasId)


def page_of(found: list[T], limit: int, after: str | None) -> tuple[list[T], bool]:
    """The objects after one with an id, and whether there are more of them."""
    if after is not None:
        ids = [each.id for each in found]
        if after not in ids:
            raise ApiError(400, f"there is no {after!r:.60}", param="after")
        found = found[ids.index(after) + 1 :]
    return found[:limit], len(found) > limit


def _parts(content_type: str, body: bytes) -> dict[str, tuple[str | None, bytes]]:
    """The file name and content of each field of a form."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = message_from_bytes(head + body, policy=HTTP)
    found: dict[str, tuple[str | None, bytes]] = {}
    if message.get_content_type() != "multipart/form-data":
        return found
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            found[name] = (part.get_filename(), content)
    return found
