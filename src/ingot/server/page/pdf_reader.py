"""A program that reads a PDF from stdin and writes its text to stdout as JSON.

It imports nothing of Ingot, so that it starts quickly. Its memory and its processor time are
limited; a file that needs more ends it. It is run as a script, never imported.
"""

import io
import json
import sys
from contextlib import suppress
from typing import Final

import pypdf

if sys.platform != "win32":
    import resource

_MEMORY: Final = 1 << 30  # bytes
_SECONDS: Final = 25


def main() -> None:
    """Read, extract, write."""
    _limit()
    json.dump(_text_of(sys.stdin.buffer.read()), sys.stdout)


def _limit() -> None:
    """Limit what this process may take, on systems that can."""
    if sys.platform == "win32":
        return
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _text_of(content: bytes) -> dict[str, object]:
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "it is protected by a password"}
        pages = [page.extract_text() for page in reader.pages]
    except Exception as error:  # pypdf raises errors of many kinds for damaged files
        return {"error": str(error).strip() or type(error).__name__}
    return {"text": "\n\n".join(pages), "pages": len(pages)}


if __name__ == "__main__":
    main()
