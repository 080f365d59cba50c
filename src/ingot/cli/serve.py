"""`ingot serve`: models over HTTP, for OpenAI's, Anthropic's and llama-server's clients."""

from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.models import MODEL_HELP, locate
from ingot.cli.opening import asked_layers
from ingot.cli.options import (
    ContextOption,
    DeviceOption,
    GpuLayersOption,
    KvTypeOption,
    ThreadsOption,
    WeightsOption,
)
from ingot.cli.text import notice, read_text
from ingot.config import config
from ingot.engine import EngineOptions
from ingot.errors import ConfigError

_LIMITS, _SAFETY = "Limits", "Who may ask"


def command(
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="[NAME=]MODEL",
            help=f"{MODEL_HELP} May be repeated: the first is opened now, others when asked for.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("-p", "--port", help="The port; 0 takes a free one.")] = 8080,
    threads: ThreadsOption = None,
    context: ContextOption = None,
    kv_type: KvTypeOption = "f16",
    weights: WeightsOption = "map",
    device: DeviceOption = "cpu",
    gpu_layers: GpuLayersOption = None,
    parallel: Annotated[
        int, typer.Option("-np", "--parallel", help="Texts written at once.")
    ] = EngineOptions().max_running,
    queue: Annotated[
        int, typer.Option("--queue", help="Requests that may wait.", rich_help_panel=_LIMITS)
    ] = EngineOptions().max_queue,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", help="Tokens of one answer. [no limit]", rich_help_panel=_LIMITS
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit", help="Seconds of one answer. [no limit]", rich_help_panel=_LIMITS
        ),
    ] = None,
    max_body: Annotated[
        int, typer.Option("--max-body", help="Bytes of one request.", rich_help_panel=_LIMITS)
    ] = 16 << 20,
    max_connections: Annotated[
        int,
        typer.Option("--max-connections", help="Open connections.", rich_help_panel=_LIMITS),
    ] = 1024,
    idle_unload: Annotated[
        float | None,
        typer.Option(
            "--idle-unload",
            help="Seconds after which a model that nobody uses is closed. [never]",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    shutdown_grace: Annotated[
        float,
        typer.Option(
            "--shutdown-grace",
            help="Seconds that answers have to end when the server is to stop.",
            rich_help_panel=_LIMITS,
        ),
    ] = 30.0,
    step_timeout: Annotated[
        float | None,
        typer.Option(
            "--step-timeout",
            help="Seconds after which a step of a model is taken for one that hangs.",
            rich_help_panel=_LIMITS,
        ),
    ] = EngineOptions().step_timeout,
    api_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            help="A key that requests must have; may be repeated. Also: INGOT_API_KEY.",
            rich_help_panel=_SAFETY,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", help="A file of keys, one a line.", rich_help_panel=_SAFETY),
    ] = None,
    allow_open: Annotated[
        bool,
        typer.Option(
            "--allow-open",
            help="Listen beyond this machine though no key is needed.",
            rich_help_panel=_SAFETY,
        ),
    ] = False,
    cors_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            help="An origin whose pages may ask; `*`: all. May be repeated.",
            rich_help_panel=_SAFETY,
        ),
    ] = None,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="A name by which clients reach a server without a key, beside those of this "
            "machine; `*`: any. May be repeated.",
            rich_help_panel=_SAFETY,
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", help="A PEM file.", rich_help_panel=_SAFETY),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="A PEM file.", rich_help_panel=_SAFETY)
    ] = None,
    slots_folder: Annotated[
        Path | None,
        typer.Option(
            "--slot-save-path", help="A folder in which /slots saves caches; none: it does not."
        ),
    ] = None,
    slot_save_limit: Annotated[
        int,
        typer.Option(
            "--slot-save-limit", help="Bytes of all saved caches.", rich_help_panel=_LIMITS
        ),
    ] = 16 << 30,
    slot_save_files: Annotated[
        int,
        typer.Option("--slot-save-files", help="Saved caches.", rich_help_panel=_LIMITS),
    ] = 256,
) -> None:
    """Serve models over HTTP. A line for every request goes to stderr.

    The page at `/` is a chat. Ctrl-C, or SIGTERM, lets answers come to their end; a second one
    stops at once, a third one waits for nothing.
    """
    try:
        from ingot.server.catalog import model_name  # noqa: PLC0415 (an extra)
        from ingot.server.options import ServedModel, ServerOptions  # noqa: PLC0415
        from ingot.server.process import serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the server needs the package {error.name}: pip install 'ingot-llm[server]'"
        ) from None
    engine = EngineOptions(
        threads=threads,
        context=context,
        kv_type=kv_type,
        weights=weights,
        device=device,
        gpu_layers=asked_layers(gpu_layers),
        max_running=parallel,
        max_queue=queue,
        step_timeout=step_timeout,
    )
    served = []
    asked: list[str | None] = [*models] if models else [None]
    for given in asked:
        name, path = _named(given)
        served.append(ServedModel(name=name or model_name(path), path=path, engine=engine))
    options = ServerOptions(
        models=tuple(served),
        host=host,
        port=port,
        api_keys=_keys(api_keys, api_key_file),
        allow_open=allow_open,
        cors_origins=tuple(cors_origins or ()),
        allowed_hosts=tuple(allowed_hosts or ()),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        max_body=max_body,
        max_connections=max_connections,
        max_tokens=max_tokens,
        time_limit=time_limit,
        idle_unload=idle_unload,
        shutdown_grace=shutdown_grace,
        slots_folder=slots_folder,
        slot_save_limit=slot_save_limit,
        slot_save_files=slot_save_files,
    )
    serve(options, notice)


def _named(given: str | None) -> tuple[str | None, Path]:
    """The name of a model, if it was given one, and its file."""
    if given is None or Path(given).exists() or "=" not in given:
        return None, locate(given)
    name, _, model = given.partition("=")
    if not name:
        raise ConfigError(f"{given!r} has no name before the equals sign")
    return name, locate(model)


def _keys(given: list[str] | None, file: Path | None) -> tuple[str, ...]:
    keys = list(given or ())
    if (from_environment := config().api_key) is not None:
        keys.append(from_environment)
    if file is not None:
        lines = read_text(file).splitlines()
        keys += [line.strip() for line in lines if line.strip()]
        if not keys:
            raise ConfigError(f"{file} has no key in it")
    return tuple(keys)
