"""HTTP for the store: one GET at a time, with redirects, on Python's own client.

A URL and headers come in; a response, or the JSON in it, goes out. Proxies of the environment are
used. A token goes only to the host that it was meant for: a redirect to another host loses it, and
a redirect to an unencrypted address is refused. Messages leave out the query of a URL, because the
addresses of content networks are signed there.
"""

import http.client
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from ingot.errors import AccessDeniedError, DownloadError, ModelNotFoundError, StoreError
from ingot.store.names import checked_url, shown_url

TIMEOUT = 30.0  # seconds without a byte
MAX_JSON = 32 << 20  # bytes of an answer that is read into memory
LONGEST_WAIT = 60.0  # seconds that a server may ask us to wait before the next try
FIRST_WAIT = 1.0  # seconds before the second try; each later one waits twice as long
TRIES = 5  # in a row, without a byte in between

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_REDIRECTS: Final = 10

Response = http.client.HTTPResponse
_Result = TypeVar("_Result")


class TransientError(DownloadError):
    """A failure that may pass; `wait` is how many seconds the server asks for, if it does."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class RangeError(DownloadError):
    """The server has no bytes in the range that was asked for."""


class Patience:
    """Waits between tries, and gives up after too many in a row."""

    def __init__(self) -> None:
        self._failed = 0

    def wait(self, error: TransientError) -> None:
        """Wait after a failure, or raise it if it was the last try."""
        self._failed += 1
        if self._failed >= TRIES:
            raise DownloadError(f"{error}; {TRIES} tries failed, try again later") from error
        time.sleep(FIRST_WAIT * 2 ** (self._failed - 1) if error.wait is None else error.wait)

    def renew(self) -> None:
        """Begin to count again, after a success."""
        self._failed = 0


def patiently(ask: Callable[[], _Result]) -> _Result:
    """The result of a function that may raise `TransientError` a few times."""
    patience = Patience()
    while True:
        try:
            return ask()
        except TransientError as error:
            patience.wait(error)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the token stays at home."""

    max_redirections = _MAX_REDIRECTS
    max_repeats = 2

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        checked_url(newurl)
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if before.scheme == "https" and after.scheme != "https":
            raise StoreError(f"{shown_url(req.full_url)} redirects to an unencrypted address")
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            made.remove_header("Authorization")
        return made


def get(url: str, headers: Mapping[str, str]) -> Response:
    """The response to a GET whose status is 200 or 206; close it.

    What may pass raises `TransientError`, everything else another `StoreError`.
    """
    request = urllib.request.Request(checked_url(url), headers={**_USUAL, **headers})
    opener = urllib.request.build_opener(_Redirects)
    try:
        response: Response = opener.open(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        raise _refusal(error, url) from None
    except (OSError, http.client.HTTPException) as error:
        raise transient(url, error) from error
    return response


def get_json(url: str, headers: Mapping[str, str]) -> Any:
    """The JSON at a URL; failures that may pass are tried again."""
    return patiently(lambda: _get_json(url, headers))


def _get_json(url: str, headers: Mapping[str, str]) -> Any:
    with get(url, headers) as response:
        try:
            content = response.read(MAX_JSON + 1)
        except (OSError, http.client.HTTPException) as error:
            raise transient(url, error) from error
    if len(content) > MAX_JSON:
        raise DownloadError(f"{shown_url(url)} answers with more than {MAX_JSON >> 20} MiB")
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and len(content) < int(length):
        raise TransientError(f"the answer of {shown_url(url)} ended early")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DownloadError(f"{shown_url(url)} did not answer with JSON: {error}") from None


def transient(url: str, error: Exception) -> TransientError:
    """The error for a connection that failed."""
    reason = error.reason if isinstance(error, URLError) else error
    return TransientError(f"{urlsplit(url).netloc} cannot be reached: {reason or type(reason)}")


def _refusal(error: HTTPError, url: str) -> StoreError:
    """The error for a status that is not a success."""
    said = f"{shown_url(url)} answers with status {error.code}"
    if error.code in _TRANSIENT:
        wait = None
        with suppress(ValueError):  # absent, or a date
            wait = min(max(float(error.headers.get("Retry-After", "")), 0.0), LONGEST_WAIT)
        return TransientError(said, wait)
    if error.code in (401, 403):
        return AccessDeniedError(f"{said}: it wants a token, or your token may not read this")
    if error.code in (404, 410):
        return ModelNotFoundError(f"{said}: there is no such file")
    return RangeError(said) if error.code == 416 else DownloadError(said)


_USUAL: Final = {"User-Agent": "ingot", "Accept-Encoding": "identity"}
