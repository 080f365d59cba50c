"""`ingot ps`: the models of a running server."""

import json
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import typer

from ingot.cli.shared.output import printable, size, write_columns, write_json
from ingot.config import config
from ingot.errors import ConfigError

_SECONDS = 10  # that the server has to answer


def command(
    url: Annotated[
        str, typer.Option("--url", help="Where the server is.")
    ] = "http://127.0.0.1:8080",
    *,
    every: Annotated[
        bool, typer.Option("-a", "--all", help="Show models that are not loaded, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the loaded models of a running `ingot serve`, and how many requests each has.

    A server with an API key needs it in INGOT_API_KEY.
    """
    listed = {model["id"]: model for model in _get(url, "/v1/models")["data"]}
    models = [
        {
            "name": status["name"],
            "status": listed.get(status["name"], {}).get("status", {}).get("value", "unloaded"),
            "size": listed.get(status["name"], {}).get("size"),
            "context": status["context"],
            "running": status["running"],
            "waiting": status["waiting"],
        }
        for status in _get(url, "/api/status")["models"]
        if every or status["loaded"]
    ]
    if as_json:
        write_json(models)
        return
    rows = [
        (
            printable(str(model["name"])),
            str(model["status"]),
            size(model["size"]) if model["size"] else "-",
            str(model["context"] or "-"),
            str(model["running"]),
            str(model["waiting"]),
        )
        for model in models
    ]
    heading = ("NAME", "STATUS", "SIZE", "CONTEXT", "RUNNING", "WAITING")
    write_columns([heading, *rows], right=(2, 3, 4, 5))


def _get(url: str, path: str) -> Any:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url is {url!r}; it must begin with http:// or https://")
    key = config().api_key
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(url.rstrip("/") + path, headers=headers), timeout=_SECONDS) as answer:
            return json.load(answer)
    except HTTPError as error:
        hint = "; set INGOT_API_KEY" if error.code == 401 else ""
        raise ConfigError(f"{url} answered {error.code} {error.reason}{hint}") from None
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"no server at {url}: {reason}; start one with `ingot serve`") from None
