"""`POST /api/pdf-text`: the text of a PDF that a reader attaches to a message.

The bytes come in as base64 in JSON; text goes out. pypdf reads the file in a process of its own
with little memory and little time, because a file can be made to take any amount of both.
"""

import asyncio
import base64
import binascii
import importlib.util
import json
import sys
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from ingot.server.errors import ApiError

_PROGRAM: Final = Path(__file__).with_name("pdf_reader.py")
_SECONDS: Final = 30.0
_AT_ONCE: Final = 2  # processes


class PdfBody(BaseModel):
    """A PDF, in base64."""

    model_config = ConfigDict(strict=True, extra="ignore")

    data: str


class PdfText(BaseModel):
    """The text of all pages."""

    text: str
    pages: int


def router() -> APIRouter:
    """The endpoint."""
    routes = APIRouter(include_in_schema=False)
    room = asyncio.Semaphore(_AT_ONCE)

    @routes.post("/api/pdf-text")
    async def pdf_text(body: PdfBody) -> PdfText:
        if importlib.util.find_spec("pypdf") is None:
            raise ApiError(
                501,
                "this server cannot read PDF files, because pypdf is not installed; "
                "run `pip install ingot-llm[pdf]` on its machine, or attach the text",
            )
        try:
            content = base64.b64decode(body.data, validate=True)
        except binascii.Error as error:
            raise ApiError(400, f"data is not base64: {error}", param="data") from error
        async with room:
            return await _read(content)

    return routes


async def _read(content: bytes) -> PdfText:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the folder of the program is no place to import from
        str(_PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        written, _ = await asyncio.wait_for(process.communicate(content), _SECONDS)
    except TimeoutError as error:
        raise ApiError(400, f"the PDF could not be read within {_SECONDS:.0f} seconds") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ApiError(400, "the PDF could not be read: it is too large or damaged")
    found = json.loads(written)
    if "error" in found:
        raise ApiError(400, f"the PDF could not be read: {found['error']}")
    return PdfText(**found)
