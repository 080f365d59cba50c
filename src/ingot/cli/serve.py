"""`ingot serve`: an HTTP server for OpenAI, Anthropic, Ollama and llama-server clients."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingot import store
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.flags import takes_flags
from ingot.cli.shared.output import notice
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.cli.shared.server_flags import AccessFlags, LimitFlags
from ingot.errors import ConfigError
from ingot.recommended import recommended_sampling

if TYPE_CHECKING:
    from ingot.server.options import ServedModel


@takes_flags
def command(
    *,
    model: ModelFlags,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("-p", "--port", help="Port; 0 picks a free one.")] = 8080,
    engine: EngineFlags,
    sampling: SamplingFlags,
    limits: LimitFlags,
    access: AccessFlags,
    strict_parameters: Annotated[
        bool,
        typer.Option(
            "--strict-parameters",
            help="Refuse requests with unknown parameters instead of warning about them.",
        ),
    ] = False,
    slots_folder: Annotated[
        Path | None,
        typer.Option(
            "--slot-save-path", help="Folder in which /slots saves KV caches. [saving is off]"
        ),
    ] = None,
) -> None:
    """Serve models over HTTP: the APIs of OpenAI, Anthropic, Ollama and llama-server; a page at /.

    Sampling options are the defaults of requests that do not set them. Each request is logged to
    stderr. Ctrl-C or SIGTERM lets running answers finish; a second signal stops them, a third ends
    the process.
    """
    try:
        from ingot.server.options import ServerOptions  # noqa: PLC0415 (an extra)
        from ingot.server.process import serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the server needs the package {error.name}: pip install 'ingot-llm[server]'"
        ) from None
    options = ServerOptions(
        models=tuple(_served(model, engine, sampling)),
        host=host,
        port=port,
        strict_parameters=strict_parameters,
        slots_folder=slots_folder,
        **asdict(limits),
        **access.options(),
    )
    serve(options, notice)


def _served(model: ModelFlags, engine: EngineFlags, sampling: SamplingFlags) -> "list[ServedModel]":
    from ingot.server.catalog import model_name  # noqa: PLC0415 (an extra)
    from ingot.server.options import ServedModel  # noqa: PLC0415

    defaults = sampling.names()
    if model.predict is not None:
        defaults["max_tokens"] = model.predict
    common: dict[str, Any] = {
        "engine": engine.options(),
        "chat_template": model.template(),
        "reasoning_format": model.reasoning_format,
        "pooling": model.pooling,
    }
    served = []
    asked: list[str | None] = [*model.models] if model.models else [None]
    for given in asked:
        name, path = _named(given)
        served.append(
            ServedModel(
                name=name or model_name(path),
                path=path,
                sampling={**recommended_sampling(path), **defaults},
                **common,
            )
        )
    return served


def _named(given: str | None) -> tuple[str | None, Path]:
    """Split `NAME=MODEL` into the name (None if absent) and the file."""
    if given is None or "=" not in given or Path(given).exists() or store.is_remote(given):
        return None, locate(given)
    name, _, model = given.partition("=")
    if not name:
        raise ConfigError(f"{given!r} has no name before the equals sign; use NAME=MODEL")
    return name, locate(model)
